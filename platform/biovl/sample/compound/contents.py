"""Contents of synthetic panels: plots, diagrams, photographs, and letters as distractors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from biovl.sample.clinical_plots import CLINICAL_PLOTS
from biovl.sample.micrographs import MICROGRAPHS
from biovl.sample.plots import LABORATORY_PLOTS
from biovl.sample.scans import SCANS
from biovl.sample.words import TOPICS, Rng, pick

TYPEFACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSans-Oblique"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "cmr10", "cmss10", "cmb10"),
)
"""Typefaces shipped with matplotlib, so that figures are the same on every machine."""

_INKS = ("#2166ac", "#d7191c", "#1a9641", "#f28e2b", "#7b3294", "#8c8c8c", "#111111", "#111111")
# Drawing one of the sample's blots takes 0.1 s.
_PHOTOGRAPHS = tuple(d for d in MICROGRAPHS + SCANS if d.__name__ != "western_blot")
_PLOTS = LABORATORY_PLOTS + CLINICAL_PLOTS

Content = tuple[np.ndarray, str]
"""Image, RGB, uint8, shape [H, W, 3], and its description."""


def typeface(name: str) -> Path:
    """Return the path of a font file by the name of its typeface."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@cache
def font(path: Path, size_px: int) -> ImageFont.FreeTypeFont:
    """Return a font at a size; fonts are cached."""
    return ImageFont.truetype(str(path), size_px)


def photograph(rng: Rng, width: int, height: int) -> Content:
    """Return a micrograph, scan, gel or texture of the given size."""
    if rng.integers(3) == 0:
        return pick(rng, (gel, texture))(rng, width, height)
    panel = pick(rng, _PHOTOGRAPHS)(pick(rng, TOPICS), rng)
    return cropped(panel.image, rng, width, height), panel.plain


def plot(rng: Rng, width: int, height: int) -> Content:
    """Return a plot, map or diagram of the given size, with axes, numbers and words."""
    if rng.integers(4) == 0 and 0.9 < width / height < 1.9 and width > 200:
        panel = pick(rng, _PLOTS)(pick(rng, TOPICS), rng)
        resized = Image.fromarray(panel.image).resize((width, height), Image.Resampling.LANCZOS)
        return np.array(resized), panel.plain
    return pick(rng, (bars, bars, curves, curves, dots, heat_map, diagram))(rng, width, height)


@dataclass(frozen=True)
class Source:
    """Functions that return contents of a given width and height in pixels."""

    photograph: Callable[[Rng, int, int], Content]
    plot: Callable[[Rng, int, int], Content]


DRAWN = Source(photograph, plot)
"""Every content is drawn anew: 6 ms for a plot, 23 ms for a photograph."""


def texture(rng: Rng, width: int, height: int) -> Content:
    """Return smooth random noise in one colour, dark or light."""
    grain = float(rng.uniform(1.5, 12))
    small = (max(int(height / grain), 3) + 2, max(int(width / grain), 3) + 2)
    field = ndimage.zoom(rng.normal(size=small), grain, order=1)[:height, :width]
    field = np.resize(field, (height, width)) if field.shape != (height, width) else field
    field = np.clip(rng.uniform(0.1, 0.9) + rng.uniform(0.05, 0.25) * field, 0, 1)
    low, high = rng.integers(0, 120, 3), rng.integers(120, 256, 3)
    if rng.integers(2):
        low, high = np.full(3, low[0]), np.full(3, high[0])
    pixels = low + field[..., None] * (high - low) + rng.normal(0, 4, (height, width, 1))
    return np.clip(pixels, 0, 255).astype(np.uint8), f"Surface of {pick(rng, TOPICS).organ}"


def gel(rng: Rng, width: int, height: int) -> Content:
    """Return lanes with bands, dark on light or light on dark."""
    lanes, topic = int(rng.integers(3, 9)), pick(rng, TOPICS)
    image = np.full((height, width), rng.uniform(0.6, 0.85))
    for lane in range(lanes):
        x0, x1 = (lane + 0.18) * width / lanes, (lane + 0.82) * width / lanes
        for _ in range(int(rng.integers(1, 5))):
            y, thick = rng.uniform(0.1, 0.9) * height, rng.uniform(2, max(3.0, height * 0.05))
            image[int(y) : int(y + thick) + 1, int(x0) : int(x1)] -= rng.uniform(0.2, 0.6)
    image = ndimage.gaussian_filter(image, 1.2) + rng.normal(0, 0.02, image.shape)
    image = 1 - image if rng.integers(2) else image
    grey = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return np.dstack([grey] * 3), f"Expression of {topic.gene} in {topic.cells}, {lanes} lanes"


