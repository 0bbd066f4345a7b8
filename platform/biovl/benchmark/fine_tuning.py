"""Fine-tuning of an image tower with a new linear head, on one device.

The head takes unit embeddings, scaled as for the linear probe, and starts at zero: it learns first
what a probe learns. Images are preprocessed as for inference, without augmentation.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from biovl.benchmark import encoders
from biovl.benchmark.datasets import Images
from biovl.benchmark.encoders import BenchmarkModel
from biovl.benchmark.few_shot import different
from biovl.benchmark.open_clip_models import computing
from biovl.benchmark.probe import Scaling
from biovl.benchmark.stored_images import Chosen
from biovl.core.config import Share
from biovl.core.workers import Precision
from biovl.runtime.training import EpochTraining, StepLoss, TrainedParameter, decay_matrices

# Shapes: B images of a step, T training images, N images, C classes, D features.

_READ_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """AdamW with linear warm-up and decay to zero; all settings but the last two affect scores."""

    lrs: Annotated[tuple[PositiveFloat, ...], Field(min_length=1), AfterValidator(different)] = (
        1e-5,
        3e-5,
        1e-4,
    )
    """Candidate peak learning rates of the tower, selected on validation images. 3e-5 is WiSE-FT's
    for CLIP (arXiv:2109.01903, appendix)."""
    head_times: PositiveFloat = 10.0
    """Learning rate of the head, as a multiple of the tower's."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices; biases and norms are not decayed."""
    warmup_share: Share = 0.1
    """Length of the warm-up, as a share of all steps."""
    epochs: PositiveInt = 20
    """Number of training epochs."""
    least_steps: NonNegativeInt = 200
    """Minimum number of steps: epochs are added for small training sets."""
    batch: PositiveInt = 64
    """Number of images per step."""
    held_bytes: int = 2 << 30
    """Size of the cache of preprocessed images, in bytes; other images are decoded in each
    epoch."""
    save_every_s: float = 120.0
    """Minimum training time between checkpoints, in seconds; they are written at the end of an
    epoch."""


class Crops:
    """Preprocessed images, cached up to a size limit; the others are read again when needed.

    Args:
        model: Model that preprocesses them.
        images: Images of a benchmark.
        rows: Rows that will be used.
        held_bytes: Maximum size of the cache in bytes.
        threads: Threads that decode.
    """

    def __init__(
        self, model: BenchmarkModel, images: Images, rows: np.ndarray, held_bytes: int, threads: int
    ) -> None:
        self._model, self._images, self._threads = model, images, threads
        self._held: dict[int, np.ndarray] = {}
        rows = np.sort(rows)
        for start in range(0, len(rows), _READ_AT_ONCE):
            some = rows[start : start + _READ_AT_ONCE]
            prepared = self._prepared(some)
            if held_bytes < sum(pixels.nbytes for pixels in prepared):
                return
            held_bytes -= sum(pixels.nbytes for pixels in prepared)
            self._held |= dict(zip(some.tolist(), prepared, strict=True))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return preprocessed images, stacked. [B, H, W, 3] or as the model crops."""
        missing = np.array([row for row in rows.tolist() if row not in self._held], np.int64)
        prepared = self._held | dict(zip(missing.tolist(), self._prepared(missing), strict=True))
        return np.stack([prepared[row] for row in rows.tolist()])

    def _prepared(self, rows: np.ndarray) -> list[np.ndarray]:
        data = Chosen(self._images, rows).read(0, len(rows))
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda one: encoders.prepare(self._model, one), data))


class Tuner:
    """Trains an image tower and a linear head.

    Args:
        model: The model; its image tower is modified.
        crops: Preprocessed images.
        labels_N: Class of each image.
        classes: Number of classes.
        train: Rows to train on.
        scaling: Scaling of unit embeddings, from the training images before training.
        config: Settings of the training.
        lr: Peak learning rate of the tower.
        seed: Seed of the order of images.
        device: Device of the model.
        precision: Precision of the tower.
    """

    def __init__(
        self,
        model: BenchmarkModel,
        crops: Crops,
        labels_N: np.ndarray,
        classes: int,
        train: np.ndarray,
        scaling: Scaling,
        config: TuningConfig,
        *,
        lr: float,
        seed: int,
        device: str,
        precision: Precision,
    ) -> None:
        self._crops, self._labels_N, self._batch = crops, labels_N, config.batch
        self._device, self._precision = torch.device(device), precision
        self._tower = model.image_tower()
        self._mean_D = torch.tensor(scaling.mean_D, dtype=torch.float32, device=device)
        self._deviation = scaling.deviation
        self._head = nn.Linear(len(scaling.mean_D), classes, device=device)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        tower = self._tower.learning(self._pixels(train[:1]))
        steps_of_epoch = -(-len(train) // config.batch)
        self.training = EpochTraining(
            {
                "tower": {name: one.data for name, one in tower.items()},
                "head": self._head.state_dict(),
            },
            [
                *_matrices_first(tower.values(), lr, config),
                *_matrices_first(self._head.parameters(), lr * config.head_times, config),
            ],
            train,
            self._loss,
            epochs=max(config.epochs, -(-config.least_steps // steps_of_epoch)),
            batch=config.batch,
            seed=seed,
            warmup_share=config.warmup_share,
            lr_setting="tuning.lrs",
        )
        """Training of tower and head."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the logits of each class for some images. float64, [N, C]."""
        logits = [np.empty((0, self._head.out_features))]
        with torch.no_grad():
            for start in range(0, len(rows), self._batch):
                logits_BC = self._logits(rows[start : start + self._batch])
                logits.append(logits_BC.double().cpu().numpy())
        return np.concatenate(logits)

    def _loss(self, rows: np.ndarray, step: int) -> StepLoss:
        label_B = torch.from_numpy(self._labels_N[rows].astype(np.int64)).to(self._device)
        loss = F.cross_entropy(self._logits(rows), label_B)
        return StepLoss(loss, loss.detach().double() * len(rows))

    def _logits(self, rows: np.ndarray) -> Tensor:
        with computing(self._device, self._precision):
            feature_BD = self._tower(self._pixels(rows))
        scaled_BD = (F.normalize(feature_BD, dim=-1) - self._mean_D) / self._deviation
        logits_BC: Tensor = self._head(scaled_BD)
        return logits_BC

    def _pixels(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(self._crops(rows)).to(self._device)


def _matrices_first(
    parameters: Iterable[Tensor], lr: float, config: TuningConfig
) -> list[TrainedParameter]:
    # The order of checkpoints.
    ordered = sorted(parameters, key=lambda one: one.ndim <= 1)
    return decay_matrices(ordered, lr, config.weight_decay)
