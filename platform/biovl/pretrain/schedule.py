"""Schedule of a run: batch sizes, epochs and learning rate, by number of pairs trained on."""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from biovl.core.errors import ConfigError
from biovl.pretrain.config import BatchConfig, OptimConfig


@dataclass(frozen=True)
class StepPosition:
    """Position of a step in its run."""

    epoch: int
    """Epoch of the step, from 0."""

    step: int
    """Index of the step in its epoch, from 0."""

    batch_pairs: int
    """Pairs of all workers in this step."""

    pairs_before: int
    """Number of pairs of the run before this step."""


@dataclass(frozen=True)
class Plan:
    """The steps of a run. Batch size and learning rate follow from the number of steps done."""

    epochs: Sequence[tuple[int, int]]
    """Pairs per step and number of steps, for each epoch."""

    @classmethod
    def of(cls, corpus_pairs: int, batch: BatchConfig, epochs: int) -> "Plan":
        """Return the plan of a run. An incomplete last batch of an epoch is dropped.

        Raises:
            ConfigError: If an epoch has less than one full batch.
        """
        sizes = [batch.of_epoch(epoch) for epoch in range(epochs)]
        if max(sizes) > corpus_pairs:
            raise ConfigError(
                f"batch.pairs: a step takes {max(sizes):,} pairs, but train has {corpus_pairs:,}; "
                "choose a smaller batch or a larger corpus"
            )
        return cls([(size, corpus_pairs // size) for size in sizes])

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return sum(steps for _, steps in self.epochs)

    @property
    def pairs(self) -> int:
        """Number of pairs of the whole run, over all epochs."""
        return sum(size * steps for size, steps in self.epochs)

    def ends(self) -> list[int]:
        """Return the number of completed steps at the end of each epoch."""
        return list(itertools.accumulate(steps for _, steps in self.epochs))

    def place(self, steps_done: int) -> StepPosition:
        """Return the position of the step that follows ``steps_done`` steps."""
        epoch = bisect.bisect_right(self.ends(), steps_done)
        before = self.epochs[:epoch]
        size, _ = self.epochs[epoch]
        step = steps_done - sum(steps for _, steps in before)
        return StepPosition(epoch, step, size, sum(s * n for s, n in before) + step * size)

    def steps_at(self, epoch: int, pairs: int) -> int:
        """Return the number of steps before the first that starts at or after a position.

        Args:
            epoch: Epoch of the position, from 0.
            pairs: Pairs of that epoch before the position.
        """
        if epoch >= len(self.epochs):
            return self.steps
        size, steps = self.epochs[epoch]
        return sum(n for _, n in self.epochs[:epoch]) + min(steps, -(-pairs // size))

    def pairs_before(self, steps_done: int) -> int:
        """Return the number of pairs in the first ``steps_done`` steps."""
        return self.pairs if steps_done == self.steps else self.place(steps_done).pairs_before

    def after(self, steps_done: int) -> "Plan":
        """Return the plan of the steps that follow ``steps_done`` steps; epochs may have none."""
        left = [
            (size, min(steps, max(0, end - steps_done)))
            for (size, steps), end in zip(self.epochs, self.ends(), strict=True)
        ]
        return Plan(left)


def learning_rate(optim: OptimConfig, plan: Plan, place: StepPosition) -> float:
    """Return the learning rate of a step.

    For one batch size it is open_clip's: ``peak * (k + 1) / warmup`` in warm-up step k, then

        cosine      final + (peak - final) / 2 * (1 + cos(pi * (k - warmup) / (steps - warmup)))
        constant    peak
        cooldown    peak, and in the last steps, of the epochs to cool down,
                    final + (peak - final) * (1 - (k - start) / (steps - start)) ^ power

    With other batch sizes later, it remains the same function of the number of pairs trained on.

    Source:
        open_clip 3.3.0, ``open_clip_train/scheduler.py``, whose cosine ends at 0.
    """
    warmup = optim.warmup_steps * plan.epochs[0][0]
    done, peak, final = place.pairs_before, optim.peak_lr, optim.final_lr
    if done < warmup:
        return peak * min(1.0, (done + place.batch_pairs) / warmup)
    if optim.schedule == "constant":
        return peak
    if optim.schedule == "cosine":
        angle = math.pi * (done - warmup) / (plan.pairs - warmup)
        return final + (peak - final) * 0.5 * (1 + math.cos(angle))
    cooled = sum(size * steps for size, steps in plan.epochs[-(optim.cooldown_epochs or 0) :])
    start = plan.pairs - cooled
    left = 1 - max(done - start, 0) / cooled
    return final + (peak - final) * math.pow(left, optim.cooldown_power)
