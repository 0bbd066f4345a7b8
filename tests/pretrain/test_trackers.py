import json
import math
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.journal import Journal
from biovl.pretrain.scores import note_name
from biovl.pretrain.trackers import (
    METRICS,
    MetricsFile,
    check_trackers,
    cut_metrics,
    make_trackers,
    read_metrics,
    run_ids,
)

PLAIN = {"epochs": 2, "optim": {"peak_lr": 5e-4, "betas": [0.9, 0.98]}}


def run(folder, plugins, steps, **resumed) -> dict[str, str]:
    """Log a loss of 1 / step for some steps and return the ids."""
    trackers = make_trackers(plugins, folder, "run", PLAIN, **resumed)
    for step in steps:
        for tracker in trackers.values():
            tracker.log(step, {"step": step, "loss": 1 / step})
    for tracker in trackers.values():
        tracker.log(steps[-1], {"val/loss": 0.5})
        tracker.close()
    return run_ids(trackers)


def test_metrics_are_a_row_per_step(tmp_path) -> None:
    run(tmp_path, [], [1, 2])
    assert read_metrics(tmp_path / METRICS) == [
        {"step": 1, "loss": 1.0},
        {"step": 2, "loss": 0.5},
        {"step": 2, "val/loss": 0.5},
    ]


def test_metrics_of_a_resumed_run_hold_no_step_twice(tmp_path) -> None:
    run(tmp_path, [], [1, 2, 3])
    run(tmp_path, [], [3, 4], first_step=3)
    assert [row["step"] for row in read_metrics(tmp_path / METRICS)] == [1, 2, 3, 4, 4]


def test_a_line_that_a_killed_process_left_is_dropped(tmp_path) -> None:
    path = tmp_path / METRICS
    path.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "lo')
    assert [row["step"] for row in read_metrics(path)] == [1]
    metrics = MetricsFile(path, first_step=2)
    metrics.log(2, {"loss": 0.5})
    metrics.close()
    assert path.read_text() == '{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n'


def test_cutting_leaves_nothing_beside_the_file(tmp_path) -> None:
    path = tmp_path / METRICS
    cut_metrics(path, 1)
    assert list(tmp_path.iterdir()) == []
    path.write_text('{"step": 1}\n')
    cut_metrics(path, 1)
    assert path.read_text() == ""
    assert list(tmp_path.iterdir()) == [path]


def test_a_loss_that_is_no_number_is_null(tmp_path) -> None:
    metrics = MetricsFile(tmp_path / METRICS)
    metrics.log(1, {"loss": math.nan})
    metrics.close()
    assert json.loads((tmp_path / METRICS).read_text()) == {"step": 1, "loss": None}


def scalars(folder, name) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(name)]


def test_tensorboard_of_a_resumed_run_holds_no_step_twice(tmp_path) -> None:
    plugins = [Plugin("tensorboard")]
    assert run(tmp_path, plugins, [1, 2, 3, 4]) == {}
    # Files of one process and second are numbered, and read in the order of their names: 10, 9.
    time.sleep(1)
    run(tmp_path, plugins, [3, 4, 5], first_step=3)
    curve = scalars(tmp_path, "train/loss")
    assert curve == [(1, 1.0), (2, 0.5), (3, 0.3333), (4, 0.25), (5, 0.2)]
    assert scalars(tmp_path, "val/loss") == [(5, 0.5)]


def test_scores_that_are_logged_before_a_resumed_step_are_logged_again(tmp_path) -> None:
    values = configs.recipe_settings(pretrain_config.tiny())
    config = configs.build(PretrainConfig, {**values, "corpus": "c", "out": str(tmp_path)})
    scores = {"loss": 2.0, "pairs": 10}
    Draft(config.out).note(note_name(0), scores)
    with Journal(config, 0) as journal:
        journal.add_scores(2)
    Draft(config.out).note(note_name(1), scores)
    with Journal(config, 2) as journal:
        journal.add_scores(6)
    # The process ended before the checkpoint of step 6 was complete. The names of TensorBoard's
    # files have the second, by which they are ordered.
    time.sleep(1)
    with Journal(config, 4) as journal:
        journal.add_scores(8)
        journal.add_scores(10)
    assert scalars(tmp_path, "val/epoch") == [(2, 1.0), (8, 2.0)]


