"""Sections of the model card: scores, training data and licences."""

from collections.abc import Mapping, Sequence
from typing import Any

from biovl.core.filesystems import base_name, canonical_location
from biovl.core.markdown import percent, table
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.lineage import seen_val_warning
from biovl.pretrain.mixture import Mixture

_FREE = ("CC0-1.0", "CC-BY-4.0")
"""Licences that apply to a model if all of its data has them, the most permissive first."""

_KINDS = {
    "other": "data-in-part-all-rights-reserved-or-custom",
    "noncommercial": "data-in-part-noncommercial",
}
"""Licence names on the Hub for PMC's licence groups, the most restrictive first."""


def scores_section(
    scores: Mapping[int, Mapping[str, float]],
    epoch: int,
    lineage: Sequence[Mapping[str, Any]] = (),
    *,
    has_weights: bool = False,
) -> str:
    """Return the scores by epoch, with the pool size and chance level.

    Args:
        scores: Scores by epoch, from 0; may be empty.
        epoch: Epoch of the published weights, from 0.
        lineage: Checkpoints that the run descends from, the oldest first.
        has_weights: Whether the run began with weights that others trained.
    """
    if not scores:
        return "## Scores\n\nIt was not validated: the corpus has no pairs for it."
    last = scores[max(scores)]
    names = [
        f"{direction}_recall_at_{k}"
        for direction in ("image_to_text", "text_to_image")
        for k in (1, 5, 10)
        if f"{direction}_recall_at_{k}" in last
    ]
    heads = [
        name.replace("image_to_text_recall_at_", "image → text R@").replace(
            "text_to_image_recall_at_", "text → image R@"
        )
        for name in names
    ]
    rows = [
        [
            f"{each + 1} (this model)" if each == epoch else str(each + 1),
            f"{found['pairs']:,.0f}",
            f"{found['loss']:.3f}",
            *(percent(found[name]) if name in found else "" for name in names),
        ]
        for each, found in sorted(scores.items())
    ]
    chance = [percent(last[f"chance_recall_at_{name.rpartition('_')[2]}"]) for name in names]
    rows.append(["by chance", f"{last['pairs']:,.0f}", f"{last['chance_loss']:.3f}", *chance])
    return f"""## Scores

How often the text of an image is the nearest of all texts (R@1), or among the nearest 5 or 10, \
and the image of a text likewise. It depends on how many pairs there are to choose from: fewer is \
easier. {_unseen(lineage, has_weights)} The loss is the mean over \
batches of {last["loss_block"]:,.0f} pairs.

{table(["epoch", "pairs", "loss", *heads], rows)}{_tasks(scores, epoch)}"""


def _unseen(lineage: Sequence[Mapping[str, Any]], has_weights: bool) -> str:
    """Return whether the pairs are others than those of training."""
    warning = seen_val_warning(lineage[-1]) if lineage else None
    if warning is None:
        but = "; what the initial weights were trained on was not compared" if has_weights else ""
        return f"Pairs share no article and no group with those of training{but}."
    return f"**{warning[0].upper()}{warning[1:]}.**"


def _tasks(scores: Mapping[int, Mapping[str, float]], epoch: int) -> str:
    """Return a Markdown table of the scores on other data by epoch; empty if there are none."""
    last = scores[max(scores)]
    names = [name for name in last if "/" in name and not name.endswith(("/chance", "_rank"))]
    if not names:
        return ""
    rows = [
        [
            f"{each + 1} (this model)" if each == epoch else str(each + 1),
            *(percent(found[name]) if name in found else "" for name in names),
        ]
        for each, found in sorted(scores.items())
    ]
    chance = {
        f"{name.partition('/')[0]}/accuracy": last[name] for name in last if "/chance" in name
    }
    rows.append(["by chance", *(percent(chance[n]) if n in chance else "" for n in names)])
    heads = [name.replace("/", ": ", 1).replace("_", " ") for name in names]
    return f"\n\nOther data, scored in training:\n\n{table(['epoch', *heads], rows)}"


def lineage_section(
    lineage: Sequence[Mapping[str, Any]], changed: Sequence[Mapping[str, Any]]
) -> str:
    """Return the checkpoints that a run descends from, and the settings changed during the run.

    Other runs appear by folder name only: local paths are private.
    """
    rows = [
        [
            base_name(entry["run"]),
            entry["step"],
            entry["pairs"],
            entry["checkpoint_sha256"][:16],
            _changes(entry["changed"]),
        ]
        for entry in lineage
    ]
    forked = """The run continues a checkpoint of another run, with other settings. The oldest is \
the first; pairs are all that its weights were trained on.

""" + table(["run", "step", "pairs", "SHA-256 of the checkpoint", "changed after it"], rows)
    steps = [[each["step"], _changes([each])] for each in changed]
    resumed = "Settings that changed while the run was interrupted:\n\n" + table(
        ["after step", "changed"], steps
    )
    parts = [forked] * bool(lineage) + [resumed] * bool(changed)
    return "\n\n".join(["## Lineage", *parts]) if parts else ""


def _changes(changed: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        f"`{each['setting']}`"
        + ("" if each["setting"] == "corpus" else f" {each['before']} → {each['after']}")
        for each in changed
    ]
    return ", ".join(shown) or "nothing"


