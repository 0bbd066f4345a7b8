"""Single-panel images of known kinds, to test clustering and classification.

They are written as a table of captions and a folder of images, for the source ``table``; the images
are in class folders:

    captions.csv                 image, caption, article_id (the kind and a number), license
    images/fundus/000.jpg …      360 x 280 px
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from biovl.sample.clinical_plots import CLINICAL_PLOTS
from biovl.sample.figures import encode
from biovl.sample.micrographs import MICROGRAPHS
from biovl.sample.plots import LABORATORY_PLOTS
from biovl.sample.scans import SCANS
from biovl.sample.words import TOPICS, PanelContent, Rng, Topic, pick

CONCEPTS = {
    "bars": ("Plots and Charts", "bar plot"),
    "boxes": ("Plots and Charts", "box plot"),
    "correlation": ("Plots and Charts", "scatter plot"),
    "forest": ("Plots and Charts", "forest plot"),
    "heat_map": ("Plots and Charts", "heatmap plot"),
    "roc": ("Plots and Charts", "roc curve"),
    "survival": ("Plots and Charts", "survival curve"),
    "time_course": ("Plots and Charts", "line plot"),
    "flow_diagram": ("Illustrative Diagrams", "cohort selection flowchart"),
    "electron_micrograph": ("Microscopy", "transmission electron microscopy"),
    "fluorescence": ("Microscopy", "fluorescence microscopy"),
    "histology": ("Microscopy", "light microscopy"),
    "immunohistochemistry": ("Immuno Assays", "immunohistochemistry"),
    "western_blot": ("Immuno Assays", "immunoblot"),
    "brain_scan": ("Clinical Imaging", "brain"),
    "electrocardiogram": ("Clinical Imaging", "electrocardiography"),
    "fundus": ("Clinical Imaging", "eye"),
    "ultrasound": ("Clinical Imaging", "ultrasound"),
}
"""Global and local concept of each kind, in BIOMEDICA's taxonomy."""

_DRAW: dict[str, Callable[[Topic, Rng], PanelContent]] = {
    draw.__name__: draw for draw in (*LABORATORY_PLOTS, *CLINICAL_PLOTS, *MICROGRAPHS, *SCANS)
}


def make_kinds(
    folder: Path, *, each: int, kinds: Sequence[str] = tuple(CONCEPTS), seed: int = 0
) -> Path:
    """Write images of known kinds and their table; return the path of the table.

    Args:
        folder: Folder to write into.
        each: Images per kind; each is an article of its own.
        kinds: Kinds, keys of ``CONCEPTS``.
        seed: Random seed; equal seeds give equal bytes.
    """
    rng = np.random.default_rng(seed)
    table = folder / "captions.csv"
    folder.mkdir(parents=True, exist_ok=True)
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "caption", "article_id", "license"])
        for kind in kinds:
            (folder / "images" / kind).mkdir(parents=True, exist_ok=True)
            for number in range(each):
                panel = _DRAW[kind](pick(rng, TOPICS), rng)
                name = f"images/{kind}/{number:03d}.jpg"
                (folder / name).write_bytes(encode(panel.image, "JPEG"))
                writer.writerow([name, panel.plain, article_id(kind, number), "CC0"])
    return table


def article_id(kind: str, number: int) -> str:
    """Return the article id of an image."""
    return f"{kind.replace('_', '-')}-{number:03d}"


def kind_of(name: str) -> str:
    """Return the kind of an image from the id of its article or figure."""
    return next(kind for kind in CONCEPTS if name.startswith(f"{kind.replace('_', '-')}-"))
