"""Batches for one training worker, loaded on CPUs anywhere in the cluster.

Every worker has a Ray Data pipeline of its own. Its rows are numbers of pieces: some pairs of one
step of this worker. A task loads one, and pieces come back in order, so which pairs a batch has
depends on nothing that Ray decides. A pipeline plans all its tasks before it starts (1.5 ms for
each), so a run is many short ones, and the next starts before the last has ended.
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
from biovl.pretrain.order import Places
from biovl.pretrain.pairs import Encodes, load_pairs
from biovl.pretrain.pieces import Joined, Step, joined, legs, packed, steps_of_run
from biovl.pretrain.schedule import Plan
from biovl.runtime.connection import connect_ray

LEG_PIECES = 64
"""Pieces of a pipeline, at least; no more of them than of two pipelines are ever in memory."""

_STOP_CHECK_S = 0.1
_LAST_WAIT_S = 10.0
_PATIENCE_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """What all tasks read. Put into the object store once for all workers: see ``put``."""

    corpus: str
    places: Places
    seed: int
    image_px: int
    data: DataConfig
    tokenizer: bytes
    """Pickled: to unpickle a vocabulary takes longer than to read it, so a process keeps it."""

    @classmethod
    def put(
        cls,
        corpus: str,
        places: Places,
        *,
        seed: int,
        image_px: int,
        data: DataConfig,
        tokenizer: Encodes,
    ) -> "ray.ObjectRef[Source]":
        """Return where the source is in the object store; each node has one copy of it."""
        return ray.put(cls(corpus, places, seed, image_px, data, pickle.dumps(tokenizer)))


class Stream(Iterator[Batch]):
    """The batches of one worker, from a step to the end of its run. Close it when done early."""

    waited_s: float = 0.0
    """How long batches were waited for in all."""

    def __init__(self, batches: "queue.Queue[_Item]", stop: threading.Event) -> None:
        self.replaced: Counter[str] = Counter()
        """Pairs of the batches given out that could not be read, by shard and reason."""
        self._batches, self._stop = batches, stop
        self._thread: threading.Thread | None = None

    def __next__(self) -> Batch:
        if self._stop.is_set():
            raise StopIteration
        asked = time.monotonic()
        item = self._next_item()
        self.waited_s += time.monotonic() - asked
        if isinstance(item, Joined):
            self.replaced.update(item.replaced)
            return item.batch
        self.close()
        if item is None:
            raise StopIteration
        raise item

    def _next_item(self) -> "_Item":
        while True:
            try:
                return self._batches.get(timeout=_PATIENCE_S)
            except queue.Empty:
                # Most often training has taken every CPU, and Ray waits for one without a word.
                _log.warning(
                    "no batch for %d s; CPUs free to load pairs: %s of %s",
                    *(_PATIENCE_S, _cpus(ray.available_resources), _cpus(ray.cluster_resources)),
                )

    def close(self) -> None:
        """Stop loading. Tasks that run are cancelled."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_WAIT_S)

    def __del__(self) -> None:
        self._stop.set()


_Item = Joined | BaseException | None


def stream(
    source: "ray.ObjectRef[Source]",
    plan: Plan,
    *,
    steps_done: int,
    rank: int,
    workers: int,
    data_cpus: int | None = None,
    prefetch_steps: int = 2,
) -> Stream:
    """Return the batches of one worker after so many steps of a run, to its end.

    Args:
        source: What ``Source.put`` returned.
        plan: Of the run: batch sizes and steps of every epoch.
        steps_done: Steps of the run before the first batch.
        rank: Of this worker.
        workers: How many there are. Their batches together are those of any other number.
        data_cpus: CPUs that load for all workers; None takes what is free. Each has at least one.
        prefetch_steps: Batches that are ready in this process before they are asked for.

    Raises:
        ArtifactError: When the first pair that cannot be read is asked for, and none may replace
            it.
    """
    batches: queue.Queue[_Item] = queue.Queue(prefetch_steps)
    stop = threading.Event()
    cpus = None if data_cpus is None else max(1.0, data_cpus / workers)
    found = Stream(batches, stop)
    # The thread must not know the stream: one that is dropped without close() ends it.
    found._thread = threading.Thread(
        target=_fill,
        args=(batches, stop, source, plan, steps_done, rank, workers, cpus),
        name="pair-stream",
        daemon=True,
    )
    found._thread.start()
    return found


