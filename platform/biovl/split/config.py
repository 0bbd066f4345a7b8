"""The settings of split."""

from dataclasses import dataclass, field

from biovl.core.config import REQUIRED, Recipe
from biovl.split.rows import Derivatives, Splitting


@dataclass(frozen=True, kw_only=True)
class SplitWorkers:
    """Resources of one task; without a detector, one CPU is enough."""

    cpus: int = 1
    """Threads of a detector on CPUs."""

    gpus: float = 0.0
    """GPUs of a detector: 0.25 lets four tasks share a GPU."""

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0:
            raise ValueError("workers.cpus must be at least 1 and workers.gpus not negative")


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Which figures are split, and how."""

    figures: str
    """Published figures of harvest, local or ``s3://``."""

    out: str
    """Output folder, local or ``s3://``."""

    confidence: float = 0.5
    """Minimum confidence of a split, 0..1; other figures stay whole. A higher value splits fewer
    figures, with fewer errors."""

    derivatives: Derivatives = "all"
    """``allowed`` leaves figures whole if their licence does not allow changes, as cropping a panel
    arguably is one; the rule ``derivatives_allowed`` of assemble drops them."""

    jpeg_quality: int = 95
    """Quality of panels cropped from a JPEG, without chroma subsampling; others become PNG."""

    detector: str = ""
    """A detector published by train_detector, local or ``s3://``, whose boxes are used next to
    gutters and labels; empty: none."""

    workers: SplitWorkers = field(default_factory=SplitWorkers)

    may_be_empty: bool = False
    """Whether to publish a result without usable rows; otherwise this is an error."""

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence must be in 0..1, got {self.confidence}")
        if not 1 <= self.jpeg_quality <= 95:
            raise ValueError(f"jpeg_quality must be in 1..95, got {self.jpeg_quality}")

    def splitting(self) -> Splitting:
        """Return the settings that apply to each figure."""
        return Splitting(
            confidence=self.confidence,
            derivatives=self.derivatives,
            jpeg_quality=self.jpeg_quality,
        )


def default() -> SplitConfig:
    """Compound figures into panels where labels, boxes and caption agree (needs figures, out)."""
    return SplitConfig(figures=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[SplitConfig]] = {"default": default}
