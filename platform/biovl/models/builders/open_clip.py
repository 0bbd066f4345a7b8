"""Any image and text tower of open_clip, timm and transformers, as open_clip's CustomTextCLIP.

Settings have open_clip's names, so that published configurations can be copied. Without weights to
download, every model is built offline, including transformers towers.
"""

import atexit
import functools
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import open_clip
import torch
from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from open_clip.hf_model import HFTextEncoder
from open_clip.model import CLIPTextCfg, CLIPVisionCfg, CustomTextCLIP
from open_clip.pretrained import get_pretrained_cfg
from pydantic import Field, PositiveFloat

from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError, StorageError
from biovl.models import text_configs, tokenization, weight_files, weights
from biovl.models.hub import client_errors, is_hub_name, split
from biovl.models.tokenization import Tokenizer
from biovl.models.weight_identity import ENDINGS

_OLD_NAMES = {"proj": "hf_proj_type", "pooler_type": "hf_pooler_type"}
"""Option names of the first releases of BiomedCLIP, which open_clip no longer accepts."""
_CONFIG = "open_clip_config.json"
_PREPROCESS = ("interpolation", "resize_mode", "fill_color")
_PLACEHOLDER = {"context_length": 1, "vocab_size": 1, "width": 64, "heads": 1, "layers": 1}

_Dropout = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the two towers. They override those of the architecture."""

    architecture: str = ""
    """Model name in open_clip (``ViT-L-14``), or a folder, also ``s3://``, or Hugging Face name
    (``hf-hub:…``) with ``open_clip_config.json``. Empty: the other settings define the model."""

    embed_dim: int | None = None
    """Embedding dimension; None: that of the architecture."""
    vision_cfg: Mapping[str, Any] = field(default_factory=dict)
    """open_clip's ``CLIPVisionCfg``: ``timm_model_name``, or ``layers``, ``width`` …"""
    text_cfg: Mapping[str, Any] = field(default_factory=dict)
    """open_clip's ``CLIPTextCfg``: ``hf_model_name``, or ``layers``, ``width`` …"""
    quick_gelu: bool | None = None
    """Whether to use QuickGELU, as some weights need (OpenAI's; open_clip names them
    ``-quickgelu``); None: as in the architecture."""

    text_transformer: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of a transformers tower, as in its ``config.json``. With ``model_type`` it
    is complete; otherwise it overrides the configuration of ``text_cfg.hf_model_name``. That name
    is needed in any case: stock open_clip looks up the configuration by it."""

    tokenizer: str = ""
    """A Hugging Face name or a folder. Empty: the architecture's tokenizer, else CLIP's BPE."""
    context_length: int | None = None
    """Maximum tokens per caption, including start and end; None: that of the architecture."""

    image_size: int | None = None
    """Side of the input image in pixels; None: that of the architecture. A timm model has a fixed
    size; another size is another model name."""
    image_mean: tuple[float, float, float] | None = None
    """Mean of RGB in 0..1. None: from the architecture's folder, otherwise OpenAI's."""
    image_std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] | None = None
    """Standard deviation of RGB in 0..1. None: from the architecture's folder, otherwise
    OpenAI's."""

    patch_dropout: _Dropout = 0.0
    """Share of patches dropped in training (FLIP)."""
    text_dropout: _Dropout | None = None
    """Dropout of hidden states in a transformers tower; None uses its configuration (BERT: 0.1).
    Packed attention does not support dropout of attention weights, so there is none."""

    init_logit_scale: float | None = None
    """Initial natural logarithm of the scale of similarities; None is CLIP's ln(1 / 0.07), or the
    architecture's value; with SigLIP's loss ln 10, if the architecture has no bias."""
    init_logit_bias: float | None = None
    """Initial bias of the similarities, for SigLIP's loss. None: no bias, or the architecture's
    value; with SigLIP's loss -10, if the architecture has none."""

    weights: str = ""
    """Weights of the whole model: a file, a folder, ``s3://…``, a Hugging Face name, or an
    open_clip tag. Empty: random initialisation, except for towers with weights of their own."""
    image_weights: str = ""
    """Weights of the image tower; they override ``weights``. Sources as in ``weights``; empty:
    none."""
    text_weights: str = ""
    """Weights of the text tower; they override ``weights``. Sources as in ``weights``; empty:
    none."""

    def __post_init__(self) -> None:
        if not self.architecture and not (self.embed_dim and self.vision_cfg and self.text_cfg):
            raise ValueError("give an architecture, or embed_dim, vision_cfg and text_cfg")


