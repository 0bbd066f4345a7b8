"""Plug-ins: columns that can be computed for a table of images; the file name is the plug-in name.

An annotator has two steps that scale separately: CPU workers prepare rows (decode, resize,
tokenize), and a model processes the prepared rows in batches. Without a model, the second step
does the work itself.

A ``Config`` provides the name of the main column (``column``). If the columns depend on the content
of additional files, it also provides their locations by name (``files``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from PIL import Image

from biovl.core.errors import ConfigError
from biovl.core.folders import Folder
from biovl.images.decode import MIN_SIDE_PX, TOO_SMALL, decode_rgb

if TYPE_CHECKING:
    from biovl.annotate.batches import Unit
    from biovl.annotate.config import AnnotateConfig
    from biovl.core.tables import Table
    from biovl.runtime.progress import Progress

# Shapes: K usable rows of a batch; one prepared row has the shape [...].

Precision = Literal["float32", "bfloat16", "auto"]
"""Precision of a model's arithmetic; auto is bfloat16 on GPUs that support it."""

NO_IMAGE = "no image"
NOT_IN_TABLE = "image is not in the table"
NO_TEXT = "no text"
NOT_FINITE = "embedding is not finite"
NOT_SELECTED = "not selected"
"""In the defect column of rows that the job was not asked to compute; they are no defects."""

_LONGEST = 64
"""Maximum aspect ratio; longer images are cropped to it. Resized by its shorter side, a line of a
few pixels would exhaust the memory."""


class LoadedModel(Protocol):
    """One copy of a model on a worker."""

    def __call__(self, prepared: np.ndarray) -> Mapping[str, Any]:
        """Return the computed columns of a batch of usable rows.

        Args:
            prepared: Results of ``Annotator.prepare``. Shape [K, ...], K >= 1; read-only. For
                bytes an object array, shape [K].

        Returns:
            Columns by the names in ``writes``. Shape [K], or [K, D] for vectors; a vector with NaN
            or Inf makes its row a defect. For texts and nested values, any sequence of length K.
        """


class Annotator(Protocol):
    """Computes columns of rows. Must be small: it is pickled to every worker."""

    name: str
    """Name of the main column, and of the folder that is published."""
    reads: tuple[str, ...]
    """Table columns passed to ``prepare``; ``article.abstract`` is a column of the row's
    article."""
    writes: pa.Schema
    """Schema of the computed columns, null in unusable rows. The job adds the defect column."""
    counted: tuple[str, ...]
    """Categorical columns of ``writes``, which the manifest counts and a chart shows."""
    notes: Mapping[str, Any]
    """Notes for readers of the columns, stored in the manifest."""

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | bytes | str:
        """Return the model input of a row, or a defect.

        The input is an array of the same shape and dtype for all rows, or bytes.

        Runs on CPU workers, without weights. Never raises because of a row's content.
        """

    def load(self, device: str, precision: Precision) -> LoadedModel:
        """Return a copy of the model with its weights, on a device.

        Raises:
            ArtifactError: If the weights are unavailable, or do not fit the model.
        """


@runtime_checkable
class PrefetchesAnswers(Protocol):
    """An annotator with paid requests, which can run all of them before columns are computed."""

    def prefetch_answers(
        self, config: "AnnotateConfig", table: "Table", units: "list[Unit]", report: "Progress"
    ) -> None:
        """If a model on the cluster is configured, cache its answers to all requests."""

    def spent(self) -> str:
        """Return the tokens and cost of all jobs that share the cache, as text."""


def file_bytes(name: str, uri: str) -> bytes:
    """Return the content of a file named in a setting, local or ``s3://``.

    Raises:
        ConfigError: If the file does not exist.
    """
    whole = uri if "://" in uri else str(Path(uri).expanduser().absolute())
    parent, _, file = whole.rpartition("/")
    folder = Folder(parent or "/")
    if not folder.exists(file):
        raise ConfigError(f"{name}: {uri} does not exist")
    return folder.read(file)


def pixels_of(value: Any) -> np.ndarray | str:
    """Return the RGB pixels of a cell, uint8, shape [H, W, 3], or a defect.

    Args:
        value: An encoded image, or a struct with one in ``bytes``, as in Hugging Face datasets.
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


def fit_in_square(pixels_HWC: np.ndarray, size_px: int) -> np.ndarray:
    """Fit an image into a white square, its longer side ``size_px``, bicubic with antialiasing."""
    image = Image.fromarray(pixels_HWC)
    scale = size_px / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    page = Image.new("RGB", (size_px, size_px), "white")
    small = image.resize((width, height), Image.Resampling.BICUBIC)
    page.paste(small, ((size_px - width) // 2, (size_px - height) // 2))
    return np.asarray(page)
