"""Estimate of a run's compute, memory and time, before it starts.

Operations are counted; memory and time are estimates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biovl.core import config as configs
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.flops import TRAINING_PER_FORWARD, training_flops
from biovl.pretrain.hardware import NAMED, Accelerator
from biovl.pretrain.memory import USABLE, Memory, ModelInfo, memory
from biovl.pretrain.rates import pair_ms
from biovl.pretrain.schedule import Plan

CHUNKED_OVER_PACKED = 1.3
"""Tokens that ``chunked`` computes per token of a caption (measured on captions of papers)."""

LEAST_COMPILED_HOURS = 0.5
"""Shortest run without compilation that ``step.compile=auto`` compiles. Compiling a block of each
kind takes one to three minutes with an empty cache, and saves an eighth of the time
(``rates.yaml``)."""

FULLEST_DEVIATIONS = 4
"""A micro-batch must also fit when its captions are longer by chance: one in 30,000 exceeds its
mean by so many standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Estimate of a run on a number of accelerators of one kind."""

    accelerator: Accelerator
    workers: int
    held: Memory
    """Memory of one worker with ``micro_batch`` pairs per forward pass."""

    micro_batch: int | None
    """Largest micro-batch that fits, in pairs; None if not even one pair fits."""

    pairs_per_s: float | None
    """Throughput of all workers as configured, mean of the run; None if nothing fits or no rate is
    known."""

    hours: float | None

    hours_eager: float | None = None
    hours_compiled: float | None = None
    """Hours without ``step.compile`` and with it; None if unknown."""

    compiled: bool = False
    """Whether the run compiles, as configured."""


@dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """Estimate of a run before it starts."""

    config: dict[str, Any]
    model: ModelInfo
    corpus_pairs: int
    mean_tokens: float
    """Mean tokens of a caption, truncated to the context, with start and end token."""

    fill: float
    """Mean share of the context that a caption fills."""

    flops: float
    """Training operations per pair, at the caption lengths of the corpus, without padding."""

    flops_padded: float
    """FLOPs with every caption padded to the context length."""

    passes: int
    """Forward passes that cost as much as the largest step: 3, and 1 for recomputation."""

    plan: Plan
    steps_done: int
    """Steps of the plan that the run does not do: a fork starts after them."""

    local_pairs: int
    """Pairs per worker in the largest step."""

    micro_batch: int
    held: Memory
    """Memory of one worker, as configured."""

    forecasts: Sequence[Forecast]

    pair_ms: float
    """CPU time to load a pair, in milliseconds."""


def estimate(
    config: PretrainConfig,
    info: ModelInfo,
    lengths_N: np.ndarray,
    *,
    accelerators: Sequence[Accelerator] = NAMED,
    steps_done: int = 0,
    each_ms: float | None = None,
) -> RunEstimate:
    """Return an estimate of a run's compute, memory and time.

    Args:
        config: Configuration of the run.
        info: Description of the model, see ``memory.model_info``.
        lengths_N: Tokens of every text of train, with start and end token, not truncated. A
            corpus has counts of CLIP's tokenizer; others are close. Shape [N], N >= 1.
        accelerators: Accelerators to estimate for.
        steps_done: Steps of the plan that the run does not do: a fork starts after them.
        each_ms: CPU time to load a pair; None: that of images as published.

    Raises:
        ConfigError: If an epoch has less than one full batch.
    """
    plan = Plan.of(len(lengths_N), config.batch, config.epochs)
    computed = StepCost(config, info, lengths_N)
    mean_tokens, flops = computed.mean_tokens, computed.flops
    batch = max(size for size, _ in plan.epochs)
    fewest, most = (max(1, count) for count in config.workers.bounds)
    local = math.ceil(batch / fewest)
    micro = min(config.step.micro_batch or local, local)
    autocast = config.step.precision != "fp32"
    return RunEstimate(
        config=configs.to_plain(config),
        model=info,
        corpus_pairs=len(lengths_N),
        mean_tokens=mean_tokens,
        fill=mean_tokens / info.context,
        flops=flops,
        flops_padded=training_flops(info.cost, [info.context]),
        passes=computed.passes(micro, local),
        plan=plan,
        steps_done=steps_done,
        local_pairs=local,
        micro_batch=micro,
        held=computed.held(batch, local, micro, autocast=autocast),
        pair_ms=pair_ms(None) if each_ms is None else each_ms,
        forecasts=[
            computed.forecast(plan.after(steps_done), batch, accelerator, workers)
            for accelerator in accelerators
            # One GPU is for trying out; a node of eight is of interest too.
            for workers in sorted({fewest, most} if most > 1 else {1, 8})
        ],
    )


def repays_compilation(hours_eager: float) -> bool:
    """Return whether a run of some hours without ``step.compile`` is shorter with it."""
    return hours_eager >= LEAST_COMPILED_HOURS


class StepCost:
    """Compute and memory of a step, including the padding that the text tower computes."""

    def __init__(self, config: PretrainConfig, info: ModelInfo, lengths_N: np.ndarray) -> None:
        self._config, self.info = config, info
        step = config.step
        lengths, counts = np.unique(np.minimum(lengths_N, info.context), return_counts=True)
        shares = counts / counts.sum()
        self.mean_tokens = mean_tokens = float(lengths @ shares)
        self.flops = float(info.cost.training(lengths) @ shares)
        texts = float(info.cost.text(lengths) @ shares)
        self._deviation = math.sqrt(float((lengths - mean_tokens) ** 2 @ shares))
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

    def _flops(self, micro: int, local: int) -> float:
        """Return the operations per pair, with what is recomputed."""
        cost, recomputed = self.info.cost, self._config.step.checkpoint_activations

        def passes(trained: float) -> float:
            share = (trained - 1) / (TRAINING_PER_FORWARD - 1)
            # A locked tower runs forward once. Micro-batches repeat the whole forward pass of one
            # that is locked in part, checkpoints only that of its trained layers.
            return trained + (micro < local and share > 0) + recomputed * share

        return passes(cost.image_passes) * cost.image + passes(cost.text_passes) * self._texts

    def held(
        self, batch: int, local: int, micro: int, *, autocast: bool, fullest: bool = False
    ) -> Memory:
        """Return the memory of a worker, for captions of mean length or for the fullest batch."""
        tokens = self._tokens
        if fullest:
            more = FULLEST_DEVIATIONS * self._deviation / math.sqrt(min(micro, local))
            tokens = min(tokens + more, self.info.context)
        return memory(
            self.info,
            batch=batch,
            local=local,
            micro_batch=micro,
            tokens=tokens,
            tile=self._config.step.loss_tile,
            compute=self._config.step.text,
            autocast=autocast,
            checkpointed=self._config.step.checkpoint_activations,
            distilled=self._config.step.distill.weight > 0,
        )

    def largest_micro_batch(
        self, batch: int, local: int, memory_bytes: float, *, autocast: bool
    ) -> int | None:
        """Return the most pairs per forward pass that fit; None if not even one pair does.

        If all pairs of a worker do not fit, they are divided into as few equal micro-batches as
        possible. ``step.micro_batch`` is not exceeded.

        Args:
            batch: Pairs of all workers in a step.
            local: Pairs of a worker in a step.
            memory_bytes: Memory of a worker's GPU.
            autocast: Whether matrix products run in bfloat16.
        """
        wanted = min(self._config.step.micro_batch or local, local)

        def fits(micro: int) -> bool:
            held = self.held(batch, local, micro, autocast=autocast, fullest=True)
            return held.total <= USABLE * memory_bytes

        return wanted if fits(wanted) else _largest(wanted, local, fits)

    def forecast(self, plan: Plan, batch: int, accelerator: Accelerator, workers: int) -> Forecast:
        """Return the estimate for some accelerators, with smaller micro-batches if necessary."""
        local = math.ceil(batch / workers)
        has_bf16 = accelerator.bf16_tflops is not None
        precision = "bf16" if self._config.step.precision != "fp32" and has_bf16 else "fp32"
        autocast = precision == "bf16"
        micro = self.largest_micro_batch(
            batch, local, accelerator.memory_gb * 1e9, autocast=autocast
        )
        peak = accelerator.peak_flops(precision)
        hours: dict[bool, float | None] = {True: None, False: None}
        if micro is not None and peak is not None:
            # Epochs of small batches may fit in one pass, without recomputation.
            flops = sum(
                size * steps * self._flops(micro, math.ceil(size / workers))
                for size, steps in plan.epochs
            )
            at_peak = flops / (workers * peak) / 3600
            for compiled in hours:
                share = accelerator.utilisation(compiled=compiled)
                hours[compiled] = None if share is None else at_peak / share
        forecast = Forecast(
            accelerator=accelerator,
            workers=workers,
            held=self.held(batch, local, micro or 1, autocast=autocast),
            micro_batch=micro,
            pairs_per_s=None,
            hours=None,
            hours_eager=hours[False],
            hours_compiled=hours[True],
        )
        return compiled_as_configured(self._config, forecast, plan.pairs, plan.pairs)


def compiled_as_configured(
    config: PretrainConfig, forecast: Forecast, estimated_pairs: int, pairs: int
) -> Forecast:
    """Return a forecast with the hours and throughput of the mode that ``step.compile`` selects.

    Args:
        config: Configuration of the run.
        forecast: Forecast with the hours of both modes for ``estimated_pairs``.
        estimated_pairs: Number of pairs that the forecast covers.
        pairs: Number of pairs of the whole run; the forecast may cover a part of it.
    """
    compiled = config.step.compile
    if compiled == "auto":
        eager = forecast.hours_eager
        compiled = eager is not None and repays_compilation(eager * pairs / estimated_pairs)
    hours = forecast.hours_compiled if compiled else forecast.hours_eager
    return replace(
        forecast,
        hours=hours,
        pairs_per_s=None if hours is None else estimated_pairs / hours / 3600,
        compiled=compiled,
    )


def _largest(most: int, local: int, fits: Callable[[int], bool]) -> int | None:
    """Return the size of the fewest equal micro-batches that fit; None if one pair does not."""
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    if low == 0:
        return None
    equal = math.ceil(local / math.ceil(local / low))
    # Matrix products are faster for multiples of 8.
    rounded = 8 * math.ceil(equal / 8)
    return rounded if rounded <= low else equal