def earlier_corpora(
    config: PretrainConfig, lineage: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the corpora that the runs that a run descends from trained on, and it does not."""
    known = lineage[-1].get("corpora", ()) if lineage else ()
    own = {canonical_location(uri) for uri in config.corpora}
    return tuple(uri for uri in known if canonical_location(uri) not in own)


def hub_license(stats: Mapping[str, Any], earlier: Sequence[str] = ()) -> dict[str, str]:
    """Return the Hub's licence fields: the licence of the data, or ``other`` if it is mixed.

    The licences of earlier corpora are in the cards of their runs: they count as others.
    """
    licenses = {row["license"] for row in stats["licenses"]}
    if licenses and licenses <= set(_FREE) and not earlier:
        # CC BY requires attribution; if all data is CC0, none is required.
        return {"license": max(licenses, key=_FREE.index).lower()}
    groups = {row["license_group"] for row in stats["license_groups"]}
    kind = next((_KINDS[group] for group in _KINDS if group in groups), "data-of-several-licences")
    # Without ``license_link``, which is LICENSE, LICENSE.md or a URL: the licences are in the card.
    return {"license": "other", "license_name": kind}


def rollbacks_section(rollbacks: Sequence[Mapping[str, Any]]) -> str:
    """Return the rollbacks of a run; empty if there were none."""
    if not rollbacks:
        return ""

    def loss(value: float | None) -> str:
        return "NaN" if value is None else f"{value:.2f}"

    rows = [
        [
            "{:,} to {:,}".format(*each["skipped_steps"]),
            ", ".join(
                f"epoch {part['epoch'] + 1}: {part['first']:,} to {part['end'] - 1:,}"
                for part in each["epochs"]
            ),
            loss(each["loss_before"]),
            loss(each["loss_after"]),
        ]
        for each in rollbacks
    ]
    heads = ["skipped steps", "positions of their pairs", "loss before", "loss then"]
    return f"""## Rollbacks

The loss diverged, or was NaN. Training returned to the weights before, and skipped the pairs that \
led to it. Positions are those in the order of an epoch, from 0.

{table(heads, rows)}"""


def data_sections(
    config: PretrainConfig,
    mixture: Mixture,
    stats: Mapping[str, Any],
    fingerprints: Sequence[str],
    earlier: Sequence[str] = (),
) -> str:
    """Return descriptions of the data and its licences, with a warning if some are restricted."""
    rows = [
        [row["license"] or "none stated", row["license_group"], row["articles"], row["images"]]
        for row in stats["licenses"]
    ]
    texts = ", ".join(f"`{name}` {percent(share)}" for name, share in config.data.text.items())
    about = (
        f"{stats['corpus']['images']:,} pairs from {stats['corpus']['articles']:,} articles or "
        "records"
    )
    if len(mixture.parts) == 1:
        pairs = mixture.parts[0].manifest.counts["pairs"]
        counts = ", ".join(f"{count:,} for {split}" for split, count in pairs.items())
        about += f": {counts}. "
        corpora = f"The corpus by the hash of its manifest:\n\n    {fingerprints[0]}"
    else:
        about += f" in {len(mixture.parts)} corpora; what is in two of them counts twice. "
        corpora = _corpora(mixture, fingerprints)
    return f"""## Data

{about}Texts of the pairs that were trained on: {texts}. {corpora}

## Licences of the data

{_earlier_terms(earlier)}{_warning(stats)}

{table(["licence", "group", "articles or records", "images"], rows)}"""


def _corpora(mixture: Mixture, fingerprints: Sequence[str]) -> str:
    """Return a table of several corpora, by the names of their folders."""
    rows = [
        [
            part.label,
            part.pairs,
            sum(part.left_out.values()),
            f"{part.draws:,} ({percent(part.draws / mixture.draws)})",
            f"`{fingerprint}`",
        ]
        for part, fingerprint in zip(mixture.parts, fingerprints, strict=True)
    ]
    heads = ["corpus", "pairs of train", "left out", "drawn an epoch", "hash of its manifest"]
    return f"""Pairs are left out whose article, group or image is in val or test of another \
corpus. Scores are of val of the first one.

{table(heads, rows)}"""


def _earlier_terms(earlier: Sequence[str]) -> str:
    """Return a paragraph on the terms of earlier corpora; empty if there are none."""
    names = ", ".join(f"`{base_name(uri)}`" for uri in earlier)
    return (
        f"The weights were trained on {names} before, whose terms hold, too: they are in the cards "
        "of the earlier runs. What follows is about the data of this run alone.\n\n"
        if earlier
        else ""
    )


def _warning(stats: Mapping[str, Any]) -> str:
    """Return a warning about restricted data."""
    images = stats["corpus"]["images"]
    by_group = {row["license_group"]: row["images"] for row in stats["license_groups"]}
    without_derivatives = sum(
        row["images"] for row in stats["licenses"] if "-ND" in (row["license"] or "").upper()
    )
    restricted = [
        (by_group.get("noncommercial", 0), "may be used for **noncommercial purposes only**"),
        (without_derivatives, "are under licences that allow **no derivatives**"),
        (by_group.get("other", 0), "are under **custom, reserved or no stated terms**"),
    ]
    lines = [
        f"* {count:,} ({percent(count / images)}) {what}." for count, what in restricted if count
    ]
    if not lines:
        return (
            "All images may be used for any purpose, under the terms of their licences; most ask "
            "for attribution. The counts are of the whole corpus."
        )
    return "\n".join(
        [
            f"Of the {images:,} images of the corpus,",
            "",
            *lines,
            "",
            "An image may count in more than one line. Whether and how these terms bind a model "
            "trained on the images is not settled and differs by country: decide before you use "
            "this one commercially or pass it on.",
        ]
    )
