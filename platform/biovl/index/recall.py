"""Measure the recall of an index against exhaustive search, and choose its search settings.

Queries are random pairs of the index: the vectors of their images and of their captions. In
searches of images by images, and of captions by captions, the query's own row is excluded from both
results, because it would always be found. In searches of images by captions nothing is excluded:
the rank of the pair's own image depends on the model and not on the index.

Settings are chosen on one half of the queries, and recall with its 95 % confidence interval is
measured on the other half. Recall on the first half would be biased upwards, because the best of
many settings is partly best by chance.

Searches run exactly as in the service, with the depth of a first page and the fallback for cells
with too few results. Recall is counted over ten results.

Times are not measured, because they are not reproducible. Settings are tried in the order of the
number of codes they compare, which determines their cost.
"""

import functools
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.core.errors import BiovlError
from biovl.index import planner
from biovl.index.config import IndexConfig
from biovl.index.filters import Selection
from biovl.index.metadata import MetadataTable
from biovl.index.query import Kind
from biovl.index.ranking import FIRST_LEVEL
from biovl.index.units import stored_pairs
from biovl.index.vectors import VectorIndex
from biovl.models.encoder import load

# Shapes: Q queries, N rows, K results, B rows of a block, D embedding.

K = 10
_KS = (1, 5, 10)
_BLOCK = 65_536
_MOST_CELLS = 1_024
"""Maximum ``nprobe``: probing more cells costs more than any recall target is worth."""
_K_FACTORS = (1, 32, 64, 128, 256, 512)
"""Values below 2 * FIRST_LEVEL / 10 are equivalent: so many candidates are always refined."""
_AGAIN = 8
"""Cost of refining a candidate, in units of comparing a code: its vector is read at random."""
_TIE = 1e-5
"""Inner products within this tolerance are equal: any of the tied vectors may be found."""

VECTORS_OF: Mapping[Kind, str] = {"image": "images", "text": "captions"}


def query_rows(config: IndexConfig, count: int) -> np.ndarray:
    """Return random rows below ``count``, sorted: the queries of the recall measurement."""
    rng = np.random.default_rng([config.seed, 1])
    return np.sort(rng.choice(count, min(config.recall.queries, count), replace=False))


def query_vectors(config: IndexConfig, place: Path, rows_Q: np.ndarray) -> dict[Kind, np.ndarray]:
    """Return vectors of images and captions of some rows, float32, shape [Q, D].

    Vectors that the index does not contain are computed.
    """
    vectors: dict[Kind, np.ndarray] = {}
    for kind, name in VECTORS_OF.items():
        if name in config.over:
            stored_ND = np.load(place / f"{name}.f16.npy", mmap_mode="r")
            vectors[kind] = stored_ND[rows_Q].astype(np.float32)
    if len(vectors) == len(VECTORS_OF):
        return vectors
    columns = ["figure_id", "shard", "offset", "size"]
    places = MetadataTable.open(place).rows(rows_Q, columns)
    order = sorted(range(len(places)), key=lambda i: (places[i]["shard"], places[i]["offset"]))
    planned = pa.Table.from_pylist([places[number] for number in order])
    pairs = list(stored_pairs(config.corpus, planned.rename_columns({"figure_id": "pair_id"})))
    encoder = load(config.model, precision=config.precision)
    if "image" in vectors:
        embedded = encoder.embed_texts([pair.text for pair in pairs], batch_size=config.batch)
    else:
        embedded = encoder.embed_images([pair.image for pair in pairs], batch_size=config.batch)
    missing: Kind = "text" if "image" in vectors else "image"
    vectors[missing] = embedded[np.argsort(order)]
    return vectors


def evaluate(config: IndexConfig, place: Path) -> dict[str, Any]:
    """Return settings and recall of each index for each kind of query, for the manifest's notes.

    Args:
        config: Settings, including the target recall.
        place: Folder of the index.

    Raises:
        BiovlError: If no setting reaches the minimum recall; the message contains all measurements.
    """
    stored_ND = np.load(place / f"{config.over[0]}.f16.npy", mmap_mode="r")
    rows_Q = query_rows(config, len(stored_ND))
    queries = query_vectors(config, place, rows_Q)
    names = ("settings", "recall", "recall_intervals", "recall_tables")
    notes: dict[str, Any] = {note: {name: {} for name in config.over} for note in names}
    failed = []
    for name in config.over:
        index = VectorIndex.open(place / f"{name}.faiss")
        vectors_ND = np.load(place / f"{name}.f16.npy", mmap_mode="r")
        for kind, query_QD in queries.items():
            own_Q = rows_Q if VECTORS_OF[kind] == name else np.full(len(rows_Q), -1)
            target = config.recall.text if kind == "text" else config.recall.image
            answered = choose_and_score(index, vectors_ND, query_QD, own_Q, target)
            notes["settings"][name][kind] = answered.settings
            notes["recall"][name][kind] = answered.recall
            notes["recall_intervals"][name][kind] = list(answered.interval)
            notes["recall_tables"][name][kind] = answered.table
            if answered.recall < config.recall.floor:
                failed.append(
                    f"{kind} queries over {name}, recall@10 {answered.recall}; by setting, on the "
                    "queries it is chosen with:\n"
                    + "\n".join(f"  {json.dumps(row)}" for row in answered.table)
                )
    if failed:
        raise BiovlError(
            f"recall is below recall.floor ({config.recall.floor}); nothing is published. Choose "
            "another factory, a lower floor or another profile, and run again with the same out: "
            "nothing is embedded again.\n" + "\n".join(failed)
        )
    choosing, scoring = halves(len(rows_Q))
    counts = {"queries": len(scoring), "queries_chosen_with": len(choosing)}
    own = recall_of_own_images(queries["image"], queries["text"])
    return {**notes, **counts, "queries_are": _ABOUT, "captions_to_own_images": own}