@dataclass(frozen=True, kw_only=True)
class Described:
    """A model without parameter values, on the device ``meta``, to estimate its memory."""

    model: CustomTextCLIP
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    context_length: int
    model_cfg: dict[str, Any]
    """Value of ``model_cfg`` in ``open_clip_config.json``."""
    preprocess: dict[str, Any] = field(default_factory=dict)
    """Further values of ``preprocess_cfg`` that the architecture or its weights came with:
    ``interpolation``, ``resize_mode``, ``fill_color``."""


@dataclass(frozen=True, kw_only=True)
class Built(Described):
    """A model with its weights and tokenizer."""

    tokenizer: Tokenizer


@dataclass(frozen=True)
class _Plan:
    """All settings, resolved."""

    model_cfg: dict[str, Any]
    transformer: Any | None
    """The transformers configuration of the text tower, if it is such a tower."""
    tokenizer: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    preprocess: dict[str, Any]


def build(config: Config) -> Built:
    """Return a model in float32 on the CPU, with weights and tokenizer.

    Raises:
        ConfigError: If open_clip cannot build a model from the settings.
        ArtifactError: If the tokenizer, configuration or weights are unavailable or do not fit.
    """
    plan = _plan(config, ask_hub=True)
    text_cfg = plan.model_cfg["text_cfg"]
    tokenizer = tokenization.make(plan.tokenizer, text_cfg["context_length"])
    model = _construct(plan)
    _check_tokenizer(model.text, tokenizer, plan)
    for source, load, module in (
        (config.weights, weights.load_model, model),
        (config.image_weights, weights.load_image_tower, model.visual),
        (config.text_weights, weights.load_text_tower, model.text),
    ):
        if source:
            load(module, source, architecture=config.architecture)
    return Built(model=model, tokenizer=tokenizer, **_common(plan))


def describe(config: Config) -> Described:
    """Return a model without weights on the device ``meta``, which takes no memory.

    Works offline if the text tower's configuration is in the settings or built in.
    """
    plan = _plan(config, ask_hub=False)
    with torch.device("meta"):
        return Described(model=_construct(plan), **_common(plan))


def _common(plan: _Plan) -> dict[str, Any]:
    cfg = plan.model_cfg
    return {
        "image_size": cfg["vision_cfg"]["image_size"],
        "context_length": cfg["text_cfg"]["context_length"],
        "mean": plan.mean,
        "std": plan.std,
        "model_cfg": cfg,
        "preprocess": plan.preprocess,
    }


