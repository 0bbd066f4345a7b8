"""Logging of metrics: always to ``metrics.jsonl``, optionally to TensorBoard, W&B and MLflow.

A resumed run may repeat steps that were already logged. No tracker then holds a step twice, and
W&B and MLflow continue the same run: the caller stores the ``run_id`` of each.
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
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin
from biovl.pretrain.tracker_services import (
    Mlflow,
    MlflowConfig,
    TensorBoard,
    TensorBoardConfig,
    Wandb,
    WandbConfig,
)

METRICS = "metrics.jsonl"


class Tracker(Protocol):
    """A destination of metrics, such as TensorBoard."""

    run_id: str | None
    """Id with which the tracker resumes the same run; None if it needs none."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the values of a step; steps must increase. A value named ``step`` is ignored."""

    def close(self) -> None:
        """Flush and close; no further calls of ``log``."""


CONFIGS: dict[str, type] = {
    "tensorboard": TensorBoardConfig,
    "wandb": WandbConfig,
    "mlflow": MlflowConfig,
}

_PACKAGES = {"mlflow": "mlflow-skinny"}
"""Package to install, where it has another name than the tracker and its module."""


def check_trackers(plugins: Sequence[Plugin]) -> None:
    """Check the settings and packages of trackers, before anything starts.

    Raises:
        ConfigError: If a tracker is unknown, its settings are invalid, its package is not
            installed, or it is named twice.
    """
    names = [plugin.name for plugin in plugins]
    for plugin in plugins:
        if plugin.name not in CONFIGS:
            known = ", ".join(sorted(CONFIGS))
            raise ConfigError(f"trackers: unknown tracker {plugin.name!r}; choose from {known}")
        if names.count(plugin.name) > 1:
            raise ConfigError(f"trackers: {plugin.name} is configured twice")
        _settings(plugin)
        if importlib.util.find_spec(plugin.name) is None:
            raise ConfigError(
                f"trackers: {plugin.name} needs a package that is not installed. Run "
                f"pip install {_PACKAGES.get(plugin.name, plugin.name)}"
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
    """Return the trackers of a run by name, including ``metrics`` for ``metrics.jsonl``.

    Args:
        plugins: Names and settings of the trackers.
        folder: Local folder of the run. Trackers write here:

            metrics.jsonl        a line per call of ``log``
            tensorboard/         event files
            wandb/               data not yet uploaded by W&B

        run_name: Display name.
        plain_config: Configuration of the run, from ``config.to_plain``.
        first_step: The first step to be logged: steps done + 1. Records of an earlier attempt
            from there on are removed, or not logged again.
        run_ids: ``run_id`` of the trackers of an earlier attempt, by name.

    Raises:
        ConfigError: As ``check_trackers``, or if a service rejects the run.
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
    """Return the ids with which ``make_trackers`` resumes the same runs, by name."""
    return {name: found.run_id for name, found in trackers.items() if found.run_id is not None}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a ``metrics.jsonl``, or none if the file does not exist.

    An incomplete last line, from an interrupted process, is skipped.
    """
    return _rows(path.read_text()) if path.exists() else []


def read_steps(folder: Folder) -> list[dict[str, Any]]:
    """Return the rows of the ``metrics.jsonl`` of a run, local or in a bucket."""
    return _rows(folder.read(METRICS).decode())


def seconds_of_steps(folder: Folder) -> float | None:
    """Return the seconds of all logged steps of a run; None if it has no ``metrics.jsonl``."""
    if not folder.exists(METRICS):
        return None
    return float(sum(row["step_s"] for row in read_steps(folder)))


def _rows(text: str) -> list[dict[str, Any]]:
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cut_metrics(path: Path, first_step: int) -> None:
    """Remove the rows from step ``first_step`` on, atomically."""
    if not path.exists():
        return
    rows = [row for row in read_metrics(path) if row["step"] < first_step]
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    unfinished.write_text("".join(_line(row) for row in rows))
    os.replace(unfinished, path)


class MetricsFile:
    """Tracker that writes a line of JSON per step. NaN and Inf become null, as JSON requires."""

    run_id: str | None = None

    def __init__(self, path: Path, first_step: int = 1) -> None:
        cut_metrics(path, first_step)
        # Line-buffered: logged lines survive a kill.
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
