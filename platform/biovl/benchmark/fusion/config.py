"""Settings of visual question answering: the fusion module between the towers, and its training."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from biovl.core.config import Share


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The fusion module between the towers; the defaults are METER's."""

    layers: PositiveInt = 6
    """Layers of each stream."""
    width: int = 768
    """Hidden size, a multiple of ``heads``."""
    heads: PositiveInt = 12
    """Number of attention heads, a divisor of ``width``."""
    mlp_ratio: PositiveInt = 4
    """Width of the feed-forward layers, as a multiple of ``width``."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout probability."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads, {self.heads}")


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """AdamW as in METER: linear warm-up, then linear decay to zero."""

    lr: PositiveFloat = 5e-6
    """Peak learning rate of the towers."""
    fusion_times: PositiveFloat = 5.0
    """Learning rate of the fusion module, as a multiple of ``lr``."""
    head_times: PositiveFloat = 50.0
    """Learning rate of the answer classifier, as a multiple of ``lr``."""
    weight_decay: float = 0.01
    """Decoupled weight decay of matrices; biases and norms are not decayed."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Coefficients of the running averages of the gradient and its square."""
    eps: float = 1e-8
    """Term added to the denominator for numerical stability."""
    warmup_share: Share = 0.1
    """Length of the warm-up, as a share of all steps."""


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """Training of the fusion module. All settings but the last two affect the scores."""

    towers: Literal["frozen", "tuned"] = "tuned"
    """Whether the model's own towers are trained as well (``tuned``, as in METER) or not
    (``frozen``)."""
    epochs: PositiveInt = 50
    """Training epochs. 50, and a batch size of 64, are M3AE's for VQA-RAD (arXiv:2209.07098), with
    METER's learning rates; METER's 10 epochs are for the 440,000 questions of VQAv2."""
    batch: PositiveInt = 64
    """Questions per step, over all workers."""
    least_answers: PositiveInt = 1
    """Minimum occurrences of an answer in training for it to become a class; METER has 9 for
    VQAv2."""
    seed: int = 0
    """Seed of the initial weights, the order of the questions and dropout."""
    fusion: FusionConfig = field(default_factory=FusionConfig)
    """Size of the fusion module."""
    adam: AdamConfig = field(default_factory=AdamConfig)
    """Settings of the optimizer."""
    held_bytes: int = 2 << 30
    """Memory per worker, in bytes, to cache the outputs of frozen towers, or preprocessed images,
    between epochs. If they need more, nothing is cached and each epoch computes them again."""
    save_every_s: float = 60.0
    """Minimum training time between checkpoints, in seconds; they are written at the end of an
    epoch."""
