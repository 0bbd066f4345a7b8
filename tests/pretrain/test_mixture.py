"""Several corpora in one run: what an epoch draws, in which order, and what is left out as a leak."""

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from biovl.core import config as configs
from biovl.core.artifacts import MANIFEST, Manifest, to_json
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.shards import ShardWriter
from biovl.models.builders.open_clip import Built
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import (
    DataConfig,
    MixtureConfig,
    PretrainConfig,
    PretrainWorkers,
    tiny,
)
from biovl.pretrain.fork import _seen_val
from biovl.pretrain.lineage import seen_val_warning
from biovl.pretrain.mixture import (
    LENGTHS_OF_TEXT,
    SAME_ARTICLE,
    SAME_IMAGE,
    count_seen_val,
    describe_mixture,
    draws_of,
    merged_stats,
    read_mixture,
    read_training,
    text_tokens,
)
from biovl.pretrain.order import PairLocations, concatenate_corpora, epoch_order
from biovl.pretrain.pairs import load_pairs
from biovl.pretrain.run import Callbacks, run
from biovl.pretrain.schedule import Plan
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers
from tests.pretrain.local_batches import local_batches
from tests.pretrain.test_order import places
from tests.pretrain.test_pairs import Words, words
from tests.pretrain.test_run import MODEL

SIZES = (40, 12, 7)


