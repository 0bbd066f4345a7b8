"""One step of contrastive training: the gradient of the loss over the pairs of all workers.

A batch that does not fit goes through the towers in micro-batches (GradCache, Gao et al. 2021):

1. a forward pass of texts, then of images, without autograd, one micro-batch at a time;
2. the loss over all features at once, which gives the gradient of each feature;
3. a second forward pass of each micro-batch, with autograd and the same random state, and its
   backward pass from the gradients of its features.

The sum over micro-batches is the gradient of the whole batch, dropout included, if the features of
a pair do not depend on other pairs. Batch norm in training is an exception: it uses the statistics
of each micro-batch, as it uses those of each worker. ``logit_scale`` only occurs in the loss, so it
gets its gradient once. A batch that fits needs one forward pass.

Texts are gathered during the forward pass of images, and their gradients are reduced during the
backward pass of images.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from biovl.pretrain.batches import Batch
from biovl.pretrain.config import DistillConfig
from biovl.pretrain.losses import Loss, Teacher
from biovl.runtime.workers import Workers

# Shapes: b pairs on this worker, N pairs on all workers, D embedding, E that of a teacher.

MAX_LOGIT_SCALE = math.log(100)
"""Maximum of ``logit_scale``, ln 100: larger values made training unstable (Radford et al. 2021,
section 2.5)."""

# A ResNet's running statistics are local to each worker, as its batches are. Renamed in torch 2.15.
_NO_BUFFER_SYNC: dict[str, Any] = (
    {"forward_sync_buffers": False}
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
    else {"broadcast_buffers": False}
)

Autocast = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass
class Towers:
    """A model in training: each tower in a separate DDP, since each has its own backward pass."""

    image: nn.Module
    """Image tower: uint8 pixels [B, H, W, 3] to unit features [B, D]."""

    text: nn.Module
    """Text tower: tokens [T] and lengths [B] to unit features [B, D]."""

    logit_scale: nn.Parameter
    logit_bias: nn.Parameter | None = None

    def distributed(self, workers: Workers, precision: str = "fp32") -> "Towers":
        """Return the towers wrapped in DDP; unchanged with one worker.

        Args:
            workers: The process group.
            precision: Precision in which gradients are exchanged, ``fp32`` or ``bf16``.
        """
        if workers.count == 1:
            return self

        def wrap(tower: nn.Module) -> nn.Module:
            if not _is_trained(tower):
                return tower
            # Without device_ids, also on GPUs: with them DDP copies every input to the GPU, and
            # caption lengths must stay on the host. DDP takes the device from the parameters.
            wrapped = DistributedDataParallel(
                tower, gradient_as_bucket_view=True, **_NO_BUFFER_SYNC
            )
            if precision == "bf16":
                wrapped.register_comm_hook(None, bf16_compress_hook)
            return wrapped

        return Towers(wrap(self.image), wrap(self.text), self.logit_scale, self.logit_bias)


def gradients(
    towers: Towers,
    batch: Batch,
    total: int,
    loss: Loss,
    *,
    workers: Workers,
    micro_batch: int | None = None,
    tile: int = 1_024,
    autocast: Autocast = contextlib.nullcontext,
    seed: tuple[int, ...] = (0,),
    distill: DistillConfig | None = None,
    observe: Callable[[Tensor, Tensor], None] = lambda image_bD, text_bD: None,
) -> Tensor:
    """Add the gradient of the loss over the pairs of all workers to every parameter's ``grad``.

    Args:
        towers: The model; gradients accumulate.
        batch: This worker's share of the pairs, on the device.
        total: Pairs of all workers, N.
        loss: ``info_nce`` or ``sigmoid``.
        workers: The process group.
        micro_batch: Pairs per forward pass of a tower; None for all.
        tile: Texts whose similarities are in memory at a time.
        autocast: Autocast context of the towers; the loss is always in full precision.
        seed: Seed of dropout, combined with the worker and the micro-batch.
        distill: Distillation from the teacher's embeddings in the batch; None, or a weight of 0:
            none. It needs ``info_nce``.
        observe: Called with the features of this worker's images and texts, [b, D] each.

    Returns:
        The loss over the pairs of all workers. Shape [].
    """
    pieces = batch.split(micro_batch or len(batch))
    texts = _Pass(towers.text, [(p.tokens_T, p.lengths_B) for p in pieces], autocast, (*seed, 0))
    images = _Pass(towers.image, [(p.pixels_BHWC,) for p in pieces], autocast, (*seed, 1))

    make_teacher = _gather_teacher(batch, total, distill, workers, towers.logit_scale.dtype)
    text_bD = texts.forward()
    gathered = workers.gather(text_bD, total)
    image_bD = images.forward()
    scale = towers.logit_scale.detach().exp()
    bias = None if towers.logit_bias is None else towers.logit_bias.detach()
    teacher = {} if make_teacher is None else {"teacher": make_teacher()}
    result = loss(
        *(image_bD, gathered(), scale.reshape(()), bias), **teacher, workers=workers, tile=tile
    )
    text_grad = workers.reduce_scatter(result.text_ND)
    observe(image_bD, text_bD)

    # DDP averages over the workers; the loss is divided for a sum.
    images.backward(result.image_bD * workers.count)
    texts.backward(text_grad() * workers.count)
    shared = workers.sum(torch.stack([result.scale * scale.reshape(()), result.bias]))
    _add_grad(towers.logit_scale, shared[0])
    if towers.logit_bias is not None:
        _add_grad(towers.logit_bias, shared[1])
    return result.loss


def _gather_teacher(
    batch: Batch,
    total: int,
    distill: DistillConfig | None,
    workers: Workers,
    dtype: torch.dtype,
) -> Callable[[], Teacher] | None:
    """Start to gather the teacher's texts; call the result to wait for them. None: no teacher."""
    if distill is None or not distill.weight:
        return None
    assert batch.teacher_B2E is not None, "the batch has no embeddings of a teacher"
    # Rounding to float16 changed the lengths.
    image_bE, text_bE = F.normalize(batch.teacher_B2E.to(dtype), dim=2).unbind(1)
    gathered = workers.gather(text_bE.contiguous(), total)
    return lambda: Teacher(
        image_bE=image_bE,
        text_NE=gathered(),
        temperature=distill.temperature,
        weight=distill.weight,
    )


