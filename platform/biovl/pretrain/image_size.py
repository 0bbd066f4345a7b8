"""Check that the images of a corpus are large enough for a model.

Assemble may store images at reduced size (``image.short_side_px``), which decode faster for a
small model. A larger model would silently be trained on enlarged images.
"""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from biovl.assemble.config import RECIPES, RETRACTION, AssembleConfig
from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.pretrain.config import DataConfig

_MULTIPLE_PX = 32
"""Suggested sizes are multiples of this."""


def stored_px(config: Mapping[str, Any]) -> int | None:
    """Return the largest shorter side of stored images, in pixels; None if unlimited.

    Args:
        config: Configuration of assemble, from the manifest of a corpus. Without image settings
            no limit is known.
    """
    limit = (config.get("image") or {}).get("short_side_px")
    return None if limit is None else int(limit)


def needed_px(image_px: int, data: DataConfig) -> int:
    """Return the smallest shorter side of an image of which no crop is enlarged.

    A square is the worst case: crops of the same share of a longer image have longer sides.

    Args:
        image_px: Input side of the model, in pixels.
        data: ``crop_scale`` and ``crop_ratio`` of training crops.
    """
    area, (low, high) = data.crop_scale[0], data.crop_ratio
    # The other side of a crop is at most that of the image, so this one is at least ``area``.
    shortest = max(area, math.sqrt(area * min(low, 1 / high)))
    # Without a square among the ratios, the largest crop with one of them may be used instead.
    return math.ceil(image_px / min(shortest, 1 / low, high) - 1e-9)


def check_resolution(
    uri: str, config: Mapping[str, Any], *, image_px: int, data: DataConfig
) -> None:
    """Reject a corpus whose images are stored smaller than the model's input.

    Args:
        uri: Folder of the corpus.
        config: Configuration of assemble, from the manifest of the corpus.
        image_px: Input side of the model, in pixels.
        data: ``crop_scale`` and ``crop_ratio`` of training crops.

    Raises:
        ConfigError: If images are too small; the message has the command that assembles larger
            ones.
    """
    stored, needed = stored_px(config), needed_px(image_px, data)
    if stored is None or stored >= needed:
        return
    raise ConfigError(
        f"corpus: {uri} stores images of at most {stored} px on the shorter side "
        f"(image.short_side_px={stored}). The model reads {image_px} px (model.image_size), cut "
        f"from {data.crop_scale[0]:g} of the area or more (data.crop_scale, data.crop_ratio): it "
        f"needs {needed} px, or images would be enlarged. Make a corpus that fits:\n"
        f"  {assemble_command(uri, config, needed)}\n"
        "image.short_side_px=null keeps images as published. data.small_images=enlarge trains on "
        "this corpus all the same."
    )


def assemble_command(uri: str, config: Mapping[str, Any], needed: int) -> str:
    """Return the command that assembles the same pairs with larger images.

    Args:
        uri: The existing corpus.
        config: Configuration of assemble, from its manifest.
        needed: Required shorter side, in pixels.
    """
    px = math.ceil(needed / _MULTIPLE_PX) * _MULTIPLE_PX
    known = {item.name for item in fields(AssembleConfig)}
    given = {name: value for name, value in config.items() if name in known}
    own: dict[str, Any] = {
        "figures": "FIGURES",
        **given,
        "image": {**(given.get("image") or {}), "short_side_px": px},
        "out": f"{uri.rstrip('/')}-{px}",
    }
    named = [rule.get("name") for rule in given.get("rules", [])]
    if "rules" in given and RETRACTION not in named:
        own["retracted"] = "keep"
    try:
        wanted = configs.flat(configs.to_plain(configs.build(AssembleConfig, own)))
    except ConfigError:
        # Assembled by another version: only these of its settings can be reused.
        wanted = configs.flat({name: own[name] for name in ("figures", "out", "image")})
    recipe, changes = min(
        ((name, _changes(name, wanted)) for name in RECIPES),
        key=lambda found: len(found[1]),
    )
    words = [f"--set {shlex.quote(f'{name}={_text(value)}')}" for name, value in changes.items()]
    return " ".join([f"biovl assemble {recipe}", *words])


def _changes(recipe: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    built = configs.override(RECIPES[recipe](), {"figures": "", "out": ""})
    plain = configs.flat(configs.to_plain(built))
    return {name: value for name, value in wanted.items() if plain.get(name) != value}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
