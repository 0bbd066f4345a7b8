"""What a detector is, and how it is trained."""

from dataclasses import dataclass, field

from biovl.core.config import REQUIRED, Recipe
from biovl.sample.compound.figures import STRATA

KIND = "detector"
"""Of the folder that is published."""

STRIDE = 8
"""Pixels of the input for one cell of what the detector gives."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """What must be known to build the network again."""

    backbone: str = "mobilenetv4_conv_small"
    """A model of timm that gives features at strides 8, 16 and 32: convnext_atto, resnet18 …"""

    channels: int = 64
    """Of the features that the head sees."""

    size_px: int = 512
    """Side of the square that figures are fitted into."""

    def __post_init__(self) -> None:
        if self.size_px < 64 or self.size_px % 32:
            raise ValueError(f"size_px must be a multiple of 32 from 64, got {self.size_px}")
        if self.channels < 8 or self.channels % 8:
            raise ValueError(f"channels must be a multiple of 8, got {self.channels}")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Which figures are drawn. Drawing takes 0.1 s a figure, so each is shown more than once."""

    strata: tuple[str, ...] = STRATA
    """Kinds of figures (docs/compound.md), as many of each."""

    figures: int = 2048
    """Drawn for one round; the next are drawn meanwhile."""

    steps: int = 256
    """Of training on the figures of one round, each time turned, scaled and coloured otherwise."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.strata) - set(STRATA))
        if unknown or not self.strata:
            raise ValueError(f"strata must be some of {', '.join(STRATA)}, got {self.strata}")
        if min(self.figures, self.steps) < 1:
            raise ValueError("figures and steps must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """AdamW, a warm-up and a cosine."""

    steps: int = 20_000
    batch: int = 32
    """Figures in a step."""
    peak_lr: float = 1e-3
    warmup_steps: int = 500
    weight_decay: float = 0.05
    clip_norm: float = 5.0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch) < 1 or self.peak_lr <= 0:
            raise ValueError("steps, batch and peak_lr must be above 0")


@dataclass(frozen=True, kw_only=True)
class DetectorWorkers:
    """What the training process takes, and what one copy of a detector takes."""

    cpus: int = 1
    """Threads of PyTorch. On CPUs, equal bytes come of equal numbers of them."""

    gpus: float = 0.0
    """1 to compute on a GPU, in bf16 while training."""

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0:
            raise ValueError("workers.cpus must be at least 1 and workers.gpus not negative")


@dataclass(frozen=True, kw_only=True)
class DetectorConfig:
    """How to train a detector. It reads nothing: its figures are drawn."""

    out: str
    """The folder to publish, local or ``s3://``."""

    design: Design = field(default_factory=Design)
    drawing: Drawing = field(default_factory=Drawing)
    optim: Optimisation = field(default_factory=Optimisation)

    pretrained: bool = False
    """Begin with timm's weights of the backbone, from the Hugging Face hub."""

    seed: int = 0

    validate_every: int = 2000
    """Steps; the end is always scored."""

    validation_figures: int = 10
    """Of each stratum, drawn from seeds that training does not use."""

    save_every: int = 500
    """Steps between checkpoints, which a killed run goes on from."""

    workers: DetectorWorkers = field(default_factory=DetectorWorkers)

    def __post_init__(self) -> None:
        if min(self.validate_every, self.validation_figures, self.save_every) < 1:
            raise ValueError("validate_every, validation_figures and save_every must be at least 1")


def default() -> DetectorConfig:
    """A detector of panels at 512 px; hours on one GPU and as many CPUs as can draw (needs out)."""
    return DetectorConfig(out=REQUIRED)


def tiny() -> DetectorConfig:
    """A detector too small to be of use, in a minute on a CPU: to see that it works (needs out)."""
    return DetectorConfig(
        out=REQUIRED,
        design=Design(backbone="mobilenetv4_conv_small_050", channels=16, size_px=128),
        drawing=Drawing(strata=("plain", "no_gutters"), figures=64, steps=60),
        optim=Optimisation(steps=60, batch=8, warmup_steps=10),
        validation_figures=8,
        validate_every=30,
        save_every=20,
    )


RECIPES: dict[str, Recipe[DetectorConfig]] = {"default": default, "tiny": tiny}
