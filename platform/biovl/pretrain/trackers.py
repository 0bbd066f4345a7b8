"""Where the curves of a run go: ``metrics.jsonl`` always, and TensorBoard, W&B, MLflow as wished.

A run that was killed goes on at a step it may have logged before. None of them then holds a step
twice, and W&B and MLflow go on with the same run: the caller keeps ``run_id`` of each.
"""

import importlib.util
import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain.services import (
    Mlflow,
    MlflowConfig,
    TensorBoard,
    TensorBoardConfig,
    Wandb,
    WandbConfig,
)

METRICS = "metrics.jsonl"


class Tracker(Protocol):
    """Where numbers go."""

    run_id: str | None
    """What a resumed run must be given to go on; None where nothing is needed."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step; steps never go back. ``step`` among them is left out."""

    def close(self) -> None:
        """Write what is left. Nothing is logged afterwards."""


CONFIGS: dict[str, type] = {
    "tensorboard": TensorBoardConfig,
    "wandb": WandbConfig,
    "mlflow": MlflowConfig,
}

_PACKAGES = {
    "tensorboard": ("tensorboard", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow-skinny"),
}
"""What is imported, and what is to be installed for it."""


def check_trackers(plugins: Sequence[Plugin]) -> None:
    """Check settings and packages of trackers, before anything starts.

    Raises:
        ConfigError: If there is no such tracker, its settings are not valid, its package is not
            installed, or it is named twice.
    """
    names = [plugin.name for plugin in plugins]
    for plugin in plugins:
        if plugin.name not in CONFIGS:
            known = ", ".join(sorted(CONFIGS))
            raise ConfigError(
                f"trackers: there is none called {plugin.name!r}; choose from {known}"
            )
        if names.count(plugin.name) > 1:
            raise ConfigError(f"trackers: {plugin.name} is named twice")
        _settings(plugin)
        module, package = _PACKAGES[plugin.name]
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"trackers: {plugin.name} needs a package that is not installed: "
                f"pip install {package}"
            )


def make_trackers(
    plugins: Sequence[Plugin],
    folder: Path,
    run_name: str,
    plain_config: Mapping[str, Any],
    *,
    first_step: int = 1,
    run_ids: Mapping[str, str] | None = None,
) -> dict[str, Tracker]:
    """Return the trackers of a run by name, with ``metrics`` for ``metrics.jsonl`` among them.

    Args:
        plugins: Which, with their settings.
        folder: Of the run, local. Trackers write here:

            metrics.jsonl        a line per call of ``log``
            tensorboard/         event files
            wandb/               what W&B has not uploaded

        run_name: What people see.
        plain_config: Of the run, as ``config.to_plain`` gives it.
        first_step: The first that will be logged: steps done + 1. What an earlier attempt logged
            from there on is taken back, or not logged again.
        run_ids: ``run_id`` of the trackers of an earlier attempt, by name.

    Raises:
        ConfigError: As ``check_trackers``, or if a service refuses the run.
    """
    check_trackers(plugins)
    folder.mkdir(parents=True, exist_ok=True)
    ids = run_ids or {}
    made: dict[str, Tracker] = {"metrics": MetricsFile(folder / METRICS, first_step)}
    for plugin in plugins:
        settings, run_id = _settings(plugin), ids.get(plugin.name)
        if isinstance(settings, TensorBoardConfig):
            made[plugin.name] = TensorBoard(settings, folder / "tensorboard", first_step)
        elif isinstance(settings, WandbConfig):
            made[plugin.name] = Wandb(settings, folder, run_name, plain_config, run_id)
        else:
            made[plugin.name] = Mlflow(settings, run_name, plain_config, run_id)
    return made


def run_ids(trackers: Mapping[str, Tracker]) -> dict[str, str]:
    """Return what ``make_trackers`` needs to go on with the same runs, plain, by name."""
    return {name: found.run_id for name, found in trackers.items() if found.run_id is not None}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ``metrics.jsonl``, none without a file.

    A line that a killed process left unfinished is no row.
    """
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cut_metrics(path: Path, first_step: int) -> None:
    """Leave the rows of steps before ``first_step``, whole or not at all."""
    if not path.exists():
        return
    kept = [row for row in read_metrics(path) if row["step"] < first_step]
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    unfinished.write_text("".join(_line(row) for row in kept))
    os.replace(unfinished, path)


class MetricsFile:
    """A line of JSON per call. A number that is none is null, as JSON has no other word for it."""

    run_id: str | None = None

    def __init__(self, path: Path, first_step: int = 1) -> None:
        cut_metrics(path, first_step)
        # By line: what was logged is there also after a kill.
        self._stream = path.open("a", buffering=1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._stream.write(_line({"step": step, **plain}))

    def close(self) -> None:
        self._stream.close()


def _settings(plugin: Plugin) -> Any:
    return configs.build(CONFIGS[plugin.name], plugin.settings, name=f"trackers/{plugin.name}")


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"
