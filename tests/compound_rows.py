"""Rows of ``figures/`` that show a drawn compound figure, for tests."""

import functools
import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from biovl.core.records import Figure, Mention, Reference
from biovl.images.boxes import Box
from biovl.images.hashing import sha256_hex

CAPTION = (
    "Effects of a drug on hearts. (A) Scatter plot of scores in 43 patients. (B) Heat map of 15 "
    "genes in liver. Data are means ± s.e.m.; n = 6."
)
BOXES = (Box(20, 20, 380, 340), Box(420, 20, 780, 340))
"""Of the panels that ``drawn`` shows."""


@functools.cache
def drawn() -> np.ndarray:
    """Draw a scatter plot and a heat map side by side, with A and B in their upper left corners."""
    page = Image.new("RGB", (800, 360), "white")
    pen, rng = ImageDraw.Draw(page), np.random.default_rng(7)
    pen.line([(70, 30), (70, 330), (378, 330)], fill="black", width=2)
    for x, y in rng.integers((90, 60), (370, 320), (60, 2)):
        pen.ellipse([x - 3, y - 3, x + 3, y + 3], fill=(190, 40, 40))
    for row in range(13):
        for column in range(15):
            x, y = 465 + 21 * column, 65 + 21 * row
            colour = tuple(int(value) for value in rng.integers(40, 230, 3))
            pen.rectangle([x, y, x + 20, y + 20], fill=colour)
    font = ImageFont.load_default(34)
    for label, box in zip("AB", BOXES, strict=True):
        pen.text((box.x0 + 4, box.y0), label, fill="black", font=font)
    return np.asarray(page)


def encoded(pixels: np.ndarray, kind: str = "png") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def mention(text: str, *links: str, container: str = "body") -> Mention:
    """Return a paragraph and the links in it."""
    places = [(text.index(link), len(link)) for link in links]
    refs = [Reference(start, start + length, [], False) for start, length in places]
    return Mention(text, refs, [], container)


def figure_row(pixels: np.ndarray | None = None, *, kind: str = "png", **columns: Any) -> Figure:
    """Return the row of the drawn figure, or of other pixels, with other columns as given."""
    pixels = drawn() if pixels is None else pixels
    image = encoded(pixels, kind)
    values: dict[str, Any] = {
        "figure_id": "PMC1_f1",
        "article_id": "PMC1",
        "source_uri": "packages/PMC1",
        "xml_id": "f1",
        "kind": "figure",
        "parent_figure_id": None,
        "figure_label": "Figure 2",
        "caption": CAPTION,
        "caption_bold": [],
        "caption_superscripts": [],
        "mentions": [],
        "alt_text": None,
        "credit": None,
        "section": None,
        "graphic_href": "f1",
        "image_name": f"f1.{kind}",
        "image": image,
        "image_format": kind,
        "image_mode": "RGB",
        "size_bytes": len(image),
        "width_px": pixels.shape[1],
        "height_px": pixels.shape[0],
        "image_sha256": sha256_hex(image),
        "phash": "0" * 16,
        "license": "CC-BY-4.0",
        "license_group": "commercial",
        "derivatives_allowed": True,
        "defect": None,
        "defect_detail": None,
    }
    return Figure(**{**values, **columns})
