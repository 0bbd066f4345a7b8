"""Settings of pretrain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.core.config import REQUIRED, Recipe, Share
from biovl.core.plugins import Plugin

TEXT_FIELDS = (
    *("text", "caption", "mentions", "long_caption"),
    *("context_caption", "expanded_caption"),
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Reading of pairs: text, image crop, order, and handling of errors."""

    text: Mapping[str, float] = field(default_factory=lambda: {"text": 1.0})
    """Texts of a pair to train on, each with its probability; they sum to 1: ``text`` (selected by
    ``text`` of assemble), ``caption``, ``mentions`` (one at random), or a column of annotate that
    assemble stored: ``long_caption``, ``context_caption`` or ``expanded_caption``. A pair without
    the drawn text uses its ``text``."""

    crop_scale: tuple[float, float] = (0.9, 1.0)
    """RandomResizedCrop: range of the cropped share of the image's area, in (0, 1]. The default is
    open_clip's."""

    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """RandomResizedCrop: range of the crop's aspect ratio, width / height, before resizing. The
    default is open_clip's."""

    run_pairs: PositiveInt = 8
    """Consecutive pairs of a shard that are read with one request and shuffled as one block. 1
    shuffles single pairs, for small corpora on local disks."""

    unreadable: Literal["stop", "replace"] = "stop"
    """Reaction to a shard that cannot be read: ``stop`` ends the run, ``replace`` trains on other
    pairs instead. Both report the shard."""

    small_images: Literal["stop", "enlarge"] = "stop"
    """Reaction to stored images smaller than the model's input: ``stop`` ends the job
    before training, ``enlarge`` upsamples them."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.text) - set(TEXT_FIELDS))
        if unknown or not self.text:
            raise ValueError(f"text: choose from {', '.join(TEXT_FIELDS)}, got {unknown}")
        if min(self.text.values()) < 0 or abs(sum(self.text.values()) - 1) > 1e-6:
            raise ValueError(f"text: probabilities must sum to 1, got {dict(self.text)}")
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise ValueError(f"crop_scale must be in (0, 1], got {self.crop_scale}")
        low, high = self.crop_ratio
        if not 0 < low <= high:
            raise ValueError(f"crop_ratio must be 0 < low <= high, got {self.crop_ratio}")


_MOST_REPEATS = 1_000
"""An epoch is a list of its draws in memory."""


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """Share of each of several corpora in an epoch. By default every pair is drawn once."""

    factors: tuple[Annotated[float, Field(gt=0, le=_MOST_REPEATS)], ...] = ()
    """A factor for each corpus, as in open_clip's ``--train-data-upsampling-factors``: how often an
    epoch draws each of its pairs. 2 draws all twice; 0.5 draws half of them, and the other half
    in the next epoch. Empty: 1 for all. For more draws, train more epochs."""

    shares: tuple[PositiveFloat, ...] = ()
    """Instead of factors: the share of each corpus in the draws of an epoch, which has as many
    draws as the corpora have pairs. They sum to 1."""

    def __post_init__(self) -> None:
        if self.factors and self.shares:
            raise ValueError("factors and shares exclude each other: set one of them")
        if self.shares and abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(f"shares must sum to 1, got {list(self.shares)}")


_Momentum = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and learning rate schedule. Defaults are BiomedCLIP's (supplementary table 9)."""

    name: str = "adamw"
    """``adamw``, or any optimizer of timm by its name there: ``timm/lion``, ``timm/adafactorbv``,
    ``timm/nadamw``, ``timm/muon`` …"""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of an optimizer of timm: ``{"betas": [0.95, 0.98]}``. Others have timm's
    defaults."""

    peak_lr: PositiveFloat = 5e-4
    """Learning rate at the end of warm-up."""

    warmup_steps: NonNegativeInt = 2_000
    """Length of the linear warm-up, in steps of the first batch size. It is counted in pairs: a
    larger ``batch.later`` does not prolong it."""

    schedule: Literal["cosine", "constant", "cooldown"] = "cosine"
    """Learning rate after warm-up: ``cosine`` decays it to ``final_lr`` at the last pair,
    ``constant`` leaves it at ``peak_lr``, ``cooldown`` leaves it there until the last
    ``cooldown_epochs``, and then decays it to ``final_lr`` (open_clip's ``const-cooldown``)."""

    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end of ``cosine`` and ``cooldown``."""

    cooldown_epochs: PositiveInt | None = None
    """Epochs of the decay of ``cooldown``."""

    cooldown_power: PositiveFloat = 1.0
    """Exponent of the decay of ``cooldown``; 1: linear."""

    betas: tuple[_Momentum, _Momentum] = (0.9, 0.98)
    """Coefficients of the running averages of the gradient and its square. For ``adamw`` only."""
    eps: PositiveFloat = 1e-6
    """Term added to the denominator for numerical stability. For ``adamw`` only."""
    weight_decay: NonNegativeFloat = 0.2
    """Decoupled weight decay of matrices; biases, norms and ``logit_scale`` are not decayed."""

    decay_embeddings: bool = True
    """Whether position and class embeddings are decayed like matrices, as in open_clip 3.3."""

    clip_grad_norm: PositiveFloat | None = None
    """Maximum norm of the gradient of all parameters together; None: no clipping."""

    locked: Literal["none", "image", "text", "both"] = "none"
    """Tower that is not trained: it keeps its weights, without dropout and with its batch-norm
    statistics (LiT, arXiv:2111.07991, locks the image tower). ``both`` needs unlocked groups."""

    image_unlocked_groups: NonNegativeInt | None = None
    """Last groups of layers of a locked image tower that are trained: open_clip's
    ``--lock-image-unlocked-groups``. The last group of open_clip's own towers is their projection.
    That of timm's is their norm, or their head; the projection after it is always trained, with 0
    too. None: nothing of the tower is trained."""

    text_unlocked_layers: NonNegativeInt | None = None
    """The same for a locked text tower: open_clip's ``--lock-text-unlocked-layers``. In a
    transformers tower the projection is always trained, with 0 too. None: nothing of the tower is
    trained."""

    lock_layer_norm: bool = True
    """Whether layer norms in the locked layers of a transformers text tower are locked as well, as
    with open_clip's ``--lock-text-freeze-layer-norm``."""

    image_lr_factor: PositiveFloat = 1.0
    """Factor on the learning rate of the image tower; ``locked`` does not train it at all."""

    text_lr_factor: PositiveFloat = 1.0
    """Factor on the learning rate of the text tower."""

    layer_decay: float | tuple[float, float] = 1.0
    """Factor on the learning rate from each transformer block to the one before it, in (0, 1], in
    both towers, or in the image and in the text tower; 1: the same rate everywhere. Layers after
    the last block have the full rate, embeddings the lowest. Fine-tuning with 0.6 to 0.9 changes
    early layers little (BEiT, arXiv:2106.08254)."""

    def __post_init__(self) -> None:
        if self.name != "adamw" and not self.name.startswith("timm/"):
            raise ValueError(f"name is adamw or timm/NAME, got {self.name!r}")
        if self.settings and self.name == "adamw":
            raise ValueError(
                "settings are those of an optimizer of timm; adamw has betas, eps and weight_decay"
            )
        self._check_schedule()
        self._check_locked()
        if not all(0 < decay <= 1 for decay in self.layer_decays):
            raise ValueError(f"layer_decay must be in (0, 1], got {self.layer_decay}")

    @property
    def layer_decays(self) -> tuple[float, float]:
        """``layer_decay`` of the image and of the text tower."""
        decay = self.layer_decay
        return decay if isinstance(decay, tuple) else (decay, decay)

    def _check_schedule(self) -> None:
        if self.final_lr >= self.peak_lr:
            raise ValueError(f"final_lr must be less than peak_lr, got {self.final_lr}")
        if self.final_lr and self.schedule == "constant":
            raise ValueError(f"final_lr={self.final_lr:g} needs schedule=cosine or cooldown")
        if (self.schedule == "cooldown") != (self.cooldown_epochs is not None):
            raise ValueError(
                "schedule=cooldown and cooldown_epochs need each other, got "
                f"schedule={self.schedule} and cooldown_epochs={self.cooldown_epochs}"
            )

    def _check_locked(self) -> None:
        unlocked = {
            "image": ("image_unlocked_groups", self.image_unlocked_groups),
            "text": ("text_unlocked_layers", self.text_unlocked_layers),
        }
        for tower, (name, count) in unlocked.items():
            if count is not None and self.locked not in (tower, "both"):
                raise ValueError(f"{name}={count} needs locked={tower} or both")
        if self.locked == "both" and not any(count is not None for _, count in unlocked.values()):
            raise ValueError(
                "locked=both trains nothing; set image_unlocked_groups or text_unlocked_layers"
            )
        if not self.lock_layer_norm and self.text_unlocked_layers is None:
            raise ValueError("lock_layer_norm=false needs text_unlocked_layers, which may be 0")


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Global batch size: the number of pairs that the loss contrasts."""

    pairs: Annotated[int, Field(ge=2)]
    """Pairs per step over all workers: the N of InfoNCE, at least 2. It is divided among the
    workers, however many there are."""

    later: Mapping[PositiveInt, Annotated[int, Field(ge=2)]] = field(default_factory=dict)
    """Batch sizes from later epochs on, counted from 0: ``{8: 65536}``. ``pairs`` is that of the
    first."""

    def of_epoch(self, epoch: int) -> int:
        """Return the batch size of an epoch, counted from 0."""
        sizes = {0: self.pairs, **self.later}
        return sizes[max(start for start in sizes if start <= epoch)]


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Distillation from a teacher whose embeddings of the pairs are stored in the corpus."""

    weight: Share = 0.0
    """Share w of the teacher in the loss: (1 - w) * InfoNCE + w * the cross-entropy
    between its and the student's similarities in the batch, both ways. 0: no distillation."""

    temperature: PositiveFloat = 0.01
    """Temperature of the teacher's similarities: 1 / exp(its ``logit_scale``). Most released CLIP
    models have 0.01."""

    image: str = "clip_image"
    """Column of the teacher's embeddings of images, of ``embeddings`` of assemble."""

    text: str = "clip_text"
    """Column of the teacher's embeddings of texts."""


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """Computation of a step. Only ``loss`` and ``distill`` change the loss function.

    The other settings affect rounding, dropout masks and, in training with batch norm, the batches
    of its statistics.
    """

    loss: Literal["infonce", "siglip"] = "infonce"
    """``infonce``: symmetric cross-entropy over the batch (CLIP). ``siglip``: SigLIP's sigmoid loss
    of every image-text pair; a model without a bias gets SigLIP's initial bias and scale
    (``model.init_logit_bias``, ``model.init_logit_scale``)."""

    distill: DistillConfig = field(default_factory=DistillConfig)
    """Distillation from a teacher; needs ``loss=infonce``."""

    loss_tile: PositiveInt = 1_024
    """Texts per block of the similarity matrix: a worker holds the similarities of its images to
    this many texts at a time."""

    micro_batch: PositiveInt | None = None
    """Pairs per forward pass of one worker. None: on a GPU as many as fit by the memory estimate,
    on a CPU all of its pairs. With several micro-batches, every pair has two forward passes
    (GradCache). A run that runs out of memory halves it."""

    text: Literal["packed", "chunked", "padded"] = "packed"
    """Batching of captions: ``packed``, concatenated without padding; ``chunked``, in chunks of
    similar length, padded to the longest of the chunk; or ``padded`` to the context length."""

    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """``auto``: bf16 autocast if the GPU supports it, otherwise fp32, with TF32 matrix products on
    GPUs as in open_clip. The loss is always computed in full fp32."""

    checkpoint_activations: bool = False
    """Whether to recompute the activations of each block in the backward pass instead of storing
    them."""

    compile: bool | Literal["auto"] = "auto"
    """Whether to apply ``torch.compile`` to the blocks of both towers. ``auto``: on GPUs from
    Ampere on, if the rest of the run takes at least half an hour without it, and
    ``deterministic`` is off. Blocks that cannot be compiled run eagerly and are reported."""

    gradients: Literal["fp32", "bf16"] = "fp32"
    """Precision in which workers exchange the gradients of both towers. ``bf16`` halves the traffic
    on slow networks; gradients are then rounded to 8 significant bits."""

    def __post_init__(self) -> None:
        if self.distill.weight and self.loss != "infonce":
            raise ValueError(
                f"distill.weight={self.distill.weight:g} needs loss=infonce, got {self.loss}"
            )


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """Times of checkpoints, in addition to the end of each epoch, and the number retained."""

    every_steps: PositiveInt | None = 1_000
    """Steps between checkpoints; None: by time alone."""
    every_minutes: PositiveFloat | None = 15.0
    """Maximum minutes between checkpoints; None: by steps alone."""
    keep_last: PositiveInt = 2
    """Number of most recent checkpoints to retain until the run is published."""

    keep_every: int | Literal["epoch"] | None = None
    """Checkpoints to retain for good, in ``checkpoints/`` of the published folder: those of every
    so many steps, or of the end of every epoch, and the last. None: none. With the optimizer's
    state, each is three times as large as the weights."""

    def __post_init__(self) -> None:
        if isinstance(self.keep_every, int) and self.keep_every < 1:
            raise ValueError(f"keep_every must be positive, got {self.keep_every}")


@dataclass(frozen=True, kw_only=True)
class TroubleConfig:
    """Handling of failing runs: NaN losses, divergence, collapse, a worker that hangs."""

    not_finite: Literal["stop", "skip", "rollback"] = "stop"
    """Reaction to a loss or gradient that is NaN or Inf: ``stop`` ends the run, ``skip`` skips the
    update; 100 skipped updates in a row count as divergence. ``rollback``: see
    ``on_divergence``."""

    on_divergence: Literal["stop", "rollback"] = "stop"
    """Reaction to divergence: ``stop`` ends the run. ``rollback`` returns to the weights of 100
    steps before it began, and skips the pairs from there to the step at which it was noticed, as
    PaLM's training did (arXiv:2204.02311, section 5.1). Skipped pairs are recorded."""

    rollbacks: PositiveInt = 3
    """Maximum number of rollbacks; after that the run ends."""

    diverged: PositiveFloat | None = 0.25
    """Maximum rise of the loss (the median of 100 steps) above its minimum, as a share of the
    distance from the minimum to the chance level ln(batch pairs); a higher loss ends the run. Rises
    below 1 are always allowed, and twice the share above the minimum of the warm-up. None: no
    limit."""

    collapsed: bool = True
    """Whether to end a run whose loss stays at chance level without falling for 1,000 steps after
    warm-up, or for as many steps as warm-up has if these are more."""

    rank_every_steps: PositiveInt | None = 100
    """Steps between measurements of the effective rank of features, which falls when embeddings
    collapse: it is logged, and a fall to a tenth is reported. None: never."""

    stuck_minutes: PositiveFloat | None = 30.0
    """Maximum minutes per step; after that the worker is ended, and its stack is reported.
    None: no limit."""


@dataclass(frozen=True, kw_only=True)
class PretrainWorkers:
    """Number and resources of the training workers."""

    count: int | tuple[int, int] = 1
    """Number of workers, or [min, max]: the run then uses as many as the cluster has. 0 trains on
    the CPU in the job's own process: a small model then starts at once, and a debugger works. With
    gpus, 0 is one worker."""

    gpus: NonNegativeFloat = 0
    """GPUs per worker; 0 trains on the CPU."""

    accelerator: str | None = None
    """Type of GPU, by Ray's name: ``A100``, ``H100``, ``L4``; None: any."""

    cpus: PositiveFloat = 1
    """CPU cores per worker, not counting those that prepare data."""

    data_cpus: int | None = None
    """CPU cores that decode and tokenise for all workers, on any node; None: all free cores."""

    restarts: NonNegativeInt = 3
    """Maximum consecutive restarts of failed workers without a new checkpoint in between; one more
    failure ends the job. Running the same command again resumes it."""

    def __post_init__(self) -> None:
        fewest, most = self.bounds
        if self.count != 0 and not 1 <= fewest <= most:
            raise ValueError(f"count must be positive, or 0 for no workers, got {self.count}")
        if self.accelerator is not None and not self.gpus:
            raise ValueError(f"accelerator {self.accelerator} needs gpus, got 0")
        if 0 < self.gpus < 1 and most > 1:
            raise ValueError(
                f"several workers need whole GPUs, got {self.gpus:g} of one: NCCL cannot connect "
                "workers that share a GPU"
            )

    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum number of workers; (0, 0) to train in the job's own process."""
        if self.count == 0 and self.gpus:
            return 1, 1
        return (self.count, self.count) if isinstance(self.count, int) else self.count


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Validation of the model after an epoch, in a task that runs concurrently with training."""

    pairs: NonNegativeInt = 10_000
    """Pairs of the val split to embed; 0: all. Recall depends on it: the fewer pairs, the
    higher."""

    every_epochs: PositiveInt = 1
    """Epochs between validations."""

    tasks: Mapping[str, Plugin] = field(default_factory=dict)
    """Further data to score in each validation, by name, with settings as in benchmark: zero-shot
    classification, ``validation.tasks.xray=zero_shot(data=DIR)``, or retrieval. They do not affect
    the choice of the published epoch."""

    gpus: float = 0
    """GPUs of the validation task; with 0 it runs on ``cpus`` CPU cores."""
    cpus: float = 1
    """CPU cores of the validation task."""

    def __post_init__(self) -> None:
        for name in self.tasks:
            if not name or "/" in name:
                raise ValueError(f"tasks: a name has no slash, got {name!r}")


_CHECKPOINT = re.compile(r"(?P<run>.+)@(?P<step>\d+|last|epoch:\d+)")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A pretraining run: model, data, optimisation and resources."""

    corpus: str | tuple[str, ...]
    """A corpus published by assemble, local or ``s3://``; or a list of several, to train on the
    pairs of all. The val split of the first one is for validation."""

    out: str
    """The folder to publish, local or ``s3://``; an interrupted run resumes from it."""

    from_: str = ""
    """Another run to continue with other settings, from one of its checkpoints: ``RUN@STEP``. RUN
    is its folder, local or ``s3://``: of a run that is not finished, or of a model that kept
    checkpoints. STEP is a number of steps, ``last``, or ``epoch:N``, the end of an epoch from 1."""

    from_state: Literal["all", "weights"] = "all"
    """What to take from the checkpoint: ``all`` also takes the state of the optimizer and the
    position in the data; ``weights`` takes the weights alone, and starts at the first step."""

    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """Shares of several corpora."""

    model: Plugin
    """The model: ``model.name`` is a plug-in in ``biovl/models/builders``, the other entries are
    its settings."""

    epochs: PositiveInt = 32
    """Passes over the train split."""
    batch: BatchConfig
    """Global batch size."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and schedule."""
    step: StepConfig = field(default_factory=StepConfig)
    """Computation of a step."""
    data: DataConfig = field(default_factory=DataConfig)
    """Reading and augmentation of pairs."""
    save: SaveConfig = field(default_factory=SaveConfig)
    """Times of checkpoints."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """Validation of the model after epochs."""
    trouble: TroubleConfig = field(default_factory=TroubleConfig)
    """Criteria for ending a failing run."""
    workers: PretrainWorkers = field(default_factory=PretrainWorkers)
    """Number and resources of the workers."""

    publish: Literal["last", "best"] = "best"
    """Weights to publish: ``best``, of the validated epoch with the highest mean R@1 in both
    directions, or ``last``, of the last step. Without validation, those of the last step."""

    trackers: tuple[Plugin, ...] = (Plugin("tensorboard"),)
    """Trackers that log the metrics: ``tensorboard``, ``wandb`` or ``mlflow``, with their
    settings."""

    profile: Annotated[int, Field(ge=0, le=100)] = 0
    """Steps of worker 0 to profile with torch.profiler, after the first five, each time the run
    starts or resumes; 0: none. The trace is in ``profile/``."""
    # A profiled step takes about 80 MB of memory, with two towers of 12 layers, until the trace is
    # written.

    deterministic: bool = False
    """Whether to use deterministic algorithms only, for bit-identical results; slower on GPUs."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the initial weights, the order of the pairs and all augmentation."""

    def __post_init__(self) -> None:
        if (self.optim.cooldown_epochs or 0) > self.epochs:
            raise ValueError(
                f"optim.cooldown_epochs={self.optim.cooldown_epochs} is more than the "
                f"{self.epochs} epochs of the run"
            )
        if self.from_ and _CHECKPOINT.fullmatch(self.from_) is None:
            raise ValueError(
                f"from is RUN@STEP, and STEP a number of steps, last or epoch:N; got {self.from_!r}"
            )
        if self.from_state != "all" and not self.from_:
            raise ValueError(f"from_state={self.from_state} needs from")
        if self.corpus is REQUIRED:
            return
        if len(self.corpora) == 1:
            object.__setattr__(self, "corpus", self.corpora[0])
        if not self.corpora or len({uri.rstrip("/") for uri in self.corpora}) < len(self.corpora):
            raise ValueError(f"corpus: give different folders, got {list(self.corpora)}")
        for name in ("factors", "shares"):
            given = len(getattr(self.mixture, name))
            if given not in (0, len(self.corpora)):
                more = given > len(self.corpora)
                raise ValueError(
                    f"mixture.{name}: give one number for each corpus, {len(self.corpora)} in all, "
                    f"got {given}"
                    f"{f'; or list {given} corpora, or set mixture.{name}=[]' if more else ''}"
                )

    @property
    def corpora(self) -> tuple[str, ...]:
        """All corpora to train on; the val split of the first one is for validation."""
        return (self.corpus,) if isinstance(self.corpus, str) else self.corpus

    @property
    def checkpoint(self) -> tuple[str, str] | None:
        """RUN and STEP of the setting ``from`` (``RUN@STEP``); None if the setting is empty."""
        named = _CHECKPOINT.fullmatch(self.from_)
        return None if named is None else (named["run"], named["step"])


MAY_CHANGE = {
    "": ("out", "workers", "save", "trackers", "trouble", "profile"),
    "step": (
        *("loss_tile", "micro_batch", "text", "checkpoint_activations", "compile", "gradients"),
    ),
    "data": ("unreadable", "small_images"),
    "validation": ("gpus", "cpus"),
}
"""Settings by section that a resumed run may change, since they do not define it."""


def identity(plain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a plain configuration into the settings that define a run, and those that may change.

    The second part has settings of the computation, such as the number of workers or the size of
    micro-batches. They may change when the run is resumed; those of the first part may not.
    """
    what, how = dict(plain), dict[str, Any]()
    for section, names in MAY_CHANGE.items():
        inner = what if not section else dict(what[section])
        moved = {name: inner.pop(name) for name in names}
        if section:
            what[section], how[section] = inner, moved
        else:
            how |= moved
    return what, how


# BiomedCLIP: supplementary tables 1-9. The defaults of PretrainConfig are table 9. Sizes "4k" and
# "64k" are read as 4,096 and 65,536. Precision depends on the hardware (bf16 if supported, as in
# the paper). The release's code (open_clip) agrees with the paper; names of towers, pooling and
# projections are those of its open_clip_config.json.
def biomedclip() -> PretrainConfig:
    """BiomedCLIP: ViT-B/16 at 224 px from ImageNet, PubMedBERT, 256 tokens, 32 epochs, batch 4k."""
    return PretrainConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        model=_two_towers(_VIT_B, _PUBMEDBERT, embed_dim=512, context_length=256),
        batch=BatchConfig(pairs=4_096),
        epochs=32,
    )


def biomedclip_context_77() -> PretrainConfig:
    """BiomedCLIP with 77 tokens, 8 epochs (supplementary table 1)."""
    return _with_model(replace(biomedclip(), epochs=8), context_length=77)


def biomedclip_gpt() -> PretrainConfig:
    """BiomedCLIP with CLIP's text tower, 77 tokens, 8 epochs (supplementary table 1)."""
    model = _two_towers(_VIT_B, _GPT, embed_dim=512, context_length=77)
    return replace(biomedclip(), model=model, epochs=8)


def biomedclip_vit_s() -> PretrainConfig:
    """BiomedCLIP with ViT-S/16, 8 epochs (supplementary table 2)."""
    tower = _timm("vit_small_patch16_224", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k")
    return _with_model(replace(biomedclip(), epochs=8), **tower)


def biomedclip_vit_m() -> PretrainConfig:
    """BiomedCLIP with ViT-M/16 from scratch, 8 epochs (supplementary table 2)."""
    # The paper does not name the weights; timm has no ImageNet weights for this width and size.
    return _with_model(replace(biomedclip(), epochs=8), **_timm("vit_medium_patch16_clip_224"))


def biomedclip_random() -> PretrainConfig:
    """BiomedCLIP with an image tower from scratch (supplementary table 3)."""
    return _with_model(biomedclip(), image_weights="")


def biomedclip_384() -> PretrainConfig:
    """BiomedCLIP at 384 px (supplementary table 4)."""
    tower = _timm("vit_base_patch16_384", "timm/vit_base_patch16_384.augreg_in21k_ft_in1k")
    return _with_model(biomedclip(), **tower, image_size=384)


def biomedclip_64k() -> PretrainConfig:
    """BiomedCLIP, 8 epochs with batches of 4k, then 32 with 64k (supplementary table 7)."""
    return replace(biomedclip(), epochs=40, batch=BatchConfig(pairs=4_096, later={8: 65_536}))


def biomedclip_rn50() -> PretrainConfig:
    """OpenAI's CLIP with ResNet-50, fine-tuned (supplementary table 8)."""
    return replace(biomedclip(), model=_trained("RN50-quickgelu", "openai"))


def biomedclip_vit_b16_openai() -> PretrainConfig:
    """OpenAI's CLIP with ViT-B/16, fine-tuned (supplementary table 8)."""
    return replace(biomedclip(), model=_trained("ViT-B-16-quickgelu", "openai"))


def bmca_clip() -> PretrainConfig:
    """BMCA-CLIP: CommonPool's ViT-L/14 tuned on 24M pairs, 9 epochs of 8k (table 11)."""
    return PretrainConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        # The paper says "commonpool", which is three sets of weights in open_clip. Its training
        # scripts (open_clip_train.main --pretrained) name the one filtered by CLIP score.
        model=_trained("ViT-L-14", "commonpool_xl_clip_s13b_b90k", context_length=77),
        batch=BatchConfig(pairs=8_192),
        epochs=9,
        optim=OptimConfig(
            peak_lr=1e-6,
            warmup_steps=1_000,
            # "Adam" with a decay of 0.2 is AdamW in the paper's code, open_clip.
            betas=(0.9, 0.95),
            weight_decay=0.2,
            clip_grad_norm=1.0,
        ),
        # The paper says FP32, which open_clip computes in TF32; bf16 autocast keeps the weights
        # and their updates in fp32 and is three times as fast (step.precision=fp32 for theirs).
        step=StepConfig(precision="auto"),
    )


def bmca_clip_balanced() -> PretrainConfig:
    """BMCA-CLIP on the concept-balanced corpus of 8M pairs, 27 epochs (table 11)."""
    return replace(bmca_clip(), epochs=27)


def bmca_clip_filtered() -> PretrainConfig:
    """BMCA-CLIP on the concept-filtered corpus of 6M pairs, 36 epochs (table 11)."""
    return replace(bmca_clip(), epochs=36)


def bmc_longclip_512() -> PretrainConfig:
    """BMC-LongCLIP: DFN's ViT-L/14, BioClinical ModernBERT with 512 tokens, 20 epochs of 8k."""
    # Towers as in the model configuration of the paper's code (open_clip_bmc): embeddings of 768,
    # a projection of two layers (open_clip's default), mean pooling, drop path 0.1.
    image = _timm(
        *("vit_large_patch14_clip_224", "timm/vit_large_patch14_clip_224.dfn2b_s39b"),
        timm_drop_path=0.1,
    )
    text = _bert("thomas-sounack/BioClinical-ModernBERT-base", "mean_pooler")
    return PretrainConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        model=_two_towers(image, text, embed_dim=768, context_length=512),
        batch=BatchConfig(pairs=8_192),
        epochs=20,
        optim=OptimConfig(
            peak_lr=5e-4,
            # The paper's appendix F; its code has 2,000.
            warmup_steps=1_000,
            betas=(0.9, 0.95),
            # From the code alone: open_clip's default.
            weight_decay=0.2,
            clip_grad_norm=1.0,
        ),
        # The paper says FP32; see bmca_clip.
        step=StepConfig(precision="auto"),
    )


def bmc_longclip_154() -> PretrainConfig:
    """BMC-LongCLIP with 154 tokens (appendix F)."""
    return _with_model(bmc_longclip_512(), context_length=154)


def bmc_longclip_77() -> PretrainConfig:
    """BMC-LongCLIP with 77 tokens (appendix F)."""
    return _with_model(bmc_longclip_512(), context_length=77)


def bmc_longclip_plus() -> PretrainConfig:
    """BMC-LongCLIP+: batches of 16k from two corpora, captions and long captions (appendix F)."""
    # "dataset: Biomedica-6M + LongCAP": the union of 6,602,752 captions (BIOMEDICA, section 6) and
    # 1 M long ones, 13.2 % of the pairs of an epoch. A figure in both is trained on with both.
    # Two factors of 1 are the union, and refuse a single corpus, which lacks one of the texts.
    return replace(
        bmc_longclip_512(),
        batch=BatchConfig(pairs=16_384),
        mixture=MixtureConfig(factors=(1.0, 1.0)),
    )


def tiny() -> PretrainConfig:
    """A small CLIP at 64 px from scratch: trains on 100 pairs with two CPU cores in a minute."""
    image = {"layers": 3, "width": 128, "head_width": 32, "patch_size": 16}
    text = {"layers": 2, "width": 64, "heads": 2}
    towers = {"embed_dim": 64, "vision_cfg": image, "text_cfg": text}
    return PretrainConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        model=Plugin("open_clip", {**towers, "image_size": 64, "context_length": 77}),
        batch=BatchConfig(pairs=32),
        epochs=30,
        optim=OptimConfig(peak_lr=1e-3, warmup_steps=10),
        # Strong augmentation: otherwise a hundred pairs are memorised.
        data=DataConfig(crop_scale=(0.4, 1.0)),
        # A worker would take longer to start than an epoch takes.
        workers=PretrainWorkers(count=0),
        validation=ValidationConfig(every_epochs=10),
    )


