"""Draw synthetic compound figures with ground truth: panels, labels, caption, citances."""

import io
import zlib
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from biovl.core.errors import ConfigError
from biovl.images.boxes import Box, enclosing
from biovl.sample.compound.captions import SyntheticCaption, SyntheticCitance, write_caption
from biovl.sample.compound.contents import DRAWN, TYPEFACES, Source, font, typeface
from biovl.sample.compound.labels import (
    Style,
    chosen_place,
    legible,
    names_of,
    print_label,
    size_for,
)
from biovl.sample.compound.layouts import (
    LABEL_HEIGHT_PX,
    LABEL_INSET_PX,
    PageLayout,
    Rng,
    make_layout,
    sample_quantiles,
)
from biovl.sample.compound.strata import STRATA, STRATA_PLANS, VARIED, Stratum, random_stratum
from biovl.sample.words import TOPICS, pick

_MIN_SIDE_PX = 24
_LABEL_FACES = tuple(typeface(name) for name in TYPEFACES)


@dataclass(frozen=True)
class TruePanel:
    """Ground truth of one panel."""

    box: Box
    """Bounding box of the panel's ink, including its label."""
    label: str | None
    label_box: Box | None
    """Bounding box of the label's ink, including brackets."""
    sub_caption: str
    """Part of the caption about this label alone; empty without a label."""


