"""Detection of benchmark images that a model may have been trained on.

There are three criteria, from strong to weak evidence: the same file; the same picture in another
encoding, by perceptual hash as in assemble's duplicate detection; and a similar embedding. The last
depends on the model: a weak model gives high similarities to many different images.

A corpus is read once, in chunks; only the benchmark is in memory. By embedding, the nearest corpus
image of every benchmark image is reported, and every corpus image that is near its nearest
benchmark image: these are the ones to leave out of a corpus without leaks.
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
"""Criteria in the column ``by``; the first two compare image hashes."""

SIMILARITY = 0.98
"""Default cosine similarity from which images count as near duplicates. It depends on the model:
check the closeness in ``Leaks.pairs``."""

PAIRS = pa.schema(
    [
        ("id", pa.string()),
        ("corpus_id", pa.string()),
        ("by", pa.string()),
        ("closeness", pa.float64()),
    ]
)
"""Pairs of near duplicates. Closeness is the cosine similarity, or the share of equal hash bits; 1
is identical."""

_TILE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Near:
    """Pairs of a benchmark image and a similar corpus image."""

    by: str
    """Criterion."""
    row_P: np.ndarray
    """Row of the benchmark image. int64."""
    corpus_ids: list[str]
    """Id of the corpus image."""
    closeness_P: np.ndarray
    """Closeness, see ``PAIRS``. float64."""


def near_vectors(
    image_ND: np.ndarray,
    corpus: Iterable[tuple[Sequence[str], np.ndarray]],
    *,
    similarity: float = SIMILARITY,
) -> Iterator[Near]:
    """Yield the nearest neighbour of each corpus image, then of each benchmark image, if similar.

    Compares all embeddings, N x M x D products. For a corpus of millions use ``near_in_index``,
    which searches the benchmark's images only.

    Args:
        image_ND: Unit embeddings of the benchmark; NaN rows match nothing.
        corpus: Ids and unit embeddings by the same model, any float type, in chunks.
        similarity: Minimum cosine similarity.
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
    """Yield similar figures among the ``k`` nearest in an index, for each benchmark image.

    Figures of the splits val and test do not count: the model was not trained on them.

    Args:
        image_ND: Unit embeddings by the model of the index; NaN rows match nothing.
        index: Index of the corpus.
        similarity: Minimum cosine similarity.
        k: Number of neighbours to examine.

    Raises:
        BiovlError: If the embeddings are of another model.
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
    """JSON-serialisable counts: ``images`` of the benchmark, number ``leaked`` by each criterion
    and by ``any``, and ``corpus_images`` that are near them."""

    def leaked(self) -> set[str]:
        """Return the ids of benchmark images with a near duplicate by any criterion."""
        return set(self.pairs["id"].to_pylist())

    def excluded(self) -> list[str]:
        """Return the ids of corpus images to leave out of a corpus without leaks, sorted."""
        return sorted(set(self.pairs["corpus_id"].to_pylist()))


def leaks(ids: Sequence[str], near: Iterable[Near]) -> Leaks:
    """Return near duplicates of all criteria as one report.

    Args:
        ids: Ids of the benchmark's images, [N].
        near: Near duplicates by any criterion.
    """
    parts = [
        pa.table(
            {
                "id": pa.array([ids[row] for row in one.row_P], pa.string()),
                "corpus_id": pa.array(one.corpus_ids, pa.string()),
                "by": pa.array([one.by] * len(one.row_P), pa.string()),
                "closeness": pa.array(one.closeness_P, pa.float64()),
            },
            PAIRS,
        )
        for one in near
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
    """Return metrics on the examples that did not leak, for metrics that are means of a column.

    Args:
        predictions: ``TaskOutcome.predictions`` with image ids.
        leaked: Ids of leaked images.
        resamples: Bootstrap resamples.
        seed: Seed of the resamples.
    """
    unleaked = predictions.filter(
        pc.invert(pc.is_in(predictions["id"], pa.array(leaked, pa.string())))
    )
    scores = []
    for name in unleaked.column_names:
        if pa.types.is_floating(unleaked.schema.field(name).type) and "/" not in name:
            values = unleaked[name].drop_null().to_numpy()
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