def _two_towers(
    image: Mapping[str, Any], text: Mapping[str, Any], *, embed_dim: int, context_length: int
) -> Plugin:
    settings = {"embed_dim": embed_dim, **image, **text, "context_length": context_length}
    return Plugin("open_clip", settings)


def _trained(architecture: str, weights: str, **settings: Any) -> Plugin:
    return Plugin("open_clip", {"architecture": architecture, "weights": weights, **settings})


def _with_model(config: PretrainConfig, **settings: Any) -> PretrainConfig:
    model = replace(config.model, settings={**config.model.settings, **settings})
    return replace(config, model=model)


def _timm(name: str, weights: str = "", **more: Any) -> dict[str, Any]:
    tower = {"timm_model_name": name, "timm_pool": "", "timm_proj": "linear", **more}
    return {"vision_cfg": tower, "image_weights": weights}


def _bert(name: str, pooler: str) -> dict[str, Any]:
    tower = {"hf_model_name": name, "hf_proj_type": "mlp", "hf_pooler_type": pooler}
    return {"text_cfg": tower, "tokenizer": name, "text_weights": name}


_VIT_B = _timm("vit_base_patch16_224", "timm/vit_base_patch16_224.augreg_in21k_ft_in1k")
_PUBMEDBERT = _bert(
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract", "cls_last_hidden_state_pooler"
)
# "GPT/77, 50k general domain": CLIP's own text tower, from scratch.
_GPT = {"text_cfg": {"width": 512, "heads": 8, "layers": 12, "vocab_size": 49_408}}

RECIPES: dict[str, Recipe[PretrainConfig]] = {
    "biomedclip": biomedclip,
    "biomedclip_context_77": biomedclip_context_77,
    "biomedclip_gpt": biomedclip_gpt,
    "biomedclip_vit_s": biomedclip_vit_s,
    "biomedclip_vit_m": biomedclip_vit_m,
    "biomedclip_random": biomedclip_random,
    "biomedclip_384": biomedclip_384,
    "biomedclip_64k": biomedclip_64k,
    "biomedclip_rn50": biomedclip_rn50,
    "biomedclip_vit_b16_openai": biomedclip_vit_b16_openai,
    "bmca_clip": bmca_clip,
    "bmca_clip_balanced": bmca_clip_balanced,
    "bmca_clip_filtered": bmca_clip_filtered,
    "bmc_longclip_77": bmc_longclip_77,
    "bmc_longclip_154": bmc_longclip_154,
    "bmc_longclip_512": bmc_longclip_512,
    "bmc_longclip_plus": bmc_longclip_plus,
    "tiny": tiny,
}