class _Axes:
    """A white page with frame, ticks, numbers and titles, and the plot area inside."""

    def __init__(self, rng: Rng, width: int, height: int, x_title: str, y_title: str) -> None:
        self.rng, self.width, self.height = rng, width, height
        self.page = Image.new("RGB", (width, height), "white")
        self.draw = ImageDraw.Draw(self.page)
        self.path = typeface(pick(rng, ("DejaVuSans", "DejaVuSans", "STIXGeneral", "cmss10")))
        self.size = int(np.clip(min(width, height) * rng.uniform(0.045, 0.07), 7, 24))
        left, bottom = round(self.size * 3.2) + 2, round(self.size * 2.8) + 2
        self.x0, self.x1 = min(left, width // 2), width - max(3, self.size // 2)
        # Leave space at the top, where most labels are.
        self.y0 = min(round(self.size * rng.uniform(0.6, 2.2)), height // 4)
        self.y1 = max(height - bottom, self.y0 + 10)
        ink, line = "black", max(1, self.size // 9)
        self.line = line
        if rng.integers(2):
            self.draw.rectangle((self.x0, self.y0, self.x1, self.y1), outline=ink, width=line)
        else:
            self.draw.line((self.x0, self.y0, self.x0, self.y1, self.x1, self.y1), ink, line)
        ticks = int(rng.integers(3, 7))
        for i in range(ticks):
            y = self.y1 - (self.y1 - self.y0) * i / (ticks - 1)
            self.draw.line((self.x0 - self.size // 3, y, self.x0, y), ink, line)
            number = str(round(i * 10 ** int(rng.integers(0, 2)) * 5))
            self.text((self.x0 - self.size // 2, y), number, anchor="rm")
        self.text(((self.x0 + self.x1) / 2, height - 2), x_title, anchor="mb")
        self._vertical(y_title)

    def text(
        self, at: tuple[float, float], words: str, *, anchor: str = "mm", size: int = 0
    ) -> None:
        """Draw a text at a position; ``size`` 0 is the text size of the page."""
        face = font(self.path, size or self.size)
        self.draw.text(at, words, fill="black", font=face, anchor=anchor)

    def _vertical(self, words: str) -> None:
        face = font(self.path, self.size)
        wide = int(face.getlength(words)) + 2
        if wide > self.height:
            return
        strip = Image.new("RGB", (wide, self.size + 3), "white")
        ImageDraw.Draw(strip).text((1, 0), words, fill="black", font=face)
        turned = strip.rotate(90, expand=True)
        self.page.paste(turned, (0, max(0, (self.y0 + self.y1 - wide) // 2)))

    def legend(self, names: list[str], inks: list[str]) -> None:
        """Write a legend in the upper right: a coloured square and a name per line."""
        for i, (name, ink) in enumerate(zip(names, inks, strict=True)):
            y = self.y0 + self.size * (0.9 + 1.3 * i)
            x = self.x1 - self.size * 4
            if x < self.x0 or y > self.y1 - self.size:
                return
            self.draw.rectangle((x - self.size, y - 3, x - self.size // 3, y + 3), fill=ink)
            self.text((x, y), name, anchor="lm")

    def pixels(self) -> np.ndarray:
        """Return the page. RGB, uint8, shape [H, W, 3]."""
        return np.array(self.page)


def _names(rng: Rng, number: int) -> list[str]:
    """Return names of groups; some are single letters like panel labels."""
    style = int(rng.integers(4))
    if style == 0:
        return [chr(ord("A") + i) for i in range(number)]
    if style == 1:
        return [f"{i + 1}" for i in range(number)]
    words = ("Ctrl", "WT", "KO", "Veh", "Low", "Mid", "High", "Sham", "T1", "T2")
    return [words[(i + style) % len(words)] for i in range(number)]


def bars(rng: Rng, width: int, height: int) -> Content:
    """Return a bar chart with error bars and letters or asterisks of significance above them."""
    topic = pick(rng, TOPICS)
    axes = _Axes(rng, width, height, "Groups", f"{topic.marker} (pg/ml)")
    groups = int(rng.integers(2, 8))
    step, ink = (axes.x1 - axes.x0) / groups, pick(rng, _INKS)
    letters = bool(rng.integers(3) == 0)
    for i, name in enumerate(_names(rng, groups)):
        x = axes.x0 + step * (i + 0.5)
        top = axes.y1 - (axes.y1 - axes.y0) * float(rng.uniform(0.15, 0.8))
        fill = ink if rng.integers(4) else "white"
        axes.draw.rectangle((x - step * 0.3, top, x + step * 0.3, axes.y1), fill, "black")
        whisker = top - axes.size * float(rng.uniform(0.3, 1))
        axes.draw.line((x, top, x, whisker), "black", axes.line)
        axes.draw.line((x - step * 0.1, whisker, x + step * 0.1, whisker), "black", axes.line)
        above = pick(rng, ("a", "b", "c", "ab", "d")) if letters else pick(rng, ("", "", "*", "**"))
        axes.text((x, whisker - 2), above, anchor="mb")
        axes.text((x, axes.y1 + axes.size), name)
    return axes.pixels(), f"{topic.marker} in {groups} groups of {topic.cells}"


def curves(rng: Rng, width: int, height: int) -> Content:
    """Return curves with markers, and a legend whose names may be single letters."""
    topic, number = pick(rng, TOPICS), int(rng.integers(1, 5))
    axes = _Axes(rng, width, height, "Time (h)", f"{topic.gene} mRNA")
    inks = [pick(rng, _INKS) for _ in range(number)]
    points = int(rng.integers(5, 30))
    for ink in inks:
        walk = np.cumsum(rng.normal(size=points))
        walk = (walk - walk.min()) / (np.ptp(walk) + 1e-9)
        x = np.linspace(axes.x0 + 3, axes.x1 - 3, points)
        y = axes.y1 - 3 - (axes.y1 - axes.y0 - 6) * walk * 0.9
        axes.draw.line([(float(u), float(v)) for u, v in zip(x, y, strict=True)], ink, axes.line)
        if points < 12:
            r = axes.size / 4
            for u, v in zip(x, y, strict=True):
                axes.draw.ellipse((u - r, v - r, u + r, v + r), fill=ink)
    if rng.integers(2):
        axes.legend(_names(rng, number), inks)
    return axes.pixels(), f"Time course of {topic.gene} mRNA in {topic.cells}, {number} curves"


def dots(rng: Rng, width: int, height: int) -> Content:
    """Return a scatter plot of the given size."""
    topic, number = pick(rng, TOPICS), int(rng.integers(15, 120))
    axes = _Axes(rng, width, height, f"{topic.marker}", "Score")
    u = rng.uniform(0.03, 0.97, number)
    v = np.clip(u * rng.uniform(-0.9, 0.9) + rng.normal(0.5, 0.2, number), 0.03, 0.97)
    r, ink = max(1.0, axes.size / 6), pick(rng, _INKS)
    for x, y in zip(
        axes.x0 + u * (axes.x1 - axes.x0), axes.y1 - v * (axes.y1 - axes.y0), strict=True
    ):
        axes.draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)
    return axes.pixels(), f"Scatter plot of {topic.marker} and severity score in {number} patients"


def heat_map(rng: Rng, width: int, height: int) -> Content:
    """Return a heat map with coloured cells, of the given size."""
    topic = pick(rng, TOPICS)
    axes = _Axes(rng, width, height, "Samples", "Genes")
    cells = rng.uniform(size=(int(rng.integers(4, 30)), int(rng.integers(4, 30))))
    low, high = rng.integers(0, 256, 3), rng.integers(0, 256, 3)
    colours = (low + cells[..., None] * (high - low)).astype(np.uint8)
    size = (max(axes.x1 - axes.x0 - 1, 1), max(axes.y1 - axes.y0 - 1, 1))
    filled = Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)
    axes.page.paste(filled, (axes.x0 + 1, axes.y0 + 1))
    return axes.pixels(), f"Heat map of {cells.shape[0]} genes in {topic.organ}"


def diagram(rng: Rng, width: int, height: int) -> Content:
    """Return boxes with words and arrows between them."""
    topic = pick(rng, TOPICS)
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    size = int(np.clip(min(width, height) * 0.07, 7, 22))
    face = font(typeface(pick(rng, ("DejaVuSans", "STIXGeneral"))), size)
    steps = int(rng.integers(2, 5))
    across = width > height
    for i in range(steps):
        x = width * (i + 0.5) / steps if across else width / 2
        y = height / 2 if across else height * (i + 0.5) / steps
        w, h = width / (steps if across else 1) * 0.34, height / (1 if across else steps) * 0.3
        fill = pick(rng, ("white", "#dde8f3", "#f3e6dd", "#e4f0e0"))
        draw.rounded_rectangle((x - w, y - h, x + w, y + h), min(w, h) / 4, fill, "black")
        words = pick(rng, (topic.gene, topic.organ, topic.drug, topic.marker, "B", "ATP"))
        draw.text((x, y), words, fill="black", font=face, anchor="mm")
        if i:
            back = (x - w * 1.9, y, x - w, y) if across else (x, y - h * 2.3, x, y - h)
            draw.line(back, "black", max(1, size // 8))
    return np.array(page), f"Scheme of {topic.gene} in {topic.disease}"


def cropped(image: np.ndarray, rng: Rng, width: int, height: int) -> np.ndarray:
    """Return a random crop of an image, resized to ``width`` x ``height`` without distortion."""
    tall, wide = image.shape[:2]
    fit = min(wide / width, tall / height) * float(rng.uniform(0.7, 1))
    w, h = max(int(width * fit), 2), max(int(height * fit), 2)
    x, y = int(rng.integers(wide - w + 1)), int(rng.integers(tall - h + 1))
    part = Image.fromarray(image[y : y + h, x : x + w])
    return np.array(part.resize((width, height), Image.Resampling.BILINEAR))
