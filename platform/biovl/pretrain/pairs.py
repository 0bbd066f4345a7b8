"""Load stored pairs as pixels and token ids, with the same result on any worker.

All random choices for a pair derive from the seed, the epoch and its row: they do not depend on
the other pairs of a batch.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from biovl.core.errors import ArtifactError
from biovl.core.shards import embedding_kind, parse_embedding
from biovl.images.decode import decode_rgb
from biovl.images.transforms import random_resized_crop
from biovl.pretrain.config import TEXT_FIELDS, DataConfig
from biovl.pretrain.order import PAIR, REPLACEMENT, PairLocations, generator
from biovl.pretrain.shard_reading import Unreadable, read_stored

# Shapes: B pairs of a call, H height, W width, E embedding of a teacher.

ATTEMPTS = 16
"""Candidates that are tried to replace one unreadable pair."""


class Encodes(Protocol):
    """Protocol of a tokenizer that returns token ids."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text."""
        ...


@dataclass(frozen=True)
class StoredTeacher:
    """Embeddings of a teacher that every pair of a run stores."""

    columns: tuple[str, str]
    """Column of images and of texts."""

    dim: int
    """Dimension of both, E."""


@dataclass(frozen=True)
class Loaded:
    """Pixels and tokens of pairs, loaded for training."""

    pixels_BHWC: np.ndarray
    """RGB images, uint8, shape [B, H, W, 3]."""

    tokens: list[np.ndarray]
    """Token ids of each pair, int32."""

    replaced: dict[str, int]
    """Number of unreadable pairs that were replaced, or skipped in a validation, by shard and
    reason: ``train/00003.tar: image does not decode``."""

    teacher_B2E: np.ndarray | None = None
    """Embeddings of each image and of its text by a teacher; None without one. float16, shape
    [B, 2, E]."""


@dataclass(frozen=True)
class _Drawn:
    pixels: np.ndarray
    text: str
    teacher_2E: np.ndarray | None = None


def load_pairs(
    places: PairLocations,
    draws: np.ndarray,
    *,
    seed: int,
    epoch: int,
    image_px: int,
    data: DataConfig,
    tokenizer: Encodes,
    teacher: StoredTeacher | None = None,
    batch_draws: np.ndarray | None = None,
) -> Loaded:
    """Return augmented pairs of an epoch, in the order of ``draws``.

    Args:
        places: Index of the training split.
        draws: Draws of ``epoch_order``. Shape [B], int64.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        image_px: Input side of the image tower, in pixels.
        data: Texts, crops, and the policy for unreadable pairs.
        tokenizer: Tokenizer of the model.
        teacher: Embeddings to load as well. A pair that lacks one is unreadable.
        batch_draws: The draws of all workers in this step: none of their pairs is used as a
            replacement.

    Raises:
        ArtifactError: If a pair is unreadable, with its shard and the reason, and ``data`` allows
            no replacement or 16 candidates are unreadable as well.
    """

    def draw(drawn: int, files: Mapping[str, bytes]) -> _Drawn | Unreadable:
        rng, row = generator(PAIR, seed, epoch, drawn), drawn % len(places)
        image = _image(row, files)
        if isinstance(image, Unreadable):
            return image
        pixels = random_resized_crop(image, image_px, data.crop_scale, data.crop_ratio, rng)
        text = _text(row, files, data.text, rng)
        if isinstance(text, Unreadable):
            return text
        given = None if teacher is None else _teacher_of(row, files, teacher)
        return given if isinstance(given, Unreadable) else _Drawn(pixels, text, given)

    loaded = _read(places, draws, draw)
    taken = set(((draws if batch_draws is None else batch_draws) % len(places)).tolist())
    drawn: list[_Drawn] = []
    replaced: Counter[str] = Counter()
    for pair in loaded:
        if isinstance(pair, Unreadable):
            if data.unreadable == "stop":
                raise _refusal(places, pair)
            replaced[_named(places, pair)] += 1
            pair = _replacement(places, pair, taken, (seed, epoch), draw)
        drawn.append(pair)
    return _loaded(drawn, image_px, tokenizer, replaced)


def load_validation(
    places: PairLocations,
    rows: np.ndarray,
    *,
    image_px: int,
    crop: Callable[[np.ndarray], np.ndarray],
    data: DataConfig,
    tokenizer: Encodes,
) -> Loaded:
    """Return pairs for validation: without augmentation, cropped by ``crop``, plain ``text``.

    Unreadable pairs raise an error or are skipped, as set in ``data.unreadable``.

    Raises:
        ArtifactError: If a pair is unreadable and ``data.unreadable`` is ``stop``.
    """

    def take(row: int, files: Mapping[str, bytes]) -> _Drawn | Unreadable:
        image = _image(row, files)
        if isinstance(image, Unreadable):
            return image
        if "txt" not in files:
            return Unreadable(row, "no text")
        return _Drawn(crop(np.asarray(image)), files["txt"].decode("utf-8", "replace"))

    usable: list[_Drawn] = []
    left_out: Counter[str] = Counter()
    for pair in _read(places, rows, take):
        if not isinstance(pair, Unreadable):
            usable.append(pair)
        elif data.unreadable == "stop":
            raise _refusal(places, pair)
        else:
            left_out[_named(places, pair)] += 1
    return _loaded(usable, image_px, tokenizer, left_out)


