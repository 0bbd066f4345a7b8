"""Detection of failing runs: the loss is compared with its earlier values and with chance.

Contrastive training fails in three ways, each with its own criterion, which ends the run:

* The loss or the gradient is NaN or Inf: see ``Trainer.update``; here, if it persists.
* The run diverges: the loss jumps and does not recover. The criterion compares the median of the
  last 100 steps with the lowest such median before; a median, since single steps spike and recover.
* The run learns nothing, or has collapsed (all embeddings equal): the loss stays at chance. The
  criterion is the mean over as many steps as warm-up has, at least 1,000, after warm-up. Models
  trained from scratch start at chance for some hundred steps; a slowly falling loss is accepted.

Weaker signs, which are often temporary, are reported and counted, and the run continues: a single
loss or gradient norm far above its median, and an effective rank of the features far below its
maximum.

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

SPIKE_DEVIATIONS = 8.0
"""Least distance of a loss that is reported as a spike from the median, in standard deviations; it
is at least ``LEAST_JUMP``, too. Deviations are estimated from their median, which spikes do not
change: of normal noise it is 1 / 1.4826 of the standard deviation."""

GRAD_SPIKE = 10.0
"""Least factor of a gradient norm that is reported as a spike on the median of the last steps. Also
on that of the last ``GRAD_STEPS``: at the end of a plateau norms grow tenfold within 100 steps."""

GRAD_STEPS = 10

COLLAPSED_SHARE = 0.1
"""Share of its maximum in the run below which an effective rank is reported, both less 1, the rank
of equal features. Isotropic features of 512 dimensions have a tenth of theirs when the similarity
of any two is above 0.998. At the start of a run the rank is low, but not by comparison."""


class Diverged(TrainingError):
    """The loss or the gradient became unusable during training.

    Args:
        what: Description of the problem.
        advice: What to do.
        steps: Number of steps completed since the divergence began.
        loss_before: Median loss before the divergence; None if unknown.
        loss_after: Median loss since then; None if it is NaN.
    """

    def __init__(
        self,
        what: str,
        advice: str,
        *,
        steps: int,
        loss_before: float | None = None,
        loss_after: float | None = None,
    ) -> None:
        super().__init__(f"{what}. {advice}")
        self.what, self.steps = what, steps
        self.loss_before, self.loss_after = loss_before, loss_after


LOSS_NAMES = {"infonce": "InfoNCE", "siglip": "SigLIP's sigmoid loss"}
"""Names of the values of ``step.loss`` for readers."""


def chance(loss: str, pairs: float) -> float:
    """Return the loss of the best model that cannot distinguish pairs, for N pairs.

    Args:
        loss: ``infonce`` or ``siglip``.
        pairs: N >= 2; a mean over steps if their batches differ.
    """
    guessing = math.log(pairs)
    if loss == "infonce":
        return guessing
    # One of each image's N pairs matches: every pair has probability 1/N.
    return guessing + (pairs - 1) * math.log(pairs / (pairs - 1))


class Guard:
    """Stops a run that has diverged, learns nothing, or stays NaN; reports spikes.

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
        self._norms: deque[float] = deque(maxlen=SMOOTHED_STEPS)
        self.since_good = 0
        """Steps since the median was last close to its minimum."""
        self._in_spike = {"loss": False, "gradient": False, "rank": False}
        self.spikes = {"loss": 0, "gradient": 0}
        """Number of steps whose loss or gradient norm was far above its median."""
        self._highest_ranks = (1.0, 1.0)
        self._low_ranks = 0
        self._in_warmup = True
        self._alarms: list[str] = []

    def add(
        self,
        loss: float,
        place: StepPosition,
        trouble: TroubleConfig,
        *,
        skipped: bool,
        grad_norm: float = math.nan,
    ) -> None:
        """Add the loss and the gradient norm of a step, and check the criteria.

        Raises:
            Diverged: If the run has diverged, or stays NaN.
            TrainingError: If it learns nothing.
        """
        self._skipped = self._skipped + 1 if skipped else 0
        if self._skipped == SMOOTHED_STEPS:
            raise Diverged(
                f"{SMOOTHED_STEPS} steps in a row were skipped, as their loss or gradient was NaN "
                "or Inf: the weights will not recover",
                "Lower optim.peak_lr and start again",
                steps=SMOOTHED_STEPS,
                loss_before=self.median_loss,
            )
        self._check_norm(grad_norm)
        if not math.isfinite(loss):
            return
        if place.batch_pairs < self._pairs:
            # Fewer pairs are easier: earlier losses are not comparable.
            self._recent.clear()
            self._after.clear()
            self.since_good = 0
            self._lowest = dict.fromkeys(self._lowest, math.inf)
        self._pairs = place.batch_pairs
        guessing = chance(self._loss, place.batch_pairs)
        self._in_warmup = in_warmup = place.pairs_before < self._warmup_pairs
        self._check_spike(loss, guessing)
        self._recent.append(loss - guessing)
        if not in_warmup:
            self._after.append(loss - guessing)
        if len(self._recent) == SMOOTHED_STEPS:
            self._check_jump(guessing, in_warmup, trouble.diverged)
        if trouble.collapsed and len(self._after) == self._chance_steps:
            self._check_chance(guessing)

    def add_ranks(self, image: float, text: float) -> None:
        """Add the effective ranks of the features of some images and of their texts.

        Two low measurements in a row after warm-up are reported.
        """
        highest = self._highest_ranks
        is_low = [
            rank - 1 < COLLAPSED_SHARE * (most - 1)
            for rank, most in zip((image, text), highest, strict=True)
        ]
        self._highest_ranks = (max(image, highest[0]), max(text, highest[1]))
        self._low_ranks = self._low_ranks + 1 if any(is_low) and not self._in_warmup else 0
        if self._begins("rank", self._low_ranks > 1):
            self._alarms.append(
                f"the embeddings may collapse: the effective rank of the features of images is "
                f"{image:.1f}, and was up to {self._highest_ranks[0]:.1f}; of texts {text:.1f} and "
                f"{self._highest_ranks[1]:.1f}. Equal features have 1"
            )

    def take_alarms(self) -> list[str]:
        """Return the alarms since the last call, without the number of their step."""
        alarms, self._alarms = self._alarms, []
        return alarms

    @property
    def median_loss(self) -> float | None:
        """Median loss of the last steps; None before the first."""
        if not self._recent:
            return None
        return median(self._recent) + chance(self._loss, self._pairs)

    def state(self) -> dict[str, Any]:
        """Return the state that checkpoints contain."""
        return {
            "pairs": self._pairs,
            "skipped": self._skipped,
            "recent": list(self._recent),
            "after": list(self._after),
            "lowest": dict(self._lowest),
            "norms": list(self._norms),
            "since_good": self.since_good,
            "in_spike": dict(self._in_spike),
            "spikes": dict(self.spikes),
            "highest_ranks": list(self._highest_ranks),
            "low_ranks": self._low_ranks,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state of the guard from a checkpoint."""
        self._pairs, self._skipped = state["pairs"], state["skipped"]
        self._recent.extend(state["recent"])
        self._after.extend(state["after"])
        self._lowest = dict(state["lowest"])
        # Checkpoints of earlier versions have none of these.
        self._norms.extend(state.get("norms", []))
        self.since_good = state.get("since_good", 0)
        self._in_spike |= state.get("in_spike", {})
        self.spikes |= state.get("spikes", {})
        image, text = state.get("highest_ranks", self._highest_ranks)
        self._highest_ranks = (image, text)
        self._low_ranks = state.get("low_ranks", 0)

    def _check_spike(self, loss: float, guessing: float) -> None:
        """Report a loss that is far above the median of the steps before."""
        is_spike = False
        if len(self._recent) == SMOOTHED_STEPS:
            middle = median(self._recent)
            deviation = 1.4826 * median(abs(value - middle) for value in self._recent)
            rise = loss - guessing - middle
            is_spike = rise > max(LEAST_JUMP, SPIKE_DEVIATIONS * deviation)
        self.spikes["loss"] += is_spike
        if self._begins("loss", is_spike):
            self._alarms.append(
                f"the loss is {loss:.3f}, and its median over {SMOOTHED_STEPS} steps "
                f"{guessing + middle:.3f}: a spike"
            )

    def _check_norm(self, norm: float) -> None:
        """Report a gradient norm that is far above the median of the steps before."""
        if not math.isfinite(norm):
            return
        is_spike = False
        if len(self._norms) == SMOOTHED_STEPS:
            middle = max(median(self._norms), median(list(self._norms)[-GRAD_STEPS:]))
            is_spike = norm > GRAD_SPIKE * middle
        self.spikes["gradient"] += is_spike
        if self._begins("gradient", is_spike):
            self._alarms.append(
                f"the norm of the gradient is {norm:.3g}, and its median {middle:.3g}: a spike. "
                "optim.clip_grad_norm limits it"
            )
        self._norms.append(norm)

    def _begins(self, what: str, is_spike: bool) -> bool:
        """Return whether a spike begins: of several in a row the first one is reported."""
        begins = is_spike and not self._in_spike[what]
        self._in_spike[what] = is_spike
        return begins

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
            self.since_good += 1
            if all(now <= (lowest[when] + most) / 2 for when, most in allowed.items()):
                self.since_good = 0
            for when, most in allowed.items():
                if now > most:
                    before = guessing + lowest[when]
                    raise Diverged(
                        f"the run has diverged: the median loss of the last {SMOOTHED_STEPS} steps "
                        f"is {guessing + now:.2f}, and was {before:.2f} before; chance "
                        f"is {guessing:.2f}. trouble.diverged={share:g} allows "
                        f"{guessing + most:.2f}",
                        "Start again, in another out, with a lower optim.peak_lr, more "
                        "optim.warmup_steps or optim.clip_grad_norm=1; or set "
                        "trouble.diverged=null to continue, or trouble.on_divergence=rollback to "
                        "skip the pairs that led to it",
                        steps=self._steps_since(most),
                        loss_before=before,
                        loss_after=guessing + now,
                    )
        # A median that includes steps of warm-up counts as warm-up.
        when = "after" if len(self._after) >= SMOOTHED_STEPS else "warmup"
        lowest[when] = min(lowest[when], now)

    def _steps_since(self, most: float) -> int:
        """Return for how many steps the loss has been diverging, this one included.

        Since the first step above ``most`` of those in the median; longer, if the median began to
        rise earlier.
        """
        recent = list(self._recent)
        first = next(number for number, value in enumerate(recent) if value > most)
        return max(len(recent) - first, self.since_good)

    def _check_chance(self, guessing: float) -> None:
        losses, band = list(self._after), CHANCE_BAND * guessing
        half = len(losses) // 2
        first, second = fmean(losses[:half]), fmean(losses[half:])
        if (first + second) / 2 < -band or second < first - band / 2:
            return
        raise TrainingError(
            f"the run learns nothing: its mean loss over the last {len(losses):,} steps is "
            f"{guessing + second:.3f}, and chance for {self._pairs:,} pairs is {guessing:.3f}. Its "
            "embeddings may have collapsed, or texts not belong to their images. Look at some "
            "pairs of the corpus; then start again, in another out, with a "
            "lower optim.peak_lr, more optim.warmup_steps or optim.clip_grad_norm=1; or set "
            "trouble.collapsed=false to continue"
        )
