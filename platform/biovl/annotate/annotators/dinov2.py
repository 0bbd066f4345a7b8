"""DINOv2 embeddings of images: the class token after the last norm.

Weights are in the layout of transformers (``facebook/dinov2-large``: ``config.json`` has
``model_type``) or of timm (``timm/vit_large_patch14_dinov2.lvd142m``: it has ``architecture``), in
a folder or on the Hugging Face Hub.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from biovl.annotate.annotators import Precision, fit_in_square, pixels_of
from biovl.core.errors import ArtifactError
from biovl.images import dinov2 as preparation
from biovl.models import hub

# PyTorch is imported on use: decoding workers start seconds faster without it.
if TYPE_CHECKING:
    from torch import Tensor, nn

# Shapes: B images, H and W of the model's input square, C channels, D embedding.

_TRANSFORMERS = ("dinov2", "dinov2_with_registers")
# Tensors that a backbone file may contain or lack: none of them affects the embedding.
_BESIDES = ("classifier.", "head.", "embeddings.mask_token", "mask_token")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of DINOv2 embeddings: model and preprocessing."""

    weights: str
    """A folder, local or ``s3://``, or a name on the Hugging Face Hub."""
    resize: Literal["crop", "pad"] = "crop"
    """crop: resize the shorter side to ``resize_px`` and center-crop, as in DINOv2's evaluation;
    pad: resize the longer side to ``size_px`` and pad with white."""
    resize_px: int = preparation.RESIZE_PX
    """Shorter side before the crop, in pixels."""
    size_px: Annotated[int, Field(ge=1, le=4_096)] = preparation.SIZE_PX
    """Side of the model's input square, in pixels; a multiple of the patch size."""

    @property
    def column(self) -> str:
        """Name of the main column."""
        return "dinov2"

    def __post_init__(self) -> None:
        if self.resize == "crop" and not self.size_px <= self.resize_px <= 8_192:
            raise ValueError(
                f"resize_px must be in size_px..8192 ({self.size_px}..8192), got {self.resize_px}"
            )


def build(config: Config) -> "Dinov2":
    """Return the annotator; only the configuration of the weights is read.

    Raises:
        ArtifactError: If the weights do not exist or are not those of a DINOv2 model, or
            ``size_px`` is not a multiple of its patch size.
    """
    import torch

    described = _described(config.weights)
    with torch.device("meta"):
        backbone = _backbone(described, config.weights)
    if config.size_px % backbone.patch:
        raise ArtifactError(
            f"{config.weights} has patches of {backbone.patch} px: set annotator.size_px to a "
            f"multiple of it, not {config.size_px}"
        )
    return Dinov2(config, described, backbone.dim)


class Dinov2:
    """Annotator that embeds images with DINOv2; the embedding is the class token."""

    reads = ("image",)
    counted = ()

    def __init__(self, config: Config, described: Mapping[str, Any], dim: int) -> None:
        self._config, self._described = config, described
        self.name = config.column
        self.writes = pa.schema([pa.field(self.name, pa.list_(pa.float16(), dim))])
        self.notes: dict[str, Any] = {
            "embedding": self.name,
            "dim": dim,
            "model": described.get("architecture") or described["model_type"],
        }

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | str:
        """Return the model's input square: uint8, shape [H, W, 3]."""
        pixels_HWC = pixels_of(row["image"])
        if isinstance(pixels_HWC, str):
            return pixels_HWC
        size = self._config.size_px
        if self._config.resize == "pad":
            return fit_in_square(pixels_HWC, size)
        return preparation.crop(pixels_HWC, resize_px=self._config.resize_px, size_px=size)

    def load(self, device: str, precision: Precision) -> "DINOv2Model":
        """Return the model with its weights."""
        backbone = _with_weights(self._described, self._config.weights)
        return DINOv2Model(self.name, backbone, device, precision)


class DINOv2Model:
    """A DINOv2 model with its weights, on a device."""

    def __init__(self, name: str, backbone: "_Backbone", device: str, precision: Precision) -> None:
        import torch

        self._name = name
        self._model, self._class_token = backbone.module.eval().to(device), backbone.class_token
        self._device = torch.device(device)
        is_fast = self._device.type == "cuda" and torch.cuda.is_bf16_supported()
        self._in_bf16 = precision == "bfloat16" or (precision == "auto" and is_fast)

    def __call__(self, prepared: np.ndarray) -> dict[str, np.ndarray]:
        """Return the embeddings of images: float32, shape [B, D], not normalized.

        Args:
            prepared: uint8, shape [B, H, W, 3].
        """
        import torch

        with torch.inference_mode():
            image_BCHW = preparation.normalize(torch.tensor(prepared, device=self._device))
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._in_bf16):
                token_BD = self._class_token(self._model, image_BCHW)
            return {self._name: token_BD.float().cpu().numpy()}


@dataclass(frozen=True)
class _Backbone:
    module: "nn.Module"
    dim: int
    patch: int
    class_token: "Callable[[nn.Module, Tensor], Tensor]"


def _backbone(described: Mapping[str, Any], source: str) -> _Backbone:
    """Return a model without weights."""
    if described.get("model_type") in _TRANSFORMERS:
        return _of_transformers(described, source)
    if "dinov2" in str(described.get("architecture")):
        return _of_timm(described, source)
    kind = described.get("model_type") or described.get("architecture") or "neither"
    raise ArtifactError(
        f"{source} is not a DINOv2: its config.json has {kind!r}, expected a model_type of "
        f"{' or '.join(_TRANSFORMERS)} (transformers), or an architecture with dinov2 in its name "
        "(timm)"
    )


