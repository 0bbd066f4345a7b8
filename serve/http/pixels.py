"""Limits of decoded pixels, per request and per API key, computed from image headers.

A file of 3 kB can contain 63 million pixels. Therefore the pixels of all images of a request are
added up before the first is decoded, and each key has a rate limit for pixels.
"""

import asyncio
import functools
import math
import re
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from PIL import Image

from biovl.images import decode
from serve.http.problems import Problem
from serve.http.rate import MAX_BUCKETS, Buckets, Leases, lease_tokens
from serve.http.request_context import Caller
from serve.http.settings import Limits, Rate

MAX_CHUNKS = 20_000
"""Maximum chunks of a PNG. Encoders write kilobytes per chunk; Pillow needs microseconds for each,
however small."""
MAX_SEGMENTS = 5_000
"""Maximum segments of a JPEG before its pixels. Large EXIF blocks need hundreds."""
USUAL_SCANS = 10
"""Usual number of scans of a progressive JPEG. Each further scan processes all pixels again."""

_PNG = b"\x89PNG\r\n\x1a\n"
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_START_OF_SCAN = b"\xff\xda"
# JPEG markers without a length field.
_ALONE = re.compile(rb"[\x01\xd0-\xd8]")
_PORTION_S = 0.1


class CostlyFileError(ValueError):
    """A file has so many chunks or segments that parsing it would be too expensive."""


def without_texts(data: bytes) -> bytes:
    """Return a PNG without its text chunks; other formats are returned unchanged.

    Pillow decompresses text chunks whenever it opens a file: 63 kB of them take 0.2 s (measured).
    The service does not use them.

    Raises:
        CostlyFileError: If a PNG has more than ``MAX_CHUNKS`` chunks, or a JPEG more than
            ``MAX_SEGMENTS`` segments before its pixels.
    """
    if data.startswith(_PNG):
        return _png_without_texts(data)
    if data.startswith(b"\xff\xd8"):
        _check_segments(data)
    return data


def _png_without_texts(data: bytes) -> bytes:
    kept, begin, place, chunks = [], 0, len(_PNG), 0
    while place + 12 <= len(data):
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise CostlyFileError(f"the PNG has more than {MAX_CHUNKS:,} chunks")
        (length,) = struct.unpack_from(">I", data, place)
        end = place + 12 + length
        if data[place + 4 : place + 8] in _TEXTS:
            kept.append(data[begin:place])
            begin = end
        place = end
    return b"".join([*kept, data[begin:]]) if begin else data


def _check_segments(data: bytes) -> None:
    place = 2
    for _ in range(MAX_SEGMENTS):
        place = data.find(b"\xff", place)
        kind = data[place + 1 : place + 2]
        # Start of the pixels or end of the file: the decoder reports any error.
        if place < 0 or not kind or kind in (b"\xda", b"\xd9"):
            return
        if kind in (b"\xff", b"\x00") or _ALONE.match(kind):
            place += 1
        elif place + 4 > len(data):
            return
        else:
            place += 2 + max(2, int.from_bytes(data[place + 2 : place + 4], "big"))
    raise CostlyFileError(f"the JPEG has more than {MAX_SEGMENTS:,} segments before its pixels")


def megapixels(data: bytes) -> float:
    """Return the decoding cost of an image in megapixels; 0 if its header has no size.

    The cost of a progressive JPEG with more than ``USUAL_SCANS`` scans grows with their number.
    """
    try:
        size = decode.stated_size_px(data)
    except Image.DecompressionBombError:
        return math.inf
    if size is None:
        # The decoder rejects such a file at its first bytes.
        return 0.0
    pixels = size[0] * size[1] / 1e6
    scans = data.count(_START_OF_SCAN) if data.startswith(b"\xff\xd8") else 1
    return pixels * max(1.0, scans / USUAL_SCANS)


@dataclass
class _Local:
    """Megapixels of one bucket that this replica has leased and not used yet."""

    tokens: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PixelBudget:
    """Limit of decoded pixels: per request, and per key over all replicas."""

    def __init__(
        self,
        limits: Limits,
        rate: Rate,
        leases: Leases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limits of decoded pixels: per request, and per API key over all replicas."""
        self._most = limits.request_megapixels
        self._per_s = rate.megapixels_per_s
        # A request within its limit must eventually pass.
        self._burst = math.ceil(max(rate.megapixels_burst, self._most))
        self._leases = leases
        self._alone = Buckets(clock=clock)
        self._local_of = functools.lru_cache(MAX_BUCKETS)(lambda bucket: _Local())

    async def spend(self, caller: Caller | None, images: Sequence[bytes]) -> None:
        """Charge the images of a request to the caller's budget.

        Raises:
            Problem: 422 if the request has too many pixels, 429 if the caller exceeds its rate.
        """
        total = sum(map(megapixels, images))
        if total > self._most:
            raise Problem(
                422,
                "too-many-pixels",
                f"the {len(images)} images have {total:,.0f} megapixels in total, at most"
                f" {self._most:g} are accepted per request; send fewer or smaller images",
            )
        if self._per_s is None or caller is None or not total:
            return
        local = self._local_of(caller.bucket)
        async with local.lock:
            if local.tokens < total:
                portion = max(total - local.tokens, self._per_s * _PORTION_S)
                local.tokens += await lease_tokens(
                    *(self._leases, self._alone, f"pixels:{caller.bucket}"),
                    *(portion, self._per_s, self._burst),
                )
            # Tolerance for floating-point rounding.
            if local.tokens >= total - 1e-6:
                local.tokens = max(0.0, local.tokens - total)
                return
            wait_s = max(1, math.ceil((total - local.tokens) / self._per_s))
        raise Problem(
            429,
            "rate-limit",
            f"more than {self._per_s:g} megapixels per second (burst {self._burst});"
            f" wait {wait_s} s",
            headers={"Retry-After": str(wait_s)},
        )
