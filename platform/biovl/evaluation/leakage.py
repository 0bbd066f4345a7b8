"""Which images of a benchmark a model may have been trained on.

Three looks, each weaker proof than the one before: the same file, the same picture encoded anew
(perceptual hashes within some bits, as assemble finds duplicates), and the nearest vector. The last
depends on the model: to one that tells little apart, all images are near duplicates.

Corpora are read once, in chunks: what is held is the benchmark. By vectors, every benchmark
image is told its nearest corpus image, and every corpus image that is near its nearest benchmark
image: those are what a corpus without leaks leaves out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.curation import duplicates
from biovl.evaluation import bootstrap
from biovl.evaluation.tasks import Score
from biovl.images.decode import inspect
from biovl.images.hashing import sha256_hex
from biovl.retrieval.opened import Index
from biovl.retrieval.query import Filter, Part, Query
from biovl.storage import Folder
from biovl.tables import open_table

# Shapes: N images of the benchmark, M of the corpus, m of a chunk, D embedding, P pairs.

SAME_FILE, HASH, EMBEDDING = "same file", "perceptual hash", "embedding"

SIMILARITY = 0.98
"""Cosine from which images count as near duplicates. It has to suit the model: the closeness in
``Leaks.pairs`` shows what it lets in."""

LOOKS = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.string()),
        ("phash", pa.string()),
        ("width_px", pa.int64()),
        ("height_px", pa.int64()),
    ]
)
"""What is compared of images without a model; nulls where one is unreadable."""

PAIRS = pa.schema(
    [
        ("id", pa.string()),
        ("corpus_id", pa.string()),
        ("by", pa.string()),
        ("closeness", pa.float64()),
    ]
)
"""Closeness is the cosine, or the share of bits that agree: 1 is the same."""

_TILE = 1 << 22
_CHUNK = 1 << 16


def looks(ids: Sequence[str], files: Sequence[bytes]) -> pa.Table:
    """Return ``LOOKS`` of encoded images; ``b""`` and what does not decode has nulls."""
    rows = []
    for name, data in zip(ids, files, strict=True):
        seen = inspect(data)
        rows.append(
            {
                "id": name,
                "sha256": sha256_hex(data) if data else None,
                "phash": seen.phash,
                "width_px": seen.width_px if seen.phash else None,
                "height_px": seen.height_px if seen.phash else None,
            }
        )
    return pa.Table.from_pylist(rows, LOOKS)


def looks_of_figures(uri: str) -> Iterator[pa.Table]:
    """Yield ``LOOKS`` of a published ``figures/``, part by part; no image is read.

    Raises:
        ArtifactError: If it is none.
    """
    table, folder = open_table(uri), Folder(uri)
    for part in table.parts:
        with folder.filesystem.open_input_file(folder.at(part.path)) as stream:
            names = ["figure_id", "image_sha256", "phash", "width_px", "height_px"]
            yield pq.read_table(stream, columns=names).rename_columns(LOOKS.names).cast(LOOKS)


def looks_of_index(index: Index) -> pa.Table:
    """Return ``LOOKS`` of the figures of an index that are trained on: of files alone, no hashes.

    Hashes stand in ``figures/``; with an index alone, vectors find what is encoded anew.
    """
    columns = [index.column(name) for name in ("figure_id", "image_sha256", "split")]
    table = pa.table(dict(zip(("id", "sha256", "split"), columns, strict=True)))
    trained = table.filter(pc.equal(table["split"], "train"))
    nulls = {name: pa.nulls(len(trained), LOOKS.field(name).type) for name in LOOKS.names[2:]}
    return pa.table({"id": trained["id"], "sha256": trained["sha256"], **nulls}, LOOKS)


@dataclass(frozen=True, kw_only=True)
class Near:
    """Pairs of a benchmark image and a corpus image."""

    by: str
    row_P: np.ndarray
    """Of the benchmark. int64."""
    corpus_ids: list[str]
    closeness_P: np.ndarray
    """float64."""


class Hashes:
    """A benchmark's files and looks, ready to be found in corpora."""

    def __init__(
        self,
        images: pa.Table,
        *,
        max_distance: int = duplicates.MAX_DISTANCE,
        max_aspect_gap: float = duplicates.MAX_ASPECT_GAP,
    ) -> None:
        """Sort a benchmark's images, ``LOOKS``, by every part of their hashes that may agree."""
        self._sha_N = images["sha256"].combine_chunks()
        hash_N = duplicates.hash_bits(images["phash"].to_pylist())
        self._row_H = np.flatnonzero(duplicates.telling(hash_N))
        self._hash_H = hash_N[self._row_H]
        self._log_aspect_H = _log_aspect(images)[self._row_H]
        self._max_distance, self._max_gap = max_distance, np.log1p(max_aspect_gap)
        self._sorted = [
            (mask, order, (self._hash_H & mask)[order])
            for mask in duplicates.masks(max(len(self._hash_H), 2), max_distance)
            for order in [np.argsort(self._hash_H & mask)]
        ]

    def near(self, corpus: pa.Table) -> Iterator[Near]:
        """Yield what of some of a corpus' images, ``LOOKS``, is the same file or looks alike."""
        ids = corpus["id"]
        at = pc.index_in(corpus["sha256"], self._sha_N, skip_nulls=True)
        same = np.flatnonzero(at.is_valid())
        yield Near(
            by=SAME_FILE,
            row_P=at.drop_null().to_numpy().astype(np.int64),
            corpus_ids=ids.take(same).to_pylist(),
            closeness_P=np.ones(len(same)),
        )
        hash_M = duplicates.hash_bits(corpus["phash"].to_pylist())
        telling_M = np.flatnonzero(duplicates.telling(hash_M))
        log_aspect_M = _log_aspect(corpus)
        found = [np.empty((0, 2), np.int64)]
        for start in range(0, len(telling_M), _CHUNK):
            some_m = telling_M[start : start + _CHUNK]
            found.append(self._pairs(hash_M[some_m], log_aspect_M[some_m], some_m))
        pair_P2 = np.concatenate(found)
        differing_P = np.bitwise_count(self._hash_H[pair_P2[:, 0]] ^ hash_M[pair_P2[:, 1]])
        yield Near(
            by=HASH,
            row_P=self._row_H[pair_P2[:, 0]],
            corpus_ids=ids.take(pair_P2[:, 1]).to_pylist(),
            closeness_P=1 - differing_P / 64,
        )

    def _pairs(self, hash_m: np.ndarray, log_aspect_m: np.ndarray, row_m: np.ndarray) -> np.ndarray:
        """Return every pair of near hashes once: places here, and rows of the corpus. [P, 2]."""
        found = [np.empty((0, 2), np.int64)]
        for mask, order_H, key_H in self._sorted:
            first_m = np.searchsorted(key_H, hash_m & mask, "left")
            count_m = np.searchsorted(key_H, hash_m & mask, "right") - first_m
            of_P = np.repeat(np.arange(len(hash_m)), count_m)
            begin_m = np.cumsum(count_m) - count_m
            place_P = order_H[np.arange(len(of_P)) - begin_m[of_P] + first_m[of_P]]
            near_P = np.bitwise_count(self._hash_H[place_P] ^ hash_m[of_P]) <= self._max_distance
            gap_P = np.abs(self._log_aspect_H[place_P] - log_aspect_m[of_P])
            near_P &= gap_P <= self._max_gap
            found.append(np.stack([place_P[near_P], row_m[of_P[near_P]]], axis=1))
        return np.unique(np.concatenate(found), axis=0)