def _plan(config: Config, *, ask_hub: bool) -> _Plan:
    """Return the settings, resolved; ``ask_hub`` to compare towers' weights on the Hub with them.

    The inputs of ``weights`` on the Hub are always read: images are prepared as they state.
    """
    folder, found = _architecture(config.architecture)
    cfg = dict(found.get("model_cfg", {}))
    if cfg.pop("multimodal_cfg", None):
        raise ConfigError(f"{config.architecture} has a third tower (CoCa), which is not trained")
    vision = {
        "image_size": CLIPVisionCfg.image_size,
        **cfg.get("vision_cfg", {}),
        **_checked(CLIPVisionCfg, config.vision_cfg, "vision_cfg"),
    }
    text = {_OLD_NAMES.get(name, name): v for name, v in cfg.get("text_cfg", {}).items()}
    text = {
        "context_length": CLIPTextCfg.context_length,
        **text,
        **_checked(CLIPTextCfg, config.text_cfg, "text_cfg"),
    }
    if config.image_size is not None:
        vision["image_size"] = config.image_size
    if config.context_length is not None:
        text["context_length"] = config.context_length
    vision["patch_dropout"] = config.patch_dropout
    if "timm_model_name" in vision:
        vision["timm_model_pretrained"] = False
    tokenizer = config.tokenizer or text.get("hf_tokenizer_name") or ""
    if tokenizer:
        # Also on the hub, open_clip loads the tokenizer by this name.
        text["hf_tokenizer_name"] = tokenizer
    if not config.tokenizer and tokenizer and folder is not None:
        tokenizer = str(folder)  # as open_clip does for local-dir:
    _refuse_what_ragged_text_cannot_be(text)
    transformer = _transformer(config, text, folder)
    cfg |= {"embed_dim": config.embed_dim or cfg["embed_dim"], "custom_text": True}
    cfg |= {"vision_cfg": vision, "text_cfg": text}
    if config.quick_gelu is not None:
        cfg["quick_gelu"] = config.quick_gelu
    if config.init_logit_scale is not None:
        cfg["init_logit_scale"] = config.init_logit_scale
    if config.init_logit_bias is not None:
        cfg["init_logit_bias"] = config.init_logit_bias
    seen = found.get("preprocess_cfg", {})
    mean = config.image_mean or seen.get("mean") or OPENAI_DATASET_MEAN
    std = config.image_std or seen.get("std") or OPENAI_DATASET_STD
    of_weights = _inputs_of_weights(config.weights, config.architecture)
    preprocess = {name: v for name, v in {**of_weights, **seen}.items() if name in _PREPROCESS}
    plan = _Plan(cfg, transformer, tokenizer, _three(mean), _three(std), preprocess)
    _refuse_other_inputs(config, plan, config.weights, of_weights)
    for tower, source in (("vision", config.image_weights), ("text", config.text_weights)):
        stated = _inputs_of_weights(source, config.architecture, ask_hub=ask_hub)
        _refuse_other_inputs(config, plan, source, stated, tower)
    return plan


def _inputs_of_weights(source: str, architecture: str, *, ask_hub: bool = True) -> dict[str, Any]:
    """Return what is stated about the inputs of weights: by open_clip for a tag, or by a model.

    A model states it in the folder of the weights, or in its repository on the Hub. Without
    ``ask_hub``, repositories are not read.

    Returns:
        ``quick_gelu``, ``mean``, ``std``, ``interpolation`` …; empty if nothing is stated.
    """
    if not source or source == architecture:
        return {}
    tag = get_pretrained_cfg(architecture, source)
    if tag:
        return dict(tag)
    is_file = source.endswith(ENDINGS)
    try:
        folder = _folder_of((source.rpartition("/")[0] or ".") if is_file else source)
        path = folder / _CONFIG if folder.exists() else None
    except StorageError:  # reported by whoever reads the weights
        return {}
    if path is None and ask_hub and not is_file and is_hub_name(source):
        path = _config_on_hub(source)
    if path is None or not path.is_file():
        return {}
    found = _parsed(path)
    quick_gelu = found["model_cfg"].get("quick_gelu")
    return {**found.get("preprocess_cfg", {}), "quick_gelu": quick_gelu}


@functools.cache
def _config_on_hub(source: str) -> Path | None:
    """Return the configuration in a repository; None if it has none, or is unreachable."""
    import huggingface_hub

    repository, revision = split(source)
    try:
        return Path(huggingface_hub.hf_hub_download(repository, _CONFIG, revision=revision))
    except client_errors(OSError):
        return None


