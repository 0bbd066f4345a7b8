"""Weights from elsewhere into a model: whole, or tower by tower.

Files name their tensors in many ways (``visual.trunk.``, ``bert.``, ``module.`` …). Each known way
is tried and the best match taken; less than 99 % of a tower is an error, since a tower that starts
from noise unnoticed costs a whole run. Files that could run code are refused.
"""

import contextlib
import json
import logging
import math
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from open_clip.convert import convert_state_dict
from open_clip.model import (
    CustomTextCLIP,
    convert_to_custom_text_state_dict,
    resize_pos_embed,
    resize_text_pos_embed,
)
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from biovl.errors import ArtifactError
from biovl.storage import Folder

log = logging.getLogger(__name__)

State = dict[str, Tensor]

ENOUGH = 0.99
"""The share of a tower's tensors, and of its numbers, that a file must hold."""

WHOLE = ("open_clip_model", "open_clip_pytorch_model", "model", "pytorch_model")
"""Names of files in a folder, best first, where a whole two-tower model is looked for."""
TOWER = ("model", "pytorch_model", "open_clip_model", "open_clip_pytorch_model")
"""The same for one tower: repositories that hold both have the backbone's own in ``model``."""
_ENDINGS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth")

# What a file of a backbone cannot have: the way into the common space is the two-tower model's.
_IMAGE_HEADS = ("head.", "proj")
_TEXT_HEADS = ("proj.", "text_projection", "transformer.pooler.")
# Files from before transformers 4.31 and from OpenAI hold what is not learned.
_IGNORED = ("position_ids", "attn_mask", "input_resolution", "context_length", "vocab_size")


def load_model(model: CustomTextCLIP, source: str, *, architecture: str = "") -> None:
    """Load a whole two-tower model, whether its text tower has the prefix ``text.`` or none.

    Position embeddings of another image size or context are interpolated, as open_clip does.

    Args:
        model: A ``CustomTextCLIP``; changed in place.
        source: A file, a folder (``local-dir:`` may stand before it), ``s3://…``, a name on the
            Hugging Face hub, or a tag of open_clip for the architecture (``openai``).
        architecture: The name open_clip has for it; only tags need it.

    Raises:
        ArtifactError: If there is nothing to read, or it matches less than 99 % of the model.
    """
    state = read(source, WHOLE, architecture=architecture)
    state = convert_state_dict(model, state)
    if "positional_embedding" in state:
        state = convert_to_custom_text_state_dict(state)
    _fit_image_positions(state, model.visual, "visual.positional_embedding")
    _fit_text_positions(state, model.text, "text.positional_embedding")
    for name in ("logit_scale", "logit_bias"):
        value = getattr(model, name, None)
        if name in state and value is not None:
            state[name] = state[name].reshape(value.shape)
    _load(model, state, source, optional=("logit_scale", "logit_bias"), whole=True)


def load_image_tower(visual: nn.Module, source: str, *, architecture: str = "") -> None:
    """Load an image tower from a backbone's file (timm) or from a two-tower model's.

    The projection into the common space is loaded where the file has it in the same shape.
    Arguments and errors are those of ``load_model``.
    """
    state = read(source, TOWER, architecture=architecture)
    ways = [_renamed(state, strip, add) for strip in ("", "visual.") for add in ("", "trunk.")]
    trunk = getattr(visual, "trunk", None)
    if trunk is not None:
        # First: where both match, timm's has fitted the position embeddings.
        ways = [*(_renamed(way, "", "trunk.") for way in _as_timm(state, trunk)), *ways]
    best = _best(visual, ways)
    _fit_image_positions(best, visual, "positional_embedding")
    _load(visual, best, source, optional=_IMAGE_HEADS)


def load_text_tower(text: nn.Module, source: str, *, architecture: str = "") -> None:
    """Load a text tower from a language model's file (transformers) or from a two-tower model's.

    The projection into the common space is loaded where the file has it in the same shape.
    Arguments and errors are those of ``load_model``.
    """
    state = read(source, TOWER, architecture=architecture)
    # Checkpoints translated from TensorFlow have its names for the scale and shift of a norm.
    state = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in state.items()
    }
    # A language model for masked words keeps its encoder under its family's name, or "model".
    strips = ("", "text.", "bert.", "roberta.", "model.", "transformer.")
    ways = [_renamed(state, strip, add) for strip in strips for add in ("", "transformer.")]
    best = _best(text, ways)
    _fit_text_positions(best, text, "positional_embedding")
    _load(text, best, source, optional=_TEXT_HEADS)


