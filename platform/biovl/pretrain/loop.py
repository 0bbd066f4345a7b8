"""Training as a generator: one report per step. The caller decides when to save, log and stop."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from biovl.core.errors import ConfigError, RestartNeeded, TrainingError
from biovl.pretrain.batches import Batch, Copier
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.feature_rank import FeatureRanks
from biovl.pretrain.guard import Diverged, Guard
from biovl.pretrain.losses import LOSSES, Contrast
from biovl.pretrain.optimizer import (
    LR_SCALE,
    apply_update,
    clamp_logit_scale,
    clip,
    make_optimizer,
    parameter_names,
)
from biovl.pretrain.schedule import Plan, StepPosition, learning_rate
from biovl.pretrain.step import Towers, gradients
from biovl.pretrain.step_time import PARTS, Seconds, StepClock, TimedWorkers, mean_of
from biovl.runtime.workers import Workers

_log = logging.getLogger(__name__)


GATHER_STEPS = 10
"""Steps between two exchanges of the times of all workers."""


@dataclass(frozen=True)
class StepReport:
    """Report of one training step."""

    steps_done: int
    """Number of completed steps of the run, including this one."""

    place: StepPosition
    loss: float
    """Mean loss over the pairs of all workers."""

    lr: float
    logit_scale: float
    """Factor on similarities in the loss, 1 / temperature."""

    grad_norm: float
    """Norm of the gradient of all parameters, before clipping."""

    lengths_B: Tensor
    """Number of tokens of each of this worker's captions, without padding. int32, on the host."""

    seconds: float
    """Seconds since the end of the previous step, on the device."""

    waited_s: float
    """Seconds of these that the device was idle since the next batch was not loaded; in the first
    report, also for the current one."""

    by_rank: Sequence[Seconds] | None
    """Seconds by part of a step, of every worker: means since the last time, every
    ``GATHER_STEPS`` steps; otherwise None."""

    skipped: bool
    """Whether the update was skipped because loss or gradient was NaN or Inf."""


class _Pending:
    """The loss, norm and scale of an update, on their way to the host; then times of all ranks."""

    def __init__(
        self,
        steps_done: int,
        place: StepPosition,
        lr: float,
        values: Tensor,
        lengths_B: Tensor,
        seconds: Callable[[], Seconds],
    ) -> None:
        self.steps_done, self.place, self.lr = steps_done, place, lr
        self.lengths_B, self.seconds = lengths_B, seconds
        self._values = values
        self._copied: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the values and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        values: list[float] = self._values.tolist()
        return values