class _Pass:
    """A tower's passes over a batch: forward for the features, backward from their gradients."""

    def __init__(
        self,
        tower: nn.Module,
        pieces: list[tuple[Tensor, ...]],
        autocast: Autocast,
        seed: tuple[int, ...],
    ) -> None:
        self._tower, self._pieces, self._autocast, self._seed = tower, pieces, autocast, seed
        self._is_trained = _is_trained(tower)
        self._kept: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the features of all micro-batches, without a graph. Shape [b, D]."""
        if len(self._pieces) == 1 and self._is_trained:
            self._kept = self._features(0)
            return self._kept.detach()
        with torch.no_grad(), _frozen_batch_norm(self._tower):
            return torch.cat([self._features(number) for number in range(len(self._pieces))])

    def backward(self, grad_bD: Tensor) -> None:
        """Add the gradients of the parameters, from those of the features; none if locked."""
        if not self._is_trained:
            return
        if self._kept is not None:
            self._kept.backward(grad_bD)
            self._kept = None
            return
        sizes = [len(piece[-1]) for piece in self._pieces]
        for number, piece_grad_bD in enumerate(grad_bD.split(sizes)):
            is_last = number == len(sizes) - 1
            with _without_sync(self._tower, not is_last):
                self._features(number).backward(piece_grad_bD)

    def _features(self, number: int) -> Tensor:
        # The same random numbers in both passes, and in a resumed run.
        torch.manual_seed(seed_of(*self._seed, number))
        with self._autocast():
            features_bD: Tensor = self._tower(*self._pieces[number])
        return features_bD


def seed_of(*numbers: int) -> int:
    """Return a seed derived from several numbers; other numbers give another seed."""
    return int(
        np.random.SeedSequence([len(numbers), *numbers]).generate_state(1, np.uint64)[0]
        >> np.uint64(1)
    )


def has_batch_statistics(towers: Towers) -> bool:
    """Return whether features depend on the other pairs of a micro-batch: batch norm in training.

    Locked layers keep their statistics.
    """
    return any(
        norm.training for tower in (towers.image, towers.text) for norm in _batch_norms(tower)
    )


def _batch_norms(tower: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [m for m in tower.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def _is_trained(tower: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in tower.parameters())


@contextlib.contextmanager
def _frozen_batch_norm(tower: nn.Module) -> Iterator[None]:
    """Freeze batch-norm statistics, so that a second forward pass does not count a batch twice."""
    norms = _batch_norms(tower)
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _without_sync(tower: nn.Module, skipped: bool) -> contextlib.AbstractContextManager[Any]:
    if skipped and isinstance(tower, DistributedDataParallel):
        return tower.no_sync()
    return contextlib.nullcontext()


def _add_grad(parameter: nn.Parameter, grad: Tensor) -> None:
    grad = grad.reshape(parameter.shape).to(parameter.dtype)
    parameter.grad = grad if parameter.grad is None else parameter.grad + grad
