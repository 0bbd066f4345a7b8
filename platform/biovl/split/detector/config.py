"""Settings of a panel detector and of its training."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.core.config import REQUIRED, Recipe, Share
from biovl.core.workers import WorkerConfig
from biovl.sample.compound.strata import STRATA

KIND = "detector"
"""Kind of the published folder, in its manifest."""

BUILTIN = Path(__file__).with_name("builtin")
"""Published folder of the detector that is part of the package."""

STRIDE = 8
"""Input pixels per cell of the detector's output."""

_STAGES = 5


@dataclass(frozen=True, kw_only=True)
class Design:
    """Architecture of the network, as stored in the published folder."""

    widths: tuple[PositiveInt, ...] = (16, 32, 48, 96, 128)
    """Channels of the backbone's stages; each halves the resolution, so there are five to a stride
    of 32."""

    depths: tuple[NonNegativeInt, ...] = (0, 0, 1, 2, 2)
    """Residual blocks of each stage."""

    channels: PositiveInt = 48
    """Channels of the features at stride 8 that the heads see."""

    size_px: Annotated[int, Field(ge=64, multiple_of=32)] = 256
    """Side of the square input in pixels, a multiple of 32 from 64; figures are resized to fit."""

    def __post_init__(self) -> None:
        if len(self.widths) != _STAGES or len(self.depths) != _STAGES:
            raise ValueError(f"widths and depths must have {_STAGES} numbers")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Synthetic training figures: contents from a pool, composed differently in each figure."""

    strata: tuple[str, ...] = STRATA
    """Kinds of figures (docs/compound.md), in equal numbers. Validation uses the same."""

    varied: Share = 0.5
    """Share of training figures with random settings instead of those of a stratum."""

    photographs: PositiveInt = 500
    """Photographs in the pool; drawing 100 takes two seconds."""

    plots: PositiveInt = 800
    """Plots and diagrams in the pool; drawing 100 takes half a second."""

    figures: PositiveInt = 512
    """Figures per round. Those of the next round are drawn during the current one."""

    steps: PositiveInt = 256
    """Training steps per round. Each use of a figure has its own scale, position and colours."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.strata) - set(STRATA))
        if unknown or not self.strata:
            raise ValueError(f"strata must be some of {', '.join(STRATA)}, got {self.strata}")


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """AdamW with a warm-up, a constant rate and a linear decay to zero.

    Before the decay, a run does not depend on the total number of steps, so it can be extended.
    """

    steps: PositiveInt = 20_000
    """Number of training steps in total."""
    batch: PositiveInt = 16
    """Number of figures per step."""
    peak_lr: PositiveFloat = 2e-3
    """Learning rate between warm-up and decay."""
    warmup_steps: int = 200
    """Steps of linear warm-up."""
    decay_steps: int = 4000
    """Steps of linear decay at the end."""
    weight_decay: float = 0.05
    """Decoupled weight decay of AdamW."""
    clip_norm: float = 5.0
    """Maximum norm of the gradients."""
    average_steps: int = 200
    """Steps over which the published weights are a moving average."""


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

    seed: int = 0
    """Seed of the initial weights and of the training figures."""

    validate_every: PositiveInt = 2000
    """Steps between validations; the last step is always validated."""

    validation_figures: PositiveInt = 10
    """Validation figures per stratum, drawn from seeds that training does not use."""

    save_every: PositiveInt = 500
    """Steps between checkpoints, from which an interrupted run resumes."""

    workers: WorkerConfig = field(default_factory=WorkerConfig)
    """Resources of the training process. GPUs, and CPUs with units for it, train in bfloat16.
    On CPUs, results are bit-identical only for equal ``cpus`` and processors."""


def default() -> DetectorConfig:
    """The detector that biovl includes: an hour on two CPUs (needs out)."""
    return DetectorConfig(
        out=REQUIRED,
        design=Design(size_px=192),
        optim=Optimisation(steps=8000, decay_steps=2000),
        validate_every=1000,
        validation_figures=6,
    )


def large() -> DetectorConfig:
    """At 256 px, for 20,000 steps: hours on CPUs, minutes on a GPU (needs out)."""
    return DetectorConfig(out=REQUIRED)


def tiny() -> DetectorConfig:
    """A quick test on the CPU, about a minute; the detector is too small for use (needs out)."""
    return DetectorConfig(
        out=REQUIRED,
        design=Design(widths=(8, 12, 16, 24, 32), depths=(0, 0, 1, 1, 1), channels=16, size_px=128),
        drawing=Drawing(
            strata=("plain", "no_gutters"), varied=0, photographs=40, plots=60, figures=64, steps=60
        ),
        optim=Optimisation(steps=60, batch=8, warmup_steps=10, decay_steps=20, average_steps=10),
        validation_figures=8,
        validate_every=30,
        save_every=20,
    )


RECIPES: dict[str, Recipe[DetectorConfig]] = {"default": default, "large": large, "tiny": tiny}
