"""Figures with long captions that describe the image only after CLIP's 77 tokens.

They are written as a table of captions and a folder of images, for the source ``table``:

    captions.csv        image, caption, article_id, license
    images/0000.png …   a disc on a background of another colour

Every caption begins with sentences unrelated to the image, like the captions of trials.
"""

import csv
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor

from biovl.sample.words import COLOURS, METHODS, Rng, pick

SIDE_PX = 96

# A word has at least one token; CLIP's context of 77 includes a start and an end token.
_FIRST_WORDS = 76
_PLACES = {
    f"{row} {column}": (y, x)
    for row, y in (("upper", 0.3), ("lower", 0.7))
    for column, x in (("left", 0.3), ("right", 0.7))
}
_MARKUP = re.compile(r"<[^>]+>")


def make_long_captions(folder: Path, *, figures: int, seed: int = 0) -> Path:
    """Write figures with long captions and their table; return the path of the table.

    Args:
        folder: Folder to write into.
        figures: Number of figures; each is an article of its own.
        seed: Random seed; equal seeds give equal bytes.
    """
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    table = folder / "captions.csv"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "caption", "article_id", "license"])
        for number in range(figures):
            disc, ground = (COLOURS[i] for i in rng.permutation(len(COLOURS))[:2])
            place = pick(rng, list(_PLACES))
            name = f"images/{number:04d}.png"
            pixels = _drawn(rng, disc.hex, ground.hex, _PLACES[place])
            Image.fromarray(pixels).save(folder / name)
            finding = f"A {disc.name} disc in the {place} on a {ground.name} ground."
            writer.writerow([name, f"{_preamble(rng)} {finding}", f"article-{number:04d}", "CC0"])
    return table


def _preamble(rng: Rng) -> str:
    """Return sentences that fill CLIP's context and do not describe the image."""
    sentences: list[str] = []
    for i in rng.permutation(len(METHODS)):
        sentences.append(_MARKUP.sub("", METHODS[i]))
        if sum(len(sentence.split()) for sentence in sentences) >= _FIRST_WORDS:
            break
    return " ".join(sentences)


def _drawn(rng: Rng, disc: str, ground: str, centre: tuple[float, float]) -> np.ndarray:
    """Return a disc on a background, unevenly lit. RGB, uint8, shape [SIDE_PX, SIDE_PX, 3]."""
    y, x = np.mgrid[:SIDE_PX, :SIDE_PX] / SIDE_PX
    inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < 0.18**2
    image = np.where(inside[..., None], ImageColor.getrgb(disc), ImageColor.getrgb(ground))
    # Figures with equal captions differ in pixels, otherwise they are dropped as duplicates.
    light = Image.fromarray(rng.uniform(0.55, 1.0, (6, 6)).astype(np.float32))
    lit = np.asarray(light.resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC))
    return np.asarray(np.clip(image * lit[..., None], 0, 255), np.uint8)
