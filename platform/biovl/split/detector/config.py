"""Settings of a panel detector and of its training."""

from dataclasses import dataclass, field

from biovl.core.config import REQUIRED, Recipe
from biovl.core.workers import WorkerConfig
from biovl.sample.compound.strata import STRATA

KIND = "detector"
"""Kind of the published folder, in its manifest."""

STRIDE = 8
"""Input pixels per cell of the detector's output."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """Architecture of the network, as stored in the published folder."""

    backbone: str = "mobilenetv4_conv_small"
    """A timm model with features at strides 8, 16 and 32, such as ``convnext_atto`` or
    ``resnet18``."""

    channels: int = 64
    """Feature channels of the detection head, a multiple of 8."""

    size_px: int = 512
    """Side of the square input in pixels, a multiple of 32 from 64; figures are resized to fit."""

    def __post_init__(self) -> None:
        if self.size_px < 64 or self.size_px % 32:
            raise ValueError(f"size_px must be a multiple of 32 from 64, got {self.size_px}")
        if self.channels < 8 or self.channels % 8:
            raise ValueError(f"channels must be a multiple of 8, got {self.channels}")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Synthetic training figures. Drawing takes 0.1 s per figure, so each is used several times."""

    strata: tuple[str, ...] = STRATA
    """Kinds of figures (docs/compound.md), in equal numbers."""

    figures: int = 2048
    """Figures per round. Those of the next round are drawn during the current one."""

    steps: int = 256
    """Training steps per round. Each use of a figure has its own random rotation, scale and
    colours."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.strata) - set(STRATA))
        if unknown or not self.strata:
            raise ValueError(f"strata must be some of {', '.join(STRATA)}, got {self.strata}")
        if min(self.figures, self.steps) < 1:
            raise ValueError("figures and steps must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """AdamW with linear warm-up and cosine decay."""

    steps: int = 20_000
    """Number of training steps in total."""
    batch: int = 32
    """Number of figures per step."""
    peak_lr: float = 1e-3
    """Learning rate at the end of warm-up."""
    warmup_steps: int = 500
    """Steps of linear warm-up."""
    weight_decay: float = 0.05
    """Decoupled weight decay of AdamW."""
    clip_norm: float = 5.0
    """Maximum norm of the gradients."""

    def __post_init__(self) -> None:
        if min(self.steps, self.batch) < 1 or self.peak_lr <= 0:
            raise ValueError("steps, batch and peak_lr must be above 0")


@dataclass(frozen=True, kw_only=True)
class DetectorConfig:
    """Settings of train_detector. There is no input folder: the training figures are synthetic."""

    out: str
    """The folder to publish, local or ``s3://``."""

    design: Design = field(default_factory=Design)
    """Architecture of the network."""
    drawing: Drawing = field(default_factory=Drawing)
    """Synthetic figures to train on."""
    optim: Optimisation = field(default_factory=Optimisation)
    """Optimizer and schedule."""

    pretrained: bool = False
    """Whether to initialise the backbone with timm's weights from the Hugging Face hub; otherwise
    it is trained from scratch."""

    seed: int = 0
    """Seed of the initial weights and of the training figures."""

    validate_every: int = 2000
    """Steps between validations; the last step is always validated."""

    validation_figures: int = 10
    """Validation figures per stratum, drawn from seeds that training does not use."""

    save_every: int = 500
    """Steps between checkpoints, from which an interrupted run resumes."""

    workers: WorkerConfig = field(default_factory=WorkerConfig)
    """Resources of the training process. A GPU trains in bf16. On CPUs, results are bit-identical
    only for equal ``cpus``."""

    def __post_init__(self) -> None:
        if min(self.validate_every, self.validation_figures, self.save_every) < 1:
            raise ValueError("validate_every, validation_figures and save_every must be at least 1")


def default() -> DetectorConfig:
    """A panel detector at 512 px: hours on one GPU, with CPUs to draw figures (needs out)."""
    return DetectorConfig(out=REQUIRED)


def tiny() -> DetectorConfig:
    """A quick test on the CPU, about a minute; the detector is too small for use (needs out)."""
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
