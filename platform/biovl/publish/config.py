"""What publish is asked for."""

import re
from dataclasses import dataclass

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.records import LicenseGroup

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


@dataclass(frozen=True, kw_only=True)
class PublishConfig:
    """A folder, and the repository it goes to.

    The token is the hub client's own: ``HF_TOKEN``, or what ``hf auth login`` has kept.
    """

    folder: str
    """A published folder, local or ``s3://``: figures, panels, columns, concepts, corpus, model or
    report. It is only read."""

    repo: str
    """``USER/NAME`` at the hub. A model becomes a model repository, all else a dataset."""

    public: bool = False
    """Whether anybody may read the repository that is made. One that is there stays as it is, and
    one that is public counts as public here."""

    license_groups: tuple[LicenseGroup, ...] = ()
    """Take only the rows of these groups that may be given on: ["commercial"], or with
    noncommercial and other. Of a corpus, figures or panels. Empty: all rows, or none."""

    third_party: bool = False
    """Whether figures that credit somebody else go, too, whom the article's licence may not
    bind."""

    out: str = ""
    """Where the rows of ``license_groups`` are published before they go, a folder of the same
    kind. Empty: beside ``folder``, with ``-public`` at its end."""

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
    """A repository at the Hugging Face hub, private unless told otherwise (needs folder, repo)."""
    return PublishConfig(folder=REQUIRED, repo=REQUIRED)


RECIPES: dict[str, Recipe[PublishConfig]] = {"hub": hub}
