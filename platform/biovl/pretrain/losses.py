"""Contrastive losses over the batch of all workers, computed tile by tile.

InfoNCE (van den Oord et al. 2018; CLIP, Radford et al. 2021; BiomedCLIP, equation 1) with
S = scale * I T^T for unit rows I (images) and T (texts) of N pairs is

    L = 1/2N  sum_i [ logsumexp_j S_ij - S_ii ]      image -> text, over the rows
      + 1/2N  sum_j [ logsumexp_i S_ij - S_jj ]      text -> image, over the columns

and with P_ij = exp(S_ij - row_i), Q_ij = exp(S_ij - column_j), row and column the logsumexps,

    dL/dS = (P + Q - 2 * identity) / 2N,   dL/dI = scale * dL/dS T,   dL/dT = scale * dL/dS^T I.

A worker owns the rows of its b images and gathers the texts alone. Columns are finished by two
reductions of N numbers, each tile of b x tile similarities is computed once forward and once
backward, and neither N x N nor b x N similarities ever exist: memory is O(N D + b tile), work
8 b N D. A sum over the workers gives the gradient of L exactly.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from biovl.models.precision import full_precision
from biovl.runtime.workers import Workers, share

# Shapes: b pairs on this worker, N pairs on all workers, D embedding, t texts of a tile.


@dataclass(frozen=True)
class Contrast:
    """A contrastive loss, and its gradients with respect to the inputs."""

    loss: Tensor
    """The loss over all N pairs, the same on every worker. Shape []."""

    image_bD: Tensor
    """Gradient with respect to this worker's images. [b, D]."""

    text_ND: Tensor
    """Gradient with respect to all texts, as far as it depends on this worker's images; summed over
    the workers it is complete. [N, D]."""

    scale: Tensor
    """Gradient with respect to the scale, as far as it depends on this worker's images. Shape
    []."""

    bias: Tensor
    """Gradient with respect to the bias, likewise; 0 for losses without a bias."""


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """Embeddings of the same pairs by another model, whose similarities the student learns."""

    image_bE: Tensor
    """This worker's images, unit rows. The dimension E may differ from the student's. [b, E]."""

    text_NE: Tensor
    """The texts of all workers, unit rows, in order. [N, E]."""

    temperature: float
    """Temperature of the teacher's similarities, 1 / exp(its ``logit_scale``)."""

    weight: float
    """Share w of the teacher's distributions in the targets, in (0, 1]."""


def info_nce(
    image_bD: Tensor,
    text_ND: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    teacher: Teacher | None = None,
    workers: Workers | None = None,
    tile: int = 1_024,
) -> Contrast:
    """Return symmetric InfoNCE over the pairs of all workers, and its gradients.

    With a teacher, p and q are the softmax of its similarities U over rows and columns. The targets
    are then the weighted mean of the one-hot targets and the teacher's distributions:

        L = (1 - w) * InfoNCE - w/2N  sum_ij [ p_ij log P_ij + q_ij log Q_ij ]

        dL/dS = (P + Q - (1 - w) * 2 * identity - w * (p + q)) / 2N

    The second term is the cross-entropy, as in open_clip: the divergences KL(p_i || P_i) and
    KL(q_j || Q_j) of distillation plus the entropy of the teacher, which has no gradient. So a
    model that cannot distinguish pairs has the loss ln N for every w. Tiles of U are computed
    twice, like those of S.

    Args:
        image_bD: This worker's images, unit rows; the rows ``share(N, rank, count)`` of the batch.
        text_ND: The texts of all workers, unit rows, in order.
        scale: The factor on similarities, exp(``logit_scale``) = 1 / temperature. Shape [].
        bias: Ignored: softmax is invariant to it.
        teacher: Distillation from its embeddings; None: InfoNCE.
        workers: The process group; None for a single worker.
        tile: Texts whose similarities are in memory at a time.

    Raises:
        ValueError: If the rows are not this worker's share of the batch.

    Source:
        Distillation: MobileCLIP, arXiv:2311.17049, section 3 (a teacher whose embeddings are stored
        with the data); CLIP-KD, arXiv:2307.12732 (contrastive relational distillation).
    """
    workers = workers or Workers()
    first = _first_row(image_bD, text_ND, workers)
    total, own = len(text_ND), len(image_bD)
    with full_precision():
        scaled_bD = scale * image_bD
        matched_b = (scaled_bD * text_ND[first : first + own]).sum(1)
        row_b, column_N = _log_sums(scaled_bD, text_ND, workers, tile)
        hard = 2.0 if teacher is None else 2 * (1 - teacher.weight)
        soft = None if teacher is None else _SoftTargets(teacher, workers, tile)

        loss = (row_b + column_N[first : first + own] - hard * matched_b).sum() / (2 * total)
        image_grad_bD = torch.zeros_like(image_bD)
        text_grad_ND = torch.empty_like(text_ND)
        scale_grad = torch.zeros_like(scale)
        for columns in _tiles(total, tile):
            similarity_bt = scaled_bD @ text_ND[columns].T
            # In place, so that at most three blocks of b x tile exist.
            weight_bt = (similarity_bt - row_b[:, None]).exp_()
            weight_bt += (similarity_bt - column_N[columns]).exp_()
            _on_diagonal(weight_bt, columns, first).sub_(hard)
            if soft is not None:
                target_bt = soft.block(columns)
                weight_bt -= target_bt
                loss -= target_bt.mul_(similarity_bt).sum() / (2 * total)
                del target_bt
            image_grad_bD.addmm_(weight_bt, text_ND[columns])
            torch.mm(weight_bt.T, image_bD, out=text_grad_ND[columns])
            scale_grad += (weight_bt.mul_(similarity_bt)).sum() / scale
        factor = scale / (2 * total)
        return Contrast(
            workers.sum(loss),
            image_grad_bD.mul_(factor),
            text_grad_ND.mul_(factor),
            scale_grad / (2 * total),
            torch.zeros_like(scale),
        )


