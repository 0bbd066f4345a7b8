"""Settings of figure_retrieval."""

import contextlib
import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.records import LicenseGroup

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, kw_only=True)
class FigureRetrievalConfig:
    """Settings of figure_retrieval: articles, cut-off date, and training data to exclude."""

    figures: str
    """Figures published by harvest, local or ``s3://``."""
    out: str
    """Where the task is published, local or ``s3://``."""
    after: str
    """Cut-off date, ``2025-06-01``: articles published on that day or later are used. It should be
    later than the training data of the models to evaluate."""
    training: tuple[str, ...] = ()
    """What models were trained on: figures of harvest, corpora of assemble, or indexes. Their
    articles, titles and images are left out, also if only the look of an image agrees (an index has
    hashes of files only)."""
    articles: NonNegativeInt = 1_000
    """Number of articles to draw, one figure of each; 0: all."""
    license_groups: Annotated[tuple[LicenseGroup, ...], Field(min_length=1)] = ("commercial",)
    """Licence groups of articles and figures; all must permit redistribution and changes."""
    min_words: PositiveInt = 8
    """Least number of words of a query."""
    seed: int = 0
    """Seed of the draw."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if not _is_day(self.after):
            raise ValueError(f"after must be a day such as 2025-06-01, got {self.after!r}")


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    with contextlib.suppress(ValueError):
        return bool(date.fromisoformat(text))
    return False


def articles() -> FigureRetrievalConfig:
    """Caption to figure and citing sentence to figure (needs figures, after, out)."""
    return FigureRetrievalConfig(figures=REQUIRED, after=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[FigureRetrievalConfig]] = {"articles": articles}
