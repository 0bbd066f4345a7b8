"""Settings of publish."""

import re
from dataclasses import dataclass

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.records import LicenseGroup

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True, kw_only=True)
class PublishConfig:
    """Settings of publish: a folder, a repository of the Hugging Face hub, and the rows to upload.

    The token is that of the hub client: ``HF_TOKEN``, or the one stored by ``hf auth login``.
    """

    folder: str
    """A published folder, local or ``s3://``: figures, panels, columns, concepts, corpus, model or
    report. It is not modified."""

    repo: str
    """Repository on the hub, ``USER/NAME``. A model becomes a model repository, everything else a
    dataset repository."""

    public: bool = False
    """Whether a new repository is public. The visibility of an existing repository does not change;
    if it is public, the checks for public repositories apply."""

    license_groups: tuple[LicenseGroup, ...] = ()
    """Upload only the rows whose licence is in one of these groups: ``["commercial"]``, optionally
    with ``noncommercial`` and ``other``. For a corpus, figures or panels. Empty: upload the folder
    as it is."""

    third_party: bool = False
    """Whether to include figures that credit a third party, to which the article's licence may not
    apply."""

    out: str = ""
    """Folder to which the rows of ``license_groups`` are published before the upload, local or
    ``s3://``. Empty: ``folder`` with ``-public`` appended."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if not _REPO.fullmatch(self.repo):
            raise ValueError(f"repo must be USER/NAME, got {self.repo!r}")
        if self.out and not self.license_groups:
            raise ValueError("out is where the rows of license_groups go: give these, too")
        if self.license_groups and not self.out:
            path, mark, query = self.folder.partition("?")
            object.__setattr__(self, "out", f"{path.rstrip('/')}-public{mark}{query}")


def hub() -> PublishConfig:
    """A repository on the Hugging Face hub, private by default (needs folder, repo)."""
    return PublishConfig(folder=REQUIRED, repo=REQUIRED)


RECIPES: dict[str, Recipe[PublishConfig]] = {"hub": hub}