class Trainer:
    """A model with its optimizer and its position in the plan.

    Args:
        towers: The model, on ``device``. Their parameters are named by ``model``.
        model: The module whose parameters are trained and whose state is saved.
        config: Configuration of the run.
        plan: Batch sizes and learning rates of all steps.
        device: Device of the model.
        workers: The process group; each worker calls the same methods at the same time.
        halved: Called when a step ran out of memory, with the pairs of a micro-batch before and
            from now on.
    """

    def __init__(
        self,
        towers: Towers,
        model: torch.nn.Module,
        config: PretrainConfig,
        plan: Plan,
        *,
        device: torch.device,
        workers: Workers,
        halved: Callable[[int, int], None] = lambda before, after: None,
    ) -> None:
        self.steps_done = 0
        self.micro_batch = config.step.micro_batch
        """Pairs per forward pass of this worker; None: all of its pairs."""
        self.device = device
        self._config, self._plan, self._workers = config, plan, workers
        self._model, self._halved = model, halved
        self._towers = towers.distributed(workers, config.step.gradients)
        self._optimizer = make_optimizer(model, config.optim)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._loss = LOSSES[config.step.loss]
        self._statistics = [
            buffer
            for module in model.modules()
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
            for buffer in module.buffers()
        ]
        self.clock = StepClock(device)
        self._timed = TimedWorkers(workers.rank, workers.count, self.clock)
        self._window: list[Seconds] = []
        self._pending: _Pending | None = None
        self._result: StepReport | None = None
        self.runs_ahead = device.type == "cuda" and not self._statistics
        """Whether the result of a step is read while the device computes the next one. Not with
        batch norm: its running averages in a checkpoint would be those of the next step."""
        self.ranks = FeatureRanks(config.trouble.rank_every_steps if workers.rank == 0 else None)
        self.guard = Guard(
            config.step.loss,
            warmup_pairs=config.optim.warmup_steps * plan.epochs[0][0],
            warmup_steps=config.optim.warmup_steps,
        )

    @property
    def place(self) -> StepPosition:
        """Position of the next step in the run."""
        return self._plan.place(self.steps_done)

    def compute(self, batch: Batch) -> Tensor:
        """Compute the gradients of a step and return its loss, without synchronizing the device.

        If memory runs out, the step is repeated with micro-batches of half the size: the gradient
        is the same. A single worker repeats it at once. With several, the other workers may
        already wait in a collective, so all of them must restart.

        Args:
            batch: This worker's share of the step's pairs, on the device.

        Raises:
            RestartNeeded: If memory runs out on one of several workers; ``halved`` was called.
            ConfigError: If memory does not suffice for micro-batches of one pair.
        """
        loss = self._compute(batch)
        while loss is None:
            self._halve(batch)
            loss = self._compute(batch)
        return loss

    def _compute(self, batch: Batch) -> Tensor | None:
        """Return the loss; None if memory ran out. Parameters and statistics are then unchanged."""
        self._optimizer.zero_grad(set_to_none=True)
        step = self._config.step
        before = [buffer.clone() for buffer in self._statistics]
        self.clock.begin("forward")
        try:
            return gradients(
                self._towers,
                batch,
                self.place.batch_pairs,
                self._contrast,
                workers=self._timed,
                micro_batch=self.micro_batch,
                tile=step.loss_tile,
                autocast=lambda: autocast(step.precision, self.device),
                seed=(self._config.seed, self.steps_done, self._workers.rank),
                distill=step.distill,
                observe=partial(self.ranks.observe, self.steps_done + 1),
            )
        except torch.OutOfMemoryError as error:
            _log.debug("step %d: %s", self.steps_done + 1, error)
        # After the block: until then the traceback of the error holds the activations.
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        for buffer, value in zip(self._statistics, before, strict=True):
            buffer.copy_(value)
        return None

    def _contrast(self, *features: Any, **settings: Any) -> Contrast:
        """Return the loss and its gradients; what follows is the backward pass."""
        contrast = self._loss(*features, **settings)
        self.clock.begin("backward")
        return contrast

    def _halve(self, batch: Batch) -> None:
        """Halve the micro-batches."""
        before = min(self.micro_batch or len(batch), len(batch))
        if before == 1:
            raise ConfigError(
                f"step.micro_batch: step {self.steps_done + 1} of {self._plan.steps} runs out of "
                "memory even with one pair per forward pass of a worker. Set "
                "step.checkpoint_activations=true, a lower step.loss_tile or model.context_length, "
                "or use GPUs with more memory; the same command then resumes the run"
            )
        after = -(-before // 2)
        self._halved(before, after)
        if self._workers.count > 1:
            raise RestartNeeded(out_of_memory_line(self.steps_done + 1, before, after))
        self.micro_batch = after

    def update(self, loss: Tensor, lengths_B: Tensor) -> None:
        """Apply the gradients of ``compute``, unless loss or gradient is NaN or Inf.

        The device decides, and the host does not wait for it: ``take_report`` does.

        Args:
            loss: Result of ``compute``.
            lengths_B: Token counts of the batch, for the report.
        """
        self.clock.begin("optimizer")
        norm = clip(self._parameters, self._config.optim.clip_grad_norm)
        place = self.place
        lr = learning_rate(self._config.optim, self._plan, place)
        for group in self._optimizer.param_groups:
            # Checkpoints of earlier versions have no factors.
            group["lr"] = lr * group.get(LR_SCALE, 1.0)
        scale = self._towers.logit_scale.detach().exp().reshape(())
        values = torch.stack([loss, norm.to(loss.dtype), scale.to(loss.dtype)])
        is_finite = values[:2].isfinite().all()
        apply_update(self._optimizer, is_finite)
        clamp_logit_scale(self._towers, is_finite)
        self.steps_done += 1
        seconds = self.clock.end_step()
        if self.steps_done % GATHER_STEPS == 0 and self._window:
            values = torch.cat([values, self._times_of_all().to(values.dtype)])
        self._pending = _Pending(self.steps_done, place, lr, values, lengths_B, seconds)

    def _times_of_all(self) -> Tensor:
        """Return mean seconds of each part in the last steps, worker after worker. 1-D."""
        mean = torch.tensor([list(mean_of(self._window).values())])
        self._window = []
        if self.device.type == "cuda":
            mean = mean.pin_memory()
        rows = self._workers.gather(mean.to(self.device, non_blocking=True), self._workers.count)
        return rows().flatten()

    def take_report(self) -> StepReport | None:
        """Return the report of the last update once, after waiting for it; None the next time.

        Raises:
            Diverged: If loss or gradient is NaN or Inf, unless ``trouble.not_finite`` is ``skip``;
                ``steps_done`` and the weights are then those before that step. Or if the run
                diverged.
            TrainingError: If it collapsed.
        """
        self._resolve()
        result, self._result = self._result, None
        return result

    def _resolve(self) -> None:
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        steps_done, place, lr = pending.steps_done, pending.place, pending.lr
        loss, norm, scale, *times = pending.read()
        # The device has computed the step: its marks can be read.
        seconds = pending.seconds()
        self._window.append(seconds)
        is_finite = math.isfinite(loss) and math.isfinite(norm)
        if not is_finite and self._config.trouble.not_finite != "skip":
            self.steps_done = steps_done - 1
            raise Diverged(
                f"step {steps_done} of {self._plan.steps}: the loss is {loss} and "
                f"the norm of the gradient {norm}, at a learning rate of {lr:.3g}",
                "Lower optim.peak_lr or set optim.clip_grad_norm; trouble.not_finite=skip skips "
                "such steps",
                steps=0,
                loss_before=self.guard.median_loss,
            )
        self.guard.add(loss, place, self._config.trouble, skipped=not is_finite, grad_norm=norm)
        rows = [times[at : at + len(PARTS)] for at in range(0, len(times), len(PARTS))]
        self._result = StepReport(
            steps_done=steps_done,
            place=place,
            loss=loss,
            lr=lr,
            logit_scale=scale,
            grad_norm=norm,
            skipped=not is_finite,
            seconds=sum(seconds.values()),
            waited_s=seconds["data"],
            by_rank=[dict(zip(PARTS, row, strict=True)) for row in rows] or None,
            lengths_B=pending.lengths_B,
        )

    def state(self) -> dict[str, Any]:
        """Return the training state. Its tensors are not copied: the next steps change them.

        Raises:
            TrainingError: As ``take_report``: the result of the last update is awaited first.
        """
        self._resolve()
        return {
            "steps_done": self.steps_done,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "parameters": parameter_names(self._model, self._optimizer),
            "guard": self.guard.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state``; tensors of the optimizer may be used without a copy.

        Raises:
            TrainingError: If the state is of another model or optimizer.
        """
        try:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            raise TrainingError(
                f"the checkpoint after step {state['steps_done']} does not fit the model: {error}\n"
                "If another version of biovl or of a library began the run, finish it with that "
                "version, or train from the beginning in another folder."
            ) from error
        self.steps_done = state["steps_done"]
        # Checkpoints of the first versions have no guard state.
        if "guard" in state:
            self.guard.load(state["guard"])


def train(trainer: Trainer, batches: Iterator[Batch]) -> Iterator[StepReport]:
    """Run one step per batch and yield its report, until the batches end.

    On a GPU the report of a step is yielded when the next one is running, but before it changes the
    weights: ``trainer.state()`` is that after the reported step.

    Raises:
        TrainingError: If the run diverged or collapsed, as set in ``trouble``.
    """
    copier, clock = Copier(trainer.device), trainer.clock

    def fetch() -> Batch | None:
        with clock.waiting():
            batch = next(batches, None)
        return None if batch is None else copier.start(batch)

    def reports() -> Iterator[StepReport]:
        report = trainer.take_report()
        if report is not None:
            yield report

    clock.end_step()
    batch = fetch()
    while batch is not None:
        clock.begin("copy")
        copier.wait(batch)
        loss = trainer.compute(batch)
        clock.begin("other")
        yield from reports()
        lengths_B = batch.lengths_B
        # While the device computes, the next batch is fetched and copied.
        batch = fetch()
        trainer.update(loss, lengths_B)
        if not trainer.runs_ahead:
            yield from reports()
    yield from reports()


def out_of_memory_line(step: int, before: int, after: int) -> str:
    """Return the message about a step that ran out of memory."""
    return (
        f"step {step} ran out of memory: it is repeated in micro-batches of {after:,} pairs per "
        f"worker instead of {before:,}, and so are the following ones. Set "
        f"step.micro_batch={after} in the next run"
    )


def uses_bf16(precision: str, device: torch.device) -> bool:
    """Return whether towers run in bf16 autocast; ``auto`` depends on the GPU."""
    if precision != "auto":
        return precision == "bf16"
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def allow_tf32(precision: str, device: torch.device) -> None:
    """Enable TF32 matrix products on a GPU where towers run in fp32, as open_clip does for fp32.

    The loss stays in float32: see ``precision.full_precision``. Convolutions use TF32 by default.
    """
    if device.type == "cuda" and not uses_bf16(precision, device):
        torch.backends.cuda.matmul.fp32_precision = "tf32"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Return the autocast context of the towers."""
    if not uses_bf16(precision, device):
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
