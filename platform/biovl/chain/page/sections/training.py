"""Section with the training loss, and validation on articles that were not trained on."""

from collections.abc import Mapping

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Chapter, Story
from biovl.chain.page.sections.shown import plot_panel

TITLE = "How the model learned"

_DIRECTIONS = {
    "text_to_image": "The image to a caption",
    "image_to_text": "The caption to an image",
}
_PLOTS = {
    "loss.png": ("Loss", "Dashed: what guessing would give."),
    "recall.png": ("Recall", "How often the right one is among the first one, five or ten."),
}


def body(story: Story) -> Markup | None:
    """Return a section with loss and recall by epoch, and the last recall compared with chance."""
    model = story.of("model")
    if model is None:
        return None
    panels = [plot_panel(model, name, *words) for name, words in _PLOTS.items()]
    panels.append(_scores(model))
    shown = [panel for panel in panels if panel is not None]
    return parts.group(shown, "panels") if shown else None


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
    return parts.panel("Scores", parts.table(heads, rows), words)
