"""The stream of a worker: the very pairs of its plan, wherever they are loaded."""

import io
import json
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch
from PIL import Image

from biovl.core.errors import ArtifactError
from biovl.core.shards import ShardWriter
from biovl.models.tokenization import ClipTokenizer
from biovl.pretrain import pieces, stream_job
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import BatchConfig, DataConfig
from biovl.pretrain.order import epoch_order, read_places
from biovl.pretrain.pairs import load_pairs
from biovl.pretrain.schedule import Plan
from biovl.pretrain.stream_job import PairSource, Stream, stream

pytestmark = pytest.mark.ray

PAIRS, SHARD_PAIRS, PX = 50, 10, 16
BATCHES = BatchConfig(pairs=12, later={1: 20})
PLAN = Plan.of(PAIRS, BATCHES, epochs=2)
TOKENIZER = ClipTokenizer(20)


def write_corpus(corpus: Path, damaged: int | None = None) -> str:
    """Write pairs whose text is their number, and one that is no image."""
    rows = []
    for first in range(0, PAIRS, SHARD_PAIRS):
        name = f"train/{first // SHARD_PAIRS:05d}.tar"
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        with (corpus / name).open("wb") as file:
            shard = ShardWriter(file)
            for number in range(first, first + SHARD_PAIRS):
                pixels = np.random.default_rng(number).integers(0, 256, (20, 24, 3), np.uint8)
                image = io.BytesIO()
                Image.fromarray(pixels).save(image, "PNG")
                png = b"nothing" if number == damaged else image.getvalue()
                text = " ".join([f"pair {number}"] * (1 + number % 4))
                pair = {"png": png, "txt": text.encode(), "json": json.dumps({}).encode()}
                place = shard.add(f"p{number:02d}", pair)
                rows.append((f"p{number:02d}", "train", name, place.offset, place.size, 2))
            shard.finish()
    names = "pair_id split shard offset size text_tokens".split()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), names), corpus / "index.parquet")
    return str(corpus)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("stream"))


def put(corpus: str, data: DataConfig) -> "ray.ObjectRef[PairSource]":
    places = read_places(corpus, "train")
    return PairSource.put(places, seed=7, image_px=PX, data=data, tokenizer=TOKENIZER)


@pytest.fixture(scope="module")
def source(corpus: str, ray_session: None) -> "ray.ObjectRef[PairSource]":
    return put(corpus, DataConfig(run_pairs=3))


def texts(batch: Batch) -> list[np.ndarray]:
    return [ids.numpy() for ids in batch.tokens_T.split(batch.lengths_B.tolist())]


@pytest.fixture(scope="module")
def whole(source: "ray.ObjectRef[PairSource]") -> list[Batch]:
    """All batches of a run on one worker."""
    return list(stream(source, PLAN, steps_done=0, rank=0, workers=1))


def test_batches_are_those_that_a_plain_loop_loads(corpus: str, whole: list[Batch]) -> None:
    places, data = read_places(corpus, "train"), DataConfig(run_pairs=3)
    assert len(whole) == PLAN.steps == 50 // 12 + 50 // 20
    for steps_done, batch in enumerate(whole):
        at = PLAN.place(steps_done)
        order = epoch_order(places, seed=7, epoch=at.epoch, run_pairs=3)
        expected = load_pairs(
            places,
            order[at.step * at.batch_pairs :][: at.batch_pairs],
            seed=7,
            epoch=at.epoch,
            image_px=PX,
            data=data,
            tokenizer=TOKENIZER,
        )
        assert np.array_equal(batch.pixels_BHWC.numpy(), expected.pixels_BHWC)
        for found, ids in zip(texts(batch), expected.tokens, strict=True):
            assert found.tolist() == ids.tolist()


def same(one: Batch, other: Batch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("pixels_BHWC", "tokens_T", "lengths_B")
    )


def test_two_workers_have_the_halves_of_every_batch(
    source: "ray.ObjectRef[PairSource]", whole: list[Batch]
) -> None:
    # Both at the same time, as they run.
    streams = [stream(source, PLAN, steps_done=0, rank=rank, workers=2) for rank in range(2)]
    for step, halves in enumerate(zip(*streams, strict=True)):
        joined = Batch(
            *(
                torch.cat([getattr(half, name) for half in halves])
                for name in ("pixels_BHWC", "tokens_T", "lengths_B")
            )
        )
        assert same(joined, whole[step])
        assert len(halves[0]) == len(halves[1])
    assert step + 1 == len(whole)


