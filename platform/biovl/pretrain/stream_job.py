"""Batches for one training worker, loaded on CPUs anywhere in the cluster.

Every worker runs its own Ray Data pipeline. Its rows are numbers of pieces: some pairs of one step
of this worker. A task loads one piece, and pieces arrive in order, so the pairs of a batch do not
depend on Ray's scheduling. A pipeline plans all its tasks before it starts (1.5 ms each), so a run
consists of many short pipelines, and the next one starts before the last one has ended.
"""

import contextlib
import functools
import logging
import pickle
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray.data import ExecutionResources

from biovl.core.errors import ArtifactError
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import DataConfig
from biovl.pretrain.order import PairLocations
from biovl.pretrain.pairs import Encodes, StoredTeacher, load_pairs
from biovl.pretrain.pieces import (
    JoinedBatch,
    StepPieces,
    join_pieces,
    legs,
    pack_piece,
    steps_of_run,
)
from biovl.pretrain.schedule import Plan
from biovl.runtime.connection import connect_ray

LEG_PIECES = 64
"""Minimum pieces per pipeline; at most the pieces of two pipelines are in memory."""

_STOP_CHECK_S = 0.1
_LAST_WAIT_S = 10.0
_WAIT_S = 1.0
_PATIENCE = 60
"""Waits for a batch before it is said that there is none."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairSource:
    """Input that all loading tasks share, stored once in the object store: see ``put``."""

    places: PairLocations
    seed: int
    image_px: int
    data: DataConfig
    tokenizer: bytes
    """Pickled tokenizer. Unpickling a vocabulary takes longer than transferring it, so each process
    caches it."""

    teacher: StoredTeacher | None = None

    @classmethod
    def put(
        cls,
        places: PairLocations,
        *,
        seed: int,
        image_px: int,
        data: DataConfig,
        tokenizer: Encodes,
        teacher: StoredTeacher | None = None,
    ) -> "ray.ObjectRef[PairSource]":
        """Put the source into the object store, one copy per node, and return its reference."""
        return ray.put(cls(places, seed, image_px, data, pickle.dumps(tokenizer), teacher))


class Stream(Iterator[Batch]):
    """The batches of one training worker, from a step to the end of the run.

    ``close`` stops the stream early.
    """

    waited_s: float = 0.0
    """Total seconds spent waiting for batches."""

    def __init__(
        self,
        batches: "queue.Queue[_Item]",
        stop: threading.Event,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.replaced: Counter[str] = Counter()
        """Unreadable pairs replaced in the batches returned so far, by shard and reason."""
        self._batches, self._stop, self._while_waiting = batches, stop, while_waiting
        self._thread: threading.Thread | None = None

    def __next__(self) -> Batch:
        if self._stop.is_set():
            raise StopIteration
        requested_at = time.monotonic()
        item = self._next_item()
        self.waited_s += time.monotonic() - requested_at
        if isinstance(item, JoinedBatch):
            self.replaced.update(item.replaced)
            return item.batch
        self.close()
        if item is None:
            raise StopIteration
        raise item

    def _next_item(self) -> "_Item":
        waits = 0
        while True:
            try:
                return self._batches.get(timeout=_WAIT_S)
            except queue.Empty:
                self._while_waiting()
            waits += 1
            if waits % _PATIENCE == 0:
                # The usual cause: training occupies every CPU, and Ray waits for one silently.
                _log.warning(
                    "no batch for %d s; CPUs free to load pairs: %s of %s",
                    *(_PATIENCE * _WAIT_S, _cpus(ray.available_resources)),
                    _cpus(ray.cluster_resources),
                )

    def close(self) -> None:
        """Stop loading, and cancel running tasks."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_WAIT_S)

    def __del__(self) -> None:
        self._stop.set()


_Item = JoinedBatch | BaseException | None


def stream(
    source: "ray.ObjectRef[PairSource]",
    plan: Plan,
    *,
    steps_done: int,
    rank: int,
    workers: int,
    data_cpus: int | None = None,
    prefetch_steps: int = 2,
    while_waiting: Callable[[], None] = lambda: None,
    pinned: bool = False,
) -> Stream:
    """Return the batches of one worker from ``steps_done`` to the end of the run.

    Args:
        source: Result of ``PairSource.put``.
        plan: Batch sizes and steps of every epoch.
        steps_done: Steps of the run before the first batch.
        rank: Rank of this worker.
        workers: Number of workers. It does not change the batches of all workers together.
        data_cpus: CPUs that load for all workers; None for all free CPUs. At least one per worker.
        prefetch_steps: Batches prefetched into this process.
        while_waiting: Called about once a second while no batch is ready.
        pinned: Whether batches are in pinned memory, for asynchronous copies to a GPU.

    Raises:
        ArtifactError: During iteration, if a pair is unreadable and must not be replaced.
    """
    batches: queue.Queue[_Item] = queue.Queue(prefetch_steps)
    stop = threading.Event()
    cpus = None if data_cpus is None else max(1.0, data_cpus / workers)
    found = Stream(batches, stop, while_waiting)
    # The thread must hold no reference to the stream: dropping it without close() stops the thread.
    found._thread = threading.Thread(
        target=_fill,
        args=(batches, stop, source, plan, steps_done, rank, workers, cpus, pinned),
        name="pair-stream",
        daemon=True,
    )
    found._thread.start()
    return found