def recall_of_own_images(image_QD: np.ndarray, text_QD: np.ndarray) -> dict[str, float]:
    """Return the text-to-image recall of the model: how often a caption retrieves its own image.

    Candidates are the images of the sample. The recall of an index, in contrast, only compares it
    with exhaustive search. Ties count as random order, as in ``benchmark.ranks``.

    Args:
        image_QD: Image vectors of the sample, unit length.
        text_QD: Caption vectors of the same pairs.

    Returns:
        ``pairs``, and ``text_to_image_recall_at_k`` and ``chance_recall_at_k`` for each k of 1, 5
        and 10 up to the number of pairs.
    """
    similarity_QQ = text_QD @ image_QD.T
    own_Q1 = similarity_QQ.diagonal()[:, None]
    nearer_Q = (similarity_QQ > own_Q1 + _TIE).sum(1)
    tied_Q = (np.abs(similarity_QQ - own_Q1) <= _TIE).sum(1) - 1
    scores: dict[str, float] = {"pairs": len(text_QD)}
    for k in _KS:
        if k <= len(text_QD):
            hit_Q = np.clip((k - nearer_Q) / (tied_Q + 1), 0, 1)
            scores[f"text_to_image_recall_at_{k}"] = float(hit_Q.mean())
            scores[f"chance_recall_at_{k}"] = k / len(text_QD)
    return scores


_ABOUT = (
    "pairs of this index, images and captions; a query's own row is left out of images among "
    "images and of captions among captions; recall is of other queries than settings are chosen "
    "with (recall_tables), with its 95 % interval"
)


@dataclass(frozen=True)
class QueryKindRecall:
    """Search settings and recall for one modality of the query."""

    settings: dict[str, int]
    recall: float
    """Recall@10 on queries that were not used to choose the settings."""
    interval: tuple[float, float]
    """95 % confidence interval of the recall."""
    table: list[dict[str, Any]]
    """Recall by setting, on the queries used to choose the settings."""


def choose_and_score(
    index: VectorIndex,
    vectors_ND: np.ndarray,
    query_QD: np.ndarray,
    own_Q: np.ndarray,
    target: float,
) -> QueryKindRecall:
    """Choose settings on one half of the queries, and measure recall on the other half.

    Args:
        index: The index.
        vectors_ND: The exact vectors, unit length.
        query_QD: Unit vectors.
        own_Q: The row excluded for each query, -1 for none.
        target: Target recall.
    """
    choosing, scoring = halves(len(query_QD))
    table = measure_settings(index, vectors_ND, query_QD[choosing], own_Q[choosing], target)
    chosen = choose(table, target)
    settings: dict[str, int] = {
        name: chosen[name] for name in ("nprobe", "k_factor") if name in chosen
    }
    recall = recall_of(index, vectors_ND, query_QD[scoring], own_Q[scoring], settings)
    return QueryKindRecall(settings, recall, interval(recall, len(scoring)), table)


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of queries for choosing settings, and of those for measuring recall.

    A single query is used for both.
    """
    choosing, scoring = np.arange(0, count, 2), np.arange(1, count, 2)
    return choosing, scoring if len(scoring) else choosing


def interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of ``count`` values between 0 and 1.

    This is Wilson's interval for binary values. Other values vary less, so the interval is
    conservative.

    Source:
        Wilson 1927, J Am Stat Assoc 22:209.
    """
    z = 1.959964
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    spread /= 1 + z * z / count
    return round(max(0.0, centre - spread), 4), round(min(1.0, centre + spread), 4)


