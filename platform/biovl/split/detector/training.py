"""Training of a detector: one process, batches by step number, resumable from checkpoints.

Independent of Ray: the function that draws figures is an argument.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from biovl.core.errors import TrainingError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.training import ScheduledAdamW, decay_matrices
from biovl.split.detector.config import DetectorConfig, Optimisation
from biovl.split.detector.detector import Detector
from biovl.split.detector.export import torch_run
from biovl.split.detector.figures import Drawer, Rounds, held_out
from biovl.split.detector.fitting import Fitted
from biovl.split.detector.model import PanelNetwork, device_for, to_tensor
from biovl.split.detector.scoring import score
from biovl.split.detector.targets import Targets, loss_of, targets_of


@dataclass(frozen=True)
class StepResult:
    """Result of a training step: loss, and scores if validated."""

    steps: int
    loss: float
    scores: dict[str, Any] | None
    """Scores on validation figures; None if the step was not validated."""


class DetectorTrainer:
    """A detector in training: network, optimizer and position in the schedule."""

    def __init__(self, config: DetectorConfig, drawer: Drawer) -> None:
        """Build the network, or load the last checkpoint in ``config.out``.

        Raises:
            ConfigError: If the GPU does not exist.
            ArtifactError: If all checkpoints are corrupt.
        """
        self.config, self.drawer = config, drawer
        self.device = device_for(config.workers.gpus)
        torch.set_num_threads(config.workers.cpus)
        torch.manual_seed(config.seed)
        self.network = PanelNetwork(config.design).to(self.device)
        self.network.to(memory_format=torch.channels_last)
        self.averaged = AveragedModel(
            self.network,
            multi_avg_fn=_averaging(config.optim.average_steps),
            use_buffers=True,
        )
        self.is_bfloat16 = self.device.type == "cuda" or torch.cpu._is_amx_tile_supported()
        self.optimiser = ScheduledAdamW(
            decay_matrices(self.network.parameters(), 1.0, config.optim.weight_decay),
            lambda step: learning_rate(config.optim, step),
            clip_norm=config.optim.clip_norm,
        )
        self.checkpoints = Checkpoints(config.out)
        self.steps = 0
        self.scores: dict[str, Any] | None = None
        self._held_out: list[Fitted] = []
        # On the CPU, where AdamW reads its step counters without waiting for a GPU.
        state = self.checkpoints.load_last()
        if state is not None:
            self._restore(state)

    def run(self) -> Iterator[StepResult]:
        """Train to the end, and yield a result after every step.

        Raises:
            TrainingError: If the loss is NaN or Inf.
        """
        config, rounds = self.config, Rounds(self.config, self.drawer)
        while self.steps < config.optim.steps:
            pages, boxes = rounds.batch(self.steps)
            loss = self.step(pages, targets_of(boxes, config.design.size_px))
            self.steps += 1
            self.averaged.update_parameters(self.network)
            ends = self.steps == config.optim.steps
            is_due = ends or self.steps % config.validate_every == 0
            if is_due:
                self.scores = self.score()
            if ends or self.steps % config.save_every == 0:
                self.checkpoints.save(self._state())
                self.checkpoints.wait()
            yield StepResult(self.steps, loss, self.scores if is_due else None)

    def score(self) -> dict[str, Any]:
        """Return the scores of the averaged weights on the validation figures."""
        strata_of_figures = held_out(self.config)
        if not self._held_out:
            self._held_out = self.drawer(strata_of_figures, self.config, None)()
        run = torch_run(self.averaged.module, self.device)
        detector = Detector(run, self.config.design.size_px, 0.5)
        return score(detector, self._held_out, [stratum for _, stratum in strata_of_figures])

    def step(self, pages: Sequence[np.ndarray], targets: Targets) -> float:
        """Train on images, each [size, size, 3]; return the loss.

        Raises:
            TrainingError: If the loss is NaN or Inf.
        """
        self.network.train()
        on_device = Targets(*(tensor.to(self.device) for tensor in vars(targets).values()))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_bfloat16):
            output = self.network(to_tensor(pages, self.device))
        loss = loss_of(output, on_device)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value} after {self.steps} steps: try a lower optim.peak_lr"
            )
        self.optimiser.step(self.steps, loss)
        return value

    def _state(self) -> dict[str, Any]:
        return {
            "steps_done": self.steps,
            "network": self.network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scores": self.scores,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps, self.scores = state["steps_done"], state["scores"]


def _averaging(steps: int) -> Callable[[Any, Any, Any], None]:
    """Return a function that averages weights over ``steps``, and over fewer at the beginning."""

    def update(averaged: Any, current: Any, count: Any) -> None:
        kept = min(1 - 1 / steps, (1 + float(count)) / (10 + float(count)))
        get_ema_multi_avg_fn(kept)(averaged, current, count)

    return update


def learning_rate(optim: Optimisation, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, constant, linear decay to zero."""
    rising = (step + 1) / optim.warmup_steps if optim.warmup_steps else 1.0
    falling = (optim.steps - step) / max(optim.decay_steps, 1)
    return optim.peak_lr * min(rising, falling, 1.0)
