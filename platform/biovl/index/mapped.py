"""Memory-mapped arrays and strings of an index, validated before use."""

import tokenize
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from biovl.core.errors import ArtifactError

DAMAGED = (OSError, ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError)
"""Exceptions of NumPy for files that are not arrays or have a corrupt header."""


def map_array(path: Path, kinds: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return a memory-mapped array of a ``.npy`` file.

    Args:
        path: Path of the file.
        kinds: Accepted ``numpy.dtype.kind`` letters: ``u`` unsigned, ``i`` signed …
        shape: Expected shape; None for any length.

    Raises:
        ArtifactError: If type or shape differ, or the file is truncated or contains Python objects.
    """
    try:
        # Not np.load, which also accepts archives.
        array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
    except DAMAGED as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    is_shape = array.ndim == len(shape) and all(
        expected in (None, length) for expected, length in zip(shape, array.shape, strict=True)
    )
    if not is_shape or array.dtype.kind not in kinds or not array.flags.c_contiguous:
        raise ArtifactError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected shape {shape} and "
            f"dtype kind {kinds!r}"
        )
    return array


def map_texts(path: Path) -> pa.Array:
    """Return the only column of a memory-mapped Arrow file of strings.

    Raises:
        ArtifactError: If the file has another format or is corrupt; all strings are validated once.
    """
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        # Invalid string offsets would crash the process.
        batch.validate(full=True)
        column = batch.column(0)
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    if column.type != pa.string():
        raise ArtifactError(f"{path} holds {column.type}, expected texts")
    return column


def places_of(texts: pa.Array, wanted: Iterable[str]) -> list[int]:
    """Return the positions of those strings that sorted texts contain, in the order given."""
    places = []
    for text in wanted:
        place = bisect_left(texts, text, key=lambda scalar: scalar.as_py())
        if place < len(texts) and texts[place].as_py() == text:
            places.append(place)
    return places
