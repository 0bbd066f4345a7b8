"""Fine-tuning of an image tower with a new linear head, on one device.

The head takes unit embeddings, scaled as for the linear probe, and starts at zero: it learns first
what a probe learns. Images are preprocessed as for inference, without augmentation.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biovl.benchmark import encoders
from biovl.benchmark.datasets import Images
from biovl.benchmark.encoders import BenchmarkModel
from biovl.benchmark.fusion.learning import on_host, rate
from biovl.benchmark.open_clip_models import computing
from biovl.benchmark.probe import Scaling
from biovl.core.errors import TrainingError
from biovl.models.encoder import Precision

# Shapes: B images of a step, T training images, N images, C classes, D features.

_READ_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """AdamW with linear warm-up and decay to zero; all settings but the last two affect scores."""

    lrs: tuple[float, ...] = (1e-5, 3e-5, 1e-4)
    """Candidate peak learning rates of the tower, selected on validation images. 3e-5 is WiSE-FT's
    for CLIP (arXiv:2109.01903, appendix)."""
    head_times: float = 10.0
    """Learning rate of the head, as a multiple of the tower's."""
    weight_decay: float = 0.1
    """Decoupled weight decay of matrices; biases and norms are not decayed."""
    warmup_share: float = 0.1
    """Length of the warm-up, as a share of all steps."""
    epochs: int = 20
    """Number of training epochs."""
    least_steps: int = 200
    """Minimum number of steps: epochs are added for small training sets."""
    batch: int = 64
    """Number of images per step."""
    held_bytes: int = 2 << 30
    """Size of the cache of preprocessed images, in bytes; other images are decoded in each
    epoch."""
    save_every_s: float = 120.0
    """Minimum training time between checkpoints, in seconds; they are written at the end of an
    epoch."""

    def __post_init__(self) -> None:
        if not self.lrs or min(*self.lrs, self.head_times) <= 0:
            raise ValueError("there is at least one rate, all of them and head_times positive")
        if min(self.epochs, self.batch) < 1 or self.least_steps < 0:
            raise ValueError("epochs and batch are at least 1, least_steps not negative")
        if not 0 <= self.warmup_share <= 1:
            raise ValueError(f"warmup_share must be in [0, 1], got {self.warmup_share}")


class Crops:
    """Cache of preprocessed images, all of them readable.

    Args:
        model: Model that preprocesses them.
        images: Images of a benchmark.
        rows: Rows that will be used.
        held_bytes: Size of the cache in bytes.
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
        # Consecutive rows are read together.
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        data: list[bytes] = []
        for run in np.split(rows, breaks):
            if len(run):
                data += self._images.read(int(run[0]), int(run[-1]) + 1)
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
        self._crops, self._labels_N, self._train, self._config = crops, labels_N, train, config
        self._device, self._precision, self._seed = torch.device(device), precision, seed
        self._tower = model.image_tower()
        self._mean_D = torch.tensor(scaling.mean_D, dtype=torch.float32, device=device)
        self._deviation = scaling.deviation
        self._head = nn.Linear(len(scaling.mean_D), classes, device=device)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        self._learning = self._tower.learning(self._pixels(train[:1]))
        self._optimizer = _optimizer(self._learning, self._head, lr, config)
        self._steps_of_epoch = -(-len(train) // config.batch)
        self.epochs = max(config.epochs, -(-config.least_steps // self._steps_of_epoch))
        """Number of epochs to train."""
        self.epochs_done = 0

    def epoch(self) -> float:
        """Train for one epoch, and return the mean loss.

        Raises:
            TrainingError: If the loss is NaN or Inf.
        """
        rng = np.random.default_rng((self._seed, self.epochs_done))
        order, batch = rng.permutation(self._train), self._config.batch
        summed = torch.zeros((), dtype=torch.float64, device=self._device)
        for step in range(self._steps_of_epoch):
            rows = order[step * batch : (step + 1) * batch]
            done = self.epochs_done * self._steps_of_epoch + step
            factor = rate(done, self.epochs * self._steps_of_epoch, self._config.warmup_share)
            for group in self._optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            self._optimizer.zero_grad(set_to_none=True)
            label_B = torch.from_numpy(self._labels_N[rows].astype(np.int64)).to(self._device)
            loss = F.cross_entropy(self._logits(rows), label_B)
            loss.backward()
            self._optimizer.step()
            summed += loss.detach().double() * len(rows)
        self.epochs_done += 1
        mean = float(summed) / len(order)
        if not math.isfinite(mean):
            raise TrainingError(f"the loss of epoch {self.epochs_done} is {mean}")
        return mean

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the logits of each class for some images. float64, [N, C]."""
        logits = [np.empty((0, self._head.out_features))]
        with torch.no_grad():
            for start in range(0, len(rows), self._config.batch):
                logits_BC = self._logits(rows[start : start + self._config.batch])
                logits.append(logits_BC.double().cpu().numpy())
        return np.concatenate(logits)

    def state(self) -> dict[str, Any]:
        """Return a copy of the training state on the CPU, to resume from."""
        return {
            "steps_done": self.epochs_done,
            "tower": on_host({name: one.data for name, one in self._learning.items()}),
            "head": on_host(self._head.state_dict()),
            "optimizer": on_host(self._optimizer.state_dict()),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Resume from the result of ``state``."""
        with torch.no_grad():
            for name, values in state["tower"].items():
                self._learning[name].copy_(values)
        self._head.load_state_dict(state["head"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.epochs_done = state["steps_done"]

    def _logits(self, rows: np.ndarray) -> Tensor:
        with computing(self._device, self._precision):
            feature_BD = self._tower(self._pixels(rows))
        scaled_BD = (F.normalize(feature_BD, dim=-1) - self._mean_D) / self._deviation
        logits_BC: Tensor = self._head(scaled_BD)
        return logits_BC

    def _pixels(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(self._crops(rows)).to(self._device)


def accuracy_and_likelihood(logits_VC: np.ndarray, labels_V: Sequence[int]) -> tuple[float, float]:
    """Return the accuracy and the mean log-likelihood."""
    right = float((logits_VC.argmax(1) == np.asarray(labels_V)).mean())
    target_V = torch.from_numpy(np.asarray(labels_V, np.int64))
    return right, -float(F.cross_entropy(torch.from_numpy(logits_VC), target_V))


def _optimizer(
    tower: dict[str, nn.Parameter], head: nn.Linear, lr: float, config: TuningConfig
) -> torch.optim.AdamW:
    groups = []
    for parameters, peak in (
        (list(tower.values()), lr),
        (list(head.parameters()), lr * config.head_times),
    ):
        for is_matrix in (True, False):
            # Vectors are biases and norms.
            own = [one for one in parameters if (one.ndim > 1) == is_matrix]
            if own:
                decay = config.weight_decay if is_matrix else 0.0
                groups.append({"params": own, "lr": peak, "peak": peak, "weight_decay": decay})
    return torch.optim.AdamW(groups)
