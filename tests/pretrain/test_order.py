"""The order of an epoch: every pair once, from the index, the seed and the epoch alone."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.core.errors import ArtifactError
from biovl.pretrain.config import BatchConfig
from biovl.pretrain.order import (
    PairLocations,
    epoch_order,
    epoch_runs,
    read_places,
)
from biovl.pretrain.pieces import steps_of_run
from biovl.pretrain.schedule import Plan


def places(*pairs_of_shard: int) -> PairLocations:
    shard = np.repeat(np.arange(len(pairs_of_shard), dtype=np.int32), pairs_of_shard)
    count = len(shard)
    return PairLocations(
        shards=tuple(f"train/{number:05d}.tar" for number in range(len(pairs_of_shard))),
        corpora=("corpus",) * len(pairs_of_shard),
        shard=shard,
        offset=np.concatenate([np.arange(n) * 1024 for n in pairs_of_shard]).astype(np.int64),
        size=np.full(count, 1024),
        text_tokens=np.full(count, 9, np.int32),
        pair_id=pa.array([f"p{row}" for row in range(count)], pa.large_string()),
    )


def index(corpus: Path, rows: list[tuple[str, str, str, int]]) -> str:
    ids, splits, shards, offsets = zip(*rows, strict=True)
    table = {"pair_id": ids, "split": splits, "shard": shards, "offset": offsets}
    table |= {"size": [512] * len(rows), "text_tokens": pa.array([3] * len(rows), pa.int32())}
    pq.write_table(pa.table(table), corpus / "index.parquet", row_group_size=2)
    return str(corpus)


def test_places_stand_by_shard_and_offset_whatever_the_order_of_the_index(tmp_path: Path) -> None:
    rows = [
        ("d", "train", "train/00001.tar", 0),
        ("v", "val", "val/00000.tar", 0),
        ("b", "train", "train/00000.tar", 9216),
        ("a", "train", "train/00000.tar", 512),
        ("e", "train", "train/00001.tar", 1024),
    ]
    (tmp_path / "other").mkdir()
    one = read_places(index(tmp_path, rows), "train")
    other = read_places(index(tmp_path / "other", rows[::-1]), "train")
    for found in (one, other):
        assert found.pair_id.to_pylist() == ["a", "b", "d", "e"]
        assert found.shards == ("train/00000.tar", "train/00001.tar")
        assert found.shard.tolist() == [0, 0, 1, 1]
        assert found.offset.tolist() == [512, 9216, 0, 1024]
    assert len(read_places(str(tmp_path), "val")) == 1
    assert len(read_places(str(tmp_path), "test")) == 0


def test_a_folder_that_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"index\.parquet"):
        read_places(str(tmp_path), "train")
    pq.write_table(pa.table({"pair_id": ["a"], "split": ["train"]}), tmp_path / "index.parquet")
    with pytest.raises(ArtifactError, match="offset, shard, size, text_tokens"):
        read_places(str(tmp_path), "train")


@pytest.mark.parametrize("run_pairs", [1, 3, 8, 100])
def test_an_epoch_has_every_pair_once(run_pairs: int) -> None:
    order = epoch_order(places(17, 1, 40, 8), seed=3, epoch=2, run_pairs=run_pairs)
    assert sorted(order.tolist()) == list(range(66))


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    corpus = places(50, 50)

    def order(seed: int, epoch: int) -> list[int]:
        return epoch_order(corpus, seed=seed, epoch=epoch, run_pairs=4).tolist()

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_the_order_is_the_same_for_ever() -> None:
    # A run that goes on after an upgrade must meet the pairs it has not seen. Raw words of PCG64
    # are what NumPy promises never to change.
    order = epoch_order(places(6, 5), seed=5, epoch=1, run_pairs=2)
    assert order.tolist() == [4, 5, 2, 3, 10, 0, 1, 8, 9, 6, 7]


@pytest.mark.parametrize("run_pairs", [1, 3, 8, 100])
def test_any_part_of_an_epoch_is_that_of_the_whole(run_pairs: int) -> None:
    corpus = places(17, 1, 40, 8)
    order = epoch_order(corpus, seed=3, epoch=2, run_pairs=run_pairs)
    runs = epoch_runs(corpus, seed=3, epoch=2, run_pairs=run_pairs)
    assert len(runs) == len(order) == 66
    for first in range(67):
        for stop in (first, first + 1, first + 7, 66, 80):
            assert runs.draws(first, stop).tolist() == order[first:stop].tolist()


def test_runs_begin_at_the_phase_of_their_shard() -> None:
    # The boundaries by their definition, pair by pair.
    corpus, run_pairs = places(17, 1, 40, 8, 3), 5
    phases = np.random.PCG64(np.random.SeedSequence((0, 3, 2))).random_raw(5) % run_pairs
    starts = [
        row
        for row, (shard, offset) in enumerate(zip(corpus.shard, corpus.offset, strict=True))
        if offset == 0 or (offset // 1024 - int(phases[shard])) % run_pairs == 0
    ]
    runs = epoch_runs(corpus, seed=3, epoch=2, run_pairs=run_pairs)
    assert sorted(runs.starts.tolist()) == starts


def test_runs_stay_together_and_within_their_shard() -> None:
    corpus = places(41, 3, 30)
    order = epoch_order(corpus, seed=0, epoch=0, run_pairs=8)
    breaks = np.flatnonzero(np.diff(order) != 1) + 1
    runs = np.split(order, breaks)
    assert all(len(set(corpus.shard[run].tolist())) <= 2 for run in runs)
    # At most two short runs per shard, so at most so many runs; runs that meet by chance are one.
    assert len(runs) <= (41 // 8 + 2) + 2 + (30 // 8 + 2)
    assert len(runs) > 6


def test_pairs_do_not_always_travel_together() -> None:
    corpus = places(64)
    together = np.zeros(63)
    for epoch in range(40):
        order = epoch_order(corpus, seed=0, epoch=epoch, run_pairs=4)
        at = np.argsort(order)
        together += np.diff(at) == 1
    # Of 63 neighbours three in four travel together, whichever they are; and hardly more by chance.
    assert together.max() < 40
    assert together.min() > 20


def test_what_is_left_out_of_an_epoch_differs() -> None:
    left = [epoch_order(places(20), seed=0, epoch=e, run_pairs=1)[16:].tolist() for e in range(5)]
    assert len({tuple(rows) for rows in left}) == 5


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_workers_share_a_batch_in_order_whatever_their_number(workers: int) -> None:
    order = epoch_order(places(30), seed=0, epoch=0, run_pairs=2)
    plan, how = Plan.of(30, BatchConfig(pairs=7), epochs=1), {"seed": 0, "run_pairs": 2}
    shares = [
        list(steps_of_run(places(30), plan, **how, steps_done=0, rank=rank, workers=workers))
        for rank in range(workers)
    ]
    for step in range(30 // 7):
        assert {len(steps[step].own) for steps in shares} <= {7 // workers, 7 // workers + 1}
        pieces = [
            steps[step].draws(piece) for steps in shares for piece in range(steps[step].pieces)
        ]
        assert np.concatenate(pieces).tolist() == order[7 * step : 7 * (step + 1)].tolist()
