"""Synthetic figures: one or several panels with labels, a caption, and image files."""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from biovl.sample.clinical_plots import CLINICAL_PLOTS
from biovl.sample.micrographs import MICROGRAPHS
from biovl.sample.plots import LABORATORY_PLOTS
from biovl.sample.scans import SCANS
from biovl.sample.words import METHODS, PanelContent, Rng, Topic, font, pick, upper_first

PLOTS = LABORATORY_PLOTS + CLINICAL_PLOTS
PHOTOGRAPHS = MICROGRAPHS + SCANS

_GRID = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (2, 3), 6: (2, 3)}
_GAP_PX = 30


@dataclass(frozen=True)
class DrawnFigure:
    """A drawn figure, before it is encoded and published."""

    panels: tuple[PanelContent, ...]
    """Content of each panel."""
    letters: str
    """Labels next to the panels, one character each; empty for a single panel."""
    pixels: np.ndarray
    """RGB, uint8, shape [H, W, 3]."""


@dataclass(frozen=True)
class CaptionText:
    """Title and paragraphs of a caption, as inline JATS."""

    title: str | None
    paragraphs: tuple[str, ...]


def draw_figure(topic: Topic, rng: Rng, *, panels: int, letters: str = "ABCDEF") -> DrawnFigure:
    """Draw a figure of 1 to 6 panels, all of different kinds."""
    # Every second figure begins with a photograph, as about half of published figures.
    plots = [PLOTS[i] for i in rng.permutation(len(PLOTS))]
    photographs = [PHOTOGRAPHS[i] for i in rng.permutation(len(PHOTOGRAPHS))]
    first, second = (plots, photographs) if rng.integers(2) else (photographs, plots)
    split = int(rng.integers(1, panels + 1))
    drawn = tuple(kind(topic, rng) for kind in first[:split] + second[: panels - split])
    if panels == 1:
        return DrawnFigure(drawn, "", drawn[0].image)
    letters = letters[:panels]
    return DrawnFigure(drawn, letters, _composed(drawn, letters, rng))


def _composed(panels: tuple[PanelContent, ...], letters: str, rng: Rng) -> np.ndarray:
    rows, columns = _GRID[len(panels)]
    if len(panels) == 2 and rng.integers(2):
        rows, columns = columns, rows
    height, width = panels[0].image.shape[:2]
    page = Image.new(
        "RGB", (columns * (width + _GAP_PX), rows * (height + _GAP_PX)), (255, 255, 255)
    )
    canvas = ImageDraw.Draw(page)
    style, inside = pick(rng, ("{}", "{}", "({})")), bool(rng.integers(3) == 0)
    for i, (panel, letter) in enumerate(zip(panels, letters, strict=True)):
        x = (i % columns) * (width + _GAP_PX) + _GAP_PX - 6
        y = (i // columns) * (height + _GAP_PX) + _GAP_PX - 6
        page.paste(Image.fromarray(panel.image), (x, y))
        corner = (x + 3, y + 3) if inside else (x - 20, y - 24)
        label = style.format(letter)
        box = canvas.textbbox(corner, label, font=font(20))
        canvas.rectangle((box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3), fill="white")
        # The stroke makes letters bold, as journals require.
        canvas.text(corner, label, fill="black", font=font(20), stroke_width=0.6)
    return np.array(page)


_LABELS = (
    "<bold>{}</bold> {}. {}",
    "<bold>({})</bold> {}. {}",
    "(<bold>{}</bold>) {}. {}",
    "({}) {}. {}",
    "<italic>{}</italic>, {}. {}",
    "{}, {}. {}",
)


def caption_of(
    drawn: DrawnFigure, rng: Rng, *, flow: str = "paragraph", spanish: bool = False
) -> CaptionText:
    """Return a caption that describes a figure, of random length.

    Args:
        drawn: The figure.
        rng: Selects the length, the style of panel labels and the filler sentences.
        flow: ``paragraph``: all panels in one paragraph; ``paragraphs``: one for each; ``list``: a
            JATS list with the panel letters as its labels.
        spanish: Whether to write in Spanish, in short form.
    """
    length, label = int(rng.integers(4)), pick(rng, _LABELS)
    if spanish:
        title = upper_first(drawn.panels[0].spanish)
        texts = [(upper_first(panel.spanish), "") for panel in drawn.panels]
    else:
        title = drawn.panels[0].finding
        texts = [
            (upper_first(panel.subject), panel.detail if length else "") for panel in drawn.panels
        ]
    if drawn.letters:
        parts = [
            label.format(letter, *text).strip()
            for letter, text in zip(drawn.letters, texts, strict=True)
        ]
    else:
        parts = [f"{subject}. {detail}".strip() for subject, detail in texts]
    if length == 3 and not spanish:
        parts += [METHODS[i] for i in rng.permutation(len(METHODS))[: int(rng.integers(2, 6))]]
    if flow == "list":
        items = "".join(
            f"<list-item><label>({letter})</label><p>{subject}. {detail}</p></list-item>"
            for letter, (subject, detail) in zip(drawn.letters, texts, strict=False)
        )
        return CaptionText(f"{title}.", (f'<list list-type="simple">{items}</list>',))
    if spanish and not drawn.letters:
        return CaptionText(f"{title}.", ())
    paragraphs = tuple(parts) if flow == "paragraphs" else (" ".join(parts),)
    return CaptionText(f"{title}.", paragraphs)


def encode(pixels: np.ndarray, image_format: str, *, mode: str = "RGB", quality: int = 88) -> bytes:
    """Return an encoded image; equal pixels give equal bytes.

    Args:
        pixels: RGB, uint8, shape [H, W, 3].
        image_format: Pillow's name: JPEG, PNG, TIFF, GIF or WEBP.
        mode: Pillow's mode of the file; ``I;16`` gives 16-bit grey.
        quality: Quality of JPEG and WEBP.
    """
    image = Image.fromarray(pixels)
    if mode == "I;16":
        grey = np.asarray(image.convert("L")).astype(np.uint16) * 257
        image = Image.fromarray(grey)
    elif image_format == "GIF":
        image = image.quantize(64)
    else:
        image = image.convert(mode)
    file = io.BytesIO()
    options: dict[str, dict[str, int | str]] = {
        "JPEG": {"quality": quality},
        "WEBP": {"quality": quality},
        "TIFF": {"compression": "tiff_lzw"},
    }
    image.save(file, image_format, **options.get(image_format, {}))
    return file.getvalue()


def thumbnail(pixels: np.ndarray, *, width_px: int = 100) -> np.ndarray:
    """Return an image shrunk to a width."""
    image = Image.fromarray(pixels)
    return np.array(image.resize((width_px, round(width_px * image.height / image.width))))
