"""Search among the figures that fit a filter: ours, and taking out afterwards what does not fit.

Taking out afterwards is what clip-retrieval does with what is unsafe or a duplicate. Each share of
figures is admitted twice: by chance, and as an image type is, whose figures lie together and far
from most queries. What is right is the nearest ten among those that fit, found by comparing with
every one of them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from index_vectors import Made
from pretrain_report import Table
from serve_index import WANTED, asked, goal, of_size, per_query_ms, profiles

from biovl.index.filters import COLUMNS, FIELDS, FilterTable, Selection
from biovl.index.planner import nearest
from biovl.index.query import Filter, Kind
from biovl.index.ranking import FIRST_LEVEL
from biovl.index.recall import halves
from biovl.index.vectors import VectorIndex

# Shapes: N vectors, Q queries, M rows that fit, K results, B a block, D dimensions.

K = 10
SHARES = {"50 %": 0.5, "5 %": 0.05, "0.5 %": 0.005}
AFTERWARDS = (100, 1_000)
"""Of how many nearest that which does not fit is taken out."""
_QUERIES = 300
_BLOCK = 65_536
_TIE = 1e-5


def filters(count: int, cache: Path, queries: int) -> dict[str, Any]:
    """Measure filtered search among this many vectors."""
    data = of_size(cache, count, queries)
    default = next(one for one in profiles(cache, data) if one.name == "default")
    opened = VectorIndex.open(default.path)
    folder = cache / f"filters-{count}"
    FilterTable.build(_table(data), folder)
    admitted = FilterTable.open(folder)
    found: dict[str, Any] = {"cases": {}}
    for kind in WANTED:
        settings = asked(opened, data, kind, default.path).settings
        found["cases"][kind] = _of_kind(kind, opened, data, admitted, settings)
    _goals(found)
    return found


def _of_kind(
    kind: Kind,
    opened: VectorIndex,
    data: Made,
    admitted: FilterTable,
    settings: dict[str, int],
) -> list[dict[str, Any]]:
    # Those that had no part in the choice of settings.
    query_QD = data.queries[kind][halves(len(data.queries[kind]))[1]][:_QUERIES]
    everything = Selection(len(data.vectors_ND))

    def ours(selection: Selection) -> Any:
        return lambda query_D: nearest(
            opened, data.vectors_ND, query_D, FIRST_LEVEL, selection, settings=settings
        )

    unfiltered_ms = per_query_ms(ours(everything), query_QD)
    table = Table(
        f"Filtered search: {len(data.vectors_ND):,} vectors, queries from {kind}s",
        (
            "filter",
            "recall",
            "least found",
            "CPU ms",
            "/ unfiltered",
            *(f"after {many}: recall (found)" for many in AFTERWARDS),
            "plan",
        ),
        f"Without a filter {unfiltered_ms:.2f} CPU ms, settings {settings}.",
    )
    cases = []
    for field in ("kind", "image_type"):
        for name, share in SHARES.items():
            selection = admitted.select(Filter(**{field: (name,)}))
            rows_M = selection.rows()
            fits_N = np.zeros(len(data.vectors_ND), bool)
            fits_N[rows_M] = True
            tenth_Q = _tenth(data.vectors_ND, rows_M, query_QD)
            answers = [ours(selection)(query_D) for query_D in query_QD]
            case = {
                "filter": f"{name} {'by chance' if field == 'kind' else 'by image type'}",
                "share": share,
                "matching": selection.count,
                "recall": _recall(data, [a.rows_K[:K] for a, _ in answers], query_QD, tenth_Q),
                "least_found": min(len(a.rows_K[:K]) for a, _ in answers),
                "wrong": sum(int((~fits_N[a.rows_K]).sum()) for a, _ in answers),
                "plan": answers[0][1],
                "cpu_ms": per_query_ms(ours(selection), query_QD),
            }
            case["cpu_over_unfiltered"] = case["cpu_ms"] / unfiltered_ms
            for many in AFTERWARDS:
                _, rows_QK = opened.search(query_QD, many, **settings)
                left = [rows_K[fits_N[rows_K]][:K] for rows_K in rows_QK]
                case[f"afterwards_{many}"] = _recall(data, left, query_QD, tenth_Q)
                case[f"afterwards_{many}_found"] = float(np.mean([len(one) for one in left]))
            cases.append(case)
            table.row(
                str(case["filter"]),
                f"{case['recall']:.3f}",
                str(case["least_found"]),
                f"{case['cpu_ms']:.2f}",
                f"{case['cpu_over_unfiltered']:.2f}",
                *(
                    f"{case[f'afterwards_{many}']:.3f} ({case[f'afterwards_{many}_found']:.1f})"
                    for many in AFTERWARDS
                ),
                str(case["plan"]),
            )
    return cases


def _goals(found: dict[str, Any]) -> None:
    cases = [case for kind in WANTED for case in found["cases"][kind]]
    table = Table("Goals of filtered search", ("goal", "bar", "measured", "verdict"))
    for kind in WANTED:
        least = min(case["recall"] for case in found["cases"][kind])
        goal(table, f"least recall@10 of {kind}s", least, least=0.95)
    short = min(case["least_found"] - min(K, case["matching"]) for case in cases)
    goal(table, "results missing though figures fit", float(-short), most=0)
    goal(table, "results that do not fit", float(sum(case["wrong"] for case in cases)), most=0)
    dearest = max(case["cpu_over_unfiltered"] for case in found["cases"]["text"])
    goal(table, "CPU / unfiltered of texts, dearest", dearest, most=2)


def _table(data: Made) -> pa.Table:
    """Return columns to filter by: ``kind`` by chance, ``image_type`` by clusters."""
    count = len(data.vectors_ND)
    by_chance = np.full(count, "rest", object)
    draws_N = np.random.default_rng(2).random(count)
    by_type = np.full(count, "rest", object)
    sizes_C = np.bincount(data.cluster_N)
    first, low = 0, 0.0
    for name, share in SHARES.items():
        by_chance[(draws_N >= low) & (draws_N < low + share)] = name
        low += share
        # Clusters that lie beside each other, but for those that are too large for what is left.
        taken, left = [], round(share * count)
        for cluster in range(first, len(sizes_C)):
            if sizes_C[cluster] <= left:
                taken.append(cluster)
                left -= int(sizes_C[cluster])
            if left < share * count * 0.02:
                break
        first = max(taken) + 1
        by_type[np.isin(data.cluster_N, taken)] = name
    columns: dict[str, Any] = {"year": pa.nulls(count, pa.int32())}
    for field in FIELDS:
        kind = pa.list_(pa.string()) if field in COLUMNS else pa.string()
        columns[COLUMNS.get(field, field)] = pa.nulls(count, kind)
    columns["kind"] = pa.array(by_chance, pa.string())
    columns["image_type"] = pa.array(by_type, pa.string())
    return pa.table(columns)


def _tenth(vectors_ND: np.ndarray, rows_M: np.ndarray, query_QD: np.ndarray) -> np.ndarray:
    """Return the tenth largest inner product of each query with the rows given. Shape [Q]."""
    best_QK = np.empty((len(query_QD), 0), np.float32)
    for start in range(0, len(rows_M), _BLOCK):
        block_BD = vectors_ND[rows_M[start : start + _BLOCK]].astype(np.float32)
        both = np.concatenate([best_QK, query_QD @ block_BD.T], axis=1)
        keep = min(K, both.shape[1])
        best_QK = -np.partition(-both, keep - 1, axis=1)[:, :keep]
    tenth_Q: np.ndarray = best_QK.min(axis=1)
    return tenth_Q


def _recall(
    data: Made, found: list[np.ndarray], query_QD: np.ndarray, tenth_Q: np.ndarray
) -> float:
    """Return the share of the nearest ten that was found; as many as ten fit every filter."""
    hits = 0
    for rows_K, query_D, tenth in zip(found, query_QD, tenth_Q, strict=True):
        scores_K = data.vectors_ND[rows_K].astype(np.float32) @ query_D
        hits += int((scores_K >= tenth - _TIE).sum())
    return hits / (K * len(found))