def _refuse_other_inputs(
    config: Config, plan: _Plan, source: str, stated: Mapping[str, Any], tower: str = ""
) -> None:
    """Reject weights that were trained with another activation, mean or std.

    They are not applied silently: a model is the same with and without its weights.

    Args:
        config: Settings of the model.
        plan: The settings, resolved.
        source: The weights.
        stated: What ``_inputs_of_weights`` returns for them.
        tower: ``vision`` or ``text`` if they are for one tower; empty: for both.
    """
    if not stated:
        return
    quick_gelu = bool(stated.get("quick_gelu"))
    # Towers of other libraries have an activation of their own.
    is_own = not {"timm_model_name", "hf_model_name"} & set(plan.model_cfg.get(f"{tower}_cfg", {}))
    if is_own and quick_gelu != bool(plan.model_cfg.get("quick_gelu")):
        raise ConfigError(
            f"the weights {source!r} are for quick_gelu={quick_gelu}: set it. With the other "
            "activation embeddings are worse"
        )
    for name, own in (("mean", plan.mean), ("std", plan.std)):
        theirs = _three(stated.get(name) or own)
        if tower != "text" and getattr(config, f"image_{name}") is None and theirs != own:
            raise ConfigError(
                f"the weights {source!r} are for image_{name}={list(theirs)}: set it, or "
                "another value to train with"
            )


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)


