"""Contact sheets: a row of member images per cluster, on white."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from biovl.core.charts import GREY, INK

ACROSS = 10
"""Images per row."""

_CELL_PX = 150
_GAP_PX = 8
_MARGIN_PX = 24
_TITLE_PX = 210
_LINE = "#e4e7ea"


@dataclass(frozen=True, kw_only=True)
class SheetRow:
    """A row of a contact sheet: a cluster with some of its images."""

    title: str
    """Title of the row: ``cluster 7``."""
    lines: Sequence[str] = ()
    """Further lines, truncated to the available width: ``1,204 images``, a label."""
    images: Sequence[bytes | None] = ()
    """Encoded images; the first ten are shown. None for an image that does not decode."""


def contact_sheet(rows: Sequence[SheetRow], *, heading: str = "") -> bytes:
    """Return a contact sheet as PNG: a row of images per cluster.

    Args:
        rows: Rows of the sheet, from top to bottom.
        heading: Line above the rows.
    """
    bold = _font("DejaVuSans-Bold", 17)
    width = 2 * _MARGIN_PX + _TITLE_PX + ACROSS * (_CELL_PX + _GAP_PX) - _GAP_PX
    top = _MARGIN_PX + (40 if heading else 0)
    pitch = _CELL_PX + 2 * _GAP_PX
    sheet = Image.new("RGB", (width, top + max(len(rows), 1) * pitch + _MARGIN_PX), "white")
    draw = ImageDraw.Draw(sheet)
    if heading:
        draw.text((_MARGIN_PX, _MARGIN_PX), heading, INK, _font("DejaVuSans-Bold", 20))
    for number, row in enumerate(rows):
        y = top + number * pitch
        draw.line([(_MARGIN_PX, y), (width - _MARGIN_PX, y)], _LINE)
        room = _TITLE_PX - 2 * _GAP_PX
        draw.text((_MARGIN_PX, y + 2 * _GAP_PX), _cut(draw, row.title, bold, room), INK, bold)
        plain = _font("DejaVuSans", 14)
        for line, text in enumerate(row.lines[:5]):
            place = (_MARGIN_PX, y + 2 * _GAP_PX + 26 + 20 * line)
            draw.text(place, _cut(draw, text, plain, room), INK if line else GREY, plain)
        for column, data in enumerate(row.images[:ACROSS]):
            x = _MARGIN_PX + _TITLE_PX + column * (_CELL_PX + _GAP_PX)
            _place(sheet, draw, data, x, y + _GAP_PX)
    stream = io.BytesIO()
    sheet.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _place(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, data: bytes | None, x: int, y: int
) -> None:
    """Fit an image into its cell, centred."""
    if data is None:
        draw.rectangle([x, y, x + _CELL_PX - 1, y + _CELL_PX - 1], outline=_LINE)
        draw.line([(x, y), (x + _CELL_PX - 1, y + _CELL_PX - 1)], _LINE)
        return
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((_CELL_PX, _CELL_PX), Image.Resampling.LANCZOS)
    left, up = x + (_CELL_PX - small.width) // 2, y + (_CELL_PX - small.height) // 2
    sheet.paste(small, (left, up))
    # A border separates images with white edges.
    draw.rectangle([left, up, left + small.width - 1, up + small.height - 1], outline=_LINE)


def _cut(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont, room_px: int) -> str:
    if draw.textlength(text, font) <= room_px:
        return text
    while text and draw.textlength(text + "…", font) > room_px:
        text = text[:-1]
    return text.rstrip() + "…"


def _font(name: str, size_px: int) -> ImageFont.FreeTypeFont:
    # matplotlib ships the font of our plots.
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    return ImageFont.truetype(str(path), size_px)