def _fill(
    batches: "queue.Queue[_Item]",
    stop: threading.Event,
    source: "ray.ObjectRef[PairSource]",
    plan: Plan,
    steps_done: int,
    rank: int,
    workers: int,
    cpus: float | None,
    pinned: bool,
) -> None:
    def give(item: _Item) -> None:
        while not stop.is_set():
            try:
                return batches.put(item, timeout=_STOP_CHECK_S)
            except queue.Full:
                continue

    try:
        with connect_ray():
            known: PairSource = ray.get(source)
            expected = cpus or _cpus(ray.cluster_resources) / workers
            # So that no CPU is idle between two pipelines.
            least = max(LEG_PIECES, int(4 * expected))
            steps = steps_of_run(
                known.places,
                plan,
                seed=known.seed,
                run_pairs=known.data.run_pairs,
                steps_done=steps_done,
                rank=rank,
                workers=workers,
            )
            with contextlib.closing(_loaded(source, legs(steps, least), cpus)) as loaded:
                for pieces in loaded:
                    give(join_pieces(pieces, known.image_px, pinned=pinned))
                    if stop.is_set():
                        return
        give(None)
    # Any error is passed to the consumer of batches: nothing else observes this thread.
    except BaseException as error:
        give(error)


class _Pipeline:
    """The pieces of a group of steps; loading starts on construction."""

    def __init__(
        self,
        source: "ray.ObjectRef[PairSource]",
        leg: list[StepPieces],
        cpus: float | None,
        starter: ThreadPoolExecutor,
    ) -> None:
        self.leg = leg
        parts = [(step, part) for step in leg for part in range(step.pieces)]
        # Pieces of one step share its object: pickle stores it once.
        load = functools.partial(_load, source, ray.put(parts))
        # One block, and so one task, for each piece.
        pieces = ray.data.range(len(parts), override_num_blocks=len(parts))
        options = pieces.context.execution_options
        options.preserve_order = True
        options.resource_limits = ExecutionResources.for_limits(cpu=cpus)
        loaded = pieces.map_batches(
            load, batch_size=None, batch_format="pyarrow", zero_copy_batch=True
        )
        tables = loaded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        self._tables: Any = iter(tables)
        # Ray Data starts on the first request for a block.
        self._first: Future[pa.Table] = starter.submit(next, self._tables)

    def step(self, first: int, pieces: int) -> list[pa.Table]:
        """Wait for the pieces of the step that begins with piece ``first``, and return them."""
        found = []
        for number in range(first, first + pieces):
            table: pa.Table = self._first.result() if number == 0 else next(self._tables)
            found_number = table["piece"][0].as_py()
            if found_number != number:
                raise RuntimeError(f"expected piece {number} of a leg, got {found_number}")
            found.append(table)
        return found

    def close(self) -> None:
        """Stop all running tasks."""
        with contextlib.suppress(BaseException):
            self._first.result()
        self._tables.close()


def _loaded(
    source: "ray.ObjectRef[PairSource]", legs_left: Iterator[list[StepPieces]], cpus: float | None
) -> Generator[list[pa.Table]]:
    """Yield the pieces of each step. The next group starts when most of the last one is loaded."""
    current: _Pipeline | None = None
    following: _Pipeline | None = None
    with ThreadPoolExecutor(1) as starter:

        def start_next() -> _Pipeline | None:
            leg = next(legs_left, None)
            return None if leg is None else _Pipeline(source, leg, cpus, starter)

        try:
            current = start_next()
            while current is not None:
                first, total, is_asked = 0, sum(step.pieces for step in current.leg), False
                for step in current.leg:
                    if not is_asked and first + step.pieces > total * 3 // 4:
                        following, is_asked = start_next(), True
                    yield current.step(first, step.pieces)
                    first += step.pieces
                current.close()
                current, following = following, None
        finally:
            for pipeline in filter(None, [current, following]):
                pipeline.close()


def _load(
    source: "ray.ObjectRef[PairSource]",
    parts: "ray.ObjectRef[list[tuple[StepPieces, int]]]",
    block: pa.Table,
) -> pa.Table:
    """Load one piece, on any node. The error of a pair is returned as a value."""
    (number,) = block["id"].to_pylist()
    known: PairSource = ray.get(source)
    step, part = ray.get(parts)[number]
    try:
        loaded = load_pairs(
            known.places,
            step.draws(part),
            seed=known.seed,
            epoch=step.epoch,
            image_px=known.image_px,
            data=known.data,
            tokenizer=_unpickled(known.tokenizer),
            teacher=known.teacher,
            batch_draws=step.batch_draws_N,
        )
    except ArtifactError as error:
        return pack_piece(number, str(error))
    return pack_piece(number, loaded)


def _cpus(resources: Callable[[], dict[str, float]]) -> float:
    return resources().get("CPU", 0.0)


@functools.lru_cache(4)
def _unpickled(tokenizer: bytes) -> Encodes:
    found: Encodes = pickle.loads(tokenizer)
    return found
