"""A run as one of its workers sees it: go on where it was, train, keep, say, validate."""

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from biovl.core.artifacts import Draft
from biovl.core.errors import TrainingError
from biovl.models.builders.open_clip import Built
from biovl.pretrain import flops, hardware
from biovl.pretrain.batches import Batch
from biovl.pretrain.compiling import CompileWatch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.journal import Journal
from biovl.pretrain.loop import Report, Trainer, allow_tf32, train, uses_bf16
from biovl.pretrain.meter import Meter, Step, memory_bytes
from biovl.pretrain.models import build, describe
from biovl.pretrain.prepare import towers_of
from biovl.pretrain.publishing import HARDWARE
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import is_validated, steps_to_keep, steps_waiting
from biovl.pretrain.step import seed_of
from biovl.pretrain.watchdog import Watchdog
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers

PREEMPTION_STEPS = 10
"""Steps between two questions whether a node is about to go: each costs a meeting of workers."""


ENDED = "ended"
"""Under which a run that is ended as not worth going on with notes why."""


@dataclass(frozen=True)
class Surroundings:
    """What a run needs of where it runs."""

    batches: Callable[[Built, int], Generator[Batch]]
    """This worker's batches from a number of steps done to the end of the run."""

    validate: Callable[[int, int], None]
    """Begins to validate an epoch from the checkpoint after so many steps. Asked of worker 0."""

    say: Callable[[str], None]
    """Tells a person a line. Asked of worker 0."""

    preempted: Callable[[], bool] = lambda: False
    """Whether a node is about to go. Asked of all workers at the same time."""

    line_every_s: float = 10.0

    save_wanted: Callable[[], bool] = lambda: False
    """Whether to save now, as the workers are about to be ended. Asked of worker 0."""

    saved: Callable[[], None] = lambda: None
    """Says that this was done."""


def run(
    config: PretrainConfig,
    plan: Plan,
    validated_every: int | None,
    surroundings: Surroundings,
    *,
    workers: Workers,
    device: torch.device,
) -> None:
    """Train until the end of the plan, from the last checkpoint if there is one.

    Every worker calls this at the same time. Worker 0 writes: checkpoints, the journal, lines.

    Raises:
        TrainingError: If the run is not worth going on with. All workers raise it together.
        BiovlError: If something that the run needs cannot be had.
    """
    _make_deterministic(config)
    allow_tf32(config.step.precision, device)
    draft = Draft(config.out)
    checkpoints = Checkpoints(
        config.out,
        keep_last=config.save.keep_last,
        pinned=lambda: steps_to_keep(draft, plan, validated_every),
    )
    # Worker 0 decides, as a folder may look different from elsewhere.
    found = checkpoints.last_good(surroundings.say) if workers.rank == 0 else 0
    steps_done = int(workers.sum(torch.tensor(found, device=device)))
    torch.manual_seed(seed_of(config.seed))
    built = build(config.model, with_weights=steps_done == 0)
    towers = towers_of(built, config.step, device)
    trainer = Trainer(towers, built.model, config, plan, device=device, workers=workers)
    if steps_done:
        trainer.load(checkpoints.load(steps_done))
    if workers.rank == 0 and steps_done:
        surroundings.say(f"goes on after step {steps_done:,} of {plan.steps:,}")
    keeper = _Keeper(config, plan, validated_every, checkpoints, trainer, surroundings)
    if workers.rank == 0:
        keeper.validate_what_waits()
    if steps_done == plan.steps:
        return

    cost = flops.forward_cost(describe(config.model).model)
    accelerator = hardware.detect(device)
    precision = "bf16" if uses_bf16(config.step.precision, device) else "fp32"
    meter = Meter(
        steps=plan.steps,
        epochs=config.epochs,
        pairs=plan.pairs,
        pairs_done=trainer.place.pairs_before,
        workers=workers.count,
        peak_flops=None if accelerator is None else accelerator.peak_flops(precision),
        memory_bytes=lambda: memory_bytes(device),
        every_s=surroundings.line_every_s,
        clock=time.monotonic,
        unit="GPU" if device.type == "cuda" else "worker",
    )
    with ExitStack() as stack:
        if workers.rank == 0:
            draft.note(HARDWARE, _hardware(workers, device))
            keeper.journal = stack.enter_context(Journal(config, steps_done))
        watchdog = Watchdog(config.trouble.stuck_minutes, "the first step begins")
        stack.callback(watchdog.close)
        batches = surroundings.batches(built, steps_done)
        stack.callback(batches.close)
        watch = stack.enter_context(contextlib.closing(CompileWatch()))
        preempted = False
        for report in _with_its_end_noted(
            train(trainer, batches, config.trouble), trainer, workers, draft
        ):
            watchdog.heard(f"step {report.steps_done + 1} is taken")
            if config.step.compile and workers.rank == 0:
                for line in watch.news():
                    surroundings.say(line)
            if workers.rank == 0:
                keeper.write(meter, _as_step(report, cost))
                keeper.after(report)
            if workers.rank == 0 and surroundings.save_wanted():
                keeper.save("the number of workers changes")
                surroundings.saved()
            if not preempted and report.steps_done % PREEMPTION_STEPS == 0:
                preempted = surroundings.preempted()
                if preempted and workers.rank == 0:
                    keeper.save("a node is about to go")
        if workers.rank == 0:
            keeper.save_the_end()


