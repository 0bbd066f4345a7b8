"""Training of small models with AdamW: shuffled epochs, scheduled rates, states to resume from.

Fine-tuning and visual question answering train in epochs; the panel detector, which has none, uses
the optimizer alone. Contrastive training has a loop of its own, ``biovl/pretrain/loop.py``.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from biovl.core.errors import TrainingError
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers


class TrainedParameter(NamedTuple):
    """A parameter in training."""

    parameter: Tensor
    lr: float
    """Learning rate, which the schedule multiplies."""
    weight_decay: float
    """Decoupled weight decay."""


def decay_matrices(
    parameters: Iterable[Tensor], lr: float, weight_decay: float
) -> list[TrainedParameter]:
    """Return parameters of one learning rate; vectors, which are biases and norms, do not decay."""
    return [TrainedParameter(one, lr, weight_decay if one.ndim > 1 else 0.0) for one in parameters]


class ScheduledAdamW:
    """AdamW with a learning rate schedule. Gradients are summed over data-parallel workers.

    Args:
        trained: The parameters. Their order is part of the state.
        schedule: Factor on the learning rates of all groups, by step from 0.
        betas: Coefficients of the running averages of the gradient and its square.
        eps: Term added to the denominator for numerical stability.
        clip_norm: Maximum global norm of the gradients; None: no clipping.
        workers: Data-parallel workers; None: one worker.
    """

    def __init__(
        self,
        trained: Sequence[TrainedParameter],
        schedule: Callable[[int], float],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        clip_norm: float | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._parameters = [one.parameter for one in trained]
        self._schedule, self._clip_norm, self._workers = schedule, clip_norm, workers or Workers()
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for one in trained:
            groups.setdefault((one.lr, one.weight_decay), []).append(one.parameter)
        self.lrs = [lr for lr, _ in groups]
        """Learning rates of the groups, which the schedule multiplies."""
        self._adamw = torch.optim.AdamW(
            [
                {"params": parameters, "lr": lr, "weight_decay": decay}
                for (lr, decay), parameters in groups.items()
            ],
            betas=betas,
            eps=eps,
        )

    def step(self, number: int, loss: Tensor | None) -> None:
        """Take an optimizer step on a loss; None: this worker has no rows in the step."""
        for group, lr in zip(self._adamw.param_groups, self.lrs, strict=True):
            group["lr"] = lr * self._schedule(number)
        self._adamw.zero_grad(set_to_none=True)
        if loss is not None:
            torch.autograd.backward(loss)
        if self._workers.count > 1:
            self._sum_gradients()
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        self._adamw.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the running averages, as PyTorch's optimizers do."""
        return self._adamw.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the result of ``state_dict``."""
        self._adamw.load_state_dict(state)

    def _sum_gradients(self) -> None:
        flat = self._workers.sum(
            torch.cat(
                [
                    (torch.zeros_like(one) if one.grad is None else one.grad).flatten()
                    for one in self._parameters
                ]
            )
        )
        parts = flat.split([one.numel() for one in self._parameters])
        for one, part in zip(self._parameters, parts, strict=True):
            one.grad = part.view_as(one)


class StepLoss(NamedTuple):
    """Loss of a step."""

    loss: Tensor | None
    """Minimised; None if this worker has no rows of the step. Shape []."""
    summed: Tensor
    """Sum of the losses of this worker's rows, float64, for the mean of the epoch. Shape []."""


class EpochTraining:
    """Training in shuffled epochs with linear warm-up and linear decay to zero.

    Args:
        parts: Tensors to train and to resume from, by part and name; they are modified in place.
        trained: Those of the tensors that are trained, with learning rate and weight decay.
        rows: Indices of the training examples. int64, [T].
        loss_of: Called with the rows of a step, [B], and its number; returns their loss.
        epochs: Number of epochs.
        batch: Rows per step, over all workers.
        seed: Seed of the order of the rows.
        warmup_share: Length of the warm-up, as a share of all steps.
        lr_setting: Name of the setting that holds the learning rate, for the error.
        betas: See ``ScheduledAdamW``.
        eps: See ``ScheduledAdamW``.
        workers: Workers that train together.
    """

    def __init__(
        self,
        parts: Mapping[str, Mapping[str, Tensor]],
        trained: Sequence[TrainedParameter],
        rows: np.ndarray,
        loss_of: Callable[[np.ndarray, int], StepLoss],
        *,
        epochs: int,
        batch: int,
        seed: int,
        warmup_share: float,
        lr_setting: str,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        workers: Workers | None = None,
    ) -> None:
        self._parts, self._rows, self._loss_of = parts, rows, loss_of
        self._batch, self._seed, self._lr_setting = batch, seed, lr_setting
        self._workers = workers or Workers()
        self._steps_of_epoch = -(-len(rows) // batch)
        steps = epochs * self._steps_of_epoch
        self.optimizer = ScheduledAdamW(
            trained,
            lambda step: linear_decay(step, steps, warmup_share),
            betas=betas,
            eps=eps,
            workers=workers,
        )
        self.epochs = epochs
        self.epochs_done = 0

    def epoch(self) -> float:
        """Train for one epoch, and return the mean loss.

        Raises:
            TrainingError: If the loss is NaN or Inf, on all workers alike.
        """
        order = np.random.default_rng((self._seed, self.epochs_done)).permutation(self._rows)
        first, total = self.epochs_done * self._steps_of_epoch, torch.zeros((), dtype=torch.float64)
        for step in range(self._steps_of_epoch):
            rows = order[step * self._batch : (step + 1) * self._batch]
            loss, summed = self._loss_of(rows, first + step)
            self.optimizer.step(first + step, loss)
            total = total + summed
        self.epochs_done += 1
        mean = float(self._workers.sum(total)) / len(order)
        if not math.isfinite(mean):
            raise TrainingError(
                f"the loss of epoch {self.epochs_done} is {mean}: lower {self._lr_setting}"
            )
        return mean

    def remaining(
        self, checkpoints: Checkpoints, *, save_every_s: float, saves: bool = True
    ) -> Iterator[float]:
        """Train to the last epoch, and yield the loss after each.

        Args:
            checkpoints: Where a state is saved after an epoch that is not the last.
            save_every_s: Minimum time between two of them, in seconds.
            saves: Whether this worker saves them.

        Raises:
            TrainingError: If the loss is NaN or Inf.
            OSError: If a checkpoint could not be written.
        """
        saved = time.monotonic()
        try:
            while self.epochs_done < self.epochs:
                yield self.epoch()
                now = time.monotonic()
                is_due = now - saved >= save_every_s and self.epochs_done < self.epochs
                if saves and is_due:
                    saved = now
                    checkpoints.save(self.state())
        finally:
            checkpoints.wait()

    def state(self) -> dict[str, Any]:
        """Return the state to resume from. Tensors are references, not copies."""
        return {
            "steps_done": self.epochs_done,
            **{part: dict(tensors) for part, tensors in self._parts.items()},
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume from the result of ``state``."""
        with torch.no_grad():
            for part, tensors in self._parts.items():
                for name, tensor in tensors.items():
                    tensor.copy_(state[part][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_done = state["steps_done"]


def linear_decay(step: int, steps: int, warmup_share: float) -> float:
    """Return the learning rate at a step as a share of the peak: linear warm-up, linear decay."""
    warmup = round(steps * warmup_share)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / max(1, steps - warmup)
