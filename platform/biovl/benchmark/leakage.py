"""Detection of benchmark images that a model may have been trained on.

There are three criteria, from strong to weak evidence: the same file; the same picture in another
encoding, by perceptual hash as in assemble's duplicate detection; and a similar embedding. The last
depends on the model: a weak model gives high similarities to many different images.

A corpus is read once, in chunks; only the benchmark is in memory. By embedding, each benchmark
image is compared with its nearest figures of an index.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.index.query import Filter, Query, QueryPart
from biovl.index.search import Index

# Shapes: N images of the benchmark, M of the corpus, m of a chunk, D embedding, P pairs.

SAME_FILE, HASH, EMBEDDING = "same file", "perceptual hash", "embedding"
"""Criteria in the column ``by``; the first two compare image hashes."""

SIMILARITY = 0.98
"""Default cosine similarity from which images count as near duplicates. It depends on the model:
check the closeness in ``Leaks.pairs``."""

UNLEAKED = "without near duplicates of the corpus"
"""Note of a score without these images, beside that of the same name on all."""

PAIRS = pa.schema(
    [
        ("id", pa.string()),
        ("corpus_id", pa.string()),
        ("by", pa.string()),
        ("closeness", pa.float64()),
        ("trained_on", pa.bool_()),
    ]
)
"""Pairs of near duplicates. Closeness is the cosine similarity, or the share of equal hash bits; 1
is identical. ``trained_on`` is false for images outside the split train of the corpus."""


@dataclass(frozen=True, kw_only=True)
class NearDuplicates:
    """Near duplicates by one criterion: P pairs of a benchmark image and a corpus image."""

    by: str
    """Criterion: ``same file``, ``perceptual hash`` or ``embedding``."""
    row_P: np.ndarray
    """Index of the benchmark image. int64."""
    corpus_ids: list[str]
    """Id of the corpus image."""
    closeness_P: np.ndarray
    """Closeness, see ``PAIRS``. float64."""


def near_in_index(
    image_ND: np.ndarray, index: Index, *, similarity: float = SIMILARITY, k: int = 10
) -> Iterator[NearDuplicates]:
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
            yield NearDuplicates(
                by=EMBEDDING,
                row_P=np.full(len(hits), row, np.int64),
                corpus_ids=[hit.figure_id for hit in hits],
                closeness_P=np.array([hit.score for hit in hits], np.float64),
            )


@dataclass(frozen=True, kw_only=True)
class Leaks:
    """Near duplicates between a benchmark and a corpus."""

    pairs: pa.Table
    """Table ``PAIRS``, the closest first."""
    counts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-serialisable counts: ``images`` of the benchmark, number ``leaked`` by each criterion
    and by ``any``, and ``corpus_images`` that are near them, all of the split train; ``elsewhere``:
    number of images that have near duplicates outside of it only."""

    def leaked(self) -> set[str]:
        """Return the ids of benchmark images with a near duplicate that was trained on."""
        return set(self.pairs.filter(self.pairs["trained_on"])["id"].to_pylist())


def leaks(
    ids: Sequence[str],
    near: Iterable[NearDuplicates],
    trained: Callable[[Collection[str]], Collection[str]] = set,
) -> Leaks:
    """Combine the near duplicates of all criteria into one report.

    Args:
        ids: Ids of the benchmark's images, [N].
        near: Near duplicates by any criterion.
        trained: Returns those of the given corpus ids that are in the split train. A benchmark
            image that is itself in another split of the corpus does not count as its own duplicate.
    """
    parts = [
        pa.table(
            {
                "id": pa.array([ids[row] for row in one.row_P], pa.string()),
                "corpus_id": pa.array(one.corpus_ids, pa.string()),
                "by": pa.array([one.by] * len(one.row_P), pa.string()),
                "closeness": pa.array(one.closeness_P, pa.float64()),
                "trained_on": pa.array([True] * len(one.row_P)),
            },
            PAIRS,
        )
        for one in near
    ]
    order = [("closeness", "descending"), ("id", "ascending"), ("corpus_id", "ascending")]
    every = pa.concat_tables([PAIRS.empty_table(), *parts])
    known = trained(set(every["corpus_id"].to_pylist()))
    trained_P = pc.is_in(every["corpus_id"], pa.array(known, pa.string()))
    every = every.set_column(every.num_columns - 1, PAIRS.field("trained_on"), trained_P)
    grouped = every.group_by(["id", "corpus_id", "by"])
    once = grouped.aggregate([("closeness", "max"), ("trained_on", "any")])
    pairs = once.rename_columns(PAIRS.names).sort_by([*order, ("by", "ascending")])
    leaked = pairs.filter(pairs["trained_on"])
    by = {
        name: pc.count_distinct(leaked.filter(pc.equal(leaked["by"], name))["id"]).as_py()
        for name in (SAME_FILE, HASH, EMBEDDING)
        if pc.any(pc.equal(leaked["by"], name)).as_py()
    }
    # A figure of the benchmark is listed as itself, so that the next corpus leaves it out.
    others = pairs.filter(
        pc.or_(pairs["trained_on"], pc.not_equal(pairs["id"], pairs["corpus_id"]))
    )
    images = pc.count_distinct(leaked["id"]).as_py()
    counts = {
        "images": len(ids),
        "leaked": {**by, "any": images},
        "corpus_images": pc.count_distinct(leaked["corpus_id"]).as_py(),
        "elsewhere": pc.count_distinct(others["id"]).as_py() - images,
    }
    return Leaks(pairs=pairs, counts=counts)