def mixed(*draws: int, sizes: Sequence[int] = SIZES) -> PairLocations:
    """Corpora of two shards each."""
    each = [places(size // 2, size - size // 2) for size in sizes]
    named = [
        PairLocations(**{**vars(one), "corpora": (f"corpus-{n}",) * 2})
        for n, one in enumerate(each)
    ]
    return concatenate_corpora(named, draws or sizes)


def by_corpus(order: np.ndarray, sizes: Sequence[int] = SIZES) -> list[int]:
    ends = np.cumsum(sizes)
    return np.bincount(np.searchsorted(ends, order % ends[-1], "right"), minlength=3).tolist()


@pytest.mark.parametrize("run_pairs", [1, 3, 8])
def test_a_union_has_every_pair_of_every_corpus_once_in_one_order(run_pairs: int) -> None:
    order = epoch_order(mixed(), seed=3, epoch=2, run_pairs=run_pairs)
    assert sorted(order.tolist()) == list(range(59))
    # All over the epoch, not one corpus after the other.
    assert all(count > 0 for count in by_corpus(order[:30])[:2])


@pytest.mark.parametrize("run_pairs", [1, 4])
@pytest.mark.parametrize("draws", [(40, 24, 7), (40, 12, 17), (10, 30, 5), (100, 1, 3)])
def test_an_epoch_draws_what_it_should_and_over_epochs_every_pair_equally_often(
    draws: tuple[int, ...], run_pairs: int
) -> None:
    corpora, times = mixed(*draws), Counter[int]()
    for epoch in range(9):
        order = epoch_order(corpora, seed=1, epoch=epoch, run_pairs=run_pairs)
        assert by_corpus(order) == list(draws)
        assert len(set(order.tolist())) == len(order)
        times.update((order % 59).tolist())
        for first, size, drawn in zip((0, 40, 52), SIZES, draws, strict=True):
            counts = [times[row] for row in range(first, first + size)]
            assert sum(counts) == (epoch + 1) * drawn
            assert max(counts) - min(counts) <= 1


def test_the_order_of_a_mixture_is_the_same_for_ever() -> None:
    order = epoch_order(mixed(3, 7, sizes=(6, 4)), seed=5, epoch=1, run_pairs=2)
    assert order.tolist() == ORDER


ORDER = [7, 3, 4, 19, 26, 18, 2, 17, 29, 16]


def test_corpora_of_one_make_the_order_of_one() -> None:
    alone = places(17, 1, 40)
    for epoch in range(3):
        one = epoch_order(alone, seed=3, epoch=epoch, run_pairs=4)
        again = epoch_order(concatenate_corpora([alone], [58]), seed=3, epoch=epoch, run_pairs=4)
        assert one.tolist() == again.tolist()


def test_factors_and_shares_give_the_draws_of_an_epoch() -> None:
    assert draws_of(MixtureConfig(), [600, 100]) == [600, 100]
    assert draws_of(MixtureConfig(factors=(0.5, 3)), [600, 100]) == [300, 300]
    assert draws_of(MixtureConfig(shares=(0.25, 0.75)), [600, 100]) == [175, 525]
    thirds = draws_of(MixtureConfig(shares=(1 / 3, 1 / 3, 1 / 3)), [5, 5, 1])
    assert sum(thirds) == 11
    assert max(thirds) - min(thirds) == 1
    # BMC-LongCLIP+: the union of BIOMEDICA's captions and LongCAP's.
    union = draws_of(MixtureConfig(), [6_602_752, 1_000_000])
    assert union[1] / sum(union) == pytest.approx(0.132, abs=5e-4)
    with pytest.raises(ConfigError, match="draws nothing of"):
        draws_of(MixtureConfig(factors=(1, 0.001)), [600, 100])


@pytest.mark.parametrize("setting", ["cpus", "gpus", "restarts"])
def test_workers_without_cpus_or_less_than_nothing_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        configs.build(PretrainWorkers, {setting: -1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": ["a", "a/"]}, "different folders"),
        ({"corpus": []}, "different folders"),
        ({"mixture.factors": [1, 2, 3]}, r"mixture\.factors: give one number .* 2 in all, got 3"),
        ({"mixture.shares": [0.5, 0.6]}, "must sum to 1"),
        ({"mixture.factors": [1, 0]}, r"mixture\.factors\.1: .* greater than 0"),
        ({"mixture.factors": [1, float("nan")]}, "finite number"),
        ({"mixture.factors": [1, 1e9]}, "less than or equal to 1000"),
        ({"mixture.factors": [1, 1], "mixture.shares": [0.5, 0.5]}, "exclude each other"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configs.override(tiny(), {"corpus": ["a", "b"], "out": "o", **settings})


def test_a_list_of_one_corpus_is_that_corpus() -> None:
    one, listed = (
        configs.override(tiny(), {"corpus": corpus, "out": "o"}) for corpus in ("a", ["a"])
    )
    assert configs.to_plain(one) == configs.to_plain(listed)
    assert one.corpora == ("a",)


# Corpora on disk: rows of pair, split, article, image.
ONE = [
    *((f"a{n}", "train", f"PMC{n}", f"image {n}") for n in range(8)),
    ("a8", "val", "PMC8", "image 8"),
    ("a9", "test", "PMC9", "image 9"),
]
OTHER = [
    ("b0", "train", "PMC8", "another"),  # Its article is in val of ONE.
    ("b1", "train", "PMC20", "image 9"),  # Its image is in test of ONE.
    ("b2", "train", "PMC21", "image 0"),  # In train of both.
    ("b3", "train", "PMC22", "third"),
    ("b4", "val", "PMC0", "fourth"),  # Its article is in train of ONE.
]


def write_corpus(folder: Path, rows: Sequence[tuple[str, str, str, str]], **more: Any) -> str:
    written = []
    for split in dict.fromkeys(row[1] for row in rows):
        name = f"{split}/00000.tar"
        (folder / name).parent.mkdir(parents=True)
        with (folder / name).open("wb") as stream:
            shard = ShardWriter(stream)
            for pair, _, article, image in (row for row in rows if row[1] == split):
                shade = sum(image.encode()) % 256
                png = io.BytesIO()
                Image.effect_noise((40, 40), shade / 4).convert("RGB").save(png, "PNG")
                about = {"caption": pair, "mentions": [], **more.get("record", {})}
                files = {"png": png.getvalue(), "txt": pair.encode()}
                place = shard.add(pair, {**files, "json": json.dumps(about).encode()})
                written.append((pair, split, name, place.offset, place.size, 3, article, image))
            shard.finish()
    names = "pair_id split shard offset size text_tokens article_id image_sha256".split()
    index = pa.table(list(zip(*written, strict=True)), names)
    pq.write_table(index, folder / "index.parquet")
    pairs = {split: sum(row[1] == split for row in rows) for split in ("train", "val", "test")}
    manifest = Manifest(kind="corpus", config=more.get("config", {}), counts={"pairs": pairs})
    (folder / MANIFEST).write_bytes(to_json(vars(manifest)))
    (folder / "stats.json").write_bytes(to_json(more.get("stats", {})))
    return str(folder)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpora")
    return [write_corpus(folder / "one", ONE), write_corpus(folder / "other", OTHER)]


def config(corpus: Any, **changes: Any) -> PretrainConfig:
    return configs.override(tiny(), {"corpus": corpus, "out": "o", "batch.pairs": 2, **changes})


def test_pairs_that_another_corpus_holds_out_are_left_out_and_counted(corpora: list[str]) -> None:
    found = read_mixture(config(corpora))
    assert [part.left_out for part in found.parts] == [
        {SAME_ARTICLE: 1},
        {SAME_ARTICLE: 1, SAME_IMAGE: 1},
    ]
    assert found.draws == 7 + 2
    assert found.pairs == {"train": 9, "val": 1}
    ids = read_training(config(corpora), found).pair_id.to_pylist()
    assert ids == [*(f"a{n}" for n in range(1, 8)), "b2", "b3"]
    assert describe_mixture(config(corpora), found) == [
        f"{corpora[0]}: 7 pairs, 7 drawn an epoch (77.8%; left out 1: {SAME_ARTICLE})",
        f"{corpora[1]}: 2 pairs, 2 drawn an epoch (22.2%; left out 1: {SAME_ARTICLE}; "
        f"left out 1: {SAME_IMAGE})",
        f"validation: val of {corpora[0]}",
    ]
    assert found.counts()["corpora"][1] == {
        "corpus": corpora[1],
        "pairs": 2,
        "draws_per_epoch": 2,
        "left_out": {SAME_ARTICLE: 1, SAME_IMAGE: 1},
    }


def test_val_pairs_of_which_other_corpora_train_on_data_are_counted(
    corpora: list[str], tmp_path: Path
) -> None:
    one, other = corpora
    # By the article of b0, and of b4.
    assert count_seen_val(one, (other,)) == 1
    assert count_seen_val(other, (one,)) == 1
    by_image = write_corpus(tmp_path / "image", [("c", "train", "PMC30", "fourth")])
    assert count_seen_val(other, (by_image,)) == 1
    assert count_seen_val(one, (by_image,)) == 0
    assert (
        count_seen_val(
            other,
            (
                by_image,
                one,
            ),
        )
        == 1
    )
    with pytest.raises(ArtifactError):
        count_seen_val(one, (str(tmp_path / "gone"),))


def test_a_fork_whose_weights_were_trained_on_data_of_val_warns(
    corpora: list[str], tmp_path: Path
) -> None:
    assert _seen_val(corpora[0], corpora, read_mixture(config(corpora[0]))) == 1
    assert _seen_val(corpora[0], corpora[:1], read_mixture(config(corpora[0]))) == 0
    gone = [str(tmp_path / "gone")]
    assert _seen_val(corpora[0], gone, read_mixture(config(corpora[0]))) is None
    for known, said in ((1, "data of 1 val pairs"), (None, "cannot be read")):
        warning = seen_val_warning({"corpora": corpora, "seen_val": known})
        assert warning is not None
        assert said in warning
    assert seen_val_warning({"corpora": corpora, "seen_val": 0}) is None
    # Of an earlier version.
    assert seen_val_warning({}) is None


def test_a_single_corpus_leaves_nothing_out_and_has_no_counts_of_its_own(
    corpora: list[str],
) -> None:
    alone = config(corpora[1])
    found = read_mixture(alone)
    assert found.draws == len(read_training(alone, found)) == 4
    assert found.counts() == {}
    assert describe_mixture(alone, found) == []


def test_a_corpus_of_which_nothing_is_left_is_refused(corpora: list[str], tmp_path: Path) -> None:
    held = write_corpus(tmp_path / "held", [("c0", "train", "PMC9", "x")])
    with pytest.raises(ConfigError, match=r"no training pairs of .* are left \(1: article"):
        read_mixture(config([corpora[0], held]))


def test_a_copy_of_a_corpus_is_the_same_corpus(corpora: list[str], tmp_path: Path) -> None:
    copied = str(shutil.copytree(corpora[0], tmp_path / "copy"))
    with pytest.raises(ConfigError, match="are the same corpus: name it once"):
        read_mixture(config([corpora[0], corpora[1], copied]))


def test_pairs_are_read_from_their_own_corpus_and_repeated_pairs_are_cropped_anew(
    corpora: list[str],
) -> None:
    settings = config(corpora, **{"mixture.factors": [1, 3], "data.run_pairs": 1})
    found = read_mixture(settings)
    training = read_training(settings, found)
    order = epoch_order(training, seed=0, epoch=0, run_pairs=1)
    assert len(order) == Plan.of(found.draws, settings.batch, 1).steps * 2 + 1 == 13

    def load(draws: Any) -> Any:
        return load_pairs(
            training,
            np.asarray(draws),
            seed=0,
            epoch=0,
            image_px=16,
            data=DataConfig(crop_scale=(0.3, 1.0)),
            tokenizer=Words(),
        )

    loaded = load(order)
    ids = training.pair_id.to_pylist()
    assert words(loaded) == [ids[draw % 9] for draw in order.tolist()]
    assert Counter(words(loaded))["b3"] == 3
    again = [n for n, text in enumerate(words(loaded)) if text == "b3"]
    assert len({loaded.pixels_BHWC[n].tobytes() for n in again}) == 3
    # Alone as in its batch.
    assert np.array_equal(load(order[3:4]).pixels_BHWC[0], loaded.pixels_BHWC[3])
    assert len(text_tokens(settings, found)) == 13


def test_texts_that_no_corpus_stores_are_refused_and_some_that_lack_them_are_named(
    corpora: list[str], tmp_path: Path
) -> None:
    long = write_corpus(
        tmp_path / "long", [("c0", "train", "PMC50", "x")], record={"long_caption": "long"}
    )
    texts = {"data.text": {"text": 0.5, "long_caption": 0.5}}
    with pytest.raises(ConfigError, match=r"data\.text: none of .* stores long_caption; their"):
        describe_mixture(config(corpora, **texts), read_mixture(config(corpora)))
    with pytest.raises(ConfigError, match=r"stores long_caption"):
        describe_mixture(config(corpora[0], **texts), read_mixture(config(corpora[0])))
    both = config([corpora[0], long], **texts)
    *_, last, lengths = describe_mixture(both, read_mixture(both))
    assert lengths == LENGTHS_OF_TEXT
    assert last == f"{corpora[0]} stores no long_caption: its pairs use their text"


def test_licences_of_all_corpora_are_added_up(tmp_path: Path) -> None:
    def stats(journal: str, *licenses: tuple[str, str, int]) -> dict[str, Any]:
        rows = [
            {"license": spdx, "license_group": group, "articles": 1, "images": images}
            for spdx, group, images in licenses
        ]
        groups = [{name: row[name] for name in row if name != "license"} for row in rows]
        return {
            "corpus": {"articles": len(rows), "images": sum(row["images"] for row in rows)},
            "licenses": rows,
            "license_groups": groups,
            "journals": {"top": [{"journal": journal}], "articles_without": 0},
        }

    by, nc = ("CC-BY-4.0", "commercial", 5), ("CC-BY-NC-4.0", "noncommercial", 9)
    uris = [
        write_corpus(tmp_path / "one", ONE, stats=stats("eLife", by)),
        write_corpus(tmp_path / "other", OTHER, stats=stats("PLOS", nc, by)),
    ]
    found = merged_stats(read_mixture(config(uris)).parts)
    assert found["corpus"] == {"articles": 3, "images": 19}
    assert [(row["license"], row["images"]) for row in found["licenses"]] == [
        ("CC-BY-4.0", 10),
        ("CC-BY-NC-4.0", 9),
    ]
    assert [row["images"] for row in found["license_groups"]] == [10, 9]
    assert [row["journal"] for row in found["journals"]["top"]] == ["eLife", "PLOS"]


class _Killed(Exception):
    """The end of a process."""


def trained(settings: PretrainConfig, *, killed_at: int | None = None) -> dict[str, Any]:
    """Train without Ray, go on from the last checkpoint, and return the weights at the end."""
    plan = Plan.of(read_mixture(settings).draws, settings.batch, settings.epochs)

    def batches(built: Built, steps_done: int, _: Callable[[], None]) -> Generator[Batch]:
        for number, batch in enumerate(
            local_batches(settings, plan, built, steps_done, Workers()), steps_done
        ):
            if number == killed_at:
                raise _Killed
            yield batch

    callbacks = Callbacks(batches, lambda epoch, steps: None, lambda line: None)
    run(settings, plan, None, callbacks, workers=Workers(), device=torch.device("cpu"))
    found: dict[str, Any] = Checkpoints(settings.out).load(plan.steps)["model"]
    return found


def test_a_run_on_several_corpora_goes_on_to_the_same_weights(
    corpora: list[str], tmp_path: Path
) -> None:
    def settings(name: str, **changes: Any) -> PretrainConfig:
        values = {
            "out": str(tmp_path / name),
            "model": MODEL,
            "epochs": 3,
            "mixture.factors": [0.5, 2.5],
            "save.every_steps": 1,
            "deterministic": True,
            "trackers": [],
        }
        return config(corpora, **values, **changes)

    whole = trained(settings("whole"))
    # In the second of three epochs of four steps.
    with pytest.raises(_Killed):
        trained(settings("resumed"), killed_at=6)
    resumed = trained(settings("resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    other = trained(settings("other", **{"seed": 1}))
    assert not all(torch.equal(whole[name], other[name]) for name in whole)
