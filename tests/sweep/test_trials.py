"""Which runs a sweep consists of, and what each will compute and waste."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ray.tune.schedulers.async_hyperband import _Bracket

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, ConfigError
from biovl.pretrain.config import identity as pretrain_identity
from biovl.pretrain.mixture import LENGTHS_OF_TEXT, inputs_of
from biovl.runtime.checkpoints import Checkpoints
from biovl.sweep import job as sweeps
from biovl.sweep import report
from biovl.sweep.config import SweepConfig
from biovl.sweep.trials import (
    Trial,
    check_rungs,
    corpora_of,
    identity_of,
    times_of,
    trials_of,
    waste,
)
from tests.sweep.corpora import index_only


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return index_only(tmp_path_factory.mktemp("trials") / "corpus", [148] * 64)


def config(corpus: str, **changes: Any) -> SweepConfig:
    values = {"base.recipe": "tiny", "corpus": corpus, "out": "sweep", **changes}
    return configs.build(SweepConfig, values)


GRID = {"model.context_length": [77, 150], "batch.pairs": [16, 32]}


def test_all_values_meet_all_others_with_every_seed(corpus: str) -> None:
    trials = trials_of(config(corpus, grid=GRID, seeds=2))
    assert [t.name for t in trials[:3]] == [
        "00-context-length-77-pairs-16-seed-0",
        "00-context-length-77-pairs-16-seed-1",
        "01-context-length-77-pairs-32-seed-0",
    ]
    met = [(t.context, t.config.batch.pairs, t.config.seed) for t in trials]
    assert met == [(c, b, s) for c in (77, 150) for b in (16, 32) for s in (0, 1)]
    assert trials[1].config.out == "sweep/trials/00-context-length-77-pairs-16-seed-1"


def test_a_change_of_the_base_holds_for_all_and_leaves_the_rest(corpus: str) -> None:
    changed = config(corpus, **{"base.model.image_size": "32", "grid": GRID})
    for trial in trials_of(changed):
        assert trial.image_px == 32
        assert trial.config.model.settings["vision_cfg"]["layers"] == 3


def test_trials_with_another_loss_differ_in_what_it_needs(corpus: str) -> None:
    infonce, siglip = trials_of(config(corpus, grid={"step.loss": ["infonce", "siglip"]}))
    assert "init_logit_bias" not in infonce.config.model.settings
    assert siglip.config.model.settings["init_logit_bias"] == -10


def test_a_value_that_pretrain_refuses_is_told_with_its_trial(corpus: str) -> None:
    with pytest.raises(ConfigError, match=r"trial 01-pairs-128-seed-0: batch\.pairs: .* 128 "):
        trials_of(config(corpus, grid={"batch.pairs": [16, 128]}))
    with pytest.raises(ConfigError, match=r"trial 00-pears-1-seed-0: (?s:.*)batch\.pears"):
        trials_of(config(corpus, grid={"batch.pears": [1]}))
    with pytest.raises(ConfigError, match=r"grid\.batch\.pairs: .*16"):
        trials_of(config(corpus, **{"grid.batch.pairs": 16}))


@pytest.mark.parametrize(
    ("changes", "axis"),
    [
        ({"optim.peak_lr": 1e-3}, "optim.peak_lr"),
        ({"model.text_cfg.layers": 1}, "model.text_cfg"),
        ({"optim": {"peak_lr": 1e-3}}, "optim.peak_lr"),
        ({"batch.later": {}}, "batch.later.9"),
    ],
)
def test_a_grid_does_not_replace_what_the_rows_set(
    changes: dict[str, Any], axis: str, corpus: str
) -> None:
    rows = [{"shown": {"row": 1}}, {"shown": {"row": 2}, "changes": changes}]
    with pytest.raises(ConfigError, match=rf"grid\.{axis}: .*`biovl sweep grid`"):
        trials_of(config(corpus, settings=rows, **{f"grid.{axis}": [3, 4]}))
    # Another setting of the same section.
    other = {"grid": {"optim.weight_decay": [0.1], "model.image_size": [32], "batch.pairs": [16]}}
    assert len(trials_of(config(corpus, settings=rows, **other))) == 2


def test_seeds_are_those_of_the_grid_or_consecutive(corpus: str) -> None:
    seeds = {"grid.seed": [3, 8]}
    assert [trial.config.seed for trial in trials_of(config(corpus, **seeds))] == [3, 8]
    with pytest.raises(ConfigError, match=r"grid\.seed: seeds=2"):
        trials_of(config(corpus, **seeds, seeds=2))


def test_a_recipe_does_not_replace_rows_that_are_recipes(corpus: str) -> None:
    rows = [{"recipe": "biomedclip"}]
    with pytest.raises(ConfigError, match=r"base\.recipe: .*biomedclip.*base\.NAME=VALUE"):
        trials_of(config(corpus, settings=rows))


def test_a_sweep_without_a_recipe_is_told_to_set_it(corpus: str) -> None:
    with pytest.raises(ConfigError, match=r"^base\.recipe is not set: .*\btiny\b"):
        trials_of(configs.build(SweepConfig, {"corpus": corpus, "out": "sweep", "base": {}}))
    with pytest.raises(ConfigError, match="no recipe 'tiniest'"):
        trials_of(config(corpus, **{"base.recipe": "tiniest"}))


def test_a_corpus_without_val_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"corpus has 1 .* val\b"):
        trials_of(config(index_only(tmp_path / "corpus", [10] * 64, val=1)))


@pytest.mark.parametrize("where", ["grid.corpus", "base.corpus", "settings"])
def test_a_corpus_of_a_trial_is_looked_at_like_that_of_the_sweep(
    where: str, corpus: str, tmp_path: Path
) -> None:
    def changed(other: str) -> SweepConfig:
        if where == "settings":
            return config(corpus, settings=[{}, {"changes": {"corpus": other}}])
        return config(corpus, **{where: [corpus, other] if where == "grid.corpus" else other})

    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "absent"):
        with pytest.raises(ArtifactError, match=rf"trial \S+: .*{nothing} .*manifest\.json"):
            trials_of(changed(str(tmp_path / nothing)))
    few = index_only(tmp_path / "few", [10] * 64, val=1)
    with pytest.raises(ConfigError, match=r"trial \S+: .*few has 1 .* val\b"):
        trials_of(changed(few))
    small = {"image": {"short_side_px": 32}}
    with pytest.raises(ConfigError, match=r"trial \S+: .*32 px"):
        trials_of(changed(index_only(tmp_path / "small", [10] * 64, config=small)))
    other = index_only(tmp_path / "other", [20] * 96)
    given = changed(other)
    trials = trials_of(given)
    assert trials[-1].train_pairs == 96
    assert trials[-1].tokens_cut == 0
    assert corpora_of(given, trials) == [corpus, other]
    assert "96 pairs" in report.dry_run(given, trials)


def test_trials_that_are_scored_on_other_pairs_are_not_stopped_by_their_scores(
    corpus: str, tmp_path: Path
) -> None:
    other = index_only(tmp_path / "other", [20] * 96)
    stopping = {"asha.reduction": 2}
    with pytest.raises(ConfigError, match=r"asha\.reduction"):
        trials_of(config(corpus, grid={"corpus": [corpus, other]}, **stopping))
    same = {"corpus": [corpus, [corpus, other]]}
    assert len(trials_of(config(corpus, grid=same, **stopping))) == 2
    with pytest.raises(ConfigError, match=r"asha\.reduction=2 .* 10 or 20 pairs"):
        trials_of(config(corpus, grid={"validation.pairs": [10, 30]}, **stopping))
    # All that the corpus has.
    everything = {"validation.pairs": [20, 30, 0]}
    assert len(trials_of(config(corpus, grid=everything, **stopping))) == 3


@pytest.mark.parametrize("where", ["grid.out", "base.out", "settings"])
def test_trials_have_no_folder_of_their_own_choice(where: str, corpus: str) -> None:
    changes = {where: ["a", "b"] if where == "grid.out" else "a"}
    if where == "settings":
        changes = {"settings": [{"changes": {"out": "a"}}]}
    with pytest.raises(ConfigError, match=r"trial \S+: out "):
        trials_of(config(corpus, **changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": {"model.text_weights": ["/nowhere"]}}, "/nowhere"),
        ({"base.trackers": [{"name": "tensorbord"}]}, "tensorbord"),
        ({"base.workers.count": 33}, "33 workers"),
    ],
)
def test_what_would_fail_in_every_trial_is_told_before_any(
    changes: dict[str, Any], said: str, corpus: str
) -> None:
    with pytest.raises((ArtifactError, ConfigError), match=rf"trial \S+: .*{said}"):
        trials_of(config(corpus, **changes))


def test_trials_of_equal_compute_differ_in_epochs(corpus: str) -> None:
    grid = {"model.context_length": [77, 150]}
    base = {"base.epochs": 60, "grid": grid}
    short, long = trials_of(config(corpus, **base, equal="compute"))
    assert short.config.epochs == 60
    ratio = long.flops_per_pair / short.flops_per_pair
    assert ratio > 1.2
    assert long.config.epochs == round(60 / ratio)
    assert long.flops == pytest.approx(short.flops, rel=0.02)
    assert {t.config.epochs for t in trials_of(config(corpus, **base))} == {60}


def test_equal_compute_needs_lengths_that_are_known(corpus: str) -> None:
    base = {"base.data.text": {"text": 0.5, "caption": 0.5}}
    trial = trials_of(config(corpus, **base))[0]
    with pytest.raises(ConfigError, match=rf"trial {trial.name}: equal=compute .*data\.text"):
        trials_of(config(corpus, **base, equal="compute"))
    assert LENGTHS_OF_TEXT in report.dry_run(config(corpus, **base), [trial])
    assert LENGTHS_OF_TEXT not in report.dry_run(config(corpus), trials_of(config(corpus)))


def test_a_cooldown_is_the_same_share_of_epochs_at_equal_compute(corpus: str) -> None:
    base = {"base.epochs": 60, "grid": {"model.context_length": [77, 150]}}
    cooldown = {"base.optim.schedule": "cooldown", "base.optim.cooldown_epochs": 58}
    short, long = trials_of(config(corpus, **base, **cooldown, equal="compute"))
    assert short.config.optim.cooldown_epochs == 58
    assert long.config.epochs < 58
    assert long.config.optim.cooldown_epochs == round(58 * long.config.epochs / 60)


def test_rungs_of_equal_compute_are_compute_and_not_epochs(corpus: str) -> None:
    given: dict[str, Any] = {"base.epochs": 60, "base.validation.every_epochs": 1}
    given["grid"] = {"model.context_length": [77, 150]}
    stopping = {"asha.reduction": 2, "asha.first_epochs": 4}
    swept = config(corpus, **given, **stopping, equal="compute")
    short, long = trials_of(swept)
    ratio = long.flops_per_pair / short.flops_per_pair
    assert times_of(swept, short, short) == list(range(1, 61))
    times = times_of(swept, short, long)
    assert times == pytest.approx([ratio * epoch for epoch in range(1, len(times) + 1)])
    # At each rung the costlier trial is compared when it has had as much compute, and not before.
    rungs = _rungs_of(times, short.config.epochs)
    assert rungs == [next(t for t in times if t >= rung) for rung in (4, 8, 16, 32)]
    epochs = config(corpus, **given, **stopping)
    assert times_of(epochs, *trials_of(epochs)) == list(range(1, 61))


def _rungs_of(times: list[float], longest: int) -> list[float]:
    """Return the times at which Ray's scheduler compares a trial that reports at all of them."""
    bracket = _Bracket(4, longest + 1, 2, 0)
    for time in times:
        bracket.on_result(SimpleNamespace(trial_id="a"), time, time)
    return sorted(recorded["a"] for _, recorded in bracket._rungs)


