"""Plug-ins: columns we can compute of a table of images. A file is named as in a configuration.

An annotator works in two steps, which scale apart: rows are prepared on CPU workers (decoded,
resized, made tokens of), and what that gives goes in batches through a model. Where there is no
model, the second step is the work itself.

A ``Config`` says what its main column is called (``column``) and, where the columns depend on
further files, where those are (``files``, by name): other files are other columns.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from PIL import Image

from biovl.core.artifacts import Folder
from biovl.core.errors import ConfigError
from biovl.images.decode import MIN_SIDE_PX, TOO_SMALL, decode_rgb

# Shapes: K usable rows of a batch; what one row is made into has the shape [...].

Precision = Literal["float32", "bfloat16", "auto"]
"""Of a model's arithmetic; auto is bfloat16 on GPUs that have it."""

NO_IMAGE = "no image"
NOT_IN_TABLE = "image is not in the table"
NO_TEXT = "no text"
NOT_FINITE = "embedding is not finite"

_LONGEST = 64
"""Images longer than so many times their height are cut to that: resized by its shorter side, a
line of a few pixels would fill the memory."""


class Model(Protocol):
    """One copy of a model, where it works."""

    def __call__(self, prepared: np.ndarray) -> Mapping[str, Any]:
        """Return the columns of rows that are usable.

        Args:
            prepared: What ``Annotator.prepare`` made of each. Shape [K, ...], K >= 1; read-only.
                Of bytes an array of objects, shape [K].

        Returns:
            By the names in ``writes``. Shape [K], or [K, D] for vectors; where a vector is not
            finite, the row becomes a defect. For texts and what is nested, any sequence of K.
        """


class Annotator(Protocol):
    """What is computed of each row. Small: it travels to every worker by pickle."""

    name: str
    """Of its main column, and of the folder it stands in."""
    reads: tuple[str, ...]
    """The only columns it is given; ``article.abstract`` is that of the row's article."""
    writes: pa.Schema
    """The columns it computes, null in rows that are not usable. The job adds why."""
    counted: tuple[str, ...]
    """Those of ``writes`` with few values, which the manifest counts and a chart shows."""
    notes: Mapping[str, Any]
    """What a reader of the columns must know of them."""

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | bytes | str:
        """Return what the model needs of a row, or a defect.

        What it needs is an array of the same shape and dtype for all, or bytes.

        Runs on CPU workers, without weights. Never raises for what it finds in a row.
        """

    def load(self, device: str, precision: Precision) -> Model:
        """Return the model with its weights.

        Raises:
            ArtifactError: If they cannot be had, or are not those of the model.
        """


def file_bytes(name: str, uri: str) -> bytes:
    """Return what is in a file that a setting names, local or ``s3://``.

    Raises:
        ConfigError: If there is no such file.
    """
    whole = uri if "://" in uri else str(Path(uri).expanduser().absolute())
    parent, _, file = whole.rpartition("/")
    folder = Folder(parent or "/")
    if not folder.exists(file):
        raise ConfigError(f"{name}: there is no file {uri}")
    return folder.read(file)


def pixels_of(value: Any) -> np.ndarray | str:
    """Return the RGB pixels of a cell, uint8, shape [H, W, 3]; or why there are none.

    Args:
        value: An encoded image, or a struct with one in ``bytes``, as Hugging Face's tables have.
    """
    if isinstance(value, Mapping):
        if value.get("bytes") is None and value.get("path"):
            return NOT_IN_TABLE
        value = value.get("bytes")
    if value is None:
        return NO_IMAGE
    if not isinstance(value, bytes):
        return NOT_IN_TABLE
    decoded = decode_rgb(value)
    if decoded.pixels is None:
        return decoded.defect or ""
    height, width, _ = decoded.pixels.shape
    if min(height, width) < MIN_SIDE_PX:
        return TOO_SMALL
    tall, wide = min(height, _LONGEST * width), min(width, _LONGEST * height)
    top, left = (height - tall) // 2, (width - wide) // 2
    return decoded.pixels[top : top + tall, left : left + wide]


def fitted(pixels_HWC: np.ndarray, size_px: int) -> np.ndarray:
    """Return a whole image on a white square, its longer side ``size_px``, bicubic, antialiased."""
    image = Image.fromarray(pixels_HWC)
    scale = size_px / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    page = Image.new("RGB", (size_px, size_px), "white")
    small = image.resize((width, height), Image.Resampling.BICUBIC)
    page.paste(small, ((size_px - width) // 2, (size_px - height) // 2))
    return np.asarray(page)
