"""Section with the training loss, and validation on articles that were not trained on."""

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from biovl.chain.page import charts
from biovl.chain.page.charts import Curve
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Chapter, Story
from biovl.core.artifacts import Folder
from biovl.pretrain.guard import LOSS_NAMES, chance

TITLE = "How the model learned"

_DIRECTIONS = {
    "text_to_image": "The image to a caption",
    "image_to_text": "The caption to an image",
}
_LOOKS = {1: "first", 5: "second", 10: "third"}


def body(story: Story) -> Markup | None:
    """Return a section with loss and recall by epoch, and the last recall compared with chance."""
    model = story.of("model")
    if model is None:
        return None
    panels = [_loss(model), *_recalls(model), _scores(model)]
    shown = [panel for panel in panels if panel is not None]
    section: Markup | None = parts.group(shown, "panels") if shown else None
    return section


def _loss(model: Chapter) -> Markup | None:
    folder = Folder(model.uri)
    if not folder.exists("metrics.jsonl"):
        return None
    # Steps repeated after a failure occur twice; the last one counts.
    rows = {row["step"]: row for row in map(json.loads, folder.read("metrics.jsonl").splitlines())}
    steps = sorted(step for step, row in rows.items() if _is_number(row.get("loss")))
    if not steps:
        return None
    name = model.manifest.config.get("step", {}).get("loss", "infonce")
    curve = Curve("training", steps, [rows[step]["loss"] for step in steps], "first")
    sizes = sorted({rows[step]["pairs"] for step in steps})
    # A later batch size has its own level.
    guessed = {
        "by guessing" + (f" among {pairs:,}" if len(sizes) > 1 else ""): chance(name, pairs)
        for pairs in sizes
    }
    drawn = charts.lines("Training loss by step", [curve], x="step", levels=guessed)
    words = (
        f"{LOSS_NAMES[name]} of {' or '.join(f'{pairs:,}' for pairs in sizes)} pairs in a step: "
        f"from {rows[steps[0]]['loss']:.2f} to {rows[steps[-1]]['loss']:.2f}."
    )
    panel: Markup = parts.panel("Loss", drawn, words)
    return panel


def _is_number(value: Any) -> bool:
    # Skip missing and non-finite losses.
    return isinstance(value, int | float) and abs(value) < float("inf")


def _recalls(model: Chapter) -> list[Markup]:
    folder = Folder(model.uri)
    if not folder.exists("validation.json"):
        return []
    by_epoch = {
        int(epoch): row for epoch, row in json.loads(folder.read("validation.json")).items()
    }
    epochs = sorted(by_epoch)
    if not epochs:
        return []
    found = []
    for direction, name in _DIRECTIONS.items():
        curves = [
            Curve(
                f"R@{k}",
                epochs,
                [by_epoch[epoch][f"{direction}_recall_at_{k}"] for epoch in epochs],
                look,
                dots=True,
            )
            # Recall at k is undefined for fewer than k pairs.
            for k, look in _LOOKS.items()
            if all(f"{direction}_recall_at_{k}" in by_epoch[epoch] for epoch in epochs)
        ]
        chance = by_epoch[epochs[-1]]["chance_recall_at_1"]
        drawn = charts.lines(
            f"{name}: recall by epoch",
            curves,
            x="epoch",
            levels={"R@1 by chance": chance},
            percent=True,
        )
        pairs = by_epoch[epochs[-1]]["pairs"]
        words = f"How often it is among the first so many of {pairs:,}."
        found.append(parts.panel(name, drawn, words, curves))
    return found


def _scores(model: Chapter) -> Markup | None:
    scores: Mapping[str, float] | None = model.manifest.notes.get("validation")
    if not scores:
        return None
    known = [k for k in (1, 5, 10) if f"chance_recall_at_{k}" in scores]
    heads = ["Finds …", *("at once" if k == 1 else f"among {k}" for k in known)]
    rows = [
        [name, *(f"{scores[f'{direction}_recall_at_{k}']:.0%}" for k in known)]
        for direction, name in _DIRECTIONS.items()
    ]
    rows.append(["by chance", *(f"{scores[f'chance_recall_at_{k}']:.1%}" for k in known)])
    better = scores["text_to_image_recall_at_1"] / scores["chance_recall_at_1"]
    words = (
        f"Among {scores['pairs']:,} pairs of articles kept from training, the model finds the "
        f"right image at once {better:.1f} times as often as chance would."
    )
    panel: Markup = parts.panel("Scores", parts.table(heads, rows), words)
    return panel
