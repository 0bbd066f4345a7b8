"""What a run will compute, hold and take, before anything starts.

Operations are counted; memory and time are estimates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from biovl.core import config as configs
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.flops import TRAINING_PER_FORWARD, training_flops_per_pair
from biovl.pretrain.hardware import NAMED, Accelerator
from biovl.pretrain.memory import USABLE, Memory, ModelInfo, memory
from biovl.pretrain.schedule import Plan

CHUNKED_OVER_PACKED = 1.3
"""Tokens that ``chunked`` computes for one of a caption (measured on lengths of the papers)."""

FULLEST_DEVIATIONS = 4
"""A micro-batch must fit also where its captions are longer by chance: one in 30,000 is fuller than
so many standard deviations of its mean."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A run on so many accelerators of a kind."""

    accelerator: Accelerator
    workers: int
    held: Memory
    """Of one worker with ``micro_batch``."""

    micro_batch: int | None
    """Pairs that go through the towers at a time so that it fits; None where nothing does."""

    pairs_per_s: float | None
    """Of all workers as configured, mean of the run; None where nothing fits or nothing is known to
    expect."""

    hours: float | None

    hours_eager: float | None = None
    hours_compiled: float | None = None
    """The same without ``step.compile``, and with it."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What is known of a run before it starts."""

    config: dict[str, Any]
    model: ModelInfo
    corpus_pairs: int
    mean_tokens: float
    """Of a caption, cut to the context, start and end token included."""

    fill: float
    """The share of the context that captions fill."""

    flops: float
    """Of a pair in training, at the lengths of the corpus, without padding."""

    flops_padded: float
    """The same with every caption padded to the context."""

    passes: int
    """What the largest step computes, in forward passes: 3, and one for what is recomputed."""

    plan: Plan
    local_pairs: int
    """Pairs of a worker in the largest step."""

    micro_batch: int
    held: Memory
    """Of one worker, as configured."""

    forecasts: Sequence[Forecast]


def estimate(
    config: PretrainConfig,
    info: ModelInfo,
    lengths_N: np.ndarray,
    *,
    accelerators: Sequence[Accelerator] = NAMED,
) -> Estimate:
    """Return what is known of a run before it starts.

    Args:
        config: Of the run.
        info: Of its model, see ``memory.describe``.
        lengths_N: Tokens of the text of every pair of train, start and end token included, cut
            to nothing. A corpus counts CLIP's; other tokenizers come close. Shape [N], N >= 1.
        accelerators: To forecast for.

    Raises:
        ConfigError: If an epoch has not one whole batch.
    """
    plan = Plan.of(len(lengths_N), config.batch, config.epochs)
    lengths, counts = np.unique(np.minimum(lengths_N, info.context), return_counts=True)
    shares = counts / counts.sum()
    mean_tokens = float(lengths @ shares)
    texts = float(info.cost.text(lengths) @ shares)
    flops = TRAINING_PER_FORWARD * (info.cost.image + texts)
    deviation = math.sqrt(float((lengths - mean_tokens) ** 2 @ shares))
    computed = _Computed(config, info, mean_tokens, deviation, texts)
    batch = max(size for size, _ in plan.epochs)
    count = config.workers.count
    fewest, most = (count, count) if isinstance(count, int) else count
    local = math.ceil(batch / fewest)
    micro = min(config.step.micro_batch or local, local)
    autocast = config.step.precision != "fp32"
    return Estimate(
        config=configs.to_plain(config),
        model=info,
        corpus_pairs=len(lengths_N),
        mean_tokens=mean_tokens,
        fill=mean_tokens / info.context,
        flops=flops,
        flops_padded=training_flops_per_pair(info.cost, [info.context]),
        passes=computed.passes(micro, local),
        plan=plan,
        local_pairs=local,
        micro_batch=micro,
        held=computed.held(batch, local, micro, autocast=autocast),
        forecasts=[
            computed.forecast(plan, batch, accelerator, workers)
            for accelerator in accelerators
            # One GPU is for trying out: what a node of eight takes is of interest too.
            for workers in sorted({fewest, most} if most > 1 else {1, 8})
        ],
    )


