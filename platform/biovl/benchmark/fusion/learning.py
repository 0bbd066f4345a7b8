"""Training and prediction for visual question answering, independent of the cluster.

Checkpoints are made between epochs. The last epoch is evaluated; selecting an epoch on the test
set, as is common, gives scores that cannot be reproduced on new data.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.config import AdamConfig, LearningConfig
from biovl.benchmark.fusion.inputs import Group, Inputs, share
from biovl.benchmark.fusion.module import Fusion
from biovl.benchmark.fusion.tokens import TokenTowers
from biovl.benchmark.vqa_answers import normalised, vocabulary
from biovl.core.errors import ConfigError, TrainingError
from biovl.models.encoder import Encoder

# Shapes: B questions of a step on all workers, b on this one, Q of the set, A answers.


class Learner:
    """Trains a fusion module and, if configured, the towers of a model.

    Args:
        encoder: The model; towers that are tuned are modified.
        data: Questions of all splits.
        config: Settings of the training.
        device: Device to compute on.
        group: Workers that train together.

    Raises:
        ConfigError: If there are no training questions, or a tower does not give token features.
    """

    def __init__(
        self,
        encoder: Encoder,
        data: Questions,
        config: LearningConfig,
        *,
        device: torch.device,
        group: Group,
    ) -> None:
        self._config, self._device, self._group = config, device, group
        self._is_frozen = config.towers == "frozen"
        towers = TokenTowers(encoder).to(device).requires_grad_(not self._is_frozen)
        self._inputs = Inputs(
            *(towers.eval(), encoder.preparation, data),
            frozen=self._is_frozen,
            device=device,
            group=group,
            held_bytes=config.held_bytes,
        )
        self.unreadable = self._inputs.unreadable
        """Reason for each unreadable image, by its index."""
        is_readable_Q = ~np.isin(data.image_of, list(self.unreadable))
        self._train = np.flatnonzero(is_readable_Q & (data.splits == "train"))
        if not len(self._train):
            raise ConfigError(f"{data.name} has no question of the split train to learn from")
        frequent = [data.answers[number] for number in self._train]
        self.answers = vocabulary(frequent, least=config.least_answers)
        """The classes, normalised; the most frequent first."""
        if not self.answers:
            raise ConfigError(
                f"no answer of {data.name} is given {config.least_answers} times: "
                "lower least_answers"
            )
        known = {answer: index for index, answer in enumerate(self.answers)}
        self._target_Q = np.array([known.get(normalised(a), -1) for a in data.answers])
        # As in METER, questions whose answer is not a class are not trained on.
        self._train = self._train[self._target_Q[self._train] >= 0]
        with self._seeded(-1):
            fusion = Fusion(
                config.fusion,
                image_width=towers.image_width,
                text_width=towers.text_width,
                answers=len(self.answers),
                has_class_token=towers.has_class_token,
            )
        self.model = nn.ModuleDict({"fusion": fusion.to(device), "towers": towers})
        """Modules ``fusion`` and ``towers``."""
        self._optimizer = _optimizer(self.model, config.adam)
        self._steps_of_epoch = -(-len(self._train) // config.batch)
        self.epochs_done = 0

    def epoch(self) -> float:
        """Train for one epoch, and return the mean loss.

        Raises:
            TrainingError: If the loss is NaN or Inf, on all workers alike.
        """
        config = self._config
        rng = np.random.default_rng((config.seed, self.epochs_done))
        order = rng.permutation(self._train)
        summed = torch.zeros((), dtype=torch.float64, device=self._device)
        self.model["fusion"].train()
        if not self._is_frozen:
            self.model["towers"].train()
        for step in range(self._steps_of_epoch):
            batch = order[step * config.batch : (step + 1) * config.batch]
            summed += self._step(batch, self.epochs_done * self._steps_of_epoch + step)
        self.model.eval()
        self.epochs_done += 1
        loss = float(self._group.sum(summed)) / len(order)
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of epoch {self.epochs_done} is {loss}: lower learning.adam.lr"
            )
        return loss

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the index of the predicted answer to each question, and its probability.

        Args:
            numbers: Indices of questions with readable images.
        """
        self.model.eval()
        answers = torch.zeros(2, len(numbers), dtype=torch.float64, device=self._device)
        own = share(np.arange(len(numbers)), self._group)
        with torch.no_grad():
            for start in range(0, len(own), self._config.batch):
                rows = own[start : start + self._config.batch]
                best = self._logits(numbers[rows]).float().sigmoid().max(1)
                answers[0, rows[0] : rows[-1] + 1] = best.indices.double()
                answers[1, rows[0] : rows[-1] + 1] = best.values.double()
        index, probability = self._group.sum(answers).cpu().numpy()
        return index.astype(np.int64), probability

    def state(self) -> dict[str, Any]:
        """Return a copy of the training state on the CPU, to resume from."""
        learnt = self.model["fusion"] if self._is_frozen else self.model
        return {
            "steps_done": self.epochs_done,
            "model": on_host(learnt.state_dict()),
            "optimizer": on_host(self._optimizer.state_dict()),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Resume from the result of ``state``."""
        learnt = self.model["fusion"] if self._is_frozen else self.model
        learnt.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.epochs_done = state["steps_done"]

    def _step(self, batch: np.ndarray, step: int) -> Tensor:
        """Take a training step, and return this worker's part of the summed losses."""
        own = share(batch, self._group)
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        if len(own):
            with self._seeded(step):
                logits_bA = self._logits(own)
            target_bA = F.one_hot(
                torch.from_numpy(self._target_Q[own]).to(self._device), len(self.answers)
            )
            # METER's loss: the mean over questions and answers, times the number of answers.
            loss = F.binary_cross_entropy_with_logits(
                logits_bA.float(), target_bA.float(), reduction="sum"
            )
            torch.autograd.backward(loss / len(batch))
            total += loss.detach().double()
        self._sum_gradients()
        steps = self._steps_of_epoch * self._config.epochs
        factor = rate(step, steps, self._config.adam.warmup_share)
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        self._optimizer.step()
        return total

    def _sum_gradients(self) -> None:
        if self._group.count == 1:
            return
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        )
        flat = self._group.sum(flat)
        for parameter, part in zip(
            parameters, flat.split([p.numel() for p in parameters]), strict=True
        ):
            parameter.grad = part.view_as(parameter)

    def _logits(self, numbers: np.ndarray) -> Tensor:
        logits_bA: Tensor = self.model["fusion"](*self._inputs(numbers))
        return logits_bA

    @contextlib.contextmanager
    def _seeded(self, step: int) -> Iterator[None]:
        """Set the random seed for a step and worker inside the block."""
        devices = [self._device] if self._device.type == "cuda" else []
        # All workers start from the same weights.
        rank = self._group.rank if step >= 0 else 0
        seed = np.random.SeedSequence((self._config.seed, step + 1, rank)).generate_state(1)
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(seed[0]))
            yield


def on_host(values: Any) -> Any:
    """Return a copy of a training state with all tensors on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", copy=True)
    if isinstance(values, dict):
        return {key: on_host(value) for key, value in values.items()}
    return [on_host(value) for value in values] if isinstance(values, list) else values


def rate(step: int, steps: int, warmup_share: float) -> float:
    """Return the learning rate at a step as a share of the peak: linear warm-up, linear decay."""
    warmup = round(steps * warmup_share)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / max(1, steps - warmup)


def _optimizer(model: nn.ModuleDict, adam: AdamConfig) -> torch.optim.AdamW:
    rates: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        times = 1.0 if name.startswith("towers.") else adam.fusion_times
        if name.startswith("fusion.head."):
            times = adam.head_times
        # Vectors are biases and norms.
        decay = adam.weight_decay if parameter.ndim > 1 else 0.0
        rates.setdefault((adam.lr * times, decay), []).append(parameter)
    groups = [
        {"params": parameters, "lr": lr, "peak": lr, "weight_decay": decay}
        for (lr, decay), parameters in rates.items()
    ]
    return torch.optim.AdamW(groups, betas=adam.betas, eps=adam.eps)