@dataclass(frozen=True)
class Compound:
    """A synthetic figure and its ground truth."""

    pixels: np.ndarray
    """RGB, uint8, shape [H, W, 3]."""
    panels: tuple[TruePanel, ...]
    """Panels in reading order, insets after the panels that contain them; a single one if the
    figure is not compound."""
    caption: str
    preamble: str
    trailing: str
    citances: tuple[SyntheticCitance, ...]
    stratum: str
    seed: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that the caption names, without repetition."""
        return tuple(dict.fromkeys(p.label for p in self.panels if p.label))


def make_compound(seed: int, stratum: str = "print", source: Source = DRAWN) -> Compound:
    """Draw a figure. Equal arguments give equal figures on every machine.

    Args:
        seed: Random seed, from 0.
        stratum: Kind of figure, one of ``STRATA``, or ``VARIED``: random settings.
        source: Contents of the panels; drawing them takes most of the time.

    Raises:
        ConfigError: If the stratum is unknown.
    """
    if stratum not in STRATA_PLANS and stratum != VARIED:
        raise ConfigError(f"there is no stratum {stratum!r}; choose from {', '.join(STRATA)}")
    rng = np.random.default_rng([seed, zlib.crc32(stratum.encode())])
    plan = random_stratum(rng) if stratum == VARIED else STRATA_PLANS[stratum]
    return _Figure(rng, plan, source).compound(stratum, seed)


class _Figure:
    """One page while it is drawn."""

    def __init__(self, rng: Rng, plan: Stratum, source: Source) -> None:
        self.rng, self.plan, self.source = rng, plan, source
        self.layout = _layout(rng, plan)
        self.background = pick(rng, plan.background)
        size = (self.layout.width, self.layout.height)
        self.page = Image.new("RGB", size, self.background)
        self.style = _style(rng, plan, self.layout)
        # Labels of plots are mostly on white, in a strip above the axes.
        is_named = plan.missing != "all" and self.style.place[1] == "top"
        self.is_clear = is_named and bool(rng.integers(2))
        self.subjects: list[str] = []
        self.plots: list[bool] = []
        """Whether each panel is one; photographs are written over, plots are not."""

    def compound(self, stratum: str, seed: int) -> Compound:
        """Draw the figure and return it."""
        boxes = self._contents()
        labels = self._names(len(boxes))
        panels: list[tuple[Box, str | None, Box | None]] = []
        places = [*self.layout.boxes, *boxes[len(self.layout.boxes) :]]
        for box, place, label, is_plot in zip(boxes, places, labels, self.plots, strict=True):
            # A label is in the corner of its cell, even if the ink starts further inside.
            corner = place if self.is_clear else box
            at = self._labelled(corner, label, is_plot) if label else None
            panels.append((enclosing([box, at]) if at else box, label, at))
        if self.plan.shared or self.plan.headings:
            self._surroundings(boxes)
        caption = write_caption(self.rng, labels, self.subjects)
        pixels, scale = _damaged(self.page, self.plan, self.rng)
        return Compound(
            pixels,
            tuple(_true(box, label, at, scale, caption) for box, label, at in panels),
            *(caption.text, caption.preamble, caption.trailing, caption.citances),
            stratum=stratum,
            seed=seed,
        )

    def _labelled(self, place: Box, label: str, is_plot: bool) -> Box:
        style = self.style
        if is_plot:
            style = legible(self.page, place, label, style, self.rng)
        return print_label(self.page, place, label, style, self.rng)

    def _names(self, number: int) -> list[str | None]:
        rng, missing = self.rng, self.plan.missing
        if missing == "all":
            return [None] * number
        system = pick(rng, self.plan.systems)
        names = names_of(rng, number, system, doubled=missing == "doubled")
        if missing == "some":
            return [name if rng.integers(3) else None for name in names]
        return list(names)

    def _contents(self) -> list[Box]:
        """Draw the panels of the layout; return the bounding boxes of their ink, insets last."""
        whole = None
        if self.plan.contents == "one":
            whole = self.source.photograph(self.rng, self.layout.width, self.layout.height)
        boxes, insets = [], []
        mixed = bool(self.rng.integers(2))
        for place in self.layout.boxes:
            if whole:
                self.page.paste(Image.fromarray(whole[0]).crop(_corners(place)), _corners(place))
                boxes.append(place)
                self.plots.append(False)
                self.subjects.append(whole[1])
                continue
            is_plot = self.plan.contents == "plots" or (
                self.plan.contents == "mixed" and (mixed and bool(self.rng.integers(2)))
            )
            if self.plan.contents == "mixed" and not mixed:
                is_plot = len(self.layout.boxes) % 2 == 0
            box, subject = self._filled(place, is_plot)
            self.plots.append(is_plot)
            boxes.append(box)
            self.subjects.append(subject)
            if self.plan.inset and min(place.width, place.height) > 110:
                insets.append(self._inset(place))
        self.plots += [False] * len(insets)
        return boxes + insets

    def _filled(self, place: Box, is_plot: bool) -> tuple[Box, str]:
        """Draw one panel of one or several parts; return its bounding box and its words."""
        strip = self.style.size_px + self.style.inset_px
        if self.is_clear and is_plot and place.height > 4 * strip:
            place = Box(place.x0, place.y0 + strip, place.x1, place.y1)
        number = int(self.rng.integers(self.plan.parts[0], self.plan.parts[1] + 1))
        columns = min(number, 3 if place.width > place.height else 2)
        rows = -(-number // columns)
        gap = float(self.rng.integers(2, 12)) if number > 1 else 0.0
        wide = (place.width - gap * (columns - 1)) / columns
        tall = (place.height - gap * (rows - 1)) / rows
        if min(wide, tall) < _MIN_SIDE_PX * 1.5:
            number, columns, wide, tall = 1, 1, place.width, place.height
        subjects, boxes = [], []
        for i in range(number):
            x = place.x0 + (i % columns) * (wide + gap)
            y = place.y0 + (i // columns) * (tall + gap)
            draw = self.source.plot if is_plot else self.source.photograph
            size = max(int(wide), _MIN_SIDE_PX), max(int(tall), _MIN_SIDE_PX)
            pixels, subject = draw(self.rng, *size)
            self.page.paste(Image.fromarray(pixels), (round(x), round(y)))
            subjects.append(subject)
            boxes.append(_ink(pixels).moved(round(x), round(y)))
        return enclosing(boxes), subjects[0]

    def _inset(self, place: Box) -> Box:
        """Draw a framed detail in a lower corner of a panel, away from the panel's label."""
        part = float(self.rng.uniform(0.28, 0.42))
        size = int(place.width * part), int(place.height * part)
        pixels, subject = self.source.photograph(self.rng, *size)
        is_left = self.style.place[0] == "right"
        x = round(place.x0 + 6 if is_left else place.x1 - size[0] - 6)
        y = round(place.y1 - size[1] - 6)
        self.page.paste(Image.fromarray(pixels), (x, y))
        frame = (x, y, x + size[0] - 1, y + size[1] - 1)
        ImageDraw.Draw(self.page).rectangle(frame, outline="white", width=2)
        self.subjects.append(f"Detail: {subject}")
        return Box(x, y, x + size[0], y + size[1])

    def _surroundings(self, boxes: list[Box]) -> None:
        """Draw elements outside the panels: column headings, a colour bar, a legend."""
        draw, topic = ImageDraw.Draw(self.page), pick(self.rng, TOPICS)
        face = font(self.style.typeface, max(self.style.size_px * 3 // 4, 7))
        if self.plan.headings:
            for box, words in zip(boxes, ("Control", topic.drug, "Merge", "Day 7"), strict=False):
                draw.text(((box.x0 + box.x1) / 2, box.y0), words, "black", face, anchor="mb")
            return
        y = self.layout.height - 3
        draw.text((self.layout.width / 2, y), f"Dose of {topic.drug}", "black", face, anchor="mb")
        x = self.layout.width - 9
        ramp = np.linspace(255, 0, max(self.layout.height // 2, 2)).astype(np.uint8)
        bar = np.dstack([np.tile(v[:, None], (1, 7)) for v in (ramp, ramp[::-1], ramp // 2)])
        self.page.paste(Image.fromarray(bar), (x, self.layout.height // 4))


def _layout(rng: Rng, plan: Stratum) -> PageLayout:
    gap = None if plan.gap_px is None else float(rng.integers(plan.gap_px[0], plan.gap_px[1] + 1))
    margin = int(rng.integers(plan.margin_px[0], plan.margin_px[1] + 1))
    if plan.down or plan.headings:  # space for elements outside the panels
        margin, gap = margin + 40, max(gap or 0, 36)
    rows = pick(rng, plan.rows) if plan.rows else None
    aspect = float(rng.uniform(0.8, 1.6)) if rows in ((1,),) or plan.rows else None
    return make_layout(rng, rows=rows, gap_px=gap, margin_px=margin, aspect=aspect)


def _style(rng: Rng, plan: Stratum, layout: PageLayout) -> Style:
    place = chosen_place(rng)
    if plan.down:
        place = ("left" if rng.integers(3) else "middle", pick(rng, plan.down))
    height = max(sample_quantiles(rng, LABEL_HEIGHT_PX) * layout.scale, 8)
    smallest = min(min(box.width, box.height) for box in layout.boxes)
    face = pick(rng, _LABEL_FACES)
    return Style(
        typeface=face,
        size_px=size_for(face, min(height, smallest / 3, 36 if plan.down else 99)),
        setting=pick(rng, plan.settings),
        place=place,
        inset_px=round(sample_quantiles(rng, LABEL_INSET_PX)),
        paper=pick(rng, plan.paper),
    )


def _true(
    box: Box, label: str | None, at: Box | None, scale: float, caption: SyntheticCaption
) -> TruePanel:
    part = caption.parts.get(label, "") if label else ""
    return TruePanel(box.scaled(scale), label, at.scaled(scale) if at else None, part)


def _damaged(page: Image.Image, plan: Stratum, rng: Rng) -> tuple[np.ndarray, float]:
    """Return the pixels after shrinking and JPEG, and the scale of boxes in them."""
    scale = float(rng.uniform(*plan.shrink))
    if scale < 1:
        width, height = max(round(page.width * scale), 8), max(round(page.height * scale), 8)
        page = page.resize((width, height), Image.Resampling.LANCZOS)
    quality = int(rng.integers(plan.quality[0], plan.quality[1] + 1))
    if quality < 96:
        file = io.BytesIO()
        page.save(file, "JPEG", quality=quality)
        page = Image.open(file).convert("RGB")
    return np.array(page), scale


def _ink(pixels: np.ndarray) -> Box:
    """Return the bounding box of all pixels that are not white; the whole image if all are."""
    # Three times as fast as a minimum over the last axis.
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    marked = np.minimum(np.minimum(red, green), blue) < 245
    rows, columns = np.flatnonzero(marked.any(1)), np.flatnonzero(marked.any(0))
    if not len(rows):
        return Box(0, 0, pixels.shape[1], pixels.shape[0])
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _corners(box: Box) -> tuple[int, int, int, int]:
    return int(box.x0), int(box.y0), int(box.x1), int(box.y1)