class _Computed:
    """What a step really computes and holds, given how the text tower treats padding."""

    def __init__(
        self,
        config: PretrainConfig,
        info: ModelInfo,
        mean_tokens: float,
        deviation: float,
        texts: float,
    ) -> None:
        self._config, self._info = config, info
        step = config.step
        self._deviation = deviation
        if step.text == "padded":
            self._tokens, self._deviation = float(info.context), 0.0
            self._texts = float(info.cost.text([info.context])[0])
        else:
            more = CHUNKED_OVER_PACKED if step.text == "chunked" else 1.0
            self._tokens = min(more * mean_tokens, info.context)
            self._texts = more * texts

    def passes(self, micro: int, local: int) -> int:
        again = (micro < local) + self._config.step.checkpoint_activations
        return TRAINING_PER_FORWARD + again

    def held(
        self, batch: int, local: int, micro: int, *, autocast: bool, fullest: bool = False
    ) -> Memory:
        """Return what a worker holds with captions of mean length, or with the fullest batch."""
        tokens = self._tokens
        if fullest:
            more = FULLEST_DEVIATIONS * self._deviation / math.sqrt(min(micro, local))
            tokens = min(tokens + more, self._info.context)
        return memory(
            self._info,
            batch=batch,
            local=local,
            micro_batch=micro,
            tokens=tokens,
            tile=self._config.step.loss_tile,
            compute=self._config.step.text,
            autocast=autocast,
            checkpointed=self._config.step.checkpoint_activations,
        )

    def forecast(self, plan: Plan, batch: int, accelerator: Accelerator, workers: int) -> Forecast:
        """Return a run on some accelerators, in micro-batches where the configured do not fit."""
        local = math.ceil(batch / workers)
        wanted = min(self._config.step.micro_batch or local, local)
        has_bf16 = accelerator.bf16_tflops is not None
        precision = "bf16" if self._config.step.precision != "fp32" and has_bf16 else "fp32"

        def held(micro: int, fullest: bool = False) -> Memory:
            return self.held(batch, local, micro, autocast=precision == "bf16", fullest=fullest)

        def fits(micro: int) -> bool:
            return held(micro, fullest=True).total <= USABLE * accelerator.memory_gb * 1e9

        micro = wanted if fits(wanted) else _largest(wanted, local, fits)
        peak = accelerator.peak_flops(precision)
        hours: dict[bool, float | None] = {True: None, False: None}
        if micro is not None and peak is not None:
            # Epochs of small batches may fit whole, and recompute nothing.
            passes = sum(
                size * steps * self.passes(micro, math.ceil(size / workers))
                for size, steps in plan.epochs
            )
            at_peak = passes * (self._info.cost.image + self._texts) / (workers * peak) / 3600
            for compiled in hours:
                share = accelerator.utilisation(compiled=compiled)
                hours[compiled] = None if share is None else at_peak / share
        own = hours[self._config.step.compile]
        return Forecast(
            accelerator=accelerator,
            workers=workers,
            held=held(micro or 1),
            micro_batch=micro,
            pairs_per_s=None if own is None else plan.pairs / own / 3600,
            hours=own,
            hours_eager=hours[False],
            hours_compiled=hours[True],
        )


def _largest(most: int, local: int, fits: Callable[[int], bool]) -> int | None:
    """Return the size of the fewest equal micro-batches that fit; None where one pair does not."""
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    if low == 0:
        return None
    equal = math.ceil(local / math.ceil(local / low))
    # Matrices whose sides are multiples of 8 are faster.
    rounded = 8 * math.ceil(equal / 8)
    return rounded if rounded <= low else equal
