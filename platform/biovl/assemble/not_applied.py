"""Count the pairs that steps of the default recipe would remove, for recipes without these steps.

The papers did not remove duplicates, retracted articles or thumbnails. The counts show how many of
these are in a corpus assembled as in a paper.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble import duplicates, rules
from biovl.assemble.config import DEFAULT_RULES, AssembleConfig
from biovl.core.plugins import Plugin

SAME_FILE, LOOKS_ALIKE = "same file as another pair", "looks like another pair"
"""Reasons of exact and of near duplicates."""

_RIGHTS = (Plugin("not_third_party"), Plugin("redistributable"))
"""Rules that no recipe has, but that matter to those who pass a corpus on."""

DUPLICATE_COLUMNS = ("figure_id", "image_sha256", "phash", "width_px", "height_px")


def omitted_rules(config: AssembleConfig) -> list[rules.Rule]:
    """Return the rules of the default recipe that a configuration lacks."""
    own = {rule.name for rule in config.rules}
    return rules.make_rules([rule for rule in DEFAULT_RULES if rule.name not in own])


def applies_all(config: AssembleConfig) -> bool:
    """Return whether a configuration has all steps of the default recipe."""
    return config.duplicates.near and not omitted_rules(config)


def columns_read(config: AssembleConfig) -> list[str]:
    """Return the columns that ``count`` needs; none if there is nothing to count."""
    if applies_all(config):
        return []
    counted = [*omitted_rules(config), *rules.make_rules(_RIGHTS)]
    read = [*DUPLICATE_COLUMNS, *(name for rule in counted for name in rule.reads)]
    return list(dict.fromkeys(read))


def count(config: AssembleConfig, pairs: pa.Table, split: np.ndarray) -> dict[str, Any]:
    """Count the pairs of a corpus that each omitted step would drop, on its own.

    Args:
        config: Settings of the corpus.
        pairs: ``columns_read`` of the N pairs of the corpus.
        split: Split of each pair. Shape [N], str.

    Returns:
        ``pairs``: N; ``default_steps``: pairs by reason, as in ``dropped``, for steps of the
        default recipe; ``any_default_step``: pairs that at least one of them would drop;
        ``rights``: pairs by reason, for rules about redistribution; ``also_in_train``: images of
        val and of test that duplicate one of train. Empty if the corpus applies all steps.
    """
    if applies_all(config):
        return {}
    steps: dict[str, int] = {}
    dropped = np.zeros(len(pairs), bool)
    for rule in omitted_rules(config):
        rejected = rules.rejections(pairs, [rule]).is_valid().to_numpy(zero_copy_only=False)
        steps[rule.name] = int(rejected.sum())
        dropped |= rejected
    found: dict[str, Any] = {"pairs": len(pairs), "default_steps": steps}
    if not config.duplicates.near:
        stands_for = representatives(pairs, near=True)
        repeats = stands_for != np.arange(len(pairs))
        content = pairs["image_sha256"].to_numpy()
        same = np.flatnonzero(repeats)
        same = same[content[same] == content[stands_for[same]]]
        if not config.duplicates.exact:
            steps[SAME_FILE] = len(same)
        steps[LOOKS_ALIKE] = int(repeats.sum()) - len(same)
        dropped |= repeats
        in_train = stands_for[split == "train"]
        found["also_in_train"] = {
            name: int(np.isin(stands_for[split == name], in_train).sum())
            for name in ("val", "test")
        }
    found["any_default_step"] = int(dropped.sum())
    found["rights"] = {
        rule.name: pc.count(rules.rejections(pairs, [rule]), mode="only_valid").as_py()
        for rule in rules.make_rules(_RIGHTS)
    }
    return found


def representatives(
    images: pa.Table, *, near: bool, max_distance: int = duplicates.MAX_DISTANCE
) -> np.ndarray:
    """Return the row that represents each image: its own, or that of the image it duplicates.

    int64, shape [N]. Representatives are chosen by ``duplicates.survivors``.

    Args:
        images: ``DUPLICATE_COLUMNS`` of N images that have a size.
        near: Whether similar images count as duplicates, in addition to identical files.
        max_distance: Maximum Hamming distance of near duplicates.
    """
    # Of equal images the first by id represents the others, whichever harvest it is from.
    order = np.argsort(images["figure_id"].to_numpy().astype(str), kind="stable")
    rows = images.take(pa.array(order))
    looks = rows["phash"].to_pylist() if near else [None] * len(rows)
    stands_for = np.empty(len(order), np.int64)
    stands_for[order] = order[
        duplicates.survivors(
            duplicates.hash_bits(rows["image_sha256"].to_pylist()),
            duplicates.hash_bits(looks),
            rows["width_px"].to_numpy(),
            rows["height_px"].to_numpy(),
            max_distance=max_distance,
        )
    ]
    return stands_for