def _checked(cls: type, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return values with the types of open_clip's fields; command-line values are strings."""
    whole: Any = configs.build(cls, values, name=name)
    return {key: getattr(whole, key) for key in values}


def _architecture(name: str) -> tuple[Path | None, dict[str, Any]]:
    """Return the folder of an architecture, if it has one, and its configuration."""
    if not name:
        return None, {}
    known = open_clip.get_model_config(name) if name in open_clip.list_models() else None
    if known is not None:
        return None, {"model_cfg": known}
    path = _folder_of(name) / _CONFIG
    if not path.is_file() and name.startswith("hf-hub:"):
        import huggingface_hub

        repository, revision = split(name)
        try:
            path = Path(
                huggingface_hub.snapshot_download(
                    repository, revision=revision, allow_patterns=["*.json", "*.txt"]
                ),
                path.name,
            )
        except client_errors(OSError) as error:
            raise ArtifactError(f"{name} cannot be downloaded: {error}") from error
    if not path.is_file():
        raise ConfigError(
            f"architecture {name!r} is neither a model name of open_clip nor a folder with "
            f"open_clip_config.json; names begin like {', '.join(open_clip.list_models()[:3])}"
        )
    return path.parent, _parsed(path)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = [found["model_cfg"][name] for name in ("embed_dim", "vision_cfg", "text_cfg")]
        inputs = found.setdefault("preprocess_cfg", {})
        _ = [_three(inputs[name]) for name in ("mean", "std") if inputs.get(name)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} is not an open_clip configuration: {error}") from error
    return found


_COPIES = ExitStack()
atexit.register(_COPIES.close)


@functools.cache
def _folder_of(name: str) -> Path:
    """Return the local folder of an architecture; a copy without weights if it is in a bucket."""
    if "://" in name:
        copied = _COPIES.enter_context(weight_files.local_copy(name, with_weights=False))
        return copied or Path(name)
    return Path(name.removeprefix("local-dir:")).expanduser()


def _refuse_what_ragged_text_cannot_be(text: Mapping[str, Any]) -> None:
    """Reject towers that read padding, and tokenizers with their own settings."""
    if text.get("tokenizer_kwargs") or text.get("tokenizer_mode"):
        raise ConfigError("text_cfg: tokenizer_kwargs and tokenizer_mode are not supported")
    if text.get("hf_model_name"):
        return
    pool = text.get("pool_type", CLIPTextCfg.pool_type)
    if text.get("no_causal_mask") or text.get("embed_cls") or pool not in ("argmax", "eos"):
        raise ConfigError(
            "text_cfg: a tower without a causal mask, with a class token or with the pooling "
            f"{pool!r} depends on padding, and captions are not padded here"
        )


def _transformer(config: Config, text: Mapping[str, Any], folder: Path | None) -> Any | None:
    """Return the transformers configuration of the text tower; None for open_clip's own."""
    name = text.get("hf_model_name")
    if not name:
        if config.text_transformer:
            raise ConfigError(
                "text_transformer needs text_cfg.hf_model_name: a name on the hub or a folder "
                "under which stock open_clip finds this shape"
            )
        return None
    return text_configs.resolve(
        name,
        config.text_transformer,
        folder=folder,
        dropout=config.text_dropout,
        context_length=text["context_length"],
    )


def _construct(plan: _Plan) -> CustomTextCLIP:
    cfg = {key: value for key, value in plan.model_cfg.items() if key != "custom_text"}
    # open_clip builds a transformers tower only by name, which it looks up on the Hugging Face hub,
    # and does not support ModernBERT: a small placeholder is built and replaced by ours.
    text_cfg = cfg["text_cfg"] if plan.transformer is None else _PLACEHOLDER
    try:
        model = CustomTextCLIP(**{**cfg, "text_cfg": text_cfg})
        if plan.transformer is not None:
            model.text = _text_tower(plan)
    # Libraries check few settings: a wrong one fails where it is first used.
    except (TypeError, RuntimeError, ValueError, AssertionError, ArithmeticError) as error:
        raise ConfigError(f"open_clip cannot build this model: {error}") from error
    if plan.transformer is not None:
        model.context_length, model.vocab_size = model.text.context_length, model.text.vocab_size
    _check_image_tower(model.visual, cfg["vision_cfg"])
    return model


def _text_tower(plan: _Plan) -> HFTextEncoder:
    text_cfg = plan.model_cfg["text_cfg"]
    pooler = text_cfg.get("hf_pooler_type", CLIPTextCfg.hf_pooler_type)
    tower = HFTextEncoder(
        "",
        output_dim=plan.model_cfg["embed_dim"],
        config=plan.transformer,
        pooler_type=pooler,
        proj_type=text_cfg.get("hf_proj_type", CLIPTextCfg.hf_proj_type),
    )
    if pooler != "cls_pooler" and getattr(tower.transformer, "pooler", None) is not None:
        # Stock open_clip then has no such layer, and would reject its tensors.
        tower.transformer.pooler = None
    return tower


def _check_image_tower(visual: Any, vision: Mapping[str, Any]) -> None:
    size, share = vision["image_size"], vision["patch_dropout"]
    if not isinstance(size, int):
        raise ConfigError(f"image_size must be one number, got {size}")
    own = getattr(getattr(getattr(visual, "trunk", None), "patch_embed", None), "img_size", None)
    if own is not None and tuple(own) != (size, size):
        # It could be changed here, but stock open_clip could not load the saved model.
        raise ConfigError(
            f"image_size {size}: {vision['timm_model_name']} reads {own[0]} px; choose the timm "
            "model of this size, such as vit_base_patch16_384"
        )
    if 0 in getattr(visual, "grid_size", ()):
        raise ConfigError(
            f"image_size {size}: an image is smaller than its patches (vision_cfg.patch_size)"
        )
    if share and isinstance(vision.get("layers"), (list, tuple)):
        raise ConfigError("patch_dropout: a convolutional tower has no patches to leave out")


def _check_tokenizer(text: Any, tokenizer: Tokenizer, plan: _Plan) -> None:
    if tokenizer.vocab_size > text.vocab_size:
        raise ConfigError(
            f"the tokenizer {plan.tokenizer or 'CLIP'} has {tokenizer.vocab_size} tokens, the text "
            f"tower embeddings for {text.vocab_size}"
        )
    pad_id = tokenizer.pad_id if plan.transformer is None else plan.transformer.pad_token_id
    if pad_id != tokenizer.pad_id:
        raise ConfigError(
            f"the tokenizer {plan.tokenizer or 'CLIP'} pads with {tokenizer.pad_id}, the text "
            f"tower expects {pad_id} for padding"
        )
