"""The settings of pretrain."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from biovl.core.config import REQUIRED, Recipe
from biovl.core.plugins import Plugin

TEXT_FIELDS = (
    *("text", "caption", "mentions", "long_caption"),
    *("context_caption", "expanded_caption"),
)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What a pair becomes on its way to the model."""

    text: Mapping[str, float] = field(default_factory=lambda: {"text": 1.0})
    """Which text of a pair is trained on, with probabilities that sum to 1: ``text`` (what
    assemble chose), ``caption``, ``mentions`` (one of them), or what annotate wrote in columns that
    assemble was given: ``long_caption``, ``context_caption`` or ``expanded_caption``. A pair
    without the drawn one gives its ``text``."""

    crop_scale: tuple[float, float] = (0.9, 1.0)
    """RandomResizedCrop: the share of the image's area that is kept (open_clip's default)."""

    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """RandomResizedCrop: width / height of what is kept (open_clip's default)."""

    run_pairs: int = 8
    """Pairs that stand together in a shard and are read with one request; the shuffle of an epoch
    moves such runs. 1 shuffles single pairs, for small corpora on local disks."""

    unreadable: Literal["stop", "replace"] = "stop"
    """A shard that cannot be read ends the run, or its pairs are replaced by others; both name
    it."""

    small_images: Literal["stop", "enlarge"] = "stop"
    """A corpus that assemble stored with images smaller than the model reads is refused before
    anything starts, or its images are enlarged."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.text) - set(TEXT_FIELDS))
        if unknown or not self.text:
            raise ValueError(f"text: choose from {', '.join(TEXT_FIELDS)}, got {unknown}")
        if min(self.text.values()) < 0 or abs(sum(self.text.values()) - 1) > 1e-6:
            raise ValueError(f"text: probabilities must sum to 1, got {dict(self.text)}")
        if self.run_pairs < 1:
            raise ValueError(f"run_pairs must be positive, got {self.run_pairs}")
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise ValueError(f"crop_scale must be in (0, 1], got {self.crop_scale}")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """AdamW and its schedule. Defaults are BiomedCLIP's (supplementary table 9)."""

    peak_lr: float = 5e-4
    """Learning rate at the end of warm-up."""

    warmup_steps: int = 2_000
    """Linear warm-up, in steps of the first batch size; counted in pairs, so that a larger batch
    later does not stretch it."""

    schedule: Literal["cosine", "constant"] = "cosine"
    """After warm-up: to zero at the last pair along a cosine, or as it is."""

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.2
    """Decoupled decay of matrices. Biases, norms and ``logit_scale`` are never decayed."""

    decay_embeddings: bool = True
    """Whether position and class embeddings count as matrices, as in open_clip 3.3."""

    clip_grad_norm: float | None = None
    """Largest norm of the gradient of all parameters."""

    def __post_init__(self) -> None:
        if self.peak_lr <= 0 or self.eps <= 0:
            raise ValueError("peak_lr and eps must be positive")
        if self.warmup_steps < 0 or self.weight_decay < 0:
            raise ValueError("warmup_steps and weight_decay must not be negative")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        if self.clip_grad_norm is not None and self.clip_grad_norm <= 0:
            raise ValueError(f"clip_grad_norm must be positive, got {self.clip_grad_norm}")


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How many pairs meet in the loss."""

    pairs: int
    """Pairs of all workers in one step: the N of InfoNCE. The number of workers never changes
    it."""

    later: Mapping[int, int] = field(default_factory=dict)
    """Batch sizes from an epoch on (counted from 0): ``{8: 65536}``."""

    def __post_init__(self) -> None:
        if min([self.pairs, *self.later.values()]) < 2:
            raise ValueError("a batch needs at least 2 pairs")
        if any(epoch < 1 for epoch in self.later):
            raise ValueError("later: epochs are counted from 0, and pairs is that of the first")

    def of_epoch(self, epoch: int) -> int:
        """Return the pairs of a step in an epoch, counted from 0."""
        sizes = {0: self.pairs, **self.later}
        return sizes[max(start for start in sizes if start <= epoch)]


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """How a step is computed. Nothing here but ``loss`` changes what comes out, up to rounding."""

    loss: Literal["infonce", "siglip"] = "infonce"
    """Symmetric softmax over the batch (CLIP), or SigLIP's sigmoid of every pair."""

    loss_tile: int = 1_024
    """Texts whose similarities to this worker's images are held at a time."""

    micro_batch: int | None = None
    """Pairs of one worker that go through the towers at a time; None takes all at once. With more
    than one micro-batch every pair goes forward twice (GradCache)."""

    text: Literal["packed", "chunked", "padded"] = "packed"
    """Captions end to end without padding; in chunks of similar length, padded to the longest;
    or all padded to the context."""

    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """``auto`` is bf16 autocast where the GPU has it, else fp32, whose products GPUs take in TF32
    as open_clip does. The loss is always full fp32."""

    checkpoint_activations: bool = False
    """Recompute each block's activations in the backward pass instead of keeping them."""

    compile: bool = False
    """``torch.compile`` the blocks of both towers. What runs eager nevertheless is reported."""


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """When the state of a run is kept, and how much of it."""

    every_steps: int | None = 1_000
    every_minutes: float | None = 15.0
    keep_last: int = 2

    def __post_init__(self) -> None:
        if self.keep_last < 1:
            raise ValueError(f"keep_last must be positive, got {self.keep_last}")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps must be positive, got {self.every_steps}")
        if self.every_minutes is not None and self.every_minutes <= 0:
            raise ValueError(f"every_minutes must be positive, got {self.every_minutes}")