def sigmoid(
    image_bD: Tensor,
    text_ND: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    workers: Workers | None = None,
    tile: int = 1_024,
) -> Contrast:
    """Return SigLIP's loss over the pairs of all workers, and its gradients.

        L = -1/N  sum_ij  log sigmoid( z_ij * (scale * I_i T_j + bias) )

    with z = 1 on the diagonal and -1 elsewhere.

    Args:
        image_bD: This worker's images, unit rows; the rows ``share(N, rank, count)`` of the batch.
        text_ND: The texts of all workers, unit rows, in order.
        scale: The factor on similarities. Shape [].
        bias: Added to every similarity; None is 0. Shape [].
        workers: The process group; None for a single worker.
        tile: Texts whose similarities are in memory at a time.

    Raises:
        ValueError: If the rows are not this worker's share of the batch.

    Source:
        Zhai et al. 2023, arXiv:2303.15343, equation 1 and algorithm 1.
    """
    workers = workers or Workers()
    first = _first_row(image_bD, text_ND, workers)
    total = len(text_ND)
    offset = torch.zeros_like(scale) if bias is None else bias
    with full_precision():
        loss = torch.zeros_like(scale)
        image_grad_bD = torch.zeros_like(image_bD)
        text_grad_ND = torch.empty_like(text_ND)
        scale_grad, bias_grad = torch.zeros_like(scale), torch.zeros_like(scale)
        for columns in _tiles(total, tile):
            cosine_bt = image_bD @ text_ND[columns].T
            logit_bt = torch.addcmul(offset, scale, cosine_bt)
            matched = _on_diagonal(logit_bt, columns, first)
            # -log sigmoid(-x) everywhere, and -log sigmoid(x) = -log sigmoid(-x) - x if matched.
            loss += F.softplus(logit_bt).sum() - matched.sum()
            weight_bt = torch.sigmoid(logit_bt)
            _on_diagonal(weight_bt, columns, first).sub_(1)
            image_grad_bD.addmm_(weight_bt, text_ND[columns])
            torch.mm(weight_bt.T, image_bD, out=text_grad_ND[columns])
            bias_grad += weight_bt.sum()
            scale_grad += weight_bt.mul_(cosine_bt).sum()
        factor = scale / total
        return Contrast(
            workers.sum(loss / total),
            image_grad_bD.mul_(factor),
            text_grad_ND.mul_(factor),
            scale_grad / total,
            bias_grad / total,
        )


Loss = Callable[..., Contrast]

LOSSES: dict[str, Loss] = {"infonce": info_nce, "siglip": sigmoid}


class _SoftTargets:
    """The targets w * (p + q) of a teacher, tile by tile."""

    def __init__(self, teacher: Teacher, workers: Workers, tile: int) -> None:
        self._weight, self._text_NE = teacher.weight, teacher.text_NE
        self._scaled_bE = teacher.image_bE / teacher.temperature
        self._row_b, self._column_N = _log_sums(self._scaled_bE, self._text_NE, workers, tile)

    def block(self, columns: slice) -> Tensor:
        """Return the targets of some texts. [b, t]."""
        similarity_bt = self._scaled_bE @ self._text_NE[columns].T
        target_bt = (similarity_bt - self._row_b[:, None]).exp_()
        target_bt += similarity_bt.sub_(self._column_N[columns]).exp_()
        return target_bt.mul_(self._weight)


def _log_sums(
    scaled_bD: Tensor, text_ND: Tensor, workers: Workers, tile: int
) -> tuple[Tensor, Tensor]:
    """Return the logsumexps of this worker's rows, and of all columns. [b] and [N]."""
    row_b = scaled_bD.new_full((len(scaled_bD),), -math.inf)
    column_N = scaled_bD.new_empty(len(text_ND))
    for columns in _tiles(len(text_ND), tile):
        similarity_bt = scaled_bD @ text_ND[columns].T
        column_N[columns] = similarity_bt.logsumexp(0)
        row_b = torch.logaddexp(row_b, similarity_bt.logsumexp(1))
    return row_b, _log_sum_exp_over_workers(column_N, workers)


def _first_row(image_bD: Tensor, text_ND: Tensor, workers: Workers) -> int:
    own = share(len(text_ND), workers.rank, workers.count)
    if len(image_bD) != len(own):
        raise ValueError(
            f"worker {workers.rank} of {workers.count} owns {len(own)} of {len(text_ND)} pairs, "
            f"got {len(image_bD)} images"
        )
    return own.start


def _tiles(total: int, tile: int) -> Iterator[slice]:
    for start in range(0, total, tile):
        yield slice(start, min(start + tile, total))


def _on_diagonal(block_bt: Tensor, columns: slice, first: int) -> Tensor:
    """Return a view of the entries of a block for matching pairs; may be empty."""
    start, stop = max(columns.start, first), min(columns.stop, first + len(block_bt))
    size = max(stop - start, 0)
    row, column = start - first, start - columns.start
    return (
        block_bt[row : row + size, column : column + size].diagonal() if size else block_bt[:0, 0]
    )


def _log_sum_exp_over_workers(values_N: Tensor, workers: Workers) -> Tensor:
    if workers.count == 1:
        return values_N
    largest_N = workers.max(values_N.clone())
    return largest_N + workers.sum((values_N - largest_N).exp()).log()
