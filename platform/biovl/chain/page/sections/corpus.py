"""Section with statistics of the corpus: caption lengths, image sizes, licences, years."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from biovl.chain.page import charts
from biovl.chain.page.figures import licence
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.core.artifacts import Folder

TITLE = "The corpus"

_BARS = 28
_WINDOWS = {"77: CLIP": 77, "256: BiomedCLIP": 256}
_MOST_NAMES = 6


def body(story: Story) -> Markup | None:
    """Return a section with charts of the corpus' ``stats.json``."""
    corpus = story.of("corpus")
    if corpus is None or not Folder(corpus.uri).exists("stats.json"):
        return None
    stats = json.loads(Folder(corpus.uri).read("stats.json"))
    if not stats["corpus"]["images"]:
        return None
    panels = [_captions(stats), _sizes(stats), _licences(stats), _journals(stats)]
    grid: Markup = parts.group(filter(None, panels), "panels")
    return grid


def _captions(stats: Mapping[str, Any]) -> Markup | None:
    histogram = stats["token_histograms"]["caption"]
    bars = coarser(histogram["texts"], histogram["bin_tokens"])
    if not bars:
        return None
    about = stats["lengths"]["caption_tokens"]
    drawn = charts.histogram(
        "Captions by their number of tokens", bars, x="tokens of a caption", marks=_WINDOWS
    )
    words = (
        f"Half of the captions have more than {about['median']:,.0f} tokens, the longest "
        f"{about['max']:,}. A model with a window of 77 does not see what is to its right."
    )
    return _panel("Length of captions", drawn, words)


def coarser(counts: Sequence[int], width: int) -> list[tuple[float, float, int]]:
    """Merge a histogram into at most 28 bins (start, end, count), up to the last non-empty bin."""
    filled = [number for number, count in enumerate(counts) if count]
    if not filled:
        return []
    used = filled[-1] + 1
    step = -(-used // _BARS)
    return [
        (start * width, (start + step) * width, sum(counts[start : start + step]))
        for start in range(0, used, step)
    ]


def _sizes(stats: Mapping[str, Any]) -> Markup | None:
    per_octave = stats["image_sizes"]["bins_per_octave"]
    points = [
        # The centre of a bin.
        (2 ** ((across + 0.5) / per_octave), 2 ** ((up + 0.5) / per_octave), count)
        for across, up, count in stats["image_sizes"]["bins"]
    ]
    if not points:
        return None
    drawn = charts.bubbles("Images by width and height", points, x="width in px", y="height in px")
    about = stats["lengths"]
    words = (
        f"Half of the images are wider than {about['width_px']['median']:,.0f} px and higher than "
        f"{about['height_px']['median']:,.0f} px; the area of a circle is how many there are."
    )
    return _panel("Size of images", drawn, words)


def _licences(stats: Mapping[str, Any]) -> Markup | None:
    rows = [
        (licence(item["license"]), item["images"], item["license_group"])
        for item in stats["licenses"]
    ]
    words = "Who may use a figure for what; every pair carries its licence."
    return _panel("Licences", bars(rows), words) if rows else None


def _journals(stats: Mapping[str, Any]) -> Markup | None:
    rows = [(item["journal"], item["images"], "") for item in stats["journals"]["top"]]
    if not rows:
        return None
    years = sorted(str(item["year"]) for item in stats["years"] if item["year"])
    span = f", published from {years[0]} to {years[-1]}" if years else ""
    words = f"{stats['corpus']['articles']:,} articles{span}."
    return _panel("Journals", bars(rows), words)


def bars(rows: Sequence[tuple[str, int, str]]) -> Markup:
    """Return a bar chart from (name, count, CSS class) rows, scaled to the longest bar."""
    ordered = sorted(rows, key=lambda row: -row[1])
    shown = ordered if len(ordered) <= _MOST_NAMES else ordered[: _MOST_NAMES - 1]
    rest = ordered[len(shown) :]
    if rest:
        shown = [*shown, (f"{len(rest)} more", sum(count for _, count, _ in rest), "other")]
    most = max(count for _, count, _ in shown) or 1
    chart: Markup = parts.bars(shown, most)
    return chart


def _panel(title: str, drawn: Markup, words: str) -> Markup:
    panel: Markup = parts.panel(title, drawn, words)
    return panel
