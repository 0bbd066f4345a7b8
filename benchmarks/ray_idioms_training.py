"""Input and checkpoints of training: our form against Ray's. Called by ``ray_idioms.py``.

input: a Ray Data pipeline per worker and some steps (``pretrain/stream_job.py``) against one
dataset of a whole epoch, divided by ``streaming_split``. Both load the same pieces with the same
function, so the batches must be equal, also where one worker is slow. A dataset plans all of its
tasks before the first runs, so the seconds to the first batch are measured for longer epochs, too.

checkpoints: files with a checksum, written by a thread (``runtime/checkpoints.py``), against
``ray.train.report`` with a checkpoint. Counted: the seconds in which a step waits, what a second
driver finds after the first has failed, and how many of 20 checkpoints with a flipped bit load.
"""

import argparse
import functools
import hashlib
import io
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.train
import ray.train.torch
import torch
from PIL import Image

from biovl.core.errors import BiovlError
from biovl.core.shards import ShardWriter
from biovl.models.tokenization import ClipTokenizer
from biovl.pretrain import pieces
from biovl.pretrain.config import BatchConfig, DataConfig
from biovl.pretrain.order import read_places
from biovl.pretrain.pairs import load_pairs
from biovl.pretrain.pieces import StepPieces
from biovl.pretrain.schedule import Plan
from biovl.pretrain.stream_job import PairSource, stream
from biovl.runtime.checkpoints import Checkpoints

WORKERS, IMAGE_PX, SEED = 2, 224, 3
FLIPS = 20


def write_corpus(folder: Path, pairs: int, shard_pairs: int = 500) -> str:
    """Write pairs whose images are smooth noise of 288 x 288 pixels, as JPEG."""
    rng, rows = np.random.default_rng(0), []
    for first in range(0, pairs, shard_pairs):
        name = f"train/{first // shard_pairs:05d}.tar"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("wb") as file:
            shard = ShardWriter(file)
            for number in range(first, min(first + shard_pairs, pairs)):
                noise = Image.fromarray(rng.integers(0, 256, (36, 36, 3), np.uint8))
                image = io.BytesIO()
                noise.resize((288, 288), Image.Resampling.BICUBIC).save(image, "JPEG")
                pair = {"jpg": image.getvalue(), "txt": f"pair {number}".encode(), "json": b"{}"}
                place = shard.add(f"p{number:06d}", pair)
                rows.append((f"p{number:06d}", "train", name, place.offset, place.size, 2))
            shard.finish()
    names = "pair_id split shard offset size text_tokens".split()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), names), folder / "index.parquet")
    return str(folder)


