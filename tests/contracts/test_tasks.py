"""What every task and every reader promises, whoever wrote it."""

import dataclasses
import importlib
import inspect

import pytest

from biovl.benchmark.tasks import TrainsFirst
from biovl.core import plugins
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.plugins import Plugin

TASKS, DATASETS = "benchmark.tasks", "benchmark.datasets"


@pytest.mark.parametrize("name", plugins.names(TASKS))
def test_a_task_says_what_it_is_and_where_it_is_from(name: str) -> None:
    module = importlib.import_module(f"biovl.{TASKS}.{name}")
    assert "Source:" in (module.__doc__ or ""), "a task names the paper its protocol is from"
    assert dataclasses.is_dataclass(module.Config)
    assert module.Config.__dataclass_params__.frozen


@pytest.mark.parametrize("name", plugins.names(TASKS))
def test_a_task_is_built_without_touching_its_data(name: str) -> None:
    module = importlib.import_module(f"biovl.{TASKS}.{name}")
    required = {
        item.name: "/nowhere"
        for item in dataclasses.fields(module.Config)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    if not required and "data" in {item.name for item in dataclasses.fields(module.Config)}:
        required = {"data": "/nowhere"}
    task = plugins.make(TASKS, Plugin(name, required))
    assert isinstance(task.needs_text, bool)
    evaluate = task.evaluate_learnt if isinstance(task, TrainsFirst) else task.evaluate
    assert list(inspect.signature(evaluate).parameters)[:2] == ["data", "embedded"]
    with pytest.raises(BiovlError, match="nowhere"):
        task.data()


@pytest.mark.parametrize("name", plugins.names(DATASETS))
def test_a_reader_says_where_nothing_is(name: str) -> None:
    for path in ("/nowhere/at/all", "/nowhere/at/all.csv"):
        with pytest.raises(ArtifactError, match="nowhere"):
            plugins.make(DATASETS, Plugin(name, {"path": path}))