def near_vectors(
    image_ND: np.ndarray,
    corpus: Iterable[tuple[Sequence[str], np.ndarray]],
    *,
    similarity: float = SIMILARITY,
) -> Iterator[Near]:
    """Yield, as far as they are near, the nearest of each image of a corpus, then of the benchmark.

    Every vector is compared, N x M x D products: for a corpus of millions ``near_in_index`` looks
    up the benchmark's alone.

    Args:
        image_ND: Unit rows; rows of NaN are near nothing.
        corpus: Ids and unit rows of the same model, any float, such as parts of an index' vectors.
        similarity: Least cosine.
    """
    image_ND = np.asarray(image_ND, np.float32)
    nearest_N, nearest_id = np.full(len(image_ND), -1.0), np.full(len(image_ND), "", object)
    rows = max(1, _TILE // max(len(image_ND), 1))
    for ids, vector_MD in corpus:
        for start in range(0, len(vector_MD), rows):
            chunk_mD = np.asarray(vector_MD[start : start + rows], np.float32)
            near_Nm = np.nan_to_num(image_ND @ chunk_mD.T, nan=-1.0)
            best_N, best_m = near_Nm.argmax(1), near_Nm.argmax(0)
            top_N = near_Nm.max(1).astype(np.float64)
            for n in np.flatnonzero((top_N >= similarity) & (top_N > nearest_N)):
                nearest_N[n], nearest_id[n] = top_N[n], ids[start + int(best_N[n])]
            near_m = np.flatnonzero(near_Nm.max(0) >= similarity)
            yield Near(
                by=EMBEDDING,
                row_P=best_m[near_m],
                corpus_ids=[ids[start + m] for m in near_m.tolist()],
                closeness_P=near_Nm[best_m[near_m], near_m].astype(np.float64),
            )
    yield _of_benchmark(nearest_N, nearest_id, similarity)


def near_in_index(
    image_ND: np.ndarray, index: Index, *, similarity: float = SIMILARITY, k: int = 10
) -> Iterator[Near]:
    """Yield which of the ``k`` figures of an index that are nearest to each image are near.

    Figures of its splits val and test were not trained on, and do not count.

    Args:
        image_ND: Unit rows of the model that the index is of; rows of NaN are near nothing.
        index: Of the corpus.
        similarity: Least cosine.
        k: Figures that are looked at.

    Raises:
        BiovlError: If the vectors are of another model.
    """
    for row, vector_D in enumerate(np.asarray(image_ND, np.float32)):
        if np.isfinite(vector_D).all():
            trained = Filter(split=("train",))
            query = Query(parts=(Part(vector_D=vector_D),), k=k, filter=trained)
            hits = [hit for hit in index.search(query).hits if hit.score >= similarity]
            yield Near(
                by=EMBEDDING,
                row_P=np.full(len(hits), row, np.int64),
                corpus_ids=[hit.figure_id for hit in hits],
                closeness_P=np.array([hit.score for hit in hits], np.float64),
            )


def _of_benchmark(nearest_N: np.ndarray, ids: np.ndarray, similarity: float) -> Near:
    near_N = np.flatnonzero(nearest_N >= similarity)
    return Near(
        by=EMBEDDING,
        row_P=near_N,
        corpus_ids=ids[near_N].tolist(),
        closeness_P=nearest_N[near_N],
    )


@dataclass(frozen=True, kw_only=True)
class Leaks:
    """Near duplicates between a benchmark and a corpus."""

    pairs: pa.Table
    """``PAIRS``, the closest first."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready: ``images`` of the benchmark, ``leaked`` of them by each look and by ``any``, and
    ``corpus_images`` that are near them."""

    def leaked(self) -> set[str]:
        """Return the ids of benchmark images with a near duplicate by any look."""
        return set(self.pairs["id"].to_pylist())

    def excluded(self) -> list[str]:
        """Return the ids of corpus images that a corpus without leaks does not have, sorted."""
        return sorted(set(self.pairs["corpus_id"].to_pylist()))


def leaks(ids: Sequence[str], found: Iterable[Near]) -> Leaks:
    """Return near duplicates put together.

    Args:
        ids: Of the benchmark's images, [N].
        found: By any look.
    """
    parts = [
        pa.table(
            {
                "id": pa.array([ids[row] for row in near.row_P], pa.string()),
                "corpus_id": pa.array(near.corpus_ids, pa.string()),
                "by": pa.array([near.by] * len(near.row_P), pa.string()),
                "closeness": pa.array(near.closeness_P, pa.float64()),
            },
            PAIRS,
        )
        for near in found
    ]
    order = [("closeness", "descending"), ("id", "ascending"), ("corpus_id", "ascending")]
    every = pa.concat_tables([PAIRS.empty_table(), *parts])
    once = every.group_by(["id", "corpus_id", "by"]).aggregate([("closeness", "max")])
    pairs = once.rename_columns(PAIRS.names).sort_by([*order, ("by", "ascending")])
    by = {
        name: pc.count_distinct(pairs.filter(pc.equal(pairs["by"], name))["id"]).as_py()
        for name in (SAME_FILE, HASH, EMBEDDING)
        if pc.any(pc.equal(pairs["by"], name)).as_py()
    }
    counts = {
        "images": len(ids),
        "leaked": {**by, "any": pc.count_distinct(pairs["id"]).as_py()},
        "corpus_images": pc.count_distinct(pairs["corpus_id"]).as_py(),
    }
    return Leaks(pairs=pairs, counts=counts)


def scores_without(
    predictions: pa.Table,
    leaked: Iterable[str],
    *,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> list[Score]:
    """Return scores of the examples that did not leak: those that are means of a column.

    Args:
        predictions: As of ``tasks.Outcome``, ids being those of images.
        leaked: Ids.
        resamples: Of the intervals.
        seed: Of the intervals.
    """
    kept = predictions.filter(pc.invert(pc.is_in(predictions["id"], pa.array(leaked, pa.string()))))
    scores = []
    for name in kept.column_names:
        if pa.types.is_floating(kept.schema.field(name).type) and "/" not in name:
            values = kept[name].drop_null().to_numpy()
            if len(values):
                known = bootstrap.estimate(values, resamples=resamples, seed=seed)
                scores.append(
                    Score(
                        name=name,
                        value=known.value,
                        low=known.low,
                        high=known.high,
                        count=len(values),
                        note="without near duplicates of the corpus",
                    )
                )
    return scores


def _log_aspect(images: pa.Table) -> np.ndarray:
    size = [images[name].fill_null(1).to_numpy().astype(float) for name in LOOKS.names[3:]]
    ratio: np.ndarray = np.log(size[0] / size[1])
    return ratio
