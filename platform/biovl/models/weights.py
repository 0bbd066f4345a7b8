"""Loading of external weights into a model, whole or per tower.

Files name their tensors in many ways (``visual.trunk.``, ``bert.``, ``module.`` …). Each known way
is tried and the best match used; less than 99 % of a tower is an error, because a tower with
silently random weights wastes a whole run.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import torch
from open_clip.convert import convert_state_dict
from open_clip.model import (
    CustomTextCLIP,
    convert_to_custom_text_state_dict,
    resize_pos_embed,
    resize_text_pos_embed,
)
from torch import Tensor, nn

from biovl.core.errors import ArtifactError
from biovl.models.weight_files import TOWER, WHOLE, State, read

log = logging.getLogger(__name__)

ENOUGH = 0.99
"""Minimum fraction of a tower's tensors, and of its parameters, that a file must hold."""

_LONGCLIP_FIRST = 20
"""Text positions that LongCLIP keeps from CLIP."""

# Not in a backbone's file: the projection into the common space belongs to the two-tower model.
_IMAGE_HEADS = ("head.", "proj")
_TEXT_HEADS = ("proj.", "text_projection", "transformer.pooler.")
# Files from before transformers 4.31 and from OpenAI contain tensors that are not parameters.
_IGNORED = ("position_ids", "attn_mask", "input_resolution", "context_length", "vocab_size")


def load_model(model: CustomTextCLIP, source: str, *, architecture: str = "") -> None:
    """Load a whole two-tower model, whether or not its text tower has the prefix ``text.``.

    Position embeddings of another image size or context length are interpolated, as in open_clip.

    Args:
        model: A ``CustomTextCLIP``; modified in place.
        source: A file, a folder (optionally with prefix ``local-dir:``), ``s3://…``, a name on the
            Hugging Face hub, or an open_clip tag for the architecture (``openai``).
        architecture: Name of the architecture in open_clip; only needed for tags.

    Raises:
        ArtifactError: If there is nothing to read, or it matches less than 99 % of the model.
    """
    state = _with_joined_positions(read(source, WHOLE, architecture=architecture))
    state = convert_state_dict(model, state)
    if "positional_embedding" in state:
        state = convert_to_custom_text_state_dict(state)
    _fit_image_positions(state, model.visual, "visual.positional_embedding")
    _fit_text_positions(state, model.text, "text.positional_embedding")
    if "visual.trunk.pos_embed" in state and hasattr(model.visual, "trunk"):
        for fitted in _as_timm(state, model.visual.trunk):
            state |= {k: v for k, v in _renamed(fitted, "", "visual.trunk.").items() if k in state}
    for name in ("logit_scale", "logit_bias"):
        value = getattr(model, name, None)
        if name in state and value is not None:
            state[name] = state[name].reshape(value.shape)
    _load(model, state, source, optional=("logit_scale", "logit_bias"), whole=True)


def load_image_tower(visual: nn.Module, source: str, *, architecture: str = "") -> None:
    """Load an image tower from the file of a backbone (timm) or of a two-tower model.

    The projection into the common space is loaded if the file has it in the same shape.
    The arguments and errors are those of ``load_model``.
    """
    state = read(source, TOWER, architecture=architecture)
    ways = [_renamed(state, strip, add) for strip in ("", "visual.") for add in ("", "trunk.")]
    trunk = getattr(visual, "trunk", None)
    if trunk is not None:
        # First: if both match, timm's has already resized the position embeddings.
        ways = [*(_renamed(way, "", "trunk.") for way in _as_timm(state, trunk)), *ways]
    best = _best(visual, ways)
    _fit_image_positions(best, visual, "positional_embedding")
    _load(visual, best, source, optional=_IMAGE_HEADS)


def load_text_tower(text: nn.Module, source: str, *, architecture: str = "") -> None:
    """Load a text tower from the file of a language model (transformers) or of a two-tower model.

    The projection into the common space is loaded if the file has it in the same shape.
    The arguments and errors are those of ``load_model``.
    """
    state = _with_joined_positions(read(source, TOWER, architecture=architecture))
    # Checkpoints converted from TensorFlow use its names for the scale and shift of a norm.
    state = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): tensor
        for name, tensor in state.items()
    }
    # A masked language model stores its encoder under its family's name, or "model".
    strips = ("", "text.", "bert.", "roberta.", "model.", "transformer.")
    ways = [_renamed(state, strip, add) for strip in strips for add in ("", "transformer.")]
    best = _best(text, ways)
    _fit_text_positions(best, text, "positional_embedding")
    _load(text, best, source, optional=_TEXT_HEADS)


def _with_joined_positions(state: State) -> State:
    """Return a state in which the two tables of text positions of LongCLIP are one.

    Source: Zhang et al. 2024, arXiv:2403.15378, whose model reads the first positions, which are
    not trained, from ``positional_embedding``, and the others from the second table.
    """
    others = state.get("positional_embedding_res")
    if others is None:
        return state
    first = state["positional_embedding"][:_LONGCLIP_FIRST]
    joined = torch.cat([first, others[_LONGCLIP_FIRST:]])
    kept = {name: tensor for name, tensor in state.items() if tensor is not others}
    return {**kept, "positional_embedding": joined}


def _renamed(state: Mapping[str, Tensor], strip: str, add: str) -> State:
    return {
        add + name.removeprefix(strip): tensor
        for name, tensor in state.items()
        if name.startswith(strip)
    }


def _as_timm(state: State, trunk: nn.Module) -> Iterator[State]:
    """Yield the state as timm would read it: renamed, with resized position embeddings."""
    from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn

    if isinstance(trunk, VisionTransformer):
        for way in (state, _renamed(state, "trunk.", "")):
            if way:
                yield checkpoint_filter_fn(dict(way), trunk)


def _fit_image_positions(state: State, visual: nn.Module, name: str) -> None:
    """Interpolate position embeddings of another image size; non-square grids are unchanged."""
    old = state.get(name)
    if old is None or old.ndim != 2 or len(old) < 2 or not hasattr(visual, "grid_size"):
        return
    if math.isqrt(len(old) - 1) ** 2 == len(old) - 1:
        moved = {"visual.positional_embedding": old.float()}
        resize_pos_embed(moved, SimpleNamespace(visual=visual))
        state[name] = moved["visual.positional_embedding"]


def _fit_text_positions(state: State, text: nn.Module, name: str) -> None:
    """Interpolate position embeddings of another context length, unless their width differs."""
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
    """Load matching tensors; raise if too few match."""
    expected = module.state_dict()
    state = {name: tensor for name, tensor in state.items() if not name.endswith(_IGNORED)}
    is_optional = {name: name.startswith(tuple(optional)) for name in expected}
    # Counters of batch norm, which do not affect results; some files lack them.
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
        raise _refused(f"{source} is another model: it has tensors that this one lacks", unused)
    if missing:
        log.warning("%s lacks %s; they are randomly initialized", source, ", ".join(missing))
    heads = [name for name in expected if name not in fitting and name not in missing]
    log.info("%s: %d tensors loaded, not in it: %s", source, len(fitting), ", ".join(heads) or "-")
    module.load_state_dict(fitting, strict=False)


def _share(expected: State, needed: Sequence[str], missing: Sequence[str]) -> float:
    """Return the smaller of two loaded fractions: of the tensors, and of the parameters."""
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
