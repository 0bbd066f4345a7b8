"""What a sweep publishes for people: tables as in the papers, plots, the best recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biovl.benchmark.retrieval import KS
from biovl.core import config as configs
from biovl.core.arguments import from_command_line
from biovl.core.artifacts import Draft, Manifest, to_json
from biovl.core.errors import (
    BiovlError,
    ConfigError,
    RayError,
    StorageError,
    TrainingError,
    TrainingStopped,
)
from biovl.core.folders import Folder
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.scores import note_name
from biovl.sweep import job as sweeps
from biovl.sweep import plots, report, tables
from biovl.sweep.config import SweepConfig
from biovl.sweep.outcomes import FAILED, FINISHED, STOPPED, TrialOutcome
from biovl.sweep.trials import Trial, trials_of
from tests.sweep.corpora import index_only

SETTINGS = [
    {
        "shown": {"context length": context},
        "changes": {"model.context_length": context},
        "paper": {"loss": loss},
    }
    for context, loss in ((77, 0.5776), (256, 0.4807))
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SweepConfig:
    corpus = index_only(tmp_path_factory.mktemp("report") / "corpus", [148] * 64)
    base = {"recipe": "tiny", "epochs": 2}
    values = {"base": base, "settings": SETTINGS, "seeds": 2, "corpus": corpus, "out": "sweep"}
    return configs.build(SweepConfig, values)


def scored(trial: Trial, recall: float) -> TrialOutcome:
    scores: dict[str, Any] = {"loss": 1 - recall, "pairs": 20}
    for k in KS:
        scores[f"chance_recall_at_{k}"] = k / 20
        scores[f"image_to_text_recall_at_{k}"] = recall
        scores[f"text_to_image_recall_at_{k}"] = recall
    values: dict[str, Any] = {"status": FINISHED, "reason": "", "seconds": 2.0, "epoch": 1}
    return TrialOutcome(trial=trial, scores={0: scores, 1: scores}, **values)


def end_trials(config: SweepConfig, trials: list[Trial], draft: Draft, say: Any) -> None:
    """Leave trials as a run of them does: the first failed, the others were stopped by scores."""
    for trial in trials:
        own = Draft(trial.config.out)
        own.note(note_name(0), dict(scored(trial, 0.1).scores[0]))
        own.folder.write(".draft/checkpoints/000000002.pt", b"state")
        ended = (
            {"status": STOPPED, "reason": ""} if trial.row else {"status": FAILED, "reason": "x"}
        )
        draft.note(f"ended/{trial.name}", ended)


def unfinished(trial: Trial, status: str, reason: str) -> TrialOutcome:
    return TrialOutcome(
        trial=trial, status=status, reason=reason, scores={}, epoch=None, seconds=None
    )


@pytest.fixture(scope="module")
def outcomes(config: SweepConfig) -> list[TrialOutcome]:
    short, other_short, long, other_long = trials_of(config)
    return [
        scored(short, 0.1),
        scored(other_short, 0.2),
        scored(long, 0.5),
        unfinished(other_long, FAILED, "step 3 of 4: the loss is nan\nmore"),
    ]


@pytest.fixture
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "plots", lambda outcomes: {})


def test_a_row_has_the_mean_of_its_seeds_and_the_papers_number(
    config: SweepConfig, outcomes: list[TrialOutcome]
) -> None:
    head, _, short, long = tables.paper_table(config, outcomes).splitlines()
    assert [cell.strip() for cell in head.split("|")[1:5]] == [
        *("context length", "loss (↓)", "loss, paper", "img2txt R@1 (↑)"),
    ]
    # Of 0.1 and 0.2 the mean is 0.15, the sample deviation 0.1 / sqrt(2).
    assert "| 77 | 0.8500 ± 0.0707 | 0.5776 | 15.00 ± 7.07 | 15.00 ± 7.07 | 2 | 1.00x |" in short
    assert "| 256 | 0.5000 | 0.4807 | 50.00 |" in long


def test_a_trial_that_failed_is_told_with_its_reason(
    config: SweepConfig, outcomes: list[TrialOutcome]
) -> None:
    *_, long = tables.paper_table(config, outcomes).splitlines()
    assert "1 of 2; seed 1 failed: step 3 of 4: the loss is nan |" in long
    rows = tables.trials_table(outcomes).to_pylist()
    assert [row["status"] for row in rows] == [FINISHED, FINISHED, FINISHED, FAILED]
    assert rows[3]["loss"] is None
    assert rows[2]["tokens_cut"] == 0


def test_the_best_row_is_a_recipe_for_pretrain(
    config: SweepConfig, outcomes: list[TrialOutcome], tmp_path: Path
) -> None:
    best = report.write(Folder(str(tmp_path)), config, outcomes[:3])
    assert best == outcomes[2].trial.name
    given, _ = from_command_line(
        PretrainConfig,
        {},
        about=None,
        arguments=[str(tmp_path / "best.yaml"), "--set", "corpus=c", "--set", "out=o"],
    )
    assert (given.corpus, given.out) == ("c", "o")
    assert given.model == outcomes[2].trial.config.model
    assert given.data == outcomes[2].trial.config.data
    readme = (tmp_path / "README.md").read_text()
    for path in (tmp_path / "plots").iterdir():
        assert f"plots/{path.name}" in readme


def test_a_row_is_not_the_best_by_the_seeds_that_are_left(outcomes: list[TrialOutcome]) -> None:
    for status in (FAILED, STOPPED):
        others = [*outcomes[:3], replace(outcomes[3], status=status)]
        assert tables.best_row(others) == outcomes[:2]
    # Nothing is better than a mean of as many.
    assert tables.best_row([outcomes[0], outcomes[3], outcomes[2]]) == [outcomes[0]]
    assert tables.best_row(outcomes[2:]) == outcomes[2:]


def test_of_rows_with_the_same_recall_that_with_the_lower_loss_is_the_best(
    outcomes: list[TrialOutcome],
) -> None:
    first, _, second, _ = outcomes
    lower = {1: {**first.scores[1], "loss": first.scores[1]["loss"] - 0.1}}
    assert tables.best_row([first, replace(second, scores=first.scores)]) == [first]
    lowest = replace(second, scores=lower)
    assert tables.best_row([first, lowest]) == [lowest]


def test_the_epoch_that_is_scored_is_shown_unless_it_is_the_last(
    config: SweepConfig, outcomes: list[TrialOutcome]
) -> None:
    def epochs(*row: TrialOutcome) -> str:
        *_, last = tables.paper_table(config, row).splitlines()
        return last.split("|")[-5].strip()

    assert epochs(outcomes[0]) == "2"
    assert epochs(replace(outcomes[0], epoch=0)) == "1 of 2"
    assert epochs(replace(outcomes[0], epoch=0), outcomes[1]) == "1, 2 of 2"


def test_crosses_are_where_trials_did_not_finish(
    outcomes: list[TrialOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crosses(outcome: TrialOutcome) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(plots, "png", lambda figure: figure)
            (axes,) = plots.curves([outcome]).axes  # type: ignore[attr-defined]
        return sum(line.get_marker() == "x" for line in axes.lines)

    assert crosses(replace(outcomes[0], epoch=0)) == 0
    assert crosses(replace(outcomes[0], status=STOPPED, epoch=1)) == 1


@pytest.mark.usefixtures("_no_plots")
def test_warnings_of_trials_are_those_of_the_sweep(
    config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(config: SweepConfig, trials: list[Trial], draft: Draft, say: Any) -> None:
        for trial in trials:
            own = Draft(trial.config.out)
            own.folder.write("validation.json", to_json({"1": scored(trial, 0.1).scores[0]}))
            notes = {"published_epoch": 1, "warnings": [f"seed {trial.config.seed} is odd"]}
            own.publish(Manifest(kind="model", config={}, counts={}, notes=notes))

    monkeypatch.setattr(sweeps, "_run", publish)
    given = replace(config, out=str(tmp_path))
    manifest = sweeps.sweep(given)
    assert manifest.warnings == [f"{t.name}: seed {t.config.seed} is odd" for t in trials_of(given)]
    readme = (tmp_path / "README.md").read_text()
    assert "\n* seed 0 is odd\n" in readme
    assert "seed 1 is odd" not in readme


@pytest.mark.usefixtures("_no_plots")
def test_recalls_among_other_numbers_of_pairs_have_no_best_row(
    config: SweepConfig, outcomes: list[TrialOutcome], tmp_path: Path
) -> None:
    among = {0: {**outcomes[0].scores[0], "pairs": 10_000}}
    mixed = [replace(outcomes[0], scores=among, epoch=0), outcomes[2]]
    assert report.write(Folder(str(tmp_path)), config, mixed) is None
    assert not (tmp_path / "best.yaml").exists()
    assert "among 20 or 10,000 pairs" in (tmp_path / "README.md").read_text()


@pytest.mark.usefixtures("_no_plots")
@pytest.mark.parametrize("text", ["text", "long_caption"])
def test_of_which_text_tokens_are_counted_is_stated(
    config: SweepConfig, outcomes: list[TrialOutcome], tmp_path: Path, text: str
) -> None:
    first = outcomes[0]
    data = replace(first.trial.config.data, text={text: 1.0})
    trial = replace(first.trial, config=replace(first.trial.config, data=data))
    report.write(Folder(str(tmp_path)), config, [replace(first, trial=trial)])
    readme = (tmp_path / "README.md").read_text()
    assert ("lengths of the other texts of `data.text` are not stored" in readme) == (
        text == "long_caption"
    )


def with_corpus(outcome: TrialOutcome, *corpora: str) -> TrialOutcome:
    trial = outcome.trial
    changed = replace(trial, config=replace(trial.config, corpus=corpora))
    return replace(outcome, trial=changed)


@pytest.mark.usefixtures("_no_plots")
def test_recalls_on_val_of_other_corpora_have_no_best_row(
    config: SweepConfig, outcomes: list[TrialOutcome], tmp_path: Path
) -> None:
    mixed = [with_corpus(outcomes[0], "easy"), with_corpus(outcomes[2], "hard")]
    assert report.write(Folder(str(tmp_path)), config, mixed) is None
    assert not (tmp_path / "best.yaml").exists()
    assert "different corpora" in (tmp_path / "README.md").read_text()


@pytest.mark.usefixtures("_no_plots")
def test_the_best_of_mixtures_with_one_val_names_its_corpora(
    config: SweepConfig, outcomes: list[TrialOutcome], tmp_path: Path
) -> None:
    mixed = [with_corpus(outcomes[0], "a"), with_corpus(outcomes[2], "a", "b")]
    assert report.write(Folder(str(tmp_path)), config, mixed) == outcomes[2].trial.name
    given, _ = from_command_line(
        *(PretrainConfig, {}),
        about=None,
        arguments=[str(tmp_path / "best.yaml"), "--set", "out=o"],
    )
    assert given.corpora == ("a", "b")


def test_a_file_that_is_no_recipe_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.yaml").write_text("- 1")
    for name, said in (
        (str(tmp_path / "list.yaml"), "is not a mapping of settings"),
        (str(tmp_path / "absent.yaml"), "cannot be read"),
        ("nothing", "there is no recipe called 'nothing'"),
    ):
        with pytest.raises(SystemExit) as ended:
            from_command_line(PretrainConfig, {}, about=None, arguments=[name])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


def test_plots_are_drawn_along_what_varies_and_again_in_the_same_bytes(
    outcomes: list[TrialOutcome],
) -> None:
    drawn = plots.plots(outcomes)
    assert set(drawn) == {"context.png", "settings.png", "curves.png", "tokens.png"}
    assert drawn == plots.plots(outcomes)


def test_tokens_of_one_context_are_plotted_for_each_text(outcomes: list[TrialOutcome]) -> None:
    assert [label for label, _ in plots.by_waste(outcomes)] == ["77 tokens", "256 tokens"]
    first, *others = outcomes
    mentions = {"text": "mentions", "context length": 77}
    longer = replace(first, trial=replace(first.trial, shown=mentions, tokens_cut=0.5))
    shown = plots.by_waste([first, longer, *others])
    assert [trial.context for _, trial in shown] == [77, 77, 256]
    assert [label for label, _ in shown if "mentions" in label]
    assert [trial.tokens_cut for _, trial in shown][1] == 0.5
    # A label that is cut may be that of another trial.
    same = replace(first, trial=replace(longer.trial, shown=first.trial.shown, tokens_cut=0.4))
    assert len(plots.by_waste([first, same])) == 2


def test_there_are_plots_where_nothing_was_scored(outcomes: list[TrialOutcome]) -> None:
    nothing = [unfinished(outcome.trial, STOPPED, "") for outcome in outcomes]
    assert plots.plots(nothing)
    assert tables.best_row(nothing) is None


@pytest.mark.usefixtures("_no_plots")
@pytest.mark.parametrize(
    ("error", "published_by"),
    [
        (ConfigError("step 3"), 1),
        (TrainingError("step 3"), 1),
        (TrainingStopped("step 3"), 2),
        (StorageError("step 3"), None),
        (RayError("step 3"), None),
    ],
)
def test_only_what_the_settings_cause_is_the_result_of_a_trial(
    error: BiovlError,
    published_by: int | None,
    config: SweepConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **others: Any) -> None:
        raise error

    def run(config: SweepConfig, trials: list[Trial], draft: Draft, say: Any) -> None:
        for trial in trials[:-1]:
            draft.note(f"ended/{trial.name}", {"status": STOPPED, "reason": ""})
        last, plain = trials[-1], configs.to_plain(trials[-1].config)
        own = Draft(last.config.out)
        own.note("begun", {})
        own.folder.write(".draft/checkpoints/000000002.pt", b"state")
        described = {"name": last.name, "config": plain, "sweep": config.out}
        sweeps._run_trial({"trial": {**described, "working_folder": str(tmp_path)}})

    monkeypatch.setattr(sweeps, "pretrain", fail)
    monkeypatch.setattr(sweeps, "_run", run)
    monkeypatch.chdir(tmp_path)
    given = replace(config, out=str(tmp_path / "sweep"))
    checkpoint = Path(trials_of(given)[-1].config.out, ".draft/checkpoints/000000002.pt")
    for attempt in (1, 2, 3):
        if attempt == published_by:
            assert sweeps.sweep(given).counts["trials"][FAILED] == 1
            assert not checkpoint.exists()
            break
        with pytest.raises(TrainingError, match=r"1 of 4 trials .*-seed-1: step 3\n.*resumes"):
            sweeps.sweep(given)
        assert checkpoint.exists()
    assert attempt == (published_by or 3)


@pytest.mark.usefixtures("_no_plots")
@pytest.mark.parametrize("killed_in", ["publish", "clear"])
def test_a_sweep_killed_while_it_publishes_loses_neither_scores_nor_checkpoints(
    killed_in: str, config: SweepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    given = replace(config, out=str(tmp_path))
    monkeypatch.setattr(sweeps, "_run", end_trials)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Draft, killed_in, kill)
        sweeps.sweep(given)
    checkpoints = "trials/*/.draft/checkpoints/*.pt"
    assert len([*tmp_path.glob(checkpoints)]) == 4
    counts = {"total": 4, FINISHED: 0, STOPPED: 2, FAILED: 2}
    assert sweeps.sweep(given).counts["trials"] == counts
    assert pq.read_table(tmp_path / "curves.parquet").num_rows == 4
    assert not [*tmp_path.rglob(".draft")]
