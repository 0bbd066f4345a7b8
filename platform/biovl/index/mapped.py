"""Arrays and texts of an index, mapped into memory; refused if they are not what they should be."""

import tokenize
from pathlib import Path

import numpy as np
import pyarrow as pa

from biovl.core.errors import ArtifactError

DAMAGED = (OSError, ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError)
"""What NumPy raises where a file is no array, or a header was written over."""


def mapped(path: Path, kinds: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return an array of a ``.npy`` file, which stays in the file until it is read.

    Args:
        path: Of the file.
        kinds: NumPy's letters of those its numbers may be: ``u`` unsigned, ``i`` signed …
        shape: That it should have; None where any length will do.

    Raises:
        ArtifactError: If it is another one, is cut short or holds Python objects.
    """
    try:
        # Not np.load, which also opens archives.
        array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    except DAMAGED as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    is_shape = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not is_shape or array.dtype.kind not in kinds or not array.flags.c_contiguous:
        raise ArtifactError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected {shape} of {kinds!r}"
        )
    return array


def mapped_texts(path: Path) -> pa.Array:
    """Return the only column of an Arrow file of texts, which stays in the file until it is read.

    Raises:
        ArtifactError: If it is no such file, or damaged: every text is looked at once.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        # Reading texts that begin nowhere ends the process.
        batch.validate(full=True)
        column = batch.column(0)
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    if column.type != pa.string():
        raise ArtifactError(f"{path} holds {column.type}, expected texts")
    return column
