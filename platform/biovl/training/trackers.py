"""Where the curves of a run go: ``metrics.jsonl`` always, and TensorBoard, W&B, MLflow as wished.

A run that was killed goes on at a step it may have logged before. None of them then holds a step
twice, and W&B and MLflow go on with the same run: the caller keeps ``run_id`` of each.
"""

import importlib.util
import json
import logging
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from biovl import config as configs
from biovl.errors import ConfigError
from biovl.plugins import Plugin

METRICS = "metrics.jsonl"

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """Where numbers go."""

    run_id: str | None
    """What a resumed run must be given to go on; None where nothing is needed."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of a step; steps never go back. ``step`` among them is left out."""

    def close(self) -> None:
        """Write what is left. Nothing is logged afterwards."""


@dataclass(frozen=True, kw_only=True)
class TensorBoardConfig:
    """Event files in ``tensorboard/`` of the run."""

    flush_s: int = 30
    """Seconds after which new numbers can be seen."""


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Weights & Biases."""

    project: str = "biovl"
    entity: str | None = None
    """The user or team; None takes the default of whoever is logged in."""

    mode: Literal["online", "offline"] = "online"
    """``offline`` writes to ``wandb/`` of the run, for ``wandb sync``."""

    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MlflowConfig:
    """An MLflow tracking server."""

    tracking_uri: str
    """``http://host:5000``, or what else MLflow takes."""

    experiment: str = "biovl"


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
            made[plugin.name] = _TensorBoard(settings, folder / "tensorboard", first_step)
        elif isinstance(settings, WandbConfig):
            made[plugin.name] = _Wandb(settings, folder, run_name, plain_config, run_id)
        else:
            made[plugin.name] = _Mlflow(settings, run_name, plain_config, run_id)
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


class _TensorBoard:
    run_id: str | None = None

    def __init__(self, config: TensorBoardConfig, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Viewers forget what an earlier file holds from this step on.
        purge = first_step if folder.exists() else None
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge, flush_secs=config.flush_s)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in _tagged(values).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    def __init__(
        self,
        config: WandbConfig,
        folder: Path,
        run_name: str,
        plain_config: Mapping[str, Any],
        run_id: str | None,
    ) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        self.run_id: str | None = run_id or uuid.uuid4().hex[:12]
        try:
            # With an id that is known W&B goes on with that run, and passes over steps it has.
            self._run: Any = wandb.init(
                project=config.project,
                entity=config.entity,
                mode=config.mode,
                tags=list(config.tags),
                id=self.run_id,
                resume="allow",
                name=run_name,
                dir=str(folder),
                config=dict(plain_config),
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            raise ConfigError(f"trackers: W&B refuses the run: {error}") from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(_tagged(values), step=step)

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    def __init__(
        self,
        config: MlflowConfig,
        run_name: str,
        plain_config: Mapping[str, Any],
        run_id: str | None,
    ) -> None:
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found,unused-ignore]
        from mlflow.exceptions import MlflowException  # type: ignore[import-not-found,unused-ignore]
        from mlflow.tracking import MlflowClient  # type: ignore[import-not-found,unused-ignore]

        self._metric, self._trouble, self._is_lost = Metric, MlflowException, False
        try:
            self._client: Any = MlflowClient(config.tracking_uri)
            if run_id is None:
                run_id = self._create(config.experiment, run_name)
                params = [Param(name, str(value)[:500]) for name, value in _flat(plain_config)]
                # A call takes a hundred at most.
                for start in range(0, len(params), 100):
                    self._client.log_batch(run_id, params=params[start : start + 100])
            self._client.update_run(run_id, status="RUNNING")
            self._last_steps = self._logged(run_id)
        except MlflowException as error:
            raise ConfigError(
                f"trackers: MLflow at {config.tracking_uri} refuses the run: {error}"
            ) from error
        self.run_id: str | None = run_id

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now_ms = int(time.time() * 1000)
        metrics = [
            self._metric(name, value, now_ms, step)
            for name, value in _tagged(values).items()
            if step > self._last_steps.get(name, -1)
        ]
        self._send(lambda: self._client.log_batch(self.run_id, metrics=metrics))

    def close(self) -> None:
        self._send(lambda: self._client.set_terminated(self.run_id))

    def _create(self, experiment: str, run_name: str) -> str:
        found = self._client.get_experiment_by_name(experiment)
        where = found.experiment_id if found else self._client.create_experiment(experiment)
        made: str = self._client.create_run(where, run_name=run_name).info.run_id
        return made

    def _logged(self, run_id: str) -> dict[str, int]:
        """Return the last step of each metric: MLflow would keep a second value beside it."""
        return {
            name: max(item.step for item in self._client.get_metric_history(run_id, name))
            for name in self._client.get_run(run_id).data.metrics
        }

    def _send(self, call: Any) -> None:
        # A tracking server that is away for a while is no reason to end days of training;
        # metrics.jsonl has everything.
        try:
            call()
        except self._trouble as error:
            if not self._is_lost:
                _log.warning("MLflow does not answer; its curves will have gaps: %s", error)
            self._is_lost = True
        else:
            self._is_lost = False


def _settings(plugin: Plugin) -> Any:
    return configs.build(CONFIGS[plugin.name], plugin.settings, name=f"trackers/{plugin.name}")


def _tagged(values: Mapping[str, float]) -> dict[str, float]:
    """Return numbers under names that viewers group: ``train/loss`` for ``loss``."""
    return {
        name if "/" in name else f"train/{name}": value
        for name, value in values.items()
        if name != "step"
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value))
    return flat


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"