def _fill(
    batches: "queue.Queue[_Item]",
    stop: threading.Event,
    source: "ray.ObjectRef[Source]",
    plan: Plan,
    steps_done: int,
    rank: int,
    workers: int,
    cpus: float | None,
) -> None:
    def give(item: _Item) -> None:
        while not stop.is_set():
            try:
                return batches.put(item, timeout=_STOP_CHECK_S)
            except queue.Full:
                continue

    try:
        with connect_ray():
            known: Source = ray.get(source)
            expected = cpus or _cpus(ray.cluster_resources) / workers
            # So that no CPU runs out of work at the seam of two pipelines.
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
                    give(joined(pieces, known.image_px))
                    if stop.is_set():
                        return
        give(None)
    # Whatever it is, it is told to whoever asks for the next batch: nobody else hears this thread.
    except BaseException as error:
        give(error)


class _Pipeline:
    """The pieces of a leg on their way, from the moment this is made."""

    def __init__(
        self,
        source: "ray.ObjectRef[Source]",
        leg: list[Step],
        cpus: float | None,
        starter: ThreadPoolExecutor,
    ) -> None:
        self.leg = leg
        parts = [(step, part) for step in leg for part in range(step.pieces)]
        # Pieces of one step share it: what stands in a list twice is stored once.
        load = functools.partial(_load, source, ray.put(parts))
        # One block, so one task, for each piece.
        pieces = ray.data.range(len(parts), override_num_blocks=len(parts))
        options = pieces.context.execution_options
        options.preserve_order = True
        options.resource_limits = ExecutionResources.for_limits(cpu=cpus)
        loaded = pieces.map_batches(
            load, batch_size=None, batch_format="pyarrow", zero_copy_batch=True
        )
        tables = loaded.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        self._tables: Any = iter(tables)
        # Ray Data starts when the first block is asked for.
        self._first: Future[pa.Table] = starter.submit(next, self._tables)

    def step(self, first: int, pieces: int) -> list[pa.Table]:
        """Return the pieces of the step that begins with piece ``first``, once they are there."""
        found = []
        for number in range(first, first + pieces):
            table: pa.Table = self._first.result() if number == 0 else next(self._tables)
            found_number = table["piece"][0].as_py()
            if found_number != number:
                raise RuntimeError(f"expected piece {number} of a leg, got {found_number}")
            found.append(table)
        return found

    def close(self) -> None:
        """End all that still runs."""
        with contextlib.suppress(BaseException):
            self._first.result()
        self._tables.close()


def _loaded(
    source: "ray.ObjectRef[Source]", legs_left: Iterator[list[Step]], cpus: float | None
) -> Generator[list[pa.Table]]:
    """Yield the pieces of each step. The next leg starts when most of the last is through."""
    current: _Pipeline | None = None
    following: _Pipeline | None = None
    with ThreadPoolExecutor(1) as starter:

        def begun() -> _Pipeline | None:
            leg = next(legs_left, None)
            return None if leg is None else _Pipeline(source, leg, cpus, starter)

        try:
            current = begun()
            while current is not None:
                first, total, is_asked = 0, sum(step.pieces for step in current.leg), False
                for step in current.leg:
                    if not is_asked and first + step.pieces > total * 3 // 4:
                        following, is_asked = begun(), True
                    yield current.step(first, step.pieces)
                    first += step.pieces
                current.close()
                current, following = following, None
        finally:
            for pipeline in filter(None, [current, following]):
                pipeline.close()


def _load(
    source: "ray.ObjectRef[Source]",
    parts: "ray.ObjectRef[list[tuple[Step, int]]]",
    block: pa.Table,
) -> pa.Table:
    """Load one piece; runs on any node. The error of a pair comes back as a value."""
    (number,) = block["id"].to_pylist()
    known: Source = ray.get(source)
    step, part = ray.get(parts)[number]
    try:
        loaded = load_pairs(
            known.corpus,
            known.places,
            step.rows(part),
            seed=known.seed,
            epoch=step.epoch,
            image_px=known.image_px,
            data=known.data,
            tokenizer=_unpickled(known.tokenizer),
            batch_rows=step.batch_rows_N,
        )
    except ArtifactError as error:
        return packed(number, str(error))
    return packed(number, loaded)


def _cpus(resources: Callable[[], dict[str, float]]) -> float:
    return resources().get("CPU", 0.0)


@functools.lru_cache(4)
def _unpickled(tokenizer: bytes) -> Encodes:
    found: Encodes = pickle.loads(tokenizer)
    return found
