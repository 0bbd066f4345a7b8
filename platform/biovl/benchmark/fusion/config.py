"""How a model learns to answer: the module between its towers, and the training."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class FusionConfig:
    """The module between the towers; what is set by default is METER's."""

    layers: int = 6
    """Of each stream."""
    width: int = 768
    heads: int = 12
    mlp_ratio: int = 4
    """Width of a feed-forward layer, in widths of the module."""
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.layers < 1 or self.heads < 1 or self.mlp_ratio < 1:
            raise ValueError("layers, heads and mlp_ratio must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads, {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """AdamW as METER uses it: linear warm-up, then linear decay to nothing."""

    lr: float = 5e-6
    """Of the towers, at its height."""
    fusion_times: float = 5.0
    """The fusion module learns so many times faster."""
    head_times: float = 50.0
    """The classifier of answers learns so many times faster."""
    weight_decay: float = 0.01
    """Of matrices; biases and norms are not decayed."""
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    warmup_share: float = 0.1
    """Share of all steps."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.fusion_times <= 0 or self.head_times <= 0:
            raise ValueError("lr, fusion_times and head_times must be positive")
        if not 0 <= self.warmup_share <= 1:
            raise ValueError(f"warmup_share must be in [0, 1], got {self.warmup_share}")


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """The training; all but the last two settings decide the scores."""

    towers: Literal["frozen", "tuned"] = "tuned"
    """Whether the model's own towers learn, too, as in METER."""
    epochs: int = 50
    """METER's 10 are for the 440,000 questions of VQAv2; 50, and batches of 64, are M3AE's
    (arXiv:2209.07098) for VQA-RAD, which has METER's rates, too."""
    batch: int = 64
    """Questions of a step, over all workers."""
    least_answers: int = 1
    """Answers given less often in training are no class; METER has 9 for VQAv2."""
    seed: int = 0
    fusion: FusionConfig = field(default_factory=FusionConfig)
    adam: AdamConfig = field(default_factory=AdamConfig)
    held_bytes: int = 2 << 30
    """Of what frozen towers say, or of prepared pixels, that each worker may hold between epochs.
    What does not fit is computed or prepared again in each."""
    save_every_s: float = 60.0
    """Seconds of training between checkpoints, which are kept at the end of an epoch."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or self.least_answers < 1:
            raise ValueError("epochs, batch and least_answers must be at least 1")
