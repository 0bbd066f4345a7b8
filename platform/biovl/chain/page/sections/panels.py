"""Section with compound figures, their panel boxes and captions."""

import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup
from PIL import Image, ImageDraw, ImageFont

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Chapter, Story
from biovl.core.folders import Folder
from biovl.core.tables import parts_of, read_table
from biovl.images.decode import decode_rgb
from biovl.images.hashing import phash_hex

TITLE = "Panels"

_SHOWN = 3
_WIDTH_PX = 560
_COLOURS = ("#0b6470", "#a3241d", "#7a4a00", "#1a6638", "#5b3f8c", "#8a2f5e", "#2c4fa3", "#4c555e")
"""Visible on white text and on most images."""
_COLUMNS = (
    *("figure_id", "parent_figure_id", "figure_label", "panel_label", "own_caption", "caption"),
    "box_px",
)


def body(story: Story) -> Markup | None:
    """Return a section with some split figures, of different articles if possible."""
    chapter = story.of("panels")
    if chapter is None:
        return None
    shown = list(itertools.islice(_cuts(chapter), _SHOWN))
    if not shown:
        return None
    counts = chapter.manifest.counts
    lead = (
        f"{counts['parents']['split']:,} figures were cut into {counts['panels']['seen']:,} "
        "panels, each with its part of the caption: where printed labels, layout and caption "
        "agree. The others stay whole."
    )
    return parts.lead(lead, parts.group(shown, "sheet"))


def _chosen(chapter: Chapter) -> list[list[dict[str, Any]]]:
    """Return the panels of figures, from the first part with split figures."""
    folder = Folder(chapter.uri)
    for part in parts_of(chapter.manifest):
        table = read_table(folder, part, [*_COLUMNS, "article_id"])
        of_figure: dict[str, list[dict[str, Any]]] = {}
        for row in table.filter(table["box_px"].is_valid()).to_pylist():
            of_figure.setdefault(row["parent_figure_id"], []).append({**row, "part": part})
        # Prefer figures with about four panels, one per article.
        best = sorted(of_figure.values(), key=lambda panels: abs(len(panels) - 4))
        of_article = {panels[0]["article_id"]: panels for panels in reversed(best)}
        chosen = [panels for panels in best if of_article[panels[0]["article_id"]] is panels]
        if chosen:
            return chosen
    return []


def _cuts(chapter: Chapter) -> Iterator[Markup]:
    """Yield figures with their panels, without those that look like an earlier one."""
    source = next((item.uri for item in chapter.manifest.inputs if item.name == "figures"), None)
    hashes = set[str]()
    if source is None:
        return
    for panels in _chosen(chapter):
        image = _image(source, panels[0]["part"], panels[0]["parent_figure_id"])
        if image is not None and (phash := phash_hex(image)) not in hashes:
            hashes.add(phash)
            yield _cut(image, panels)


def _cut(image: Image.Image, panels: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a figure with its panels."""
    label = panels[0]["figure_label"] or "Figure"
    captions = [
        (
            _COLOURS[number % len(_COLOURS)],
            _name(panel, number),
            panel["own_caption"] or panel["caption"],
        )
        for number, panel in enumerate(panels)
    ]
    return parts.cut(_drawn(image, panels), label, panels[0]["article_id"], captions)


def _name(panel: Mapping[str, Any], number: int) -> str:
    return str(panel["panel_label"] or number + 1)


def _image(figures: str, part: str, figure_id: str) -> Image.Image | None:
    folder = Folder(figures)
    if not folder.exists(part):
        return None
    with folder.filesystem.open_input_file(folder.at(part)) as stream:
        found = pq.read_table(stream, columns=["image"], filters=pc.field("figure_id") == figure_id)
    data = found["image"][0].as_py() if len(found) else None
    pixels = decode_rgb(data).pixels if data else None
    return Image.fromarray(pixels) if pixels is not None else None


def _drawn(image: Image.Image, panels: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a JPEG of a figure with a frame around each panel."""
    scale = _WIDTH_PX / image.width
    small = image.resize((_WIDTH_PX, max(1, round(image.height * scale))), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(small)
    for number, panel in enumerate(panels):
        colour, box = _COLOURS[number % len(_COLOURS)], panel["box_px"]
        x0, y0, x1, y1 = (round(box[name] * scale) for name in ("x0", "y0", "x1", "y1"))
        draw.rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=3)
        # In the corner where printed labels are rare.
        name = _name(panel, number)
        font = ImageFont.load_default(15)
        width = draw.textlength(name, font=font) + 10
        draw.rectangle((x1 - width, y1 - 22, x1, y1), fill=colour)
        draw.text((x1 - width + 5, y1 - 20), name, fill="white", font=font)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=85, optimize=True)
    return stream.getvalue()