_Take = Callable[[int, Mapping[str, bytes]], _Drawn | Unreadable]


def _loaded(
    drawn: Sequence[_Drawn], image_px: int, tokenizer: Encodes, replaced: Mapping[str, int]
) -> Loaded:
    pixels_BHWC = np.empty((len(drawn), image_px, image_px, 3), np.uint8)
    for place, pair in enumerate(drawn):
        pixels_BHWC[place] = pair.pixels
    given = [pair.teacher_2E for pair in drawn if pair.teacher_2E is not None]
    return Loaded(
        pixels_BHWC,
        tokenizer.encode([pair.text for pair in drawn]),
        dict(replaced),
        np.stack(given) if given else None,
    )


def _replacement(
    places: PairLocations,
    lost: Unreadable,
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
        (pair,) = _read(places, np.array([row]), draw)
        if not isinstance(pair, Unreadable):
            return pair
        last = pair
    raise ArtifactError(
        f"{_refusal(places, lost)}; {ATTEMPTS} other pairs could not take its place, the "
        f"last for: {_named(places, last)}"
    )


def _named(places: PairLocations, pair: Unreadable) -> str:
    number = places.shard[pair.row]
    corpus = f"{places.corpora[number]}/" if places.draws else ""
    return f"{corpus}{places.shards[number]}: {pair.reason}"


def _refusal(places: PairLocations, pair: Unreadable) -> ArtifactError:
    number = places.shard[pair.row]
    corpus, shard, offset = places.corpora[number], places.shards[number], places.offset[pair.row]
    detail = f" ({pair.detail})" if pair.detail else ""
    return ArtifactError(
        f"{corpus}/{shard}, pair {places.pair_id[pair.row]} at byte {offset}: "
        f"{pair.reason}{detail}. data.unreadable=replace trains on others in its place"
    )


def _read(places: PairLocations, draws: np.ndarray, take: _Take) -> list[_Drawn | Unreadable]:
    """Return the result of ``take`` for each pair, in the order of ``draws``."""
    results: dict[int, _Drawn | Unreadable] = {}
    for at, stored in read_stored(places, draws % len(places)):
        results[at] = stored if isinstance(stored, Unreadable) else take(int(draws[at]), stored)
    return [results[at] for at in range(len(draws))]


def _image(row: int, files: Mapping[str, bytes]) -> Image.Image | Unreadable:
    data = files.get("jpg") or files.get("png")
    if data is None:
        return Unreadable(row, "no image")
    decoded = decode_rgb(data)
    if decoded.pixels is None:
        return Unreadable(row, decoded.defect or "")
    return Image.fromarray(decoded.pixels)


def _text(
    row: int,
    files: Mapping[str, bytes],
    chances: Mapping[str, float],
    rng: np.random.Generator,
) -> str | Unreadable:
    """Return a random text of a pair; its ``text`` where the drawn one is missing."""
    if "txt" not in files:
        return Unreadable(row, "no text")
    text = files["txt"].decode("utf-8", "replace")
    # Two random numbers for every pair, whichever text is drawn.
    which, among = rng.random(), rng.random()
    fields = [name for name in TEXT_FIELDS if chances.get(name, 0) > 0]
    ends = np.cumsum([chances[name] for name in fields])
    name = fields[min(int(np.searchsorted(ends, which, side="right")), len(fields) - 1)]
    if name == "text":
        return text
    try:
        about = json.loads(files.get("json", b"{}"))
    except (ValueError, RecursionError) as error:
        return Unreadable(row, "record is no JSON", str(error))
    chosen = about.get(name) if isinstance(about, dict) else None
    if name == "mentions":
        listed = chosen if isinstance(chosen, list) else []
        mentions = [text for text in listed if isinstance(text, str) and text]
        return mentions[int(among * len(mentions))] if mentions else text
    return chosen if isinstance(chosen, str) and chosen else text


def _teacher_of(
    row: int, files: Mapping[str, bytes], teacher: StoredTeacher
) -> np.ndarray | Unreadable:
    """Return the embeddings of a pair by the teacher, float16. Shape [2, E]."""
    found_2E = np.empty((2, teacher.dim), np.float16)
    for at, column in enumerate(teacher.columns):
        data = files.get(embedding_kind(column))
        if data is None:
            return Unreadable(row, f"no {column}")
        try:
            found_2E[at] = parse_embedding(data)
        except ValueError as error:
            return Unreadable(row, f"{column} is no embedding of {teacher.dim}", str(error))
    return found_2E
