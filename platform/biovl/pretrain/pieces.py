"""Division of a step into pieces: the input of loading tasks, its serialization and merging."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from biovl.core.errors import ArtifactError
from biovl.pretrain.batches import Batch
from biovl.pretrain.order import PairLocations, epoch_runs
from biovl.pretrain.pairs import Loaded
from biovl.pretrain.schedule import Plan
from biovl.runtime.workers import share

# Shapes: N pairs of all workers in a step, B pairs on this worker, T tokens of all captions, E
# embedding of a teacher.

PIECE_PAIRS = 128
"""The most pairs per task: half a second of one CPU, 19 MB at 224 px."""


@dataclass(frozen=True)
class StepPieces:
    """One step of a worker, divided into pieces, each of which a task loads."""

    epoch: int
    batch_draws_N: np.ndarray
    """Draws of the batch, over all workers, see ``epoch_order``. Shape [N]."""
    own: range
    """Range of this worker in ``batch_draws_N``."""
    pieces: int

    def draws(self, piece: int) -> np.ndarray:
        """Return the draws of a piece."""
        within = share(len(self.own), piece, self.pieces)
        return self.batch_draws_N[self.own.start :][within.start : within.stop]


def steps_of_run(
    places: PairLocations,
    plan: Plan,
    *,
    seed: int,
    run_pairs: int,
    steps_done: int,
    rank: int,
    workers: int,
) -> Iterator[StepPieces]:
    """Yield the steps of one worker from ``steps_done`` to the end of the run."""
    while steps_done < plan.steps:
        place = plan.place(steps_done)
        pairs, steps = plan.epochs[place.epoch]
        own = share(pairs, rank, workers)
        runs = epoch_runs(places, seed=seed, epoch=place.epoch, run_pairs=run_pairs)
        for step in range(place.step, steps):
            yield StepPieces(
                place.epoch,
                runs.draws(step * pairs, (step + 1) * pairs),
                own,
                -(-len(own) // PIECE_PAIRS),
            )
        steps_done += steps - place.step


def legs(steps: Iterator[StepPieces], least_pieces: int) -> Iterator[list[StepPieces]]:
    """Yield groups of consecutive steps with at least ``least_pieces`` pieces, or the rest."""
    leg: list[StepPieces] = []
    for step in steps:
        leg.append(step)
        if sum(step.pieces for step in leg) >= least_pieces:
            yield leg
            leg = []
    if leg:
        yield leg


def pack_piece(number: int, loaded: Loaded | str) -> pa.Table:
    """Return a piece as one Arrow row: its pairs, or the error that prevented loading.

    Pixels are one large binary value, which reaches the object store without a copy.
    """
    error = loaded if isinstance(loaded, str) else None
    if isinstance(loaded, str):
        loaded = Loaded(np.empty(0, np.uint8), [], {})
    pixels = loaded.pixels_BHWC.reshape(-1)
    ends = pa.py_buffer(np.array([0, pixels.nbytes], np.int64))
    data = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 1, [None, ends, pa.py_buffer(pixels)]
    )
    lengths = np.array([len(ids) for ids in loaded.tokens], np.int32)
    ids = np.concatenate([np.empty(0, np.int32), *loaded.tokens])
    teacher = loaded.teacher_B2E
    return pa.table(
        {
            "piece": pa.array([number], pa.int64()),
            "pixels": data,
            "tokens": pa.array([ids], pa.list_(pa.int32())),
            "lengths": pa.array([lengths], pa.list_(pa.int32())),
            "replaced": pa.array([json.dumps(loaded.replaced)], pa.string()),
            "error": pa.array([error], pa.string()),
            **({} if teacher is None else _packed_teacher(teacher)),
        }
    )


def _packed_teacher(teacher_B2E: np.ndarray) -> dict[str, pa.Array]:
    flat = pa.array(teacher_B2E.reshape(-1))
    ends = pa.array([0, len(flat)], pa.int64())
    return {
        "teacher": pa.LargeListArray.from_arrays(ends, flat),
        "teacher_dim": pa.array([teacher_B2E.shape[2]], pa.int64()),
    }


@dataclass(frozen=True)
class JoinedBatch:
    """A batch of one worker, and the counts of replaced pairs in it."""

    batch: Batch
    replaced: dict[str, int]


def join_pieces(pieces: Sequence[pa.Table], image_px: int, *, pinned: bool = False) -> JoinedBatch:
    """Return the batch of a step from its pieces, in newly allocated memory.

    Args:
        pieces: Results of ``pack_piece``, in order.
        image_px: Side of the images, in pixels.
        pinned: Whether the memory is pinned, for asynchronous copies to a GPU. PyTorch reuses it
            when the batch is deleted and its copy complete.

    Raises:
        ArtifactError: If a piece could not be loaded.
    """
    for piece in pieces:
        (error,) = piece["error"].to_pylist()
        if error is not None:
            raise ArtifactError(error)
    lengths = np.concatenate([_values(piece, "lengths") for piece in pieces])
    tokens = [_values(piece, "tokens") for piece in pieces]
    batch = Batch(
        torch.empty((len(lengths), image_px, image_px, 3), dtype=torch.uint8, pin_memory=pinned),
        torch.empty(sum(map(len, tokens)), dtype=torch.int32, pin_memory=pinned),
        torch.from_numpy(lengths),
        _joined_teacher(pieces, pinned),
    )
    # The only copy: memory of the object store is read-only.
    np.concatenate([_pixels(piece) for piece in pieces], out=batch.pixels_BHWC.numpy().reshape(-1))
    np.concatenate(tokens, out=batch.tokens_T.numpy())
    replaced: Counter[str] = Counter()
    for piece in pieces:
        replaced.update(json.loads(piece["replaced"][0].as_py()))
    return JoinedBatch(batch, dict(replaced))


def _joined_teacher(pieces: Sequence[pa.Table], pinned: bool) -> torch.Tensor | None:
    """Return the teacher's embeddings, None if there are none. float16, shape [B, 2, E]."""
    given = [piece for piece in pieces if "teacher" in piece.column_names]
    if not given:
        return None
    dim = given[0]["teacher_dim"][0].as_py()
    parts = [_values(piece, "teacher").reshape(-1, 2, dim) for piece in given]
    joined_B2E = torch.empty((sum(map(len, parts)), 2, dim), dtype=torch.float16, pin_memory=pinned)
    np.concatenate(parts, out=joined_B2E.numpy())
    return joined_B2E


def _values(piece: pa.Table, name: str) -> np.ndarray:
    """Return a view of a list of a piece."""
    values: np.ndarray = piece[name].chunk(0).values.to_numpy()
    return values


def _pixels(piece: pa.Table) -> np.ndarray:
    """Return a view of the pixels of a piece."""
    return np.frombuffer(piece["pixels"][0].as_buffer(), np.uint8)
