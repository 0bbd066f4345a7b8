"""Training of a detector: one process, batches by step number, resumable from checkpoints.

Independent of Ray: the function that draws figures is an argument.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from biovl.core.errors import TrainingError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.training import ScheduledAdamW, decay_matrices
from biovl.split.detector.config import DetectorConfig, Optimisation
from biovl.split.detector.detector import Detector
from biovl.split.detector.figures import Drawer, Rounds, held_out
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
            ConfigError: If the backbone or the GPU does not exist.
            ArtifactError: If all checkpoints are corrupt.
        """
        self.config, self.drawer = config, drawer
        self.device = device_for(config.workers.gpus)
        torch.set_num_threads(config.workers.cpus)
        torch.manual_seed(config.seed)
        self.network = PanelNetwork(config.design, pretrained=config.pretrained).to(self.device)
        self.optimiser = ScheduledAdamW(
            decay_matrices(self.network.parameters(), 1.0, config.optim.weight_decay),
            lambda step: learning_rate(config.optim, step),
            clip_norm=config.optim.clip_norm,
        )
        self.checkpoints = Checkpoints(config.out)
        self.steps = 0
        self.scores: dict[str, Any] | None = None
        if done := self.checkpoints.last_good():
            self._restore(self.checkpoints.load(done, self.device))

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
            ends = self.steps == config.optim.steps
            is_due = ends or self.steps % config.validate_every == 0
            if is_due:
                self.scores = self.score()
            if ends or self.steps % config.save_every == 0:
                self.checkpoints.save(self._state())
                self.checkpoints.wait()
            yield StepResult(self.steps, loss, self.scores if is_due else None)

    def score(self) -> dict[str, Any]:
        """Return the scores on the validation figures."""
        strata_of_figures = held_out(self.config)
        figures = self.drawer(strata_of_figures, self.config.design.size_px)()
        detector = Detector(self.network, self.config.design, 0.5, self.device)
        scores = score(detector, figures, [stratum for _, stratum in strata_of_figures])
        self.network.train()
        return scores

    def step(self, pages: Sequence[np.ndarray], targets: Targets) -> float:
        """Train on images, each [size, size, 3]; return the loss.

        Raises:
            TrainingError: If the loss is NaN or Inf.
        """
        self.network.train()
        on_device = Targets(*(tensor.to(self.device) for tensor in vars(targets).values()))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
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
            "optimiser": self.optimiser.state_dict(),
            "scores": self.scores,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps, self.scores = state["steps_done"], state["scores"]


def learning_rate(optim: Optimisation, step: int) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine to a hundredth."""
    if step < optim.warmup_steps:
        return optim.peak_lr * (step + 1) / optim.warmup_steps
    gone = min((step - optim.warmup_steps) / max(optim.steps - optim.warmup_steps, 1), 1.0)
    return optim.peak_lr * (0.01 + 0.99 * (1 + math.cos(math.pi * gone)) / 2)