def read(source: str, stems: Sequence[str] = WHOLE, *, architecture: str = "") -> State:
    """Return the tensors that a source holds, by name. See ``load_model`` for its arguments."""
    with local_copy(source) as path:
        if path is None:
            path = _downloaded(source, stems, architecture)
        return read_file(_in_folder(path, stems) if path.is_dir() else path)


def read_file(path: Path) -> State:
    """Return the tensors of one file, or of the files that an index names.

    Raises:
        ArtifactError: If it is none, or holds more than tensors: such files can run code.
    """
    if path.name.endswith(".index.json"):
        parts = sorted(set(json.loads(path.read_text())["weight_map"].values()))
        if any(os.path.basename(part) != part for part in parts):
            raise ArtifactError(f"{path} names files outside its folder")
        return {k: v for part in parts for k, v in read_file(path.parent / part).items()}
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    except pickle.UnpicklingError as error:
        raise _unreadable(path, error) from error
    for inner in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(inner), Mapping):
            state = state[inner]
    if not isinstance(state, Mapping) or not state:
        raise ArtifactError(f"{path} holds no named tensors")
    return {
        str(name).removeprefix("module.").removeprefix("_orig_mod."): tensor
        for name, tensor in state.items()
        if isinstance(tensor, Tensor)
    }


def _unreadable(path: Path, error: Exception) -> ArtifactError:
    reason = str(error).strip().split("\n")[0][:200]
    return ArtifactError(
        f"{path} cannot be read as weights: {reason}. Only files of nothing but tensors are read; "
        "convert others to .safetensors"
    )


@contextlib.contextmanager
def local_copy(source: str) -> Iterator[Path | None]:
    """Yield the local path of a file or folder; None if the source is the name of something."""
    source = source.removeprefix("local-dir:")
    if "://" not in source:
        path = Path(source).expanduser()
        yield path if path.exists() else None
        return
    with tempfile.TemporaryDirectory(prefix="biovl-model-") as folder:
        yield _copied(source, Path(folder))


def _copied(uri: str, target: Path) -> Path:
    parent, _, name = uri.rstrip("/").rpartition("/")
    if name.endswith(_ENDINGS):
        (target / name).write_bytes(Folder(parent).read(name))
        return target / name
    folder = Folder(uri)
    for name in folder.names(""):
        (target / name).write_bytes(folder.read(name))
    return target


def _in_folder(folder: Path, stems: Sequence[str]) -> Path:
    for stem in stems:
        for ending in _ENDINGS:
            if (folder / f"{stem}{ending}").is_file():
                return folder / f"{stem}{ending}"
    others = sorted(path for path in folder.iterdir() if path.name.endswith(_ENDINGS))
    if len(others) != 1:
        found = ", ".join(path.name for path in others) or "none"
        raise ArtifactError(
            f"{folder} has no weights under a known name (found: {found}); name one file, or call "
            f"it {stems[0]}.safetensors"
        )
    return others[0]


