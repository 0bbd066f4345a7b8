"""Detection of failed runs: the loss is compared with its earlier values and with chance.

Contrastive training fails in three ways, each with its own criterion:

* The loss or the gradient is NaN or Inf: see ``Trainer.update``; here, if it persists.
* The run diverges: the loss jumps and does not recover. The criterion compares the median of the
  last 100 steps with the lowest such median before; a median, since single steps spike and recover.
* The run learns nothing, or has collapsed (all embeddings equal): the loss stays at chance. The
  criterion is the mean over as many steps as warm-up has, at least 1,000, after warm-up. Models
  trained from scratch start at chance for some hundred steps; a slowly falling loss is accepted.

Chance is the loss of a model that cannot distinguish the pairs of a step. It depends on N, the
pairs of all workers in the loss, but neither on micro-batches nor on the number of workers.
"""

import math
from collections import deque
from statistics import fmean, median
from typing import Any

from biovl.core.errors import TrainingError
from biovl.pretrain.config import TroubleConfig
from biovl.pretrain.schedule import StepPosition

SMOOTHED_STEPS = 100
"""Steps of a median: half of them must be bad before a run counts as diverged."""

LEAST_JUMP = 1.0
"""Rise of the median, in nats, that never counts as divergence: new data and a rising learning
rate change it by tenths."""

WARMUP_FACTOR = 2.0
"""Factor on the allowed rise above the lowest median of warm-up: pretrained weights forget some of
what they learned while the learning rate rises, and recover."""

CHANCE_STEPS = 1_000
"""Steps after warm-up for which the loss may stay at chance: some hundred steps are usual for
training from scratch."""

CHANCE_BAND = 0.01
"""Share of the chance loss by which a model must be better. A collapsed model is within a
thousandth of chance; a model that learns is a tenth below it by then."""


def chance(loss: str, pairs: int) -> float:
    """Return the loss of the best model that cannot distinguish pairs, for N pairs.

    Args:
        loss: ``infonce`` or ``siglip``.
        pairs: N >= 2.
    """
    guessing = math.log(pairs)
    if loss == "infonce":
        return guessing
    # One of each image's N pairs matches: every pair has probability 1/N.
    return guessing + (pairs - 1) * math.log(pairs / (pairs - 1))


class Guard:
    """Stops a run that has diverged, learns nothing, or stays NaN.

    Its state is part of the checkpoints, so that a resumed run is compared with earlier steps.

    Args:
        loss: ``infonce`` or ``siglip``.
        warmup_pairs: Pairs of the whole warm-up.
        warmup_steps: Steps of the whole warm-up.
    """

    def __init__(self, loss: str, *, warmup_pairs: int, warmup_steps: int) -> None:
        self._loss, self._warmup_pairs = loss, warmup_pairs
        self._chance_steps = max(CHANCE_STEPS, warmup_steps)
        self._pairs = self._skipped = 0
        # Relative to chance, in nats: the loss grows with the pairs of a step.
        self._recent: deque[float] = deque(maxlen=SMOOTHED_STEPS)
        self._lowest = {"warmup": math.inf, "after": math.inf}
        self._after: deque[float] = deque(maxlen=self._chance_steps)

    def add(
        self, loss: float, place: StepPosition, trouble: TroubleConfig, *, skipped: bool
    ) -> None:
        """Add the loss of a step, and check the criteria.

        Raises:
            TrainingError: If the run has diverged, learns nothing, or stays NaN.
        """
        self._skipped = self._skipped + 1 if skipped else 0
        if self._skipped == SMOOTHED_STEPS:
            raise TrainingError(
                f"{SMOOTHED_STEPS} steps in a row were skipped, as their loss or gradient was NaN "
                "or Inf: the weights will not recover. Lower optim.peak_lr and start anew"
            )
        if not math.isfinite(loss):
            return
        if place.batch_pairs < self._pairs:
            # Fewer pairs are easier: earlier losses are not comparable.
            self._recent.clear()
            self._after.clear()
            self._lowest = dict.fromkeys(self._lowest, math.inf)
        self._pairs = place.batch_pairs
        guessing = chance(self._loss, place.batch_pairs)
        in_warmup = place.pairs_before < self._warmup_pairs
        self._recent.append(loss - guessing)
        if not in_warmup:
            self._after.append(loss - guessing)
        if len(self._recent) == SMOOTHED_STEPS:
            self._check_jump(guessing, in_warmup, trouble.diverged)
        if trouble.collapsed and len(self._after) == self._chance_steps:
            self._check_chance(guessing)

    def state(self) -> dict[str, Any]:
        """Return the state that checkpoints contain."""
        return {
            "pairs": self._pairs,
            "skipped": self._skipped,
            "recent": list(self._recent),
            "after": list(self._after),
            "lowest": dict(self._lowest),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of the guard from a checkpoint."""
        self._pairs, self._skipped = state["pairs"], state["skipped"]
        self._recent.extend(state["recent"])
        self._after.extend(state["after"])
        self._lowest = dict(state["lowest"])

    def _check_jump(self, guessing: float, in_warmup: bool, share: float | None) -> None:
        now, lowest = median(self._recent), self._lowest
        if share is not None:
            allowed = {
                when: low + max(LEAST_JUMP, share * -low * factor)
                for (when, low), factor in zip(lowest.items(), (WARMUP_FACTOR, 1), strict=True)
            }
            if in_warmup:
                # The learning rate still rises: stop only if pretrained knowledge was lost.
                knew = lowest["warmup"] < -LEAST_JUMP
                allowed = {"warmup": LEAST_JUMP / 2 if knew else math.inf}
            for when, most in allowed.items():
                if now > most:
                    before = guessing + lowest[when]
                    raise TrainingError(
                        f"the run has diverged: the median loss of the last {SMOOTHED_STEPS} steps "
                        f"is {guessing + now:.2f}, and was {before:.2f} before; a model that knows "
                        f"nothing has {guessing:.2f}. trouble.diverged={share:g} allows "
                        f"{guessing + most:.2f}. Start anew, in another out, with a lower "
                        "optim.peak_lr, more optim.warmup_steps or optim.clip_grad_norm=1; or set "
                        "trouble.diverged=null to go on"
                    )
        # A median that includes steps of warm-up counts as warm-up.
        when = "after" if len(self._after) >= SMOOTHED_STEPS else "warmup"
        lowest[when] = min(lowest[when], now)

    def _check_chance(self, guessing: float) -> None:
        losses, band = list(self._after), CHANCE_BAND * guessing
        half = len(losses) // 2
        first, second = fmean(losses[:half]), fmean(losses[half:])
        if (first + second) / 2 < -band or second < first - band / 2:
            return
        raise TrainingError(
            f"the run learns nothing: its mean loss over the last {len(losses):,} steps is "
            f"{guessing + second:.3f}, and a model that cannot tell {self._pairs:,} pairs apart "
            f"has {guessing:.3f}. Its embeddings may have collapsed, or texts not belong to their "
            "images. Look at some pairs of the corpus; then start anew, in another out, with a "
            "lower optim.peak_lr, more optim.warmup_steps or optim.clip_grad_norm=1; or set "
            "trouble.collapsed=false to go on"
        )