def test_a_trial_without_scores_at_a_rung_of_compute_is_refused(corpus: str) -> None:
    given: dict[str, Any] = {"base.epochs": 60, "asha.reduction": 2}
    given["base.validation.every_epochs"] = 1
    given["grid"] = {"model.context_length": [77, 150]}
    rare = {**given, "base.validation.every_epochs": 5, "asha.first_epochs": 4}
    for swept, least in (
        (config(corpus, **given, equal="compute"), 2),
        (config(corpus, **rare, equal="compute"), 5),
    ):
        with pytest.raises(ConfigError, match=rf"asha\.first_epochs={least}"):
            check_rungs(swept, trials_of(swept))
    epochs = config(corpus, **given)
    check_rungs(epochs, trials_of(epochs))


@pytest.mark.parametrize("first", [4, 5])
def test_a_first_rung_behind_all_trials_is_refused(corpus: str, first: int) -> None:
    given = {"base.epochs": 4, "asha.reduction": 2, "grid": {"optim.peak_lr": [0.1, 0.01]}}
    given["base.validation.every_epochs"] = 1
    swept = config(corpus, **given, **{"asha.first_epochs": first})
    with pytest.raises(ConfigError, match=r"asha\.first_epochs"):
        check_rungs(swept, trials_of(swept))
    swept = config(corpus, **given, **{"asha.first_epochs": 3})
    check_rungs(swept, trials_of(swept))


