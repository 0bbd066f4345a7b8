"""Examples to rows: images are read, converted to formats that browsers show, and checked."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from biovl.benchmark.prepare.sets import Example
from biovl.core.errors import StorageError
from biovl.core.filesystems import storage_problem
from biovl.images import dicom, encode
from biovl.images.decode import decode_rgb

UNREADABLE = "image cannot be read"
_ENOUGH_PX = 64
"""Decoded size that suffices to find a damaged JPEG; all of its data are read."""
_AHEAD = 4
"""Examples per thread that are read ahead: bounds memory."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row to write, or the reason why it is left out."""

    id: str
    path: str
    image: bytes = b""
    values: Mapping[str, Any]
    defect: str | None = None
    detail: str = ""


def convert(examples: Iterable[Example], threads: int) -> Iterator[Row]:
    """Yield a row for each example, in order; a bounded number is read ahead.

    Raises:
        StorageError: If a disk fails.
    """
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Row]] = deque()
        try:
            for example in examples:
                ahead.append(pool.submit(_row, example))
                if len(ahead) > threads * _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _row(example: Example) -> Row:
    row = Row(id=example.id, path=example.path, values=example.values)
    try:
        data = example.read()
    except StorageError:
        raise
    except OSError as error:
        problem = storage_problem(error, example.path)
        if problem is not None:
            raise problem from error
        return replace(row, defect=UNREADABLE, detail=str(error))
    if dicom.is_dicom(data, example.path):
        # Public sets are de-identified; a frame with a printed side marker is an image like others.
        shown = dicom.to_png(data, burned_in=True)
        if shown.png is None:
            return replace(row, defect=shown.defect or UNREADABLE, detail=shown.detail or "")
        return replace(row, path=_renamed(row.path, "png"), image=shown.png)
    encoded = encode.for_training(data, short_side_px=None, jpeg_quality=95)
    defect = encoded.defect
    if defect is None and encoded.data is data:
        defect = decode_rgb(data, enough_px=_ENOUGH_PX).defect
    if defect is not None:
        return replace(row, defect=defect)
    path = row.path if encoded.data is data else _renamed(row.path, encoded.suffix)
    return replace(row, path=path, image=encoded.data)


def _renamed(path: str, suffix: str) -> str:
    stem, dot, _ = path.rpartition(".")
    return f"{stem if dot else path}.{suffix}"
