"""Batches for one training worker, loaded on CPUs anywhere in the cluster.

Every worker has a Ray Data pipeline of its own. Its rows are numbers of pieces: some pairs of one
step of this worker. A task loads one, and pieces come back in order, so which pairs a batch has
depends on nothing that Ray decides. A pipeline plans all its tasks before it starts (1.5 ms for
each), so that an epoch is many short ones, and the next starts before the last has ended.
"""

import contextlib
import functools
import json
import pickle
import queue
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import torch
from ray.data import ExecutionResources

from biovl.errors import ArtifactError
from biovl.jobs.cluster import connected
from biovl.training.batches import Batch
from biovl.training.config import DataConfig
from biovl.training.order import Places, epoch_order
from biovl.training.pairs import Encodes, load_pairs
from biovl.training.schedule import Plan
from biovl.training.workers import share

PIECE_PAIRS = 128
"""The most pairs of a task: half a second of one CPU, 19 MB at 224 px."""

LEG_PIECES = 64
"""Pieces of a pipeline, at least; no more of them than of two pipelines are ever in memory."""

_STOP_CHECK_S = 0.1
_LAST_WAIT_S = 10.0


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


@dataclass(frozen=True)
class _Leg:
    """Consecutive steps of an epoch, in pieces."""

    epoch: int
    batches_SN: np.ndarray
    """The rows of all workers in each step."""
    own: range
    """Which of a step's rows are this worker's."""
    pieces_per_step: int

    @property
    def pieces(self) -> int:
        return len(self.batches_SN) * self.pieces_per_step

    def piece(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a piece and those of its whole batch."""
        step, part = divmod(number, self.pieces_per_step)
        own = share(len(self.own), part, self.pieces_per_step)
        batch = self.batches_SN[step]
        return batch[self.own.start + own.start : self.own.start + own.stop], batch


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
        item = self._batches.get()
        self.waited_s += time.monotonic() - asked
        if isinstance(item, _Loaded):
            self.replaced.update(item.replaced)
            return item.batch
        self.close()
        if item is None:
            raise StopIteration
        raise item

    def close(self) -> None:
        """Stop loading. Tasks that run are cancelled."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_WAIT_S)

    def __del__(self) -> None:
        self._stop.set()


@dataclass(frozen=True)
class _Loaded:
    batch: Batch
    replaced: dict[str, int]


_Item = _Loaded | BaseException | None


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
        with connected():
            known: Source = ray.get(source)
            least = max(LEG_PIECES, int(4 * (cpus or 0)))
            legs = _legs(known, plan, steps_done, rank, workers, least)
            with contextlib.closing(_steps(source, legs, cpus)) as steps:
                for pieces in steps:
                    give(_joined(pieces, known.image_px))
                    if stop.is_set():
                        return
        give(None)
    # Whatever it is, it is told to whoever asks for the next batch: nobody else hears this thread.
    except BaseException as error:
        give(error)


def _legs(
    source: Source, plan: Plan, steps_done: int, rank: int, workers: int, least_pieces: int
) -> Iterator[_Leg]:
    """Yield the rest of a run, leg by leg; a leg ends with its epoch at the latest."""
    while steps_done < plan.steps:
        place = plan.place(steps_done)
        pairs, steps = plan.epochs[place.epoch]
        own = share(pairs, rank, workers)
        per_step = -(-len(own) // PIECE_PAIRS)
        order = epoch_order(
            source.places, seed=source.seed, epoch=place.epoch, run_pairs=source.data.run_pairs
        )
        taken = max(1, least_pieces // per_step)
        for first in range(place.step, steps, taken):
            count = min(taken, steps - first)
            rows = order[first * pairs : (first + count) * pairs].reshape(count, pairs)
            yield _Leg(place.epoch, rows, own, per_step)
        steps_done += steps - place.step


class _Pipeline:
    """The pieces of a leg on their way, from the moment this is made."""

    def __init__(
        self,
        source: "ray.ObjectRef[Source]",
        leg: _Leg,
        cpus: float | None,
        starter: ThreadPoolExecutor,
    ) -> None:
        self.leg = leg
        load = functools.partial(_load, source, ray.put(leg))
        # One block, so one task, for each piece.
        pieces = ray.data.range(leg.pieces, override_num_blocks=leg.pieces)
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

    def step(self, first: int) -> list[pa.Table]:
        """Return the pieces of the step that begins with piece ``first``, once they are there."""
        found = []
        for number in range(first, first + self.leg.pieces_per_step):
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


def _steps(
    source: "ray.ObjectRef[Source]", legs: Iterator[_Leg], cpus: float | None
) -> Generator[list[pa.Table]]:
    """Yield the pieces of each step. The next leg starts when most of the last is through."""
    with ThreadPoolExecutor(1) as starter, contextlib.ExitStack() as running:

        def begun() -> _Pipeline | None:
            leg = next(legs, None)
            if leg is None:
                return None
            return running.enter_context(contextlib.closing(_Pipeline(source, leg, cpus, starter)))

        current = begun()
        while current is not None:
            following, is_last = None, False
            for first in range(0, current.leg.pieces, current.leg.pieces_per_step):
                if not is_last and first >= current.leg.pieces * 3 // 4:
                    following = begun()
                    is_last = True
                yield current.step(first)
            current.close()
            current = following if is_last else begun()


def _load(source: "ray.ObjectRef[Source]", leg: "ray.ObjectRef[_Leg]", block: pa.Table) -> pa.Table:
    """Load one piece; runs on any node. The error of a pair comes back as a value."""
    (number,) = block["id"].to_pylist()
    known, about = ray.get([source, leg])
    rows, batch_rows = about.piece(number)
    try:
        loaded = load_pairs(
            known.corpus,
            known.places,
            rows,
            seed=known.seed,
            epoch=about.epoch,
            image_px=known.image_px,
            data=known.data,
            tokenizer=_unpickled(known.tokenizer),
            batch_rows=batch_rows,
        )
    except ArtifactError as error:
        return _table(number, np.empty(0, np.uint8), [], {}, str(error))
    return _table(number, loaded.pixels_BHWC, loaded.tokens, loaded.replaced, None)


def _table(
    number: int,
    pixels: np.ndarray,
    tokens: list[np.ndarray],
    replaced: dict[str, int],
    error: str | None,
) -> pa.Table:
    """Return a piece as one row. Pixels are one long binary value, which is copied nowhere."""
    ends = pa.py_buffer(np.array([0, pixels.nbytes], np.int64))
    data = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 1, [None, ends, pa.py_buffer(pixels.reshape(-1))]
    )
    lengths = np.array([len(ids) for ids in tokens], np.int32)
    ids = np.concatenate([np.empty(0, np.int32), *tokens])
    return pa.table(
        {
            "piece": pa.array([number], pa.int64()),
            "pixels": data,
            "tokens": pa.array([ids], pa.list_(pa.int32())),
            "lengths": pa.array([lengths], pa.list_(pa.int32())),
            "replaced": pa.array([json.dumps(replaced)], pa.string()),
            "error": pa.array([error], pa.string()),
        }
    )


def _joined(pieces: list[pa.Table], image_px: int) -> _Loaded:
    """Return the batch of a step from its pieces, in memory of its own."""
    for piece in pieces:
        (error,) = piece["error"].to_pylist()
        if error is not None:
            raise ArtifactError(error)
    lengths_B, tokens_T = (
        np.concatenate([piece[name].chunk(0).values.to_numpy() for piece in pieces])
        for name in ("lengths", "tokens")
    )
    # The one copy: what lies in the object store may not be written to.
    pixels = np.empty(len(lengths_B) * image_px * image_px * 3, np.uint8)
    start = 0
    for piece in pieces:
        stored = _bytes(piece)
        pixels[start : start + len(stored)] = stored
        start += len(stored)
    replaced: Counter[str] = Counter()
    for piece in pieces:
        replaced.update(json.loads(piece["replaced"][0].as_py()))
    batch = Batch(
        torch.from_numpy(pixels.reshape(-1, image_px, image_px, 3)),
        torch.from_numpy(tokens_T),
        torch.from_numpy(lengths_B),
    )
    return _Loaded(batch, dict(replaced))


def _bytes(piece: pa.Table) -> np.ndarray:
    """Return the pixels of a piece where they lie."""
    return np.frombuffer(piece["pixels"][0].as_buffer(), np.uint8)


@functools.lru_cache(4)
def _unpickled(tokenizer: bytes) -> Encodes:
    found: Encodes = pickle.loads(tokenizer)
    return found