def load_piece(source: list[Any], steps: list[Any], workers: int, row: dict[str, Any]) -> pa.Table:
    """Load a piece of the dataset's form: row ``id`` is worker ``id % workers``'s next piece."""
    known: PairSource = ray.get(source[0])
    of_rank: list[list[tuple[StepPieces, int]]] = ray.get(steps[0])
    (number,) = row["id"].to_pylist()
    mine = of_rank[number % workers]
    step, part = mine[number // workers % len(mine)]
    loaded = load_pairs(
        known.places,
        step.draws(part),
        seed=known.seed,
        epoch=step.epoch,
        image_px=known.image_px,
        data=known.data,
        tokenizer=ClipTokenizer(20),
        batch_draws=step.batch_draws_N,
    )
    return pieces.pack_piece(number, loaded)


@ray.remote(num_cpus=0)
class Consumer:
    """A training worker that only hashes its batches."""

    def of_streams(
        self, source: list[Any], plan: Plan, rank: int, wait_s: float, steps: int
    ) -> dict[str, Any]:
        """Read some steps in our form."""
        batches = stream(source[0], plan, steps_done=0, rank=rank, workers=WORKERS)
        try:
            return self._read(iter(batches), wait_s, steps)
        finally:
            batches.close()

    def of_split(
        self, iterator: Any, pieces_per_step: int, wait_s: float, steps: int
    ) -> dict[str, Any]:
        """Read some steps of a dataset that is divided among the workers."""
        tables = iter(
            iterator.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
        )

        def batches() -> Iterator[Any]:
            while True:
                try:
                    found = [next(tables) for _ in range(pieces_per_step)]
                except StopIteration:
                    return
                yield pieces.join_pieces(found, IMAGE_PX).batch

        return self._read(batches(), wait_s, steps)

    def _read(self, batches: Iterator[Any], wait_s: float, steps: int) -> dict[str, Any]:
        began, first, hashes = time.perf_counter(), 0.0, []
        for batch in batches:
            first = first or time.perf_counter() - began
            content = batch.pixels_BHWC.numpy().tobytes() + batch.tokens_T.numpy().tobytes()
            hashes.append(hashlib.sha256(content).hexdigest())
            if len(hashes) == steps:
                break
            time.sleep(wait_s)
        return {"hashes": hashes, "first_s": first, "s": time.perf_counter() - began}


def compare_input(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the seconds of both forms, and whether their batches are equal."""
    corpus = write_corpus(folder, arguments.pairs)
    places, data = read_places(corpus, "train"), DataConfig()
    source = PairSource.put(
        places, seed=SEED, image_px=IMAGE_PX, data=data, tokenizer=ClipTokenizer(20)
    )
    batch = WORKERS * pieces.PIECE_PAIRS
    plan = Plan.of(len(places), BatchConfig(pairs=batch), epochs=1)
    consumers = [Consumer.remote() for _ in range(WORKERS)]  # type: ignore[attr-defined]

    def streams(steps: int, slow_s: float = 0.0) -> list[dict[str, Any]]:
        waits = [slow_s, *[0.0] * (WORKERS - 1)]
        calls = [
            consumer.of_streams.remote([source], plan, rank, waits[rank], steps)
            for rank, consumer in enumerate(consumers)
        ]
        found: list[dict[str, Any]] = ray.get(calls)
        return found

    def split(steps: int, slow_s: float = 0.0, planned: int = 0) -> list[dict[str, Any]]:
        of_rank = []
        for rank in range(WORKERS):
            own = pieces.steps_of_run(
                places,
                plan,
                seed=SEED,
                run_pairs=data.run_pairs,
                steps_done=0,
                rank=rank,
                workers=WORKERS,
            )
            of_rank.append([(step, part) for step in own for part in range(step.pieces)])
        total = planned or len(of_rank[0]) * WORKERS
        rows = ray.data.range(total, override_num_blocks=total)
        rows.context.execution_options.preserve_order = True
        # In lists: Ray would resolve the references for every task.
        load = functools.partial(load_piece, [source], [ray.put(of_rank)], WORKERS)
        loaded = rows.map_batches(
            load, batch_size=None, batch_format="pyarrow", zero_copy_batch=True
        )
        waits = [slow_s, *[0.0] * (WORKERS - 1)]
        shares = loaded.streaming_split(WORKERS, equal=True)
        calls = [
            consumer.of_split.remote(shares[rank], 1, waits[rank], steps)
            for rank, consumer in enumerate(consumers)
        ]
        found: list[dict[str, Any]] = ray.get(calls)
        return found

    forms: dict[str, Callable[..., list[dict[str, Any]]]] = {"streams": streams, "split": split}
    for form in forms.values():
        form(2)
    expected = [reader["hashes"] for reader in streams(plan.steps)]
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    first: dict[str, list[float]] = {name: [] for name in forms}
    is_equal = True
    for number in range(arguments.rounds):
        for name, form in forms.items():
            began = time.perf_counter()
            found = form(plan.steps)
            seconds[name].append(time.perf_counter() - began)
            first[name].append(max(reader["first_s"] for reader in found))
            is_equal = is_equal and [reader["hashes"] for reader in found] == expected
            print(f"input {number + 1}, {name}: {seconds[name][-1]:.1f} s", flush=True)
    slow = [reader["hashes"] for reader in split(plan.steps, slow_s=0.5)]
    planned = {}
    for total in map(int, arguments.planned.split(",")):
        began = time.perf_counter()
        split(2, planned=total)
        planned[total] = time.perf_counter() - began
        print(f"input, split of {total} pieces: {planned[total]:.1f} s for two steps", flush=True)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    return {
        "pairs": arguments.pairs,
        "steps": plan.steps,
        "equal_batches": is_equal,
        "equal_batches_with_a_slow_worker": slow == expected,
        "seconds": seconds,
        "seconds_to_first_batch": first,
        "seconds_of_two_steps_by_pieces_of_the_epoch": planned,
        "split_to_streams": medians["split"] / medians["streams"],
    }


def _state(step: int, megabytes: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    return {
        "steps_done": step,
        "weights": [torch.randn(250_000, generator=generator) for _ in range(megabytes)],
    }


def _train(arguments: dict[str, Any]) -> None:
    """Do steps of matrix products, and save after each group of steps."""
    context, form = ray.train.get_context(), arguments["form"]
    is_first = context.get_world_rank() == 0
    found = ray.train.get_checkpoint()
    begin = 0
    if found is not None:
        with found.as_directory() as folder:
            begin = torch.load(Path(folder, "state.pt"), weights_only=True)["steps_done"]
    checkpoints = Checkpoints(arguments["out"])
    torch.set_num_threads(1)
    matrix, waited, began = torch.randn(1_000, 1_000), [], time.perf_counter()
    for save in range(begin, arguments["saves"]):
        for _ in range(arguments["steps"]):
            torch.mm(matrix, matrix)
        state = _state(save + 1, arguments["megabytes"]) if is_first else {}
        asked = time.perf_counter()
        if form == "files":
            if is_first:
                checkpoints.save(state)
            torch.distributed.barrier()
        else:
            mode = ray.train.CheckpointUploadMode[form]
            checkpoint = None
            if is_first:
                local = tempfile.mkdtemp()
                torch.save(state, Path(local, "state.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(local)
            ray.train.report(
                {"step": save},
                checkpoint=checkpoint,
                checkpoint_upload_mode=mode,
                delete_local_checkpoint_after_upload=True,
            )
        waited.append(time.perf_counter() - asked)
        if save + 1 == arguments["fail_after"]:
            raise RuntimeError("stopped half-way")
    if is_first:
        checkpoints.wait()
        Path(arguments["marks"]).write_text(
            json.dumps({"begin": begin, "waited_s": waited, "s": time.perf_counter() - began})
        )


def compare_checkpoints(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the seconds that steps wait for checkpoints, and what is found after failures."""

    def run(form: str, out: str, workers: int = WORKERS, fail_after: int = 0) -> dict[str, Any]:
        marks = folder / f"{out}.json"
        train: Any = ray.train
        train.torch.TorchTrainer(
            _train,
            train_loop_config={
                "form": form,
                "out": str(folder / out),
                "marks": str(marks),
                "saves": 4,
                "steps": 40,
                "megabytes": arguments.megabytes,
                "fail_after": fail_after,
            },
            torch_config=train.torch.TorchConfig(backend="gloo"),
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name=out,
                storage_path=str(folder / "ray"),
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                logging_config=train.LoggingConfig(log_level="ERROR"),
            ),
        ).fit()
        content: dict[str, Any] = json.loads(marks.read_text())
        return content

    waited: dict[str, list[float]] = {"files": [], "SYNC": [], "ASYNC": []}
    total: dict[str, list[float]] = {name: [] for name in waited}
    for number in range(arguments.rounds):
        for form in waited:
            found = run(form, f"{form}-{number}")
            waited[form] += found["waited_s"]
            total[form].append(found["s"])
            print(f"checkpoints {number + 1}, {form}: waits {found['waited_s']}", flush=True)
    begins = {}
    for form in ("SYNC", "ASYNC"):
        try:
            run(form, f"stopped-{form}", fail_after=2)
        except ray.train.TrainingFailedError:
            begins[form] = run(form, f"stopped-{form}", workers=1)["begin"]
    kept = sorted((folder / "ray" / "stopped-SYNC").rglob("state.pt"))[-1]
    steps = Checkpoints(str(folder / "files-0")).steps()[-1]
    ours = next((folder / "files-0").rglob(f"{steps:09d}.pt"))
    return {
        "megabytes": arguments.megabytes,
        "seconds_waited_for_a_save": {name: statistics.median(w) for name, w in waited.items()},
        "seconds_of_a_run": {name: statistics.median(s) for name, s in total.items()},
        "second_driver_with_one_worker_resumes_after": begins,
        "flipped_bits_loaded": {
            "files": _loads(ours, lambda _: Checkpoints(str(folder / "files-0")).load(steps)),
            "report": _loads(kept, lambda path: torch.load(path, weights_only=True)),
        },
    }


def _loads(path: Path, load: Callable[[Path], Any]) -> int:
    """Return how many of 20 copies with one flipped bit load without an error."""
    rng, count, size = random.Random(0), 0, path.stat().st_size
    for _ in range(FLIPS):
        place, bit = rng.randrange(size), 1 << rng.randrange(8)
        _flip(path, place, bit)
        try:
            load(path)
            count += 1
        except (BiovlError, RuntimeError, OSError, ValueError, EOFError):
            pass
        finally:
            _flip(path, place, bit)
    return count


def _flip(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ bit]))
        file.flush()
        os.fsync(file.fileno())
