"""How much work the images of a request are, by their headers, and who may ask for how much.

A file of 3 kB can hold 63 million pixels. So pixels are added up over all images of a request
before the first is decoded, and each key has a rate of pixels as it has one of requests.
"""

import asyncio
import math
import re
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from PIL import Image

from biovl.images import decode
from serve.http.exchanges import Caller
from serve.http.problems import Problem
from serve.http.rate import MAX_BUCKETS, Buckets, Leases, leased
from serve.http.settings import Limits, Rate

MAX_CHUNKS = 20_000
"""Of a PNG. Encoders write kilobytes into each; Pillow takes microseconds for each, however
small."""
MAX_SEGMENTS = 5_000
"""Of a JPEG, before its pixels. A large EXIF block or colour profile has some hundred."""
USUAL_SCANS = 10
"""Of a progressive JPEG. Each further one goes through all pixels again."""

_PNG = b"\x89PNG\r\n\x1a\n"
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_START_OF_SCAN = b"\xff\xda"
# Segments of JPEG that have no length: those that stand for themselves.
_ALONE = re.compile(rb"[\x01\xd0-\xd8]")
_PORTION_S = 0.1


class CostlyFileError(ValueError):
    """A file is made of so many pieces that finding its pixels would be the work."""


def without_texts(data: bytes) -> bytes:
    """Return a PNG without its texts, others as they are.

    Compressed texts are unpacked by Pillow whenever it opens a file: measured, 63 kB of them take
    0.2 s. Nothing here reads them.

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
        # The pixels begin, or the file ends: decoding says what is wrong with it.
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
    """Return the millions of pixels that decoding an image goes through; 0 if that is not stated.

    Of a progressive JPEG they count again for every ten scans that it has beyond the usual ten.
    """
    try:
        size = decode.stated_size_px(data)
    except Image.DecompressionBombError:
        return math.inf
    if size is None:
        # What is wrong with it is found out at its first bytes.
        return 0.0
    pixels = size[0] * size[1] / 1e6
    scans = data.count(_START_OF_SCAN) if data.startswith(b"\xff\xd8") else 1
    return pixels * max(1.0, scans / USUAL_SCANS)


@dataclass
class _Local:
    """Millions of pixels that this replica has leased of one bucket, and not used yet."""

    tokens: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PixelBudget:
    """Lets images be decoded or not: by request, and by key over all replicas."""

    def __init__(
        self,
        limits: Limits,
        rate: Rate,
        leases: Leases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow what ``limits`` say of one request, and ``rate`` of one key."""
        self._most = limits.request_megapixels
        self._per_s = rate.megapixels_per_s
        # A request that is within its limit must pass some time.
        self._burst = math.ceil(max(rate.megapixels_burst, self._most))
        self._leases = leases
        self._alone = Buckets(clock=clock)
        self._local: OrderedDict[str, _Local] = OrderedDict()

    async def spend(self, caller: Caller | None, images: Sequence[bytes]) -> None:
        """Count the images of a request.

        Raises:
            Problem: 422 if they have too many pixels together, 429 if the caller has sent too many
                lately.
        """
        wanted = sum(map(megapixels, images))
        if wanted > self._most:
            raise Problem(
                422,
                "too-many-pixels",
                f"the {len(images)} images have {wanted:,.0f} million pixels together, at most"
                f" {self._most:g} million are taken at once; send fewer, or shrink them",
            )
        if self._per_s is None or caller is None or not wanted:
            return
        local = self._local_of(caller.bucket)
        async with local.lock:
            if local.tokens < wanted:
                portion = max(wanted - local.tokens, self._per_s * _PORTION_S)
                local.tokens += await leased(
                    *(self._leases, self._alone, f"pixels:{caller.bucket}"),
                    *(portion, self._per_s, self._burst),
                )
            # A sum of fractions is seldom exact.
            if local.tokens >= wanted - 1e-6:
                local.tokens = max(0.0, local.tokens - wanted)
                return
            wait_s = max(1, math.ceil((wanted - local.tokens) / self._per_s))
        raise Problem(
            429,
            "rate-limit",
            f"more than {self._per_s:g} million pixels a second, {self._burst} million at once;"
            f" wait {wait_s} s",
            headers={"Retry-After": str(wait_s)},
        )

    def _local_of(self, bucket: str) -> _Local:
        local = self._local.pop(bucket, None) or _Local()
        self._local[bucket] = local
        while len(self._local) > MAX_BUCKETS:
            self._local.popitem(last=False)
        return local