def _downloaded(source: str, stems: Sequence[str], architecture: str) -> Path:
    """Return where the hub's client, or open_clip's, has put what a name stands for."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    from open_clip.pretrained import (
        download_pretrained,
        get_pretrained_cfg,
        list_pretrained_tags_by_model,
    )

    tag = get_pretrained_cfg(architecture, source) if architecture else None
    name = source.removeprefix("hf-hub:")
    try:
        if tag:
            return Path(download_pretrained(tag))
        if name.count("/") == 1 and not name.startswith(("/", ".", "~")):
            present = set(huggingface_hub.list_repo_files(name))
            wanted = [stem + ending for stem in stems for ending in _ENDINGS]
            chosen = next((file for file in wanted if file in present), None)
            if chosen is None:
                raise ArtifactError(f"{name} on the hub has no weights under a known name")
            if chosen.endswith(".index.json"):
                return Path(huggingface_hub.snapshot_download(name)) / chosen
            return Path(huggingface_hub.hf_hub_download(name, chosen))
    except (OSError, RuntimeError, HFValidationError, HfHubHTTPError) as error:
        raise ArtifactError(
            f"the weights {source!r} cannot be downloaded ({type(error).__name__}: {error}); where "
            "there is no network, give a local file or folder instead"
        ) from error
    tags = list_pretrained_tags_by_model(architecture) if architecture else []
    raise ArtifactError(
        f"{source!r} is no file or folder, no name on the hub (owner/name) and no tag of open_clip"
        + (f" for {architecture} ({', '.join(tags)})" if tags else "")
    )


def _renamed(state: Mapping[str, Tensor], strip: str, add: str) -> State:
    return {
        add + name.removeprefix(strip): tensor
        for name, tensor in state.items()
        if name.startswith(strip)
    }


def _as_timm(state: State, trunk: nn.Module) -> Iterator[State]:
    """Yield the state as timm would read it: other names, position embeddings resized."""
    from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn

    if isinstance(trunk, VisionTransformer):
        for way in (state, _renamed(state, "trunk.", "")):
            if way:
                yield checkpoint_filter_fn(dict(way), trunk)


def _fit_image_positions(state: State, visual: nn.Module, name: str) -> None:
    """Interpolate position embeddings of another image size; what is no square stays as it is."""
    old = state.get(name)
    if old is None or old.ndim != 2 or len(old) < 2 or not hasattr(visual, "grid_size"):
        return
    if math.isqrt(len(old) - 1) ** 2 == len(old) - 1:
        moved = {"visual.positional_embedding": old.float()}
        resize_pos_embed(moved, SimpleNamespace(visual=visual))
        state[name] = moved["visual.positional_embedding"]


def _fit_text_positions(state: State, text: nn.Module, name: str) -> None:
    """Interpolate position embeddings of another context; those of another width stay."""
    old, own = state.get(name), getattr(text, "positional_embedding", None)
    if old is not None and own is not None and old.shape[1:] == own.shape[1:]:
        moved = {"text.positional_embedding": old.float()}
        resize_text_pos_embed(moved, SimpleNamespace(text=text))
        state[name] = moved["text.positional_embedding"]


def _best(tower: nn.Module, ways: Sequence[State]) -> State:
    expected = tower.state_dict()
    return max(ways, key=lambda way: sum(name in way for name in expected))


def _load(
    module: nn.Module, state: State, source: str, *, optional: Sequence[str], whole: bool = False
) -> None:
    """Load what fits; refuse when too little does."""
    expected = module.state_dict()
    state = {name: tensor for name, tensor in state.items() if not name.endswith(_IGNORED)}
    is_optional = {name: name.startswith(tuple(optional)) for name in expected}
    # Counters of batch norm; they do not enter any result, and some files lack them.
    is_optional |= {name: True for name in expected if name.endswith("num_batches_tracked")}
    fitting = {
        name: tensor
        for name, tensor in state.items()
        if name in expected and tensor.shape == expected[name].shape
    }
    odd = [
        f"{name} {list(state[name].shape)} instead of {list(expected[name].shape)}"
        for name in expected
        if name in state and name not in fitting and not is_optional[name]
    ]
    needed = [name for name in expected if not is_optional[name]]
    missing = [name for name in needed if name not in state]
    unused = sorted(state.keys() - expected.keys())
    if odd:
        raise _refused(f"{source} has tensors of another shape", odd, unused)
    if _share(expected, needed, missing) < ENOUGH:
        raise _refused(
            f"{source} has only {len(needed) - len(missing)} of the {len(needed)} tensors needed; "
            "missing",
            missing,
            unused,
        )
    if whole and len(unused) > (1 - ENOUGH) * len(expected):
        raise _refused(f"{source} is another model: it has tensors that this one has not", unused)
    if missing:
        log.warning("%s lacks %s; they start at random", source, ", ".join(missing))
    heads = [name for name in expected if name not in fitting and name not in missing]
    log.info("%s: %d tensors loaded, not in it: %s", source, len(fitting), ", ".join(heads) or "-")
    module.load_state_dict(fitting, strict=False)


def _share(expected: State, needed: Sequence[str], missing: Sequence[str]) -> float:
    """Return the smaller of two shares that are there: of the tensors, and of their numbers."""
    of_numbers = sum(expected[name].numel() for name in missing) / max(
        1, sum(expected[name].numel() for name in needed)
    )
    return 1 - max(len(missing) / max(1, len(needed)), of_numbers)


def _refused(what: str, names: Sequence[str], unused: Sequence[str] = ()) -> ArtifactError:
    def few(items: Sequence[str]) -> str:
        return ", ".join(items[:4]) + (f" and {len(items) - 4} more" if len(items) > 4 else "")

    spare = f"\n  in the file and not used: {few(unused)}" if unused else ""
    return ArtifactError(
        f"{what}: {few(names)}{spare}\n  Give a file of the same architecture, or the architecture "
        "of the file."
    )