def test_no_pair_comes_twice_in_an_epoch(whole: list[Batch]) -> None:
    for first, last in ((0, 4), (4, 6)):
        seen = [
            image.numpy().tobytes() for batch in whole[first:last] for image in batch.pixels_BHWC
        ]
        assert len(set(seen)) == len(seen) == (48 if first == 0 else 40)


@pytest.mark.parametrize("steps_done", [3, 5, 6])
def test_a_stream_that_begins_later_gives_the_rest(
    source: "ray.ObjectRef[PairSource]", whole: list[Batch], steps_done: int
) -> None:
    rest = list(stream(source, PLAN, steps_done=steps_done, rank=0, workers=1))
    assert len(rest) == len(whole) - steps_done
    assert all(map(same, rest, whole[steps_done:]))


def test_small_pieces_and_short_pipelines_give_the_same(
    source: "ray.ObjectRef[PairSource]", whole: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_PAIRS", 5)
    monkeypatch.setattr(stream_job, "LEG_PIECES", 4)
    assert all(map(same, stream(source, PLAN, steps_done=2, rank=0, workers=1), whole[2:]))


def test_batches_may_be_written_to_and_torch_has_no_doubt(
    source: "ray.ObjectRef[PairSource]",
) -> None:
    with warnings.catch_warnings(), _closing(source) as batches:
        warnings.simplefilter("error")
        batch = next(batches)
        batch.pixels_BHWC.zero_()
        assert batch.tokens_T.dtype == batch.lengths_B.dtype == torch.int32
        assert batches.waited_s > 0


class _closing:
    def __init__(self, source: "ray.ObjectRef[PairSource]") -> None:
        self._stream = stream(source, Plan.of(PAIRS, BATCHES, 500), steps_done=0, rank=0, workers=1)

    def __enter__(self) -> Stream:
        return self._stream

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def test_a_stream_that_is_closed_stops_loading(source: "ray.ObjectRef[PairSource]") -> None:
    with _closing(source) as batches:
        next(batches)
    thread = batches._thread
    assert thread is not None
    # Of many epochs: without a stop it would wait for ever to hand over the next batch.
    thread.join(600)
    assert not thread.is_alive()
    with pytest.raises(StopIteration):
        next(batches)


def test_a_damaged_pair_stops_the_stream_at_its_step_with_the_name_of_its_shard(
    tmp_path: Path, ray_session: None
) -> None:
    uri = write_corpus(tmp_path, damaged=23)
    batches = stream(put(uri, DataConfig()), PLAN, steps_done=0, rank=0, workers=1)
    order = epoch_order(read_places(uri, "train"), seed=7, epoch=0, run_pairs=8)
    good = order.tolist().index(23) // 12
    for _ in range(good):
        next(batches)
    with pytest.raises(ArtifactError, match=r"train/00002\.tar, pair p23 "):
        next(batches)
    assert list(batches) == []


def test_a_damaged_pair_is_replaced_and_counted(tmp_path: Path, ray_session: None) -> None:
    uri = write_corpus(tmp_path, damaged=23)
    batches = stream(
        put(uri, DataConfig(unreadable="replace", run_pairs=1)),
        Plan.of(PAIRS, BatchConfig(pairs=10), epochs=2),
        steps_done=0,
        rank=0,
        workers=1,
    )
    assert [len(batch) for batch in batches] == [10] * 10
    assert batches.replaced == {"train/00002.tar: graphic is not an image": 2}


class DiesOnce:
    """A tokenizer that takes the process it runs in with it, the first time."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        if not os.path.exists(self.mark):
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return TOKENIZER.encode(texts)


def test_a_process_that_is_killed_while_it_loads_changes_nothing(
    corpus: str, whole: list[Batch], tmp_path: Path
) -> None:
    places, data = read_places(corpus, "train"), DataConfig(run_pairs=3)
    dying = PairSource.put(
        places, seed=7, image_px=PX, data=data, tokenizer=DiesOnce(str(tmp_path / "mark"))
    )
    found = list(stream(dying, PLAN, steps_done=0, rank=0, workers=1))
    assert (tmp_path / "mark").exists()
    assert len(found) == len(whole)
    assert all(map(same, found, whole))