@pytest.mark.parametrize(("every", "first", "is_refused"), [(4, 1, 1), (3, 3, 0), (2, 3, 1)])
def test_a_first_rung_behind_the_last_scores_before_the_end_is_refused(
    corpus: str, every: int, first: int, is_refused: bool
) -> None:
    given = {"base.epochs": 4, "asha.reduction": 2, "grid": {"optim.peak_lr": [0.1, 0.01]}}
    rare = {"base.validation.every_epochs": every, "asha.first_epochs": first}
    swept = config(corpus, **given, **rare)
    with pytest.raises(ConfigError, match="up to epoch") if is_refused else nullcontext():
        check_rungs(swept, trials_of(swept))


def test_a_sweep_that_an_earlier_version_began_with_any_first_rung_resumes(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "_run", interrupt)
    stopping = {"base.epochs": 4, "asha.reduction": 2, "asha.first_epochs": 4}
    given = config(corpus, out=str(tmp_path / "sweep"), **stopping)
    with pytest.raises(ConfigError, match="first_epochs"):
        sweeps.sweep(given)
    with monkeypatch.context() as earlier:
        earlier.setattr(sweeps, "check_rungs", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            sweeps.sweep(given)
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(given)
    assert "trials" in sweeps.dry_run_text(given)


def test_epochs_that_are_swept_are_not_chosen_by_compute(corpus: str) -> None:
    swept = {"grid": {"epochs": [2, 4]}}
    assert [t.config.epochs for t in trials_of(config(corpus, **swept))] == [2, 4]
    with pytest.raises(ConfigError, match="equal=epochs"):
        trials_of(config(corpus, **swept, equal="compute"))


def test_an_empty_mapping_of_the_base_replaces_that_of_the_recipe(corpus: str) -> None:
    base = {"base.recipe": "biomedclip_64k", "base.batch.pairs": 16}
    with pytest.raises(ConfigError, match="65,536"):
        trials_of(config(corpus, **base))
    (trial,) = trials_of(config(corpus, **base, **{"base.batch.later": {}}))
    assert trial.config.batch.later == {}


def test_what_a_context_cuts_and_leaves_empty() -> None:
    # Captions of 8 and 18 tokens, a start and an end token with each.
    cut, padding = waste(np.array([10, 20]), 12)
    assert cut == pytest.approx(8 / 26)
    assert padding == pytest.approx(1 - 11 / 12)
    assert waste(np.array([10, 20]), 40) == pytest.approx((0, 1 - 15 / 40))


def test_where_and_how_it_is_computed_is_no_other_sweep(corpus: str) -> None:
    def identity(**changes: Any) -> dict[str, Any]:
        given = config(corpus, grid=GRID, **changes)
        return identity_of(given, trials_of(given))

    same = identity()
    assert identity(out="elsewhere", concurrent=2, **{"base.workers.count": 2}) == same
    assert identity(**{"base.epochs": 3}) != same


@pytest.mark.parametrize("is_earlier", [False, True])
def test_other_weights_under_the_same_name_are_another_sweep(
    is_earlier: bool, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(config: SweepConfig, trials: list[Trial], draft: Draft, say: Any) -> None:
        draft.note(f"ended/{trials[0].name}", {})
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "_run", interrupt)
    weights, out = tmp_path / "weights.safetensors", str(tmp_path / "sweep")
    weights.write_bytes(b"first")
    given = config(corpus, out=out, seeds=2, **{"base.model.weights": str(weights)})
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(given)
    begun = Draft(out).read_note("begun") or {}
    assert [key.partition(" ")[0] for key in begun["inputs"]] == ["corpus", "weights"]
    weights.write_bytes(b"second")
    if is_earlier:
        # Earlier versions did not record the weights: what they have begun resumes.
        Draft(out).note("begun", {**begun, "inputs": dict([*begun["inputs"].items()][:1])})
        with pytest.raises(KeyboardInterrupt):
            sweeps.sweep(given)
    else:
        with pytest.raises(ArtifactError, match=r"inputs\.weights"):
            sweeps.sweep(given)


def test_trials_that_continue_a_checkpoint_count_what_is_left(corpus: str, tmp_path: Path) -> None:
    source = trials_of(config(corpus, out=str(tmp_path)))[0].config
    what, _ = pretrain_identity(configs.to_plain(source))
    Draft.begin(source.out, "model", what, inputs_of(source))
    checkpoints = Checkpoints(source.out)
    # Of 30 epochs with two steps each.
    checkpoints.save({"steps_done": 40})
    checkpoints.wait()
    forked = {"base.from": f"{source.out}@40", "grid": {"optim.peak_lr": [1e-3, 1e-4]}}
    whole, *trials = (
        trial for given in ({}, forked) for trial in trials_of(config(corpus, **given))
    )
    assert [trial.config.optim.peak_lr for trial in trials] == [1e-3, 1e-4]
    assert {trial.config.from_ for trial in trials} == {f"{source.out}@40"}
    assert [trial.flops for trial in trials] == pytest.approx([whole.flops / 3] * 2)
    hours = {name: hours / 3 for name, hours in whole.gpu_hours.items()}
    assert trials[0].gpu_hours == pytest.approx(hours)
    (longer,) = trials_of(config(corpus, **{"base.from": f"{source.out}@40", "base.epochs": 40}))
    assert longer.flops == pytest.approx(whole.flops * 2 / 3)
    moving = {"base.from": f"{source.out}@last", "out": str(tmp_path / "sweep")}
    with pytest.raises(ConfigError, match=rf"trial 00-seed-0: from: .* {source.out}@40$"):
        trials_of(config(corpus, **moving))
    # By an earlier version.
    Draft(str(tmp_path / "sweep")).note("begun", {"inputs": {}})
    assert len(trials_of(config(corpus, **moving))) == 1
    with pytest.raises(ConfigError, match=r"trial 00-seed-0: from: .* 40"):
        trials_of(config(corpus, **{"base.from": f"{source.out}@41"}))


def test_a_dry_run_lists_trials_with_changes_and_hours(corpus: str) -> None:
    given = config(corpus, grid=GRID)
    text = report.dry_run(given, trials_of(given))
    assert "4 trials, equal in epochs, of 64 pairs" in text
    line = next(line for line in text.splitlines() if line.startswith("03-"))
    assert "model.context_length=150 batch.pairs=32" in line
    assert "H100 h" in text
