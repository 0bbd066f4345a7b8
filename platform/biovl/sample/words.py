"""Vocabulary of the sample: topics of articles, and descriptions of panels.

Every property that a description states is visible in the panel: kind, colour, trend, number of
groups, stain, side.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import matplotlib
import numpy as np
from PIL import ImageFont

Rng = np.random.Generator
T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """Topic of an article. Plain text without XML special characters."""

    disease: str
    organ: str
    gene: str
    marker: str
    drug: str
    cells: str
    disease_es: str
    organ_es: str


TOPICS = tuple(
    Topic(*row.split("|"))
    for row in (
        "renal fibrosis|kidney|SMAD3|TGF-β1|losartan|HK-2 cells|fibrosis renal|riñón",
        "colorectal cancer|colon|KRAS|CEA|cetuximab|HCT116 cells|cáncer colorrectal|colon",
        "hepatocellular carcinoma|liver|CTNNB1|AFP|sorafenib|HepG2 cells"
        "|carcinoma hepatocelular|hígado",
        "acute lung injury|lung|NLRP3|IL-1β|dexamethasone|A549 cells|lesión pulmonar aguda|pulmón",
        "type 2 diabetes|pancreas|INS|C-peptide|metformin|INS-1 cells|diabetes tipo 2|páncreas",
        "breast cancer|breast|ERBB2|CA 15-3|trastuzumab|SK-BR-3 cells|cáncer de mama|mama",
        "glioblastoma|brain|EGFR|GFAP|temozolomide|U87 cells|glioblastoma|cerebro",
        "heart failure|heart|MYH7|NT-proBNP|carvedilol|H9c2 cells|insuficiencia cardíaca|corazón",
        "prostate cancer|prostate|AR|PSA|enzalutamide|LNCaP cells|cáncer de próstata|próstata",
        "ulcerative colitis|colon|TNF|IL-6|infliximab|Caco-2 cells|colitis ulcerosa|colon",
        "melanoma|skin|BRAF|S100B|vemurafenib|A375 cells|melanoma|piel",
        "osteoarthritis|knee joint|MMP13|COMP|celecoxib|SW1353 cells|artrosis|rodilla",
    )
)


@dataclass(frozen=True)
class PanelContent:
    """A panel image and its description, in inline JATS: escaped, optionally with markup."""

    image: np.ndarray
    """RGB, uint8, shape [H, W, 3]."""
    finding: str
    """Title: the finding that the panel shows, without a full stop."""
    subject: str
    """Noun phrase for the subject, without an article."""
    detail: str
    """Sentences that can be verified on the image."""
    spanish: str
    """Finding and subject as one Spanish phrase."""

    @property
    def plain(self) -> str:
        """Subject and detail as plain text, with a capital first letter."""
        words = html.unescape(re.sub(r"<[^>]+>", "", f"{self.subject}. {self.detail}")).strip()
        return words[:1].upper() + words[1:]


@dataclass(frozen=True)
class Colour:
    """A colour: its names and its value."""

    name: str
    spanish: str
    hex: str


COLOURS = (
    Colour("blue", "azul", "#2166ac"),
    Colour("red", "rojo", "#d7191c"),
    Colour("green", "verde", "#1a9641"),
    Colour("orange", "naranja", "#f28e2b"),
    Colour("purple", "morado", "#7b3294"),
    Colour("grey", "gris", "#8c8c8c"),
    Colour("black", "negro", "#111111"),
)

_COUNTS = "no one two three four five six seven eight nine ten eleven twelve".split()

P, N = "<italic>P</italic>", "<italic>n</italic>"
"""Of a probability, and of a number of samples, as inline JATS."""

METHODS = (
    "Data are from three independent experiments performed in triplicate and are shown as "
    "mean ± s.e.m.",
    "Statistical significance was determined by one-way analysis of variance followed by "
    "Tukey’s post hoc test; <italic>P</italic> values below 0.05 were considered significant.",
    "Images were acquired with identical exposure settings and are representative of at least "
    "ten fields of view for each of six animals per group.",
    "Sections of 4 μm were cut from formalin-fixed, paraffin-embedded blocks, dewaxed in xylene "
    "and rehydrated through graded alcohols before staining.",
    "Two observers who were blinded to the allocation read all images independently, and "
    "disagreements were resolved by consensus with a third observer.",
    "Cells were seeded at 2 × 10<sup>5</sup> per well, starved overnight and exposed to the "
    "compound in medium with 1% serum for the times indicated.",
    "Error bars and shaded regions denote 95% confidence intervals obtained by bootstrapping "
    "with 1,000 resamples.",
    "Source data are provided as a Source Data file, and the uncropped images are available from "
    "the corresponding author on reasonable request.",
    "Participants were followed until death, loss to follow-up or the end of the study, whichever "
    "came first, and those without an event were censored at their last visit.",
    "Concentrations were corrected for dilution and normalised to total protein "
    "(BCA assay; mg ml<sup>−1</sup>).",
)
"""Filler sentences of long captions; as in real captions, they do not describe the image."""


def count(number: int) -> str:
    """Return a small number in words: ``3`` gives ``three``."""
    return _COUNTS[number] if number < len(_COUNTS) else str(number)


def pick(rng: Rng, choices: Sequence[T]) -> T:
    """Return a random element of a sequence."""
    return choices[int(rng.integers(len(choices)))]


def upper_first(text: str) -> str:
    """Return a text with a capital first letter, after any markup: ``<b>a`` gives ``<b>A``."""
    start = text.index(">") + 1 if text.startswith("<") else 0
    return text[:start] + text[start].upper() + text[start + 1 :]


@cache
def font(size_px: int) -> ImageFont.FreeTypeFont:
    """Return matplotlib's DejaVu Sans at a size; Pillow's default font has no Greek letters."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(folder / "DejaVuSans.ttf"), size_px)
