"""The named spaces: each is a table of a paper, whose rows are runs that pretrain takes."""

import functools

import pytest

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.sweep.config import COLUMNS, SweepConfig
from biovl.sweep.spaces import SPACES
from biovl.sweep.trials import Trial, corpora_of, trials_of
from tests.sweep.corpora import index_only

TABLES = sorted(set(SPACES) - {"grid"})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    # One step of the largest batch of any table.
    return index_only(tmp_path_factory.mktemp("space") / "corpus", [100] * 65_536)


def space(name: str, corpus: str) -> SweepConfig:
    return configs.override(SPACES[name](), {"corpus": corpus, "out": "sweep"})


@functools.cache
def trials_in(name: str, corpus: str) -> list[Trial]:
    """Return the rows of a table: to count what its models compute takes seconds."""
    return trials_of(space(name, corpus))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_every_table_is_a_run_of_pretrain(name: str, corpus: str) -> None:
    config, trials = space(name, corpus), trials_in(name, corpus)
    assert len({trial.name for trial in trials}) == len(trials) > 1
    plain = [configs.to_plain(trial.config) for trial in trials]
    assert all(configs.differences(plain[0], other) for other in plain[1:])
    for trial in trials:
        assert set(trial.paper) <= set(config.columns) <= set(COLUMNS)


def test_the_numbers_beside_ours_are_those_of_the_papers(corpus: str) -> None:
    longest = trials_in("context_length", corpus)[-1]
    assert longest.context == 512
    assert longest.paper == {"T2I R@1": 68.9, "T2I R@5": 84.3, "T2I R@10": 89.3, "I2T R@1": 71.2}
    small, *_ = trials_in("vit_size", corpus)
    assert small.paper == {"loss": 0.5342, "img2txt R@1": 69.45, "txt2img R@1": 68.02}
    assert small.config.epochs == 8


def test_context_and_batch_vary_with_each_other(corpus: str) -> None:
    trials = trials_in("context_x_batch", corpus)
    points = {(trial.context, trial.config.batch.pairs) for trial in trials}
    assert len(trials) == len(points) == 16


def test_a_corpus_of_288_px_has_no_row_of_384_px(tmp_path_factory: pytest.TempPathFactory) -> None:
    def trials(name: str, short_side_px: int | None) -> list[int]:
        folder = tmp_path_factory.mktemp("stored") / "corpus"
        stored = {"image": {"short_side_px": short_side_px}}
        corpus = index_only(folder, [100] * 8_192, config=stored)
        return [trial.image_px for trial in trials_of(space(name, corpus))]

    with pytest.raises(ConfigError, match=r"trial 01-image-size-384px-seed-0: .*288 px"):
        trials("image_size", 288)
    assert trials("image_size", 427) == trials("image_size", None) == [224, 384]
    assert trials("batch_size", 288) == [224, 224]


def test_mixtures_are_swept_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("mixed")
    one, long = index_only(folder / "one", [100] * 64), index_only(folder / "long", [300] * 16)
    values = {
        "corpus": one,
        "out": "sweep",
        "base": {"recipe": "tiny", "corpus": [one, long], "batch.pairs": 8},
        "grid": {"mixture.factors": [[1, 1], [1, 4]]},
    }
    trials = trials_of(configs.build(SweepConfig, values))
    assert [trial.train_pairs for trial in trials] == [80, 128]
    assert corpora_of(configs.build(SweepConfig, values), trials) == [one, long]
