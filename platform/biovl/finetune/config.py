"""Settings of finetune."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.benchmark.config import BenchmarkConfig, BenchmarkWorkers
from biovl.core.config import REQUIRED, Recipe, Share, is_unfinished
from biovl.core.plugins import Plugin
from biovl.pretrain.config import (
    BatchConfig,
    DataConfig,
    OptimConfig,
    PretrainWorkers,
    StepConfig,
)

VAL, TEST = "val", "test"
"""Names of the two retrieval tasks on the corpus."""


@dataclass(frozen=True, kw_only=True)
class FinetuneOptim:
    """AdamW with lower learning rates for early layers, and cosine decay to 0."""

    name: str = "adamw"
    """The optimizer: ``adamw``, or one of timm, as in pretrain."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of an optimizer of timm."""

    peak_lr: PositiveFloat = 1e-5
    """Learning rate of the last blocks at the end of warm-up."""

    image_lr_factor: PositiveFloat = 1.0
    """Factor on the learning rate of the image tower."""

    text_lr_factor: PositiveFloat = 1.0
    """Factor on the learning rate of the text tower."""

    layer_decay: float | tuple[float, float] = 0.75
    """Factor on the learning rate from each transformer block to the one before it, in (0, 1]; in
    both towers, or in the image and in the text tower."""

    locked: Literal["none", "image", "text", "both"] = "none"
    """Tower that is not trained."""

    image_unlocked_groups: NonNegativeInt | None = None
    """Last groups of layers of a locked image tower that are trained, as in pretrain."""

    text_unlocked_layers: NonNegativeInt | None = None
    """The same for a locked text tower."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which the learning rate rises."""

    weight_decay: NonNegativeFloat = 0.2
    """Decoupled weight decay of matrices."""

    clip_grad_norm: PositiveFloat | None = 1.0
    """Maximum norm of the gradient of all parameters together; None: no clipping."""

    def __post_init__(self) -> None:
        # Checks the settings that it shares with pretrain.
        self.in_pretrain(0)

    def in_pretrain(self, steps: int) -> OptimConfig:
        """Return the settings of pretrain for a run of this number of steps."""
        shared = {item.name: getattr(self, item.name) for item in fields(self)}
        warmup_steps = round(shared.pop("warmup") * steps)
        return OptimConfig(**shared, warmup_steps=warmup_steps)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Settings of finetune: the initial model, the corpus, and tasks whose scores to retain."""

    model: str
    """The model to begin with: a folder in open_clip's layout (of pretrain, BiomedCLIP's release),
    local or ``s3://``; an open_clip name with its weights, ``ViT-B-16/openai``; or
    ``hf-hub:OWNER/NAME``."""

    corpus: str
    """A corpus published by assemble, with train, val and test pairs: it trains on train, selects
    on val, and reports on test."""

    out: str
    """The folder to publish, local or ``s3://``: a model. An interrupted run resumes from it."""

    epochs: PositiveInt = 10
    """Passes over the train split. The best one on val is used."""
    batch: BatchConfig = field(default_factory=lambda: BatchConfig(pairs=64))
    """Batch size."""
    optim: FinetuneOptim = field(default_factory=FinetuneOptim)
    """Optimizer and schedule."""
    step: StepConfig = field(default_factory=StepConfig)
    """Computation of a step, as in pretrain."""
    data: DataConfig = field(default_factory=DataConfig)
    """Reading and augmentation of pairs, as in pretrain."""

    alphas: tuple[Share, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Interpolations between the given model (0) and the tuned one (1) to select from (WiSE-FT).
    The smallest of them is published that has ``gain_share`` of the largest gain on val."""

    gain_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of the largest gain on val that the published model must have: a smaller share
    stays nearer to the given model."""

    retained: Mapping[str, Plugin] = field(default_factory=dict)
    """Tasks that the model must still do, by name, with their settings as in benchmark:
    ``retained.xray=zero_shot(data=DIR)``. Models that lose more than ``retained_loss`` on one of
    them are not selected."""

    retained_loss: NonNegativeFloat = 0.01
    """Maximum loss of the first score of a retained task, absolute: 0.01 is one percentage
    point."""

    tasks: Mapping[str, Plugin] = field(default_factory=dict)
    """Further tasks to report before and after; they do not affect the selection."""

    resamples: PositiveInt = 1_000
    """Bootstrap resamples of the confidence intervals."""
    workers: PretrainWorkers = field(default_factory=PretrainWorkers)
    """Number and resources of the training workers. The benchmark uses one with the same
    resources."""
    deterministic: bool = False
    """Whether to use deterministic algorithms only; slower on GPUs."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the order of the pairs and of all augmentation."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if not {0.0, 1.0} <= set(self.alphas):
            raise ValueError(f"alphas must include 0 and 1, got {self.alphas}")
        names = [VAL, TEST, *self.retained, *self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"tasks and retained: {', '.join(twice)} occurs twice ({VAL} and {TEST} are the "
                "splits of the corpus); give each task a different name"
            )
        # The benchmarks begin after training; what they would refuse is refused before it.
        BenchmarkConfig(
            out=self.out,
            model=self.model,
            tasks={**self.retained, **self.tasks, TEST: Plugin("retrieval")},
            resamples=self.resamples,
            workers=BenchmarkWorkers(cpus=self.workers.cpus, gpus=self.workers.gpus),
        )


# Learning rates and decay by layer are those of the literature for CLIP towers: 1e-5 for both
# towers with CLIP's own loss (FLYP, Goyal et al. 2022, arXiv:2212.00638), and a decay of 0.6 to 0.8
# by layer (BEiT, arXiv:2106.08254; Dong et al. 2022, arXiv:2212.06138).
def default() -> FinetuneConfig:
    """Both towers, low rates for early layers: 2,000 to 50,000 pairs (needs model, corpus, out)."""
    return FinetuneConfig(model=REQUIRED, corpus=REQUIRED, out=REQUIRED)


def locked_text() -> FinetuneConfig:
    """Image tower only, with the text tower locked: 500 to 5,000 pairs, also on CPUs."""
    optim = FinetuneOptim(peak_lr=3e-5, locked="text")
    return FinetuneConfig(model=REQUIRED, corpus=REQUIRED, out=REQUIRED, optim=optim)


def tiny() -> FinetuneConfig:
    """For the small model of pretrain's recipe tiny: some seconds on a laptop."""
    return FinetuneConfig(
        model=REQUIRED,
        corpus=REQUIRED,
        out=REQUIRED,
        batch=BatchConfig(pairs=32),
        optim=FinetuneOptim(peak_lr=5e-4, layer_decay=0.9),
        data=DataConfig(crop_scale=(0.4, 1.0)),
        workers=PretrainWorkers(count=0),
    )


RECIPES: dict[str, Recipe[FinetuneConfig]] = {
    "default": default,
    "locked_text": locked_text,
    "tiny": tiny,
}