def measure_settings(
    index: VectorIndex,
    vectors_ND: np.ndarray,
    query_QD: np.ndarray,
    own_Q: np.ndarray,
    target: float,
) -> list[dict[str, Any]]:
    """Return recall@10 of each setting that was tried, cheapest first.

    An entry has ``recall_at_10``, and ``nprobe`` and ``k_factor`` if the index has these settings.

    Args:
        index: The index.
        vectors_ND: The exact vectors, unit length.
        query_QD: Unit vectors.
        own_Q: The row excluded for each query, -1 for none.
        target: Target recall, at which larger values of nprobe are no longer tried.
    """
    exact_QK = _exact(vectors_ND, query_QD, own_Q)
    if not index.cells and not index.refines:
        return [{"recall_at_10": _recall(index, vectors_ND, query_QD, own_Q, exact_QK, {})}]
    table = []
    for k_factor in _K_FACTORS if index.refines else (None,):
        for nprobe in _probes(index.cells):
            given = {"nprobe": nprobe, "k_factor": k_factor}
            settings = {name: value for name, value in given.items() if value is not None}
            recall = _recall(index, vectors_ND, query_QD, own_Q, exact_QK, settings)
            table.append({**settings, "recall_at_10": recall})
            if recall >= target:
                break
    per_cell = index.count / max(index.cells, 1)
    return sorted(table, key=functools.partial(_cost, per_cell=per_cell))


def choose(table: list[dict[str, Any]], target: float) -> dict[str, Any]:
    """Return the first entry that reaches the target recall, else that with the highest recall.

    Args:
        table: Result of ``measure_settings``.
        target: Target recall@10.
    """
    for row in table:
        if row["recall_at_10"] >= target:
            return row
    return max(table, key=lambda row: float(row["recall_at_10"]))


def _cost(row: Mapping[str, Any], per_cell: float) -> float:
    again = max(10 * row.get("k_factor", 0), 2 * FIRST_LEVEL)
    return float(row.get("nprobe", 1) * per_cell + _AGAIN * again)


def _probes(cells: int) -> list[int | None]:
    if not cells:
        return [None]
    most = min(cells, _MOST_CELLS)
    return [*itertools.takewhile(lambda n: n < most, (2**power for power in range(11))), most]


def recall_of(
    index: VectorIndex,
    vectors_ND: np.ndarray,
    query_QD: np.ndarray,
    own_Q: np.ndarray,
    settings: Mapping[str, int],
) -> float:
    """Return recall@10 with given settings, searching to the same depth as the service.

    Args:
        index: The index.
        vectors_ND: The exact vectors, unit length.
        query_QD: Unit vectors.
        own_Q: The row excluded for each query, -1 for none.
        settings: ``nprobe`` and ``k_factor``, if the index has these settings.
    """
    exact_QK = _exact(vectors_ND, query_QD, own_Q)
    return _recall(index, vectors_ND, query_QD, own_Q, exact_QK, settings)


def _recall(
    index: VectorIndex,
    vectors_ND: np.ndarray,
    query_QD: np.ndarray,
    own_Q: np.ndarray,
    exact_QK: np.ndarray,
    settings: Mapping[str, int],
) -> float:
    """Return recall@10, searching in the same way as ``Index.search``."""
    everything = Selection(index.count)
    hits = 0
    for query_D, own, exact_K in zip(query_QD, own_Q, exact_QK, strict=True):
        depth = FIRST_LEVEL + int(own >= 0)
        ranking, _ = planner.nearest(
            index, vectors_ND, query_D, depth, everything, settings=settings
        )
        nearest = [row for row in ranking.rows_K if row != own][: len(exact_K)]
        scores = vectors_ND[nearest].astype(np.float32) @ query_D
        hits += int((scores >= exact_K[-1] - _TIE).sum()) if len(exact_K) else 0
    return round(hits / max(exact_QK.size, 1), 4) if exact_QK.size else 1.0


def _exact(vectors_ND: np.ndarray, query_QD: np.ndarray, own_Q: np.ndarray) -> np.ndarray:
    """Return the largest inner products, in descending order; float32, shape [Q, K], K <= 10."""
    others = len(vectors_ND) - bool((own_Q >= 0).any())
    best_QK = np.empty((len(query_QD), 0), np.float32)
    for first in range(0, len(vectors_ND), _BLOCK):
        block_BD = vectors_ND[first : first + _BLOCK].astype(np.float32)
        scores_QB = query_QD.astype(np.float32) @ block_BD.T
        inside = np.flatnonzero((own_Q >= first) & (own_Q < first + len(block_BD)))
        scores_QB[inside, own_Q[inside] - first] = -np.inf
        both = np.concatenate([best_QK, scores_QB], axis=1)
        keep = min(K, both.shape[1])
        best_QK = -np.partition(-both, keep - 1, axis=1)[:, :keep]
    return -np.sort(-best_QK, axis=1)[:, : min(K, others)]
