"""Training and prediction for visual question answering, independent of the cluster.

Checkpoints are made between epochs. The last epoch is evaluated; selecting an epoch on the test
set, as is common, gives scores that cannot be reproduced on new data.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.config import AdamConfig, LearningConfig
from biovl.benchmark.fusion.inputs import Inputs, share
from biovl.benchmark.fusion.module import Fusion
from biovl.benchmark.fusion.tokens import TokenTowers
from biovl.benchmark.vqa_answers import normalised, vocabulary
from biovl.core.errors import ConfigError
from biovl.models.encoder import Encoder
from biovl.runtime.training import EpochTraining, StepLoss, TrainedParameter, decay_matrices
from biovl.runtime.workers import Workers

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
        group: Workers,
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
        learnt = self.model["fusion"] if self._is_frozen else self.model
        self.training = EpochTraining(
            {"model": learnt.state_dict()},
            _trained(self.model, config.adam),
            self._train,
            self._loss,
            epochs=config.epochs,
            batch=config.batch,
            seed=config.seed,
            warmup_share=config.adam.warmup_share,
            lr_setting="learning.adam.lr",
            betas=config.adam.betas,
            eps=config.adam.eps,
            workers=group,
        )
        """Training of the fusion module and, if configured, the towers."""

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

    def _loss(self, batch: np.ndarray, step: int) -> StepLoss:
        own = share(batch, self._group)
        if not len(own):
            return StepLoss(None, torch.zeros((), dtype=torch.float64, device=self._device))
        self.model["fusion"].train()
        self.model["towers"].train(not self._is_frozen)
        with self._seeded(step):
            logits_bA = self._logits(own)
        target_bA = F.one_hot(
            torch.from_numpy(self._target_Q[own]).to(self._device), len(self.answers)
        )
        # METER's loss: the mean over questions and answers, times the number of answers.
        loss = F.binary_cross_entropy_with_logits(
            logits_bA.float(), target_bA.float(), reduction="sum"
        )
        return StepLoss(loss / len(batch), loss.detach().double())

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


def _trained(model: nn.ModuleDict, adam: AdamConfig) -> list[TrainedParameter]:
    trained: list[TrainedParameter] = []
    for name, parameter in model.named_parameters():
        times = 1.0 if name.startswith("towers.") else adam.fusion_times
        if name.startswith("fusion.head."):
            times = adam.head_times
        if parameter.requires_grad:
            trained += decay_matrices([parameter], adam.lr * times, adam.weight_decay)
    return trained
