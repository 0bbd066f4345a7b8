"""Settings of split."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from biovl.core.config import REQUIRED, Recipe, Share
from biovl.core.workers import WorkerConfig

Derivatives = Literal["all", "allowed"]

NO_DETECTOR = "none"
"""Setting ``detector`` of a run without one."""


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """Settings that apply to every figure."""

    confidence: float
    """Minimum confidence for splitting a figure, 0..1; other figures stay whole."""
    derivatives: Derivatives
    """``allowed``: figures whose licence does not allow changes stay whole."""
    jpeg_quality: int
    """Quality of panels cropped from a JPEG, on Pillow's scale, without chroma subsampling."""


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Settings of split: figures, confidence, and format of the panels."""

    figures: str
    """A folder of figures published by harvest, local or ``s3://``."""

    out: str
    """The folder to publish, local or ``s3://``."""

    confidence: Share = 0.7
    """Minimum probability that all panels, labels and captions of a figure are right; other
    figures stay whole. A higher value splits fewer figures, with fewer errors."""

    derivatives: Derivatives = "all"
    """``all`` splits figures of any licence. ``allowed`` leaves a figure whole if its licence does
    not permit derivatives, since cropping a panel may be one; the rule ``derivatives_allowed`` of
    assemble drops such panels later."""

    jpeg_quality: Annotated[int, Field(ge=1, le=95)] = 95
    """JPEG quality of panels that are cropped from a JPEG, on Pillow's scale, without chroma
    subsampling. Panels of other formats are stored as PNG."""

    detector: str = ""
    """A detector, whose boxes are proposed in addition to those from gutters and labels: a folder
    published by train_detector, local or ``s3://``. Empty: the one that biovl includes; ``none``:
    no detector."""

    workers: WorkerConfig = field(default_factory=WorkerConfig)
    """Resources of the task for each part."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""

    def splitting(self) -> Splitting:
        """Return the settings needed to split one figure."""
        return Splitting(
            confidence=self.confidence,
            derivatives=self.derivatives,
            jpeg_quality=self.jpeg_quality,
        )


def default() -> SplitConfig:
    """Panels of compound figures whose labels, boxes and caption agree (needs figures, out)."""
    return SplitConfig(figures=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[SplitConfig]] = {"default": default}