def _of_transformers(described: Mapping[str, Any], source: str) -> _Backbone:
    from transformers import AutoConfig, AutoModel

    values = {key: value for key, value in described.items() if key != "model_type"}
    try:
        config = AutoConfig.for_model(described["model_type"], **values)
        module = AutoModel.from_config(config)
    except (TypeError, ValueError, KeyError) as error:
        raise ArtifactError(f"no model can be built from {source}/config.json: {error}") from error
    return _Backbone(module, config.hidden_size, config.patch_size, _first_of_hidden)


def _of_timm(described: Mapping[str, Any], source: str) -> _Backbone:
    import timm

    name = described["architecture"]
    if not timm.is_model(name):
        raise ArtifactError(f"{source}: timm {timm.__version__} has no model {name}")
    # Position embeddings are for 518 px and interpolated, as in transformers' model.
    fixed = {"num_classes": 0, "global_pool": "token", "dynamic_img_size": True}
    try:
        module: Any = timm.create_model(name, **{**described.get("model_args", {}), **fixed})
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArtifactError(f"no model can be built from {source}/config.json: {error}") from error
    return _Backbone(module, module.num_features, module.patch_embed.patch_size[0], _called)


def _first_of_hidden(module: "nn.Module", image_BCHW: "Tensor") -> "Tensor":
    token_BD: Tensor = module(pixel_values=image_BCHW).last_hidden_state[:, 0]
    return token_BD


def _called(module: "nn.Module", image_BCHW: "Tensor") -> "Tensor":
    token_BD: Tensor = module(image_BCHW)
    return token_BD


def _described(source: str) -> dict[str, Any]:
    """Return the content of the ``config.json`` of weights.

    Raises:
        ArtifactError: If it does not exist, or the folder has no weights.
    """
    from biovl.models import weight_files

    with weight_files.local_copy(source, with_weights=False) as folder:
        file = _from_hub(source) if folder is None else folder / "config.json"
        if not file.is_file():
            raise ArtifactError(
                f"{source} is not a folder with config.json: expected the weights of a DINOv2 as "
                "transformers or timm save them"
            )
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ArtifactError(f"{source}/config.json is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ArtifactError(f"{source}/config.json is not a JSON object")
    return values


def _from_hub(source: str) -> Path:
    from huggingface_hub import hf_hub_download

    if not hub.is_hub_name(source):
        raise ArtifactError(
            f"weights {source!r} were not found: expected a folder, or a name on the hub "
            "(owner/name)"
        )
    name, revision = hub.split(source)
    try:
        return Path(hf_hub_download(name, "config.json", revision=revision))
    except (OSError, RuntimeError, ValueError) as error:
        raise ArtifactError(
            f"the weights {source!r} cannot be downloaded ({type(error).__name__}); where there is "
            "no network, give a folder instead: --set weights=DIR"
        ) from error


def _with_weights(described: Mapping[str, Any], source: str) -> _Backbone:
    """Return the model with its weights.

    Raises:
        ArtifactError: If a tensor is missing, of another shape, or unknown.
    """
    import torch
    from safetensors import SafetensorError

    from biovl.models import weight_files

    empty = _backbone(described, source)
    if "model_type" not in described:
        state = weight_files.read(source, weight_files.TOWER)
        expected = empty.module.state_dict()
        _refuse(
            source,
            missing=expected.keys() - state.keys(),
            unknown=state.keys() - expected.keys(),
            misshapen={n for n, t in expected.items() if n in state and state[n].shape != t.shape},
        )
        empty.module.load_state_dict(
            {name: state[name] for name in expected if name in state}, strict=False
        )
        return empty
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    with weight_files.local_copy(source) as folder:
        name, revision = (source, None) if folder else hub.split(source)
        try:
            # transformers' own loading, since tensor names differ between its versions. Formats
            # other than safetensors can execute code.
            module, found = AutoModel.from_pretrained(
                folder or name,
                revision=revision or "main",
                config=empty.module.config,
                dtype=torch.float32,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            reason = str(error).strip().split("\n")[0][:300]
            raise ArtifactError(f"the weights {source!r} cannot be loaded: {reason}") from error
    _refuse(
        source,
        missing=set(found["missing_keys"]),
        unknown=set(found["unexpected_keys"]),
        misshapen={name for name, *_ in found["mismatched_keys"]},
    )
    return replace(empty, module=module)


def _refuse(source: str, *, missing: set[str], unknown: set[str], misshapen: set[str]) -> None:
    wrong = {"missing": missing, "unknown": unknown, "of another shape": misshapen}
    problems = []
    for what, names in wrong.items():
        # Prefixes differ between the file of a backbone and that of a full model.
        needed = sorted(n for n in names if not n.removeprefix("dinov2.").startswith(_BESIDES))
        if needed:
            more = " …" if len(needed) > 4 else ""
            problems.append(f"{len(needed)} {what}: {', '.join(needed[:4])}{more}")
    if problems:
        raise ArtifactError(
            f"{source} holds other weights than its config.json describes: {'; '.join(problems)}"
        )
