"""Experiment trackers: TensorBoard, Weights & Biases, MLflow.

Each package is imported on use, so only the packages of the trackers in use must be installed.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from biovl.core import config as configs
from biovl.core.errors import ConfigError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TensorBoardConfig:
    """Settings of TensorBoard, whose event files are in ``tensorboard/`` of the run."""

    flush_s: int = 30
    """Seconds between flushes: the delay until new values are visible."""


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Settings of Weights & Biases."""

    project: str = "biovl"
    """Name of the project."""
    entity: str | None = None
    """User or team; None for the default of the logged-in user."""

    mode: Literal["online", "offline"] = "online"
    """``online``, or ``offline``: write to ``wandb/`` of the run, for a later ``wandb sync``."""

    tags: tuple[str, ...] = ()
    """Tags of the run."""


@dataclass(frozen=True, kw_only=True)
class MlflowConfig:
    """Settings of an MLflow tracking server."""

    tracking_uri: str
    """URI of the tracking server: ``http://host:5000``, or another one that MLflow accepts."""

    experiment: str = "biovl"
    """Name of the experiment."""


class TensorBoard:
    """Tracker that writes TensorBoard event files."""

    run_id: str | None = None

    def __init__(self, config: TensorBoardConfig, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Viewers discard the values of earlier files from this step on.
        purge = first_step if folder.exists() else None
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge, flush_secs=config.flush_s)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in _tagged(values).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """Tracker that logs to Weights & Biases."""

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
            # With the id of an existing run, W&B resumes that run and skips steps that it has.
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
            raise ConfigError(f"trackers: W&B rejects the run: {error}") from error
        self._run.define_metric("val/*", step_metric="val/epoch")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        # The last epoch is validated when all steps are logged, and W&B drops values of steps that
        # it has: scores have an axis of their own, and no step.
        is_scores = all(name.startswith("val/") for name in values)
        self._run.log(_tagged(values), **({} if is_scores else {"step": step}))

    def close(self) -> None:
        self._run.finish()


class Mlflow:
    """Tracker that logs to an MLflow server."""

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
                flat = configs.flat(plain_config)
                params = [Param(name, str(value)[:500]) for name, value in flat.items()]
                # MLflow accepts at most a hundred parameters per call.
                for start in range(0, len(params), 100):
                    self._client.log_batch(run_id, params=params[start : start + 100])
            self._client.update_run(run_id, status="RUNNING")
            self._last_steps = self._logged(run_id)
        except MlflowException as error:
            raise ConfigError(
                f"trackers: MLflow at {config.tracking_uri} rejects the run: {error}"
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
        experiment_found = self._client.get_experiment_by_name(experiment)
        experiment_id = (
            experiment_found.experiment_id
            if experiment_found
            else self._client.create_experiment(experiment)
        )
        run_id: str = self._client.create_run(experiment_id, run_name=run_name).info.run_id
        return run_id

    def _logged(self, run_id: str) -> dict[str, int]:
        """Return the last step of each metric: MLflow stores repeated steps as further values."""
        return {
            name: max(item.step for item in self._client.get_metric_history(run_id, name))
            for name in self._client.get_run(run_id).data.metrics
        }

    def _send(self, call: Any) -> None:
        # An outage of the tracking server must not end days of training; metrics.jsonl is
        # complete.
        try:
            call()
        except self._trouble as error:
            if not self._is_lost:
                _log.warning("MLflow is unavailable; its curves will have gaps: %s", error)
            self._is_lost = True
        else:
            self._is_lost = False


def _tagged(values: Mapping[str, float]) -> dict[str, float]:
    """Return metrics under names that viewers group: ``train/loss`` for ``loss``."""
    return {
        name if "/" in name else f"train/{name}": value
        for name, value in values.items()
        if name != "step"
    }
