"""The index by itself: what it costs to build, hold and ask, and what it finds.

Everything through our own library, but that profiles of one size share their cells: finding them
is two thirds of a build and the same for each. Its CPU time is counted in each of them.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from index_vectors import Made, made
from pretrain_report import Table

from biovl.index import vectors as library
from biovl.index.files import bytes_by_part
from biovl.index.filters import Selection
from biovl.index.planner import nearest
from biovl.index.query import Kind
from biovl.index.ranking import FIRST_LEVEL
from biovl.index.recall import choose_and_score, halves
from biovl.index.vectors import VectorIndex

# Shapes: N vectors, Q queries, K results, D dimensions.

SAMPLE = 262_144
"""Vectors that cells are found from, at most."""
PART = 262_144
LARGE = (24_000_000, 46_000_000)
WANTED: dict[Kind, float] = {"text": 0.95, "image": 0.98}
CPU_MS, HOT_BYTES = 4.0, 100
_TIMED = 300
"""Queries whose time is taken."""


@dataclass(frozen=True)
class Built:
    """An index of a profile and what it took."""

    name: str
    factory: str
    path: Path
    cpu_s: float
    bytes_hot: float
    """Per vector: codes, ids and cells, and no more of what a service holds (``whole``)."""
    bytes_disk: float
    """The same, and the copy that is compared again."""


@dataclass(frozen=True)
class Asked:
    """How queries of a kind are answered."""

    settings: dict[str, int]
    recall: float
    """Of other queries than settings are chosen with."""
    interval: tuple[float, float]
    """Of recall, 95 %."""
    cpu_ms: float
    """As deep as the service searches."""
    codes: float
    """Compared for a query."""


def index(sizes: list[int], cache: Path, queries: int) -> dict[str, Any]:
    """Measure indexes of these sizes; the goals are those of the last."""
    found: dict[str, Any] = {}
    by_size: dict[int, dict[str, dict[Kind, Asked]]] = {}
    for count in sizes:
        data = of_size(cache, count, queries)
        exact_ms = _exact_ms(data)
        table = Table(
            f"Index: {count:,} vectors of {data.vectors_ND.shape[1]} dimensions",
            ("profile and factory", *_COLUMNS),
            f"CPU ms of one query in one thread. Comparing with all in float32: {exact_ms:.1f} ms.",
        )
        by_size[count] = {}
        for one in profiles(cache, data):
            opened = VectorIndex.open(one.path)
            answers = {kind: asked(opened, data, kind, one.path) for kind in WANTED}
            by_size[count][one.name] = answers
            table.row(f"{one.name}: {one.factory}", *_cells(one, answers))
            found[f"{one.name} {count}"] = _plain(one, answers) | {
                "exact_over_text_cpu": exact_ms / answers["text"].cpu_ms
            }
        found[f"whole {count}"] = whole(cache, count)
    _goals(found, sizes[-1])
    _extrapolated(found, by_size, cache, data.vectors_ND.shape[1])
    return found


def whole(cache: Path, count: int) -> dict[str, float]:
    """Print and return bytes a figure of all that a service maps, by part.

    Made-up figures with captions of 40 words, which are fewer than real ones have (BIOMEDICA: a
    hundred), in the layout of a published index.
    """
    from serve_world import publish_index, publish_model

    model = publish_model(cache / "model-tiny", "tiny")
    folder = publish_index(cache / f"whole-{count}", model, count, cache)
    files = json.loads((folder / "manifest.json").read_bytes())["files"]
    parts = {name: size / count for name, size in bytes_by_part(files).items()}
    table = Table(
        f"Bytes a figure of an index of {count:,}, images alone",
        ("part", "bytes a figure"),
        "The default profile, captions of 40 words, without thumbnails. All is mapped into memory.",
    )
    for name, size in parts.items():
        table.row(name, f"{size:,.0f}")
    table.row("all", f"{sum(parts.values()):,.0f}")
    return parts


def of_size(cache: Path, count: int, queries: int) -> Made:
    """Return made-up vectors of this many."""
    return made(cache / f"vectors-{count}", count, queries=queries)


def profiles(cache: Path, data: Made) -> list[Built]:
    """Return the index of each profile, and of the default profile of larger indexes."""
    count, dim = data.vectors_ND.shape
    default = library.choose_factory(count, dim)
    factories = {
        "default": default,
        "low_memory": library.choose_factory(count, dim, "low_memory"),
    }
    if "fp16" in default and library.cells_of(default):
        factories["default of more"] = default.replace("SQfp16", "SQ8")
    first: Any = None
    found = []
    for name, factory in factories.items():
        folder = cache / f"index-{count}" / factory.replace("(", "_").replace(")", "_")
        # Those of one size share cells: the first is trained whole, and gives its cells to others.
        first = _trained(folder, factory, data, first)
        found.append(_filled(name, folder, factory, data, first.cells_s))
    return found


@dataclass(frozen=True)
class _Trained:
    index: Any
    cells_s: float


def _trained(folder: Path, factory: str, data: Made, first: _Trained | None) -> _Trained:
    folder.mkdir(parents=True, exist_ok=True)
    path, times = folder / "trained.faiss", folder / "trained.json"
    if not times.exists():
        count = len(data.vectors_ND)
        sample = min(library.sample_rows(factory, count), SAMPLE)
        rows = np.sort(np.random.default_rng(1).choice(count, sample, replace=False))
        sample_ND = data.vectors_ND[rows].astype(np.float32)
        started = time.process_time()
        if first is None:
            trained = library.train(factory, sample_ND)
        else:
            trained = _with_cells(factory, first.index, sample_ND)
        cpu_s = time.process_time() - started
        path.write_bytes(library.to_bytes(trained))
        times.write_text(json.dumps(cpu_s))
    trained = faiss.read_index(str(path))
    cpu_s = float(json.loads(times.read_bytes()))
    if first is None:
        return _Trained(trained, cpu_s)
    return _Trained(first.index, first.cells_s)


def _with_cells(factory: str, of: Any, sample_ND: np.ndarray) -> Any:
    """Return an index of this factory, trained, with the cells of another."""
    made_index = faiss.index_factory(sample_ND.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    base = made_index
    if isinstance(made_index, faiss.IndexRefine):
        base = faiss.downcast_index(made_index.base_index)
    known = faiss.try_extract_index_ivf(of)
    if known is not None:
        # faiss finds no cells where there are as many as wanted.
        faiss.downcast_index(base.quantizer).add(known.quantizer.reconstruct_n(0, known.nlist))
    made_index.train(sample_ND)
    return made_index


def _filled(name: str, folder: Path, factory: str, data: Made, cells_s: float) -> Built:
    path, times = folder / "index.faiss", folder / "filled.json"
    count = len(data.vectors_ND)
    trained = (folder / "trained.faiss").read_bytes()
    if not times.exists():
        parts = []
        started = time.process_time()
        for start in range(0, count, PART):
            parts.append(folder / f"part-{start}")
            parts[-1].write_bytes(library.fill(trained, data.vectors_ND[start:][:PART], start))
        whole = library.merge_parts(trained, [str(part) for part in parts])
        cpu_s = time.process_time() - started
        faiss.write_index(whole, str(path))
        for part in parts:
            part.unlink()
        times.write_text(json.dumps(cpu_s))
    own_s = 0.0 if name == "default" else float(json.loads((folder / "trained.json").read_bytes()))
    size = path.stat().st_size
    whole = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    cold = 0
    if isinstance(whole, faiss.IndexRefine):
        cold = faiss.downcast_index(whole.refine_index).sa_code_size() * count
    return Built(
        name=name,
        factory=factory,
        path=path,
        cpu_s=cells_s + own_s + float(json.loads(times.read_bytes())),
        bytes_hot=(size - cold) / count,
        bytes_disk=size / count,
    )


def asked(opened: VectorIndex, data: Made, kind: Kind, path: Path) -> Asked:
    """Choose settings for a kind of query as a build of an index does, and take the time."""
    query_QD = data.queries[kind]
    answered = _kept(
        path.with_name(f"answered-{kind}.json"),
        lambda: vars(
            choose_and_score(
                opened, data.vectors_ND, query_QD, np.full(len(query_QD), -1), WANTED[kind]
            )
        ),
    )
    settings = answered["settings"]
    faiss.cvar.indexIVF_stats.reset()
    everything = Selection(opened.count)

    def search(query_D: np.ndarray) -> Any:
        return nearest(opened, data.vectors_ND, query_D, FIRST_LEVEL, everything, settings=settings)

    cpu_ms = per_query_ms(search, query_QD[halves(len(query_QD))[1]])
    codes = faiss.cvar.indexIVF_stats.ndis / max(faiss.cvar.indexIVF_stats.nq, 1)
    low, high = answered["interval"]
    return Asked(settings, answered["recall"], (low, high), cpu_ms, codes or opened.count)


def per_query_ms(search: Callable[[np.ndarray], Any], query_QD: np.ndarray) -> float:
    """Return CPU milliseconds of a query, asked one by one in this thread; the least of rounds."""
    some = query_QD[:_TIMED]
    for query_D in some[:50]:
        search(query_D)
    rounds = []
    for _ in range(3):
        started = time.thread_time()
        for query_D in some:
            search(query_D)
        rounds.append((time.thread_time() - started) / len(some) * 1e3)
    return min(rounds)


def _kept(path: Path, make: Callable[[], Any]) -> Any:
    if not path.exists():
        path.write_text(json.dumps(make()))
    return json.loads(path.read_bytes())


def _exact_ms(data: Made) -> float:
    few = data.vectors_ND[: min(len(data.vectors_ND), 50_000)].astype(np.float32)
    flat = faiss.IndexFlatIP(few.shape[1])
    flat.add(few)
    opened = VectorIndex(flat)
    texts = data.queries["text"][:60]
    rounds = per_query_ms(lambda query_D: opened.search(query_D, FIRST_LEVEL), texts)
    return rounds * len(data.vectors_ND) / len(few)


_COLUMNS = (
    "build CPU s",
    "hot B",
    "disk B",
    "text: recall",
    "settings",
    "CPU ms",
    "image: recall",
    "settings",
    "CPU ms",
)


def _cells(one: Built, answers: dict[Kind, Asked]) -> list[str]:
    cells = [f"{one.cpu_s:.0f}", f"{one.bytes_hot:.0f}", f"{one.bytes_disk:.0f}"]
    for kind in WANTED:
        answer = answers[kind]
        said = "/".join(str(value) for value in answer.settings.values())
        low, high = answer.interval
        cells += [f"{answer.recall:.3f} ({low:.3f}–{high:.3f})", said or "all"]
        cells += [f"{answer.cpu_ms:.2f}"]
    return cells


def _plain(one: Built, answers: dict[Kind, Asked]) -> dict[str, Any]:
    return {
        "factory": one.factory,
        "build_cpu_s": one.cpu_s,
        "bytes_hot": one.bytes_hot,
        "bytes_disk": one.bytes_disk,
        **{kind: vars(answer) for kind, answer in answers.items()},
    }


def _goals(found: dict[str, Any], count: int) -> None:
    default, low = found[f"default {count}"], found[f"low_memory {count}"]
    table = Table(f"Goals of the index at {count:,}", ("goal", "bar", "measured", "verdict"))
    goal(table, "default: recall@10 of texts", default["text"]["recall"], least=0.95)
    goal(table, "default: recall@10 of images", default["image"]["recall"], least=0.98)
    goal(table, "default: CPU ms of a text", default["text"]["cpu_ms"], most=CPU_MS)
    goal(table, "default: CPU ms of an image", default["image"]["cpu_ms"], most=CPU_MS)
    goal(table, "exact / default, CPU of a text", default["exact_over_text_cpu"], least=40)
    goal(table, "low_memory: bytes per vector, hot", low["bytes_hot"], most=HOT_BYTES)
    goal(table, "low_memory: recall@10 of texts", low["text"]["recall"], least=0.95)


def goal(
    table: Table, what: str, value: float, *, least: float | None = None, most: float | None = None
) -> bool:
    """Print what was wanted and whether it is so."""
    met = (least is None or value >= least) and (most is None or value <= most)
    bar = f">= {least:g}" if least is not None else f"<= {most:g}"
    table.row(what, bar, f"{value:.3f}", "pass" if met else "MISS")
    return met


def _extrapolated(
    found: dict[str, Any],
    by_size: dict[int, dict[str, dict[Kind, Asked]]],
    cache: Path,
    dim: int,
) -> None:
    """Say what larger indexes would take.

    Bytes: codes and ids are those measured per vector, cells are as many as the library chooses.
    CPU: the codes compared for the same recall grow with a power of the size; the power is that
    between the two sizes measured, within 0.5 (as many as cells are) and 1 (a constant share); 1
    where the recall wanted is not reached.
    """
    last = max(by_size)
    table = Table(
        f"Extrapolated from {last:,} vectors",
        ("profile", "vectors", "hot GB", "disk GB", "text CPU ms", "image CPU ms"),
        "CPU by codes compared, which grow as n^p with the p measured between the sizes, kept "
        "within 0.5 and 1, and 1 where the recall wanted is not reached.",
    )
    for name, as_measured in (("default", "default of more"), ("low_memory", "low_memory")):
        if f"{as_measured} {last}" not in found:
            continue
        of = found[f"{as_measured} {last}"]
        cells = library.cells_of(of["factory"])
        for count in LARGE:
            factory = library.choose_factory(
                count, dim, "low_memory" if name == "low_memory" else "default"
            )
            # A cell is a vector in float32 and, with a graph, its neighbours.
            per_cell = dim * 4 + (2 * 32 * 4 + 16 if "HNSW" in factory else 0)
            cells_gb = library.cells_of(factory) * per_cell / 1e9
            own = count / 1e9
            hot = (of["bytes_hot"] - cells * dim * 4 / last) * own + cells_gb
            disk = (of["bytes_disk"] - cells * dim * 4 / last) * own + cells_gb
            row = {"factory": factory, "hot_gb": hot, "disk_gb": disk}
            for kind in WANTED:
                row[f"{kind}_cpu_ms"] = _grown(by_size, as_measured, kind, count)
            found[f"{name} {count} extrapolated"] = row
            table.row(
                f"{name}: {factory}",
                f"{count / 1e6:.0f} M",
                f"{hot:.1f}",
                f"{disk:.1f}",
                f"{row['text_cpu_ms']:.1f}",
                f"{row['image_cpu_ms']:.1f}",
            )


def _grown(
    by_size: dict[int, dict[str, dict[Kind, Asked]]], name: str, kind: Kind, count: int
) -> float:
    sizes = sorted(size for size in by_size if name in by_size[size])
    last = by_size[sizes[-1]][name][kind]
    power = 1.0
    first = by_size[sizes[0]][name][kind]
    # What falls short of the recall wanted compares too few, and would grow too little.
    if len(sizes) > 1 and min(first.recall, last.recall) >= WANTED[kind]:
        power = math.log(last.codes / first.codes) / math.log(sizes[-1] / sizes[0])
    return last.cpu_ms * (count / sizes[-1]) ** min(max(power, 0.5), 1.0)