@dataclass(frozen=True, kw_only=True)
class TroubleConfig:
    """When a run is not worth going on with."""

    not_finite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is no number ends the run, or the step is passed over."""

    diverged: float | None = 0.25
    """Ends the run when the median loss of the last 100 steps has come back from its lowest by
    this share of the way to that of chance, ln(batch pairs), and by 1 at least; from the lowest of
    warm-up by twice that. None never does."""

    collapsed: bool = True
    """Whether the run ends when it does no better than chance for 1,000 steps after warm-up, or
    for as many as warm-up has, and its loss does not fall."""

    stuck_minutes: float | None = 30.0
    """Ends a worker whose step takes longer, with what it was doing; None waits for ever."""

    def __post_init__(self) -> None:
        if self.diverged is not None and self.diverged <= 0:
            raise ValueError(f"diverged must be positive, got {self.diverged}")
        if self.stuck_minutes is not None and self.stuck_minutes <= 0:
            raise ValueError(f"stuck_minutes must be positive, got {self.stuck_minutes}")


@dataclass(frozen=True, kw_only=True)
class PretrainWorkers:
    """Where the run is computed."""

    count: int | tuple[int, int] = 1
    """Workers, or the fewest and the most: the run then goes on with what there is."""

    gpus: float = 0
    """GPUs of one worker."""

    accelerator: str | None = None
    """Which GPUs, by Ray's name: ``A100``, ``H100``, ``L4``; None takes any."""

    cpus: float = 1
    """CPUs of one worker, without those that prepare data."""

    data_cpus: int | None = None
    """CPUs that decode and tokenise for all workers, on any node; None takes what is free."""

    restarts: int = 3
    """Failures in a row, without a new checkpoint in between, after which workers are started
    again; one more ends the run, which can always be run again to go on."""

    def __post_init__(self) -> None:
        fewest, most = (self.count, self.count) if isinstance(self.count, int) else self.count
        if not 1 <= fewest <= most:
            raise ValueError(f"count must be positive, got {self.count}")
        if self.accelerator is not None and not self.gpus:
            raise ValueError(f"accelerator {self.accelerator} needs gpus, got 0")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """How the model is judged after every epoch, beside training."""

    pairs: int = 10_000
    """Pairs of the val split that are embedded; 0 is all. Recall depends on it: fewer is easier."""

    every_epochs: int = 1
    gpus: float = 0
    """GPUs of the task that validates; with 0 it runs on ``cpus``."""
    cpus: float = 1

    def __post_init__(self) -> None:
        if self.every_epochs < 1:
            raise ValueError(f"every_epochs must be positive, got {self.every_epochs}")
        if self.pairs < 0:
            raise ValueError(f"pairs must not be negative, got {self.pairs}")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A whole pretraining run."""

    corpus: str
    """The folder that assemble published, local or ``s3://``."""

    out: str
    """The folder to publish, local or ``s3://``; also what a killed run goes on from."""

    model: Plugin
    """``model.name`` is a file in ``biovl/models``; the rest are its settings."""

    epochs: int = 32
    batch: BatchConfig
    optim: OptimConfig = field(default_factory=OptimConfig)
    step: StepConfig = field(default_factory=StepConfig)
    data: DataConfig = field(default_factory=DataConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    trouble: TroubleConfig = field(default_factory=TroubleConfig)
    workers: PretrainWorkers = field(default_factory=PretrainWorkers)

    publish: Literal["last", "best"] = "best"
    """Which weights become the model: those of the best validated epoch, by the mean of both
    recalls at 1, or of the last step. Without validation those of the last step."""

    trackers: tuple[Plugin, ...] = (Plugin("tensorboard"),)
    """Where the curves go: ``tensorboard``, ``wandb``, ``mlflow``, with their settings."""

    deterministic: bool = False
    """Only algorithms that give the same bits every time; slower on GPUs."""

    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be positive, got {self.epochs}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be in 0..2^63-1, got {self.seed}")


_MAY_CHANGE = {
    "": ("out", "workers", "save", "trackers", "trouble"),
    "step": ("loss_tile", "micro_batch", "text", "checkpoint_activations", "compile"),
    "data": ("unreadable", "small_images"),
    "validation": ("gpus", "cpus"),
}


def identity(plain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a plain configuration into what a run is, and how it is computed and copes.

    The second may change from one start of a run to the next: after a full GPU, fewer pairs at a
    time; after a lost node, fewer workers. The first may not.
    """
    what, how = dict(plain), dict[str, Any]()
    for section, names in _MAY_CHANGE.items():
        inner = what if not section else dict(what[section])
        moved = {name: inner.pop(name) for name in names}
        if section:
            what[section], how[section] = inner, moved
        else:
            how |= moved
    return what, how


# BiomedCLIP: supplementary tables 1-9. Table 9 is what PretrainConfig has for defaults. Sizes "4k"
# and "64k" are read as 4,096 and 65,536. Precision is left to the hardware (bf16 where it has it,
# as the paper did). The release's code (open_clip) agrees with the paper; names of towers, pooling
# and projections are those of its open_clip_config.json.
def biomedclip() -> PretrainConfig:
    """BiomedCLIP: ViT-B/16 at 224 px from ImageNet, PubMedBERT with 256 tokens, 32 epochs of 4k."""
    return PretrainConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        model=_two_towers(_VIT_B, _PUBMEDBERT, embed_dim=512, context_length=256),
        batch=BatchConfig(pairs=4_096),
        epochs=32,
    )


def biomedclip_context_77() -> PretrainConfig:
    """BiomedCLIP with 77 tokens, 8 epochs (table 1)."""
    return _with_model(replace(biomedclip(), epochs=8), context_length=77)


def biomedclip_gpt() -> PretrainConfig:
    """BiomedCLIP with CLIP's text tower from scratch, 77 tokens, 8 epochs (table 1)."""
    model = _two_towers(_VIT_B, _GPT, embed_dim=512, context_length=77)
    return replace(biomedclip(), model=model, epochs=8)


def biomedclip_vit_s() -> PretrainConfig:
    """BiomedCLIP with ViT-S/16, 8 epochs (table 2)."""
    tower = _timm("vit_small_patch16_224", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k")
    return _with_model(replace(biomedclip(), epochs=8), **tower)


def biomedclip_vit_m() -> PretrainConfig:
    """BiomedCLIP with ViT-M/16 from scratch, 8 epochs (table 2)."""
    # The paper does not say with which weights; timm has none of ImageNet for this width and size.
    return _with_model(replace(biomedclip(), epochs=8), **_timm("vit_medium_patch16_clip_224"))


def biomedclip_random() -> PretrainConfig:
    """BiomedCLIP with an image tower from scratch (table 3)."""
    return _with_model(biomedclip(), image_weights="")


def biomedclip_384() -> PretrainConfig:
    """BiomedCLIP at 384 px (table 4)."""
    tower = _timm("vit_base_patch16_384", "timm/vit_base_patch16_384.augreg_in21k_ft_in1k")
    return _with_model(biomedclip(), **tower, image_size=384)


def biomedclip_64k() -> PretrainConfig:
    """BiomedCLIP, 8 epochs with batches of 4k, then 32 with 64k (table 7)."""
    return replace(biomedclip(), epochs=40, batch=BatchConfig(pairs=4_096, later={8: 65_536}))


def biomedclip_rn50() -> PretrainConfig:
    """OpenAI's CLIP with ResNet-50, trained on (table 8)."""
    return replace(biomedclip(), model=_trained("RN50-quickgelu", "openai"))


def biomedclip_vit_b16_openai() -> PretrainConfig:
    """OpenAI's CLIP with ViT-B/16, trained on (table 8)."""
    return replace(biomedclip(), model=_trained("ViT-B-16-quickgelu", "openai"))


def bmca_clip() -> PretrainConfig:
    """BMCA-CLIP: CommonPool's ViT-L/14 trained on with 24M pairs, 9 epochs of 8k (table 11)."""
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
            # Only the code says: open_clip's default.
            weight_decay=0.2,
            clip_grad_norm=1.0,
        ),
        # As for bmca_clip: the paper says FP32.
        step=StepConfig(precision="auto"),
    )


def bmc_longclip_154() -> PretrainConfig:
    """BMC-LongCLIP with 154 tokens (appendix F)."""
    return _with_model(bmc_longclip_512(), context_length=154)


def bmc_longclip_77() -> PretrainConfig:
    """BMC-LongCLIP with 77 tokens (appendix F)."""
    return _with_model(bmc_longclip_512(), context_length=77)


def bmc_longclip_plus() -> PretrainConfig:
    """BMC-LongCLIP+: batches of 16k, every other text a long caption if it has one (appendix F)."""
    return replace(
        bmc_longclip_512(),
        batch=BatchConfig(pairs=16_384),
        # BIOMEDICA and LongCAP together: a pair of both sets is met with both of its texts.
        data=DataConfig(text={"text": 0.5, "long_caption": 0.5}),
    )


def tiny() -> PretrainConfig:
    """A small CLIP at 64 px from scratch: learns a hundred pairs on two CPU cores in a minute."""
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
        # A hundred pairs are learnt by heart unless they look different every time.
        data=DataConfig(crop_scale=(0.4, 1.0)),
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
