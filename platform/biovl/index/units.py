"""Compute vectors of pairs, in units that are read, embedded and written by one task each.

Rows of an index are in the order of ``index.parquet``. Units instead contain consecutive pairs in
the order of shards, so that a task reads their bytes in a few large requests. For 24 M pairs of 100
kB these are about 75,000 requests of 32 MB, instead of 24 M requests in the shuffled order of the
index. ``rows`` then reorders the vectors, which are a hundredth of the bytes.
"""

import functools
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, ConfigError, NothingUsable
from biovl.core.folders import Folder
from biovl.core.harvests import Tombstones
from biovl.core.shards import parse_pair, read_ranges
from biovl.core.tables import open_part, read_table, write_table
from biovl.images.decode import decode_rgb
from biovl.images.encode import thumbnail
from biovl.index import metadata
from biovl.index.config import IndexConfig
from biovl.index.previous import Previous
from biovl.models.encoder import Encoder

# Shapes: N pairs of a unit, K pairs that are indexed, D embedding.

ROW = np.dtype(
    [
        ("position", "<i8"),
        ("thumbnail_offset", "<i8"),
        ("thumbnail_size", "<i4"),
        ("pair", "u1", 16),
        ("content", "u1", 16),
    ]
)
"""Record stored with the vectors of a pair: its row in ``index.parquet``, the position of its
thumbnail in the unit (size 0: none), and hashes of its id and of its content."""

