"""Settings of publish."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.filesystems import split_query
from biovl.core.records import LicenseGroup

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


_REVISION = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class HubData:
    """The data set on the hub with the data of a task, and the equivalent task there."""

    id: str
    """Data set on the hub, ``USER/NAME``."""
    revision: str = ""
    """Commit of the data set that was evaluated, 40 hexadecimal digits; empty: unknown."""
    task_id: str = ""
    """Task in the ``eval.yaml`` of the data set; empty: none, so that the scores are in the model
    card only. Its metric and protocol must be those of ``score``."""
    score: str = ""
    """Score of the report that the hub's task measures; empty: the first one."""

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.id):
            raise ValueError(f"id must be USER/NAME, got {self.id!r}")
        if self.revision and not _REVISION.fullmatch(self.revision):
            raise ValueError(f"revision must be a commit of 40 digits, got {self.revision!r}")


@dataclass(frozen=True, kw_only=True)
class PublishConfig:
    """Settings of publish: a folder, a repository of the Hugging Face hub, and the rows to upload.

    The token is that of the hub client: ``HF_TOKEN``, or the one stored by ``hf auth login``.
    """

    folder: str
    """A published folder, local or ``s3://``: figures, panels, columns, concepts, corpus, model or
    report. It is not modified."""

    repo: str = ""
    """Repository on the hub, ``USER/NAME``. A model becomes a model repository, everything else a
    dataset repository. Empty: nothing is sent; the files with the scores of ``reports`` are written
    to ``out``."""

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

    reports: tuple[str, ...] = ()
    """Reports of benchmark whose scores of this model go with it: to the metadata of its card, and
    to ``.eval_results/``. Only scores on published benchmarks, and on the data of ``datasets``."""

    datasets: Mapping[str, HubData] = field(default_factory=dict)
    """Data sets of the hub by the name of the task in the report, ``{"retrieval": {"id":
    "USER/NAME"}}``. Scores on data without a public name are exported only if listed here."""

    out: str = ""
    """Folder to which the rows of ``license_groups`` are published before the upload, local or
    ``s3://``. Empty: ``folder`` with ``-public`` appended. Without ``repo``: where the files with
    scores are written."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if self.repo and not _REPO.fullmatch(self.repo):
            raise ValueError(f"repo must be USER/NAME, got {self.repo!r}")
        if not self.repo and not (self.reports and self.out):
            raise ValueError("set repo, or reports and out to write the files with scores")
        if self.datasets and not self.reports:
            raise ValueError("datasets are those of reports: give these, too")
        if self.repo and self.out and not self.license_groups:
            raise ValueError("out is where the rows of license_groups go: give these, too")
        if self.license_groups and not self.out:
            path, query = split_query(self.folder)
            object.__setattr__(self, "out", f"{path.rstrip('/')}-public{query}")


def hub() -> PublishConfig:
    """A repository on the Hugging Face hub, private by default (needs folder, repo)."""
    return PublishConfig(folder=REQUIRED, repo=REQUIRED)


def scores() -> PublishConfig:
    """Files with a model's scores, written to out and not uploaded (needs folder, reports)."""
    return PublishConfig(folder=REQUIRED, reports=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[PublishConfig]] = {"hub": hub, "scores": scores}