def _with_its_end_noted(
    reports: Iterator[Report], trainer: Trainer, workers: Workers, draft: Draft
) -> Iterator[Report]:
    """Yield reports; note in the draft why there are no more, if that is no good reason."""
    try:
        yield from reports
    except TrainingError as error:
        if workers.rank == 0:
            draft.note(f"{ENDED}/{trainer.steps_done:09d}", {"reason": str(error)})
        raise


def times_ended(draft: Draft) -> list[dict[str, Any]]:
    """Return after which steps a run was ended as not worth going on with, and why."""
    return [
        {"step": int(name.rpartition("/")[2]), **(draft.read_note(name) or {})}
        for name in draft.note_names(ENDED)
    ]


class _Keeper:
    """Decides when worker 0 saves and what follows."""

    def __init__(
        self,
        config: PretrainConfig,
        plan: Plan,
        validated_every: int | None,
        checkpoints: Checkpoints,
        trainer: Trainer,
        surroundings: Surroundings,
    ) -> None:
        self._config, self._plan, self._validated_every = config, plan, validated_every
        self._checkpoints, self._trainer, self._surroundings = checkpoints, trainer, surroundings
        self._saved_at = time.monotonic()
        self._saved_steps = trainer.steps_done
        self.journal: Journal | None = None

    def write(self, meter: Meter, step: Step) -> None:
        """Write down a step, and say a line now and then."""
        record = meter.add(step)
        if self.journal is not None:
            self.journal.add(record)
        line = meter.line()
        if line is not None:
            self._surroundings.say(line)

    def after(self, report: Report) -> None:
        """Save if an epoch ended, or it is time."""
        if report.skipped:
            self._surroundings.say(f"step {report.steps_done} skipped: its loss is {report.loss}")
        ends = self._plan.ends()
        if report.steps_done in ends:
            epoch = ends.index(report.steps_done)
            if is_validated(epoch, self._plan, self._validated_every):
                self._save(lambda: self._surroundings.validate(epoch, report.steps_done))
            else:
                self._save()
            return
        every_steps, every_minutes = self._config.save.every_steps, self._config.save.every_minutes
        due = every_steps is not None and report.steps_done % every_steps == 0
        late = time.monotonic() - self._saved_at
        if due or (every_minutes is not None and late >= every_minutes * 60):
            self._save()

    def save(self, reason: str) -> None:
        """Save now, and wait until it is written."""
        self._save()
        self._checkpoints.wait()
        self._surroundings.say(f"saved after step {self._trainer.steps_done}: {reason}")

    def save_the_end(self) -> None:
        """Wait until the last state is written."""
        if self._saved_steps != self._trainer.steps_done:
            self._save()
        self._checkpoints.wait()

    def validate_what_waits(self) -> None:
        """Begin to validate epochs that ended before the run was killed."""
        waiting = steps_waiting(Draft(self._config.out), self._plan, self._validated_every)
        for steps_done in self._checkpoints.steps():
            # Later ones could not be read, and are made again.
            if steps_done in waiting and steps_done <= self._trainer.steps_done:
                self._surroundings.validate(waiting[steps_done], steps_done)

    def _save(self, then: Callable[[], None] = lambda: None) -> None:
        self._saved_at, self._saved_steps = time.monotonic(), self._trainer.steps_done
        if self.journal is not None:
            self.journal.add_scores(self._trainer.steps_done)
            self.journal.keep()
        self._checkpoints.save(self._trainer.state(), then)


def _as_step(report: Report, cost: flops.ForwardCost) -> Step:
    # Other workers' captions are as long, but for chance.
    share = report.place.batch_pairs / len(report.lengths_B)
    return Step(
        done=report.steps_done,
        epoch=report.place.epoch,
        pairs=report.place.batch_pairs,
        tokens=round(int(report.lengths_B.sum()) * share),
        flops=flops.training_flops(cost, report.lengths_B.numpy()) * share,
        loss=report.loss,
        lr=report.lr,
        logit_scale=report.logit_scale,
        grad_norm=report.grad_norm,
        waited_s=report.waited_s,
        seconds=report.seconds,
    )


def _hardware(workers: Workers, device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{workers.count} x {name}"


def _make_deterministic(config: PretrainConfig) -> None:
    if config.deterministic:
        # cuBLAS wants to be told before its first use.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
