"""Whether the images of a corpus are large enough for a model that is trained on them.

Assemble may store images smaller than they were published (``image.short_side_px``), for a smaller
model to decode them faster. A larger model would be trained on enlarged images without any error.
"""

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from biovl.assemble.config import RETRACTION, AssembleConfig
from biovl.core import config as configs
from biovl.core import recipes
from biovl.core.errors import ConfigError

_MULTIPLE_PX = 32
"""Suggested sizes are multiples of it."""


def stored_px(config: Mapping[str, Any]) -> int | None:
    """Return the most pixels of the shorter side of stored images; None where they are unlimited.

    Args:
        config: Of assemble, as it is in the manifest of a corpus. One that says nothing of images
            has no limit that is known.
    """
    limit = (config.get("image") or {}).get("short_side_px")
    return None if limit is None else int(limit)


def needed_px(image_px: int, crop_scale: tuple[float, float]) -> int:
    """Return the shorter side from which on a square image is never enlarged, crops included.

    Args:
        image_px: Side of the squares that the model reads.
        crop_scale: The least and largest share of an image's area that is kept in training.
    """
    return math.ceil(image_px / math.sqrt(crop_scale[0]) - 1e-9)


def check_resolution(
    uri: str, config: Mapping[str, Any], *, image_px: int, crop_scale: tuple[float, float]
) -> None:
    """Refuse a corpus whose images were stored smaller than a model reads them.

    Args:
        uri: Of the corpus.
        config: Of the assemble that made it, as in its manifest.
        image_px: Side of the squares that the model reads.
        crop_scale: The least and largest share of an image's area that is kept in training.

    Raises:
        ConfigError: With the command that makes a corpus that is large enough.
    """
    stored, needed = stored_px(config), needed_px(image_px, crop_scale)
    if stored is None or stored >= needed:
        return
    raise ConfigError(
        f"corpus: {uri} stores images of at most {stored} px on the shorter side "
        f"(image.short_side_px={stored}). The model reads {image_px} px (model.image_size), cut "
        f"from {crop_scale[0]:g} of the area or more (data.crop_scale): it needs {needed} px, or "
        "images would be enlarged. Make a corpus that fits:\n"
        f"  {assemble_command(uri, config, needed)}\n"
        "image.short_side_px=null keeps images as published. data.small_images=enlarge trains on "
        "this corpus all the same."
    )


def assemble_command(uri: str, config: Mapping[str, Any], needed: int) -> str:
    """Return the command that assembles the same pairs with larger images.

    Args:
        uri: Of the corpus that exists.
        config: Of the assemble that made it, as in its manifest.
        needed: Pixels that the shorter side shall have room for.
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
        # Made by another version: of its settings only these can be taken over.
        wanted = configs.flat({name: own[name] for name in ("figures", "out", "image")})
    recipe, changes = min(
        ((name, _changes(name, wanted)) for name in recipes.ASSEMBLE),
        key=lambda found: len(found[1]),
    )
    words = [f"--set {shlex.quote(f'{name}={_text(value)}')}" for name, value in changes.items()]
    return " ".join([f"python pipelines/assemble.py {recipe}", *words])


def _changes(recipe: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    values = {**recipes.ASSEMBLE[recipe](), "figures": "", "out": ""}
    plain = configs.flat(configs.to_plain(configs.build(AssembleConfig, values)))
    return {name: value for name, value in wanted.items() if plain.get(name) != value}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
