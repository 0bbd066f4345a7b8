"""Section with statistics of the corpus: caption lengths, image sizes, licences, years."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from biovl.chain.page.figures import licence
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.chain.page.sections.shown import plot_panel
from biovl.core.folders import Folder

TITLE = "The corpus"

_MOST_NAMES = 6


def body(story: Story) -> Markup | None:
    """Return a section with plots of the corpus and the counts of its ``stats.json``."""
    corpus = story.of("corpus")
    if corpus is None or not Folder(corpus.uri).exists("stats.json"):
        return None
    stats = json.loads(Folder(corpus.uri).read("stats.json"))
    if not stats["corpus"]["images"]:
        return None
    panels = [
        plot_panel(corpus, "caption_lengths.png", "Length of captions", _captions(stats)),
        plot_panel(corpus, "image_sizes.png", "Size of images", _sizes(stats)),
        _licences(stats),
        _journals(stats),
    ]
    return parts.group(filter(None, panels), "panels")


def _captions(stats: Mapping[str, Any]) -> str:
    about = stats["lengths"]["caption_tokens"]
    return (
        f"Half of the captions have more than {about['median']:,.0f} tokens, the longest "
        f"{about['max']:,}. A model does not see what is to the right of its window."
    )


def _sizes(stats: Mapping[str, Any]) -> str:
    about = stats["lengths"]
    return (
        f"Half of the images are wider than {about['width_px']['median']:,.0f} px and higher than "
        f"{about['height_px']['median']:,.0f} px."
    )


def _licences(stats: Mapping[str, Any]) -> Markup | None:
    rows = [
        (licence(item["license"]), item["images"], item["license_group"])
        for item in stats["licenses"]
    ]
    words = "Who may use a figure for what; every pair carries its licence."
    return parts.panel("Licences", bars(rows), words) if rows else None


def _journals(stats: Mapping[str, Any]) -> Markup | None:
    journals = stats["journals"]
    rows = [(item["journal"], item["articles"], "") for item in journals["top"]]
    if not rows:
        return None
    # The statistics list the most frequent journals only.
    named = stats["corpus"]["articles"] - journals["articles_without"]
    others = journals["distinct"] - len(rows), named - sum(count for _, count, _ in rows)
    years = sorted(str(item["year"]) for item in stats["years"] if item["year"])
    span = f", published from {years[0]} to {years[-1]}" if years else ""
    words = f"{stats['corpus']['articles']:,} articles{span}."
    return parts.panel("Journals", bars(rows, others), words)


def bars(rows: Sequence[tuple[str, int, str]], others: tuple[int, int] = (0, 0)) -> Markup:
    """Return a bar chart from (name, count, CSS class) rows, scaled to the longest bar.

    Args:
        rows: Names with their counts; the smallest are added up.
        others: Number of names that are not in the rows, and the sum of their counts.
    """
    ordered = sorted(rows, key=lambda row: -row[1])
    shown = ordered if len(ordered) <= _MOST_NAMES else ordered[: _MOST_NAMES - 1]
    rest = ordered[len(shown) :]
    names = len(rest) + others[0]
    if names:
        total = sum(count for _, count, _ in rest) + others[1]
        shown = [*shown, (f"{names:,} more", total, "other")]
    most = max(count for _, count, _ in shown) or 1
    return parts.bars(shown, most)