PLANS = "plans"
"""Subfolder of the draft with the pairs of each unit."""
_PLANNED = ["pair_id", "shard", "offset", "size"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Stored:
    """Id, image and text of a pair, as stored in its shard."""

    pair_id: str
    image: bytes
    text: str


def check_columns(config: IndexConfig) -> None:
    """Reject filter columns that the corpus does not have.

    Raises:
        ConfigError: If one is missing; the message has the label columns of the corpus.
    """
    with open_part(Folder(config.corpus), "index.parquet") as file:
        known = file.schema_arrow.names
    for setting, names in (
        ("concept_columns", config.concept_columns or ()),
        ("label_columns", config.label_columns),
        ("image_type_column", filter(None, [config.image_type_column])),
    ):
        absent = [name for name in names if name not in known]
        if absent:
            labels = [name for name in (*metadata.CONCEPTS, metadata.IMAGE_TYPE) if name in known]
            hint = configs.nearest(absent[0], known)
            raise ConfigError(
                f"{setting}: {config.corpus} has no column {', '.join(absent)}{hint}; of columns "
                f"with labels of concepts it has {', '.join(labels) or 'none'}. Give the folder "
                "that has the column to biovl assemble: columns=[…]; keep one of a table of your "
                "own with biovl harvest table: source.keep=[…]"
            )


def plan(config: IndexConfig) -> dict[str, Any]:
    """Write the list of pairs of each unit.

    Needs about 100 bytes of memory per pair.

    Returns:
        ``pairs``: total number of pairs; ``ended``: pairs removed by tombstones, by reason.

    Raises:
        NothingUsable: If the corpus has no pairs.
    """
    corpus = Folder(config.corpus)
    pieces, first = [], 0
    tombstones, over = Tombstones(config.updates), Counter[str]()
    columns = [*_PLANNED, "split", *(["source_uri"] if config.updates else [])]
    with open_part(corpus, "index.parquet") as parquet:
        for batch in parquet.iter_batches(columns=columns):
            table = pa.Table.from_batches([batch])
            positions = pa.array(np.arange(first, first + len(table)), pa.int64())
            table = table.append_column("position", positions)
            if config.splits:
                table = table.filter(pc.is_in(table["split"], pa.array(config.splits)))
            if config.updates:
                reasons = tombstones.of(table["source_uri"])
                over.update(reasons.drop_null().to_pylist())
                table = table.filter(reasons.is_null()).drop_columns("source_uri")
            table = table.drop_columns("split")
            shards = table["shard"].cast(pa.string()).combine_chunks().dictionary_encode()
            pieces.append(table.set_column(1, "shard", shards))
            first += len(positions)
    pairs = pa.concat_tables(pieces).unify_dictionaries() if pieces else None
    if not pairs:
        raise NothingUsable(
            f"{config.corpus} has no pairs"
            + f" of {', '.join(config.splits)}" * bool(config.splits)
            + f", {over.total()} of them ended by tombstones" * bool(over)
        )
    pairs = pairs.set_column(1, "shard", pairs["shard"].cast(pa.string()))
    pairs = pairs.sort_by([("shard", "ascending"), ("offset", "ascending")])
    draft = Draft(config.out).folder
    for number, start in enumerate(range(0, len(pairs), config.pairs_per_unit)):
        write_table(draft, _plan(number), pairs.slice(start, config.pairs_per_unit))
    return {"pairs": len(pairs), **({"ended": dict(sorted(over.items()))} if over else {})}


def _plan(number: int) -> str:
    return f".draft/{PLANS}/{number:06d}.parquet"


def unit_count(config: IndexConfig, pairs: int) -> int:
    """Return the number of units for a number of pairs."""
    return -(-pairs // config.pairs_per_unit)


def part(kind: str, number: int) -> str:
    """Return the path of a unit's file of one kind: rows, images, captions or thumbnails."""
    return f".draft/units/{kind}/{number:06d}.bin"


def embed_unit(
    config: IndexConfig, encoder: Encoder, previous: Previous | None, number: int, threads: int
) -> dict[str, Any]:
    """Embed the pairs of a unit; write rows, vectors and thumbnails in the order of the index.

    Returns:
        The receipt: ``rows`` indexed, ``embedded`` and ``reused`` of them, ``present`` (in the
        previous index, changed or not), ``left_out`` by reason, ``thumbnail_bytes``.
    """
    folder = Draft(config.out).folder
    planned = read_table(folder, _plan(number))
    unit = _Unit(config, encoder, previous, planned["position"].to_numpy())
    with (
        folder.writer(part("thumbnails", number)) as thumbnails,
        ThreadPoolExecutor(threads) as pool,
    ):
        looked = _ahead(pool, unit.look, stored_pairs(config.corpus, planned), 2 * config.batch)
        for index, decoded in enumerate(looked):
            thumbnails.write(unit.take(index, decoded))
        unit.embed_pixels()
    unit.embed_captions()
    order = np.flatnonzero(unit.is_kept_N)
    order = order[np.argsort(unit.rows_N["position"][order])]
    folder.write(part("rows", number), unit.rows_N[order].tobytes())
    for name, vectors_ND in unit.vectors.items():
        folder.write(part(name, number), vectors_ND[order].tobytes())
    return {**unit.counts, "rows": len(order), "left_out": dict(unit.left_out)}


@dataclass(frozen=True)
class _Looked:
    """A decoded pair before it is embedded."""

    pair_id: str
    content: bytes
    text: str
    pixels_HWC: np.ndarray | None = None
    """Preprocessed pixels; None if they are not needed."""
    thumbnail: bytes = b""
    defect: str | None = None
    reused: int | None = None
    """Its row in the previous index, if it is unchanged."""
    is_known: bool = False


class _Unit:
    """State of a unit while its pairs are embedded."""

    def __init__(
        self,
        config: IndexConfig,
        encoder: Encoder,
        previous: Previous | None,
        positions_N: np.ndarray,
    ) -> None:
        count = len(positions_N)
        self._config, self._encoder, self._previous = config, encoder, previous
        self.rows_N = np.zeros(count, ROW)
        self.rows_N["position"] = positions_N
        self.vectors = {name: np.zeros((count, encoder.dim), "<f2") for name in config.over}
        self.is_kept_N = np.zeros(count, bool)
        self.left_out: Counter[str] = Counter()
        self.counts = {"embedded": 0, "reused": 0, "present": 0, "thumbnail_bytes": 0}
        self._pixels: list[tuple[int, np.ndarray]] = []
        self._texts: list[tuple[int, str]] = []

    def look(self, pair: Stored) -> _Looked:
        """Decode a pair, or find it in the previous index. Thread-safe."""
        content = content_of(pair)
        row, is_same = None, False
        if self._previous is not None:
            row, is_same = self._previous.find(pair.pair_id, content)
        looked = functools.partial(
            _Looked, pair.pair_id, content, pair.text, is_known=row is not None
        )
        if self._previous is not None and row is not None and is_same:
            return looked(thumbnail=self._previous.thumbnail(row), reused=row)
        decoded = decode_rgb(pair.image)
        if decoded.pixels is None:
            return looked(defect=decoded.defect or "")
        pixels_HWC = None
        if "images" in self.vectors:
            pixels_HWC = self._encoder.preparation.crop(decoded.pixels)
        side = self._config.thumbnail_px
        small = thumbnail(decoded.pixels, longer_side_px=side) if side else b""
        return looked(pixels_HWC=pixels_HWC, thumbnail=small)

    def take(self, index: int, found: _Looked) -> bytes:
        """Add a pair, embed when a batch is full, and return its thumbnail."""
        self.counts["present"] += found.is_known and found.defect is None
        if found.defect is not None:
            self.left_out[found.defect] += 1
            return b""
        self.is_kept_N[index] = True
        row = self.rows_N[index]
        row["thumbnail_offset"] = self.counts["thumbnail_bytes"]
        row["thumbnail_size"] = len(found.thumbnail)
        row["pair"] = np.frombuffer(hash_of(found.pair_id.encode()), np.uint8)
        row["content"] = np.frombuffer(found.content, np.uint8)
        self.counts["thumbnail_bytes"] += len(found.thumbnail)
        if found.reused is not None and self._previous is not None:
            self.counts["reused"] += 1
            for name, vectors_ND in self.vectors.items():
                vectors_ND[index] = self._previous.vector(name, found.reused)
            return found.thumbnail
        self.counts["embedded"] += 1
        self._texts.append((index, found.text))
        if found.pixels_HWC is not None:
            self._pixels.append((index, found.pixels_HWC))
        if len(self._pixels) == self._config.batch:
            self.embed_pixels()
        return found.thumbnail

    def embed_pixels(self) -> None:
        """Embed the queued images."""
        if self._pixels:
            at = [index for index, _ in self._pixels]
            pixels_BHWC = np.stack([pixels_HWC for _, pixels_HWC in self._pixels])
            self.vectors["images"][at] = self._encoder.embed_pixels(pixels_BHWC)
        self._pixels = []

    def embed_captions(self) -> None:
        """Embed the queued texts, grouped by length: a batch is padded to its longest text."""
        if "captions" not in self.vectors or not self._texts:
            return
        at = np.array([index for index, _ in self._texts])
        tokens = self._encoder.preparation.encode([text for _, text in self._texts])
        order = np.argsort([len(ids) for ids in tokens], kind="stable")
        for first in range(0, len(order), self._config.batch):
            some = order[first : first + self._config.batch]
            text_BD = self._encoder.embed_tokens([tokens[number] for number in some])
            self.vectors["captions"][at[some]] = text_BD


def hash_of(*values: bytes) -> bytes:
    """Return a 16-byte hash of byte strings."""
    whole = hashlib.blake2b(digest_size=16)
    for value in values:
        whole.update(len(value).to_bytes(8, "little"))
        whole.update(value)
    return whole.digest()


def content_of(pair: Stored) -> bytes:
    """Return a hash of everything that the vectors and the thumbnail of a pair depend on."""
    return hash_of(pair.pair_id.encode(), pair.image, pair.text.encode())


def stored_pairs(corpus: str, planned: pa.Table) -> Iterator[Stored]:
    """Yield pairs from their shards, in order, with few large reads.

    Args:
        corpus: Folder of the shards.
        planned: ``pair_id``, ``shard``, ``offset`` and ``size``, sorted by shard and offset.

    Raises:
        ArtifactError: If a pair is not at the position stated by the index of the corpus.
    """
    pairs = [[*row.values()] for row in planned.select(_PLANNED).to_pylist()]
    stored = read_ranges(Folder(corpus), ((name, first, size) for _, name, first, size in pairs))
    for pair_id, shard, offset, _ in pairs:
        try:
            data = next(stored)
        except OSError as error:
            raise ArtifactError(f"{corpus}/{shard} cannot be read: {error}") from error
        yield _stored(pair_id, parse_pair(data, f"{corpus}/{shard} at {offset}"))


def _stored(pair_id: str, files: Mapping[str, bytes]) -> Stored:
    image = next((data for kind, data in files.items() if kind not in ("txt", "json")), b"")
    return Stored(pair_id, image, files.get("txt", b"").decode("utf-8", "replace"))


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], most: int
) -> Iterator[Result]:
    """Yield results in order, computing at most ``count`` of them in advance."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
