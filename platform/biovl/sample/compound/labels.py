"""Printed panel labels: names, typography and positions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from biovl.images.boxes import Box
from biovl.sample.compound.contents import font, typeface
from biovl.sample.compound.layouts import LABEL_PLACES, Rng, random_key

ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
GREEK = "αβγδεζ"


def _letter(i: int, first: str) -> str:
    # After Z comes AA, as in print.
    return (chr(ord(first) + i // 26 - 1) if i >= 26 else "") + chr(ord(first) + i % 26)


NAMES: dict[str, Callable[[int], str]] = {
    "upper": lambda i: _letter(i, "A"),
    "lower": lambda i: _letter(i, "a"),
    "roman": lambda i: ROMAN[i % len(ROMAN)],
    "numbered": lambda i: f"{_letter(i // 2, 'A')}{i % 2 + 1}",
    "primed": lambda i: _letter(i // 2, "A") + "'" * (i % 2),
    "digits": lambda i: str(i + 1),
    "greek": lambda i: GREEK[i % len(GREEK)],
}
"""Functions from panel number to name, by naming system."""


@dataclass(frozen=True)
class Style:
    """Typography and position that all labels of a figure share."""

    typeface: Path
    size_px: int
    """Size of the typeface in pixels; capitals are 0.7 times as high."""
    setting: str
    place: tuple[str, str]
    """Position of the label: third of the panel, across and down; ``above`` is outside the
    panel."""
    inset_px: int
    paper: str
    """Colour of a patch under the label, ``white`` or ``black``; ``none``: no patch."""


def chosen_place(rng: Rng) -> tuple[str, str]:
    """Return a random label position, drawn with its frequency in published figures."""
    return random_key(rng, LABEL_PLACES)


def print_label(page: Image.Image, panel: Box, name: str, style: Style, rng: Rng) -> Box:
    """Draw a label at its position on a panel; return the bounding box of its ink."""
    face = style.typeface if has(style.typeface, name) else typeface("DejaVuSans")
    ink = mask_of(style.setting.format(name), face, style.size_px)
    tall, wide = ink.shape
    x, y = _corner(panel, wide, tall, style)
    x, y = min(max(x, 0), max(page.width - wide, 0)), min(max(y, 0), max(page.height - tall, 0))
    box = Box(x, y, min(x + wide, page.width), min(y + tall, page.height))
    edge = max(1, tall // 6)
    around = (int(x) - edge, int(y) - edge, int(x) + wide + edge, int(y) + tall + edge)
    if style.paper != "none":
        ImageDraw.Draw(page).rectangle(around, fill=style.paper)
    under = np.asarray(page.crop(around).convert("L"), np.float32)
    dark = float(under.mean()) < 128
    colour = "white" if dark else "black"
    if style.paper == "none" and rng.integers(12) == 0:
        # Coloured labels are rare, and legible.
        colour = "yellow" if dark else str(rng.choice(("#b00000", "#0000b0")))
    stamp = Image.fromarray(ink)
    page.paste(Image.new("RGB", stamp.size, colour), (int(x), int(y)), stamp)
    return box


def legible(page: Image.Image, panel: Box, name: str, style: Style, rng: Rng) -> Style:
    """Return a style that keeps a label legible where it would overlap axes or text of a plot.

    The result is the given style, or it with another corner or a white background.
    """
    if style.paper != "none" or style.place[1] in ("above", "below"):
        return style
    tall, wide = mask_of(style.setting.format(name), style.typeface, style.size_px).shape
    corners = [(across, down) for down in ("top", "bottom") for across in ("left", "right")]
    for place in (style.place, *corners):
        at = replace(style, place=place)
        x, y = _corner(panel, wide, tall, at)
        under = np.asarray(page.crop((x - 2, y - 2, x + wide + 2, y + tall + 2)).convert("L"))
        if np.ptp(under) < 16:
            return at
        if rng.integers(2):
            break
    return replace(style, paper="white")


def mask_of(words: str, face_file: Path, size_px: int) -> np.ndarray:
    """Return the ink coverage of each pixel of a text, cropped to the ink. uint8, [H, W]."""
    face = font(face_file, size_px)
    x0, y0, x1, y1 = (int(v) for v in face.getbbox(words))
    sheet = Image.new("L", (x1 - x0 + 8, y1 - y0 + 8), 0)
    ImageDraw.Draw(sheet).text((4 - x0, 4 - y0), words, fill=255, font=face)
    ink = np.asarray(sheet)
    rows, columns = np.flatnonzero((ink > 64).any(1)), np.flatnonzero((ink > 64).any(0))
    if not len(rows):
        return ink
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@cache
def has(face_file: Path, words: str) -> bool:
    """Return whether a typeface has glyphs for all characters of a text."""
    face = font(face_file, 20)
    missing = bytes(face.getmask("\uffff"))
    return all(bytes(face.getmask(character)) != missing for character in words)


def size_for(face_file: Path, capital_px: float) -> int:
    """Return the size of a typeface at which capitals have a given height in pixels."""
    return max(round(capital_px * 100 / len(mask_of("E", face_file, 100))), 5)


def _corner(panel: Box, wide: int, tall: int, style: Style) -> tuple[int, int]:
    across, down = style.place
    x = {
        "left": panel.x0 + style.inset_px,
        "middle": (panel.x0 + panel.x1 - wide) / 2,
        "right": panel.x1 - style.inset_px - wide,
    }[across]
    y = {
        "above": panel.y0 - tall - 3,
        "below": panel.y1 + 3,
        "top": panel.y0 + style.inset_px,
        "middle": (panel.y0 + panel.y1 - tall) / 2,
        "bottom": panel.y1 - style.inset_px - tall,
    }[down]
    return round(x), round(y)


def names_of(rng: Rng, number: int, system: str, *, doubled: bool = False) -> Sequence[str]:
    """Return the printed names of the panels of a figure, in order.

    Args:
        rng: Random number generator.
        number: Number of panels.
        system: Kind of label, a key of ``NAMES``.
        doubled: Whether two panels have the same name, if there are more than two.
    """
    names = [NAMES[system](i) for i in range(number)]
    if doubled and number > 2:
        again = int(rng.integers(1, number))
        names[again] = names[again - 1]
    return names