def test_an_unknown_tracker_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"tensorbord.*mlflow, tensorboard, wandb"):
        check_trackers([Plugin("tensorbord")])


def test_a_setting_that_a_tracker_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trackers/tensorboard.*\n  flush: "):
        check_trackers([Plugin("tensorboard", {"flush": 3})])


def test_a_tracker_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        check_trackers([Plugin("tensorboard"), Plugin("tensorboard")])


def test_a_package_that_is_missing_is_named(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install mlflow-skinny"):
        check_trackers([Plugin("mlflow", {"tracking_uri": "http://localhost:5000"})])


def test_wandb_goes_on_with_its_run(tmp_path) -> None:
    pytest.importorskip("wandb")
    plugins = [Plugin("wandb", {"mode": "offline", "project": "p"})]
    ids = run(tmp_path, plugins, [1, 2])
    assert run(tmp_path, plugins, [2, 3], first_step=2, run_ids=ids) == ids
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert {file.name for file in files} == {f"run-{ids['wandb']}.wandb"}


class Server:
    """W&B as far as steps go: values of an earlier step than the current one are dropped."""

    def __init__(self) -> None:
        self.rows: dict[int, dict] = {}
        self.axes: dict[str, str] = {}

    def init(self, **settings) -> "Server":
        self.step = max(self.rows, default=-1) + 1
        return self

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, values: dict, step: int | None = None) -> None:
        if step is None or step >= self.step:
            self.step = self.step if step is None else step
            self.rows.setdefault(self.step, {}).update(values)
            self.step += step is None

    def finish(self) -> None:
        pass


def test_wandb_has_the_scores_of_the_last_epoch_and_every_step(tmp_path, monkeypatch) -> None:
    server, module = Server(), ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.init, module.Settings = server.init, SimpleNamespace
    module.errors = SimpleNamespace(Error=OSError)
    monkeypatch.setitem(sys.modules, "wandb", module)

    def started(first_step: int):
        plugins = [Plugin("wandb")]
        return make_trackers(plugins, tmp_path, "run", PLAIN, first_step=first_step)["wandb"]

    wandb = started(1)
    for step in (1, 2, 3, 4):
        wandb.log(step, {"step": step, "loss": 1 / step})
        if step == 2:
            wandb.log(step, {"val/epoch": 1, "val/loss": 0.5})
    wandb.close()
    # The driver, after the last step.
    started(5).log(4, {"val/epoch": 2, "val/loss": 0.4})
    assert [row["train/loss"] for row in server.rows.values() if "train/loss" in row] == [
        *(1.0, 0.5, 1 / 3, 0.25),
    ]
    scores = [row for row in server.rows.values() if "val/loss" in row]
    assert [(row["val/epoch"], row["val/loss"]) for row in scores] == [(1, 0.5), (2, 0.4)]
    assert server.axes == {"val/*": "val/epoch"}


def test_mlflow_goes_on_with_its_run_and_holds_no_step_twice(tmp_path, monkeypatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    plugins = [Plugin("mlflow", {"tracking_uri": uri})]
    ids = run(tmp_path, plugins, [1, 2, 3])
    assert run(tmp_path, plugins, [3, 4], first_step=3, run_ids=ids) == ids
    client = MlflowClient(uri)
    history = client.get_metric_history(ids["mlflow"], "train/loss")
    assert sorted((item.step, round(item.value, 4)) for item in history) == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.3333),
        (4, 0.25),
    ]
    found = client.get_run(ids["mlflow"])
    assert found.info.status == "FINISHED"
    assert found.data.params["optim.peak_lr"] == "0.0005"


def test_mlflow_that_cannot_be_used_is_a_mistake_of_the_configuration(tmp_path) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(ConfigError, match=r"trackers: .*nowhere://x"):
        make_trackers([Plugin("mlflow", {"tracking_uri": "nowhere://x"})], tmp_path, "run", PLAIN)
