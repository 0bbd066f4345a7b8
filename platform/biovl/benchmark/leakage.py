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

from biovl.benchmark import bootstrap
from biovl.benchmark.tasks import Score
from biovl.index.opened import Index
from biovl.index.query import Filter, Query, QueryPart

# Shapes: N images of the benchmark, M of the corpus, m of a chunk, D embedding, P pairs.

SAME_FILE, HASH, EMBEDDING = "same file", "perceptual hash", "embedding"
"""By which an image is found: the first two in ``looks``."""

SIMILARITY = 0.98
"""Cosine from which images count as near duplicates. It has to suit the model: the closeness in
``Leaks.pairs`` shows what it lets in."""

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


@dataclass(frozen=True, kw_only=True)
class Near:
    """Pairs of a benchmark image and a corpus image."""

    by: str
    row_P: np.ndarray
    """Of the benchmark. int64."""
    corpus_ids: list[str]
    closeness_P: np.ndarray
    """float64."""


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
            query = Query(parts=(QueryPart(vector_D=vector_D),), k=k, filter=trained)
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
