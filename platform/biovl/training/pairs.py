"""Pairs from their shards to pixels and token ids, on any worker with the same result.

All that is drawn for a pair comes from the seed, the epoch and its row. Consecutive pairs of a
shard are read with one request, and the next requests run while pairs are decoded.
"""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
from PIL import Image

from biovl.errors import ArtifactError
from biovl.filesystems import open_location
from biovl.images.decode import decode_rgb
from biovl.images.transforms import random_resized_crop, resize_center_crop
from biovl.shards import Place, _pairs, _Stream
from biovl.training.config import TEXT_FIELDS, DataConfig
from biovl.training.order import PAIR, REPLACEMENT, Places, generator

# Shapes: B pairs that are loaded, H height, W width.

ATTEMPTS = 16
"""Pairs that are tried in place of one that cannot be read."""

_READERS = 8
_MAX_REQUEST_BYTES = 1 << 24
_DAMAGED = "no pair where the index says"


class Encodes(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text."""
        ...


@dataclass(frozen=True)
class Loaded:
    """Pairs on their way to the model."""

    pixels_BHWC: np.ndarray
    """RGB, uint8."""

    tokens: list[np.ndarray]
    """Of each pair, int32."""

    replaced: dict[str, int]
    """Pairs that could not be read and others stand for, or that are missing from a validation:
    ``train/00003.tar: image does not decode``."""


@dataclass(frozen=True)
class _Unreadable:
    row: int
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class _Drawn:
    pixels: np.ndarray
    text: str


def load_pairs(
    corpus: str,
    places: Places,
    rows: np.ndarray,
    *,
    seed: int,
    epoch: int,
    image_px: int,
    data: DataConfig,
    tokenizer: Encodes,
    batch_rows: np.ndarray | None = None,
) -> Loaded:
    """Return pairs as they are trained on in an epoch, in the order of ``rows``.

    Args:
        corpus: What assemble published, local or ``s3://``.
        places: Of its training split.
        rows: Places of the pairs. Shape [B], int64.
        seed: Of the run.
        epoch: From 0.
        image_px: Side of the squares that the image tower reads.
        data: Texts, crops and what to do about unreadable pairs.
        tokenizer: Texts to ids.
        batch_rows: The rows of all workers in this step: none of them replaces another.

    Raises:
        ArtifactError: If a pair cannot be read, with its shard and the reason, where ``data`` does
            not let others replace it or none of 16 others can be read.
    """

    def draw(row: int, files: Mapping[str, bytes]) -> _Drawn | _Unreadable:
        rng = generator(PAIR, seed, epoch, row)
        image = _image(row, files)
        if isinstance(image, _Unreadable):
            return image
        pixels = random_resized_crop(image, image_px, data.crop_scale, data.crop_ratio, rng)
        text = _text(row, files, data.text, rng)
        return text if isinstance(text, _Unreadable) else _Drawn(pixels, text)

    found = _read(corpus, places, rows, draw)
    taken = set((rows if batch_rows is None else batch_rows).tolist())
    drawn: list[_Drawn] = []
    replaced: Counter[str] = Counter()
    for pair in found:
        if isinstance(pair, _Unreadable):
            if data.unreadable == "stop":
                raise _refusal(corpus, places, pair)
            replaced[_named(places, pair)] += 1
            pair = _replacement(corpus, places, pair, taken, (seed, epoch), draw)
        drawn.append(pair)
    return _loaded(drawn, image_px, tokenizer, replaced)


def load_validation(
    corpus: str,
    places: Places,
    rows: np.ndarray,
    *,
    image_px: int,
    data: DataConfig,
    tokenizer: Encodes,
) -> Loaded:
    """Return pairs as they are judged: nothing is drawn, images from the middle, plain ``text``.

    Pairs that cannot be read end it or are left out, as ``data.unreadable`` says.

    Raises:
        ArtifactError: If a pair cannot be read and is to stop the run, with shard and reason.
    """

    def take(row: int, files: Mapping[str, bytes]) -> _Drawn | _Unreadable:
        image = _image(row, files)
        if isinstance(image, _Unreadable):
            return image
        if "txt" not in files:
            return _Unreadable(row, "no text")
        return _Drawn(resize_center_crop(image, image_px), files["txt"].decode("utf-8", "replace"))

    kept: list[_Drawn] = []
    left_out: Counter[str] = Counter()
    for pair in _read(corpus, places, rows, take):
        if not isinstance(pair, _Unreadable):
            kept.append(pair)
        elif data.unreadable == "stop":
            raise _refusal(corpus, places, pair)
        else:
            left_out[_named(places, pair)] += 1
    return _loaded(kept, image_px, tokenizer, left_out)


_Take = Callable[[int, Mapping[str, bytes]], _Drawn | _Unreadable]


def _loaded(
    drawn: Sequence[_Drawn], image_px: int, tokenizer: Encodes, replaced: Mapping[str, int]
) -> Loaded:
    pixels_BHWC = np.empty((len(drawn), image_px, image_px, 3), np.uint8)
    for place, pair in enumerate(drawn):
        pixels_BHWC[place] = pair.pixels
    return Loaded(pixels_BHWC, tokenizer.encode([pair.text for pair in drawn]), dict(replaced))


def _replacement(
    corpus: str,
    places: Places,
    lost: _Unreadable,
    taken: set[int],
    key: tuple[int, int],
    draw: _Take,
) -> _Drawn:
    last = lost
    for attempt in range(ATTEMPTS):
        rng = generator(REPLACEMENT, *key, lost.row, attempt)
        row = int(rng.random() * len(places))
        if row in taken:
            continue
        (pair,) = _read(corpus, places, np.array([row]), draw)
        if not isinstance(pair, _Unreadable):
            return pair
        last = pair
    raise ArtifactError(
        f"{_refusal(corpus, places, lost)}; {ATTEMPTS} other pairs could not take its place, the "
        f"last for: {_named(places, last)}"
    )


def _named(places: Places, pair: _Unreadable) -> str:
    return f"{places.shards[places.shard[pair.row]]}: {pair.reason}"


def _refusal(corpus: str, places: Places, pair: _Unreadable) -> ArtifactError:
    shard, offset = places.shards[places.shard[pair.row]], places.offset[pair.row]
    detail = f" ({pair.detail})" if pair.detail else ""
    return ArtifactError(
        f"{corpus}/{shard}, pair {places.pair_id[pair.row]} at byte {offset}: "
        f"{pair.reason}{detail}. data.unreadable=replace trains on others in its place"
    )


def _read(corpus: str, places: Places, rows: np.ndarray, take: _Take) -> list[_Drawn | _Unreadable]:
    """Return what ``take`` makes of each pair, in the order of ``rows``."""
    found: list[_Drawn | _Unreadable] = [_Unreadable(int(row), "not read") for row in rows]
    runs = list(_runs(places, rows))
    # Waiting for a bucket needs no CPU; reading runs ahead of decoding.
    with ThreadPoolExecutor(min(_READERS, max(1, len(runs)))) as pool:
        for run, stored in zip(
            runs, pool.map(lambda run: _request(corpus, places, rows[run]), runs), strict=True
        ):
            for place, data in zip(run, stored, strict=True):
                row = int(rows[place])
                if isinstance(data, _Unreadable):
                    found[place] = data
                    continue
                try:
                    files = _parsed(data)
                except ArtifactError as error:
                    found[place] = _Unreadable(row, _DAMAGED, str(error))
                else:
                    found[place] = take(row, files)
    return found


def _runs(places: Places, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield which of the rows are read with one request: those that stand together."""
    order = np.argsort(rows, kind="stable")
    shard, offset, size = places.shard[rows], places.offset[rows], places.size[rows]
    start = 0
    for at in range(1, len(order) + 1):
        first, last = order[start], order[at - 1]
        if at < len(order):
            following = order[at]
            is_next = (
                shard[following] == shard[last]
                and offset[following] == offset[last] + size[last]
                and offset[following] + size[following] - offset[first] <= _MAX_REQUEST_BYTES
            )
            if is_next:
                continue
        yield order[start:at]
        start = at


def _request(corpus: str, places: Places, rows: np.ndarray) -> list[bytes | _Unreadable]:
    """Return the stored bytes of pairs that stand together in one shard."""
    start = int(places.offset[rows[0]])
    ends = places.offset[rows] + places.size[rows] - start
    try:
        file = _opened(corpus, places.shards[places.shard[rows[0]]])
        stored = file.read_at(int(ends[-1]), start)
    except OSError as error:
        return [_Unreadable(int(row), "shard cannot be read", str(error)) for row in rows]
    return [
        stored[end - places.size[row] : end]
        if end <= len(stored)
        else _Unreadable(int(row), "shard ends before the pair does")
        for row, end in zip(rows, ends.tolist(), strict=True)
    ]


def _parsed(stored: bytes) -> dict[str, bytes]:
    """Return the files of a pair from the bytes of its place."""
    pairs = list(_pairs(_Stream(io.BytesIO(stored).read, "here")))
    if len(pairs) != 1 or pairs[0].place != Place(0, len(stored)):
        raise ArtifactError(f"{len(stored)} bytes hold {len(pairs)} pairs")
    return pairs[0].files


def _opened(corpus: str, shard: str) -> pa.NativeFile:
    filesystem, path = _location(corpus)
    # An open local file is one of the few a process may have; an open object is only its size,
    # and asking for it again would double the requests.
    if isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem.open_input_file(f"{path}/{shard}")
    return _opened_object(corpus, shard)


@lru_cache(1 << 16)
def _opened_object(corpus: str, shard: str) -> pa.NativeFile:
    filesystem, path = _location(corpus)
    return filesystem.open_input_file(f"{path}/{shard}")


@lru_cache(8)
def _location(corpus: str) -> tuple[pafs.FileSystem, str]:
    # Without a region in the environment, opening a bucket asks AWS for it every time.
    return open_location(corpus)


def _image(row: int, files: Mapping[str, bytes]) -> Image.Image | _Unreadable:
    data = files.get("jpg") or files.get("png")
    if data is None:
        return _Unreadable(row, "no image")
    decoded = decode_rgb(data)
    if decoded.pixels is None:
        return _Unreadable(row, decoded.defect or "")
    return Image.fromarray(decoded.pixels)


def _text(
    row: int,
    files: Mapping[str, bytes],
    chances: Mapping[str, float],
    rng: np.random.Generator,
) -> str | _Unreadable:
    """Return the text that is drawn for a pair; its ``text`` where the drawn one is missing."""
    if "txt" not in files:
        return _Unreadable(row, "no text")
    text = files["txt"].decode("utf-8", "replace")
    # Two numbers for every pair, whatever is drawn.
    which, among = rng.random(), rng.random()
    fields = [name for name in TEXT_FIELDS if chances.get(name, 0) > 0]
    ends = np.cumsum([chances[name] for name in fields])
    name = fields[min(int(np.searchsorted(ends, which, side="right")), len(fields) - 1)]
    if name == "text":
        return text
    try:
        about = json.loads(files.get("json", b"{}"))
    except (ValueError, RecursionError) as error:
        return _Unreadable(row, "record is no JSON", str(error))
    chosen = about.get(name) if isinstance(about, dict) else None
    if name == "mentions":
        listed = chosen if isinstance(chosen, list) else []
        mentions = [text for text in listed if isinstance(text, str) and text]
        return mentions[int(among * len(mentions))] if mentions else text
    return chosen if isinstance(chosen, str) and chosen else text
