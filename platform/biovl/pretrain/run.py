"""Training as one of the workers executes it: resume, train, save checkpoints, log, validate."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from biovl.core.artifacts import Draft
from biovl.core.errors import RestartNeeded, TrainingError
from biovl.models.builders.open_clip import Built
from biovl.models.towers import TextTower
from biovl.pretrain import flops, gpu_settings, hardware, rollback
from biovl.pretrain.batches import Batch
from biovl.pretrain.compiling import CompileWatch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.guard import Diverged
from biovl.pretrain.journal import Journal
from biovl.pretrain.lineage import pairs_seen, read_lineage
from biovl.pretrain.loop import (
    StepReport,
    Trainer,
    allow_tf32,
    out_of_memory_line,
    train,
    uses_bf16,
)
from biovl.pretrain.meter import Meter, memory_bytes
from biovl.pretrain.models import build, check_unchanged_weights, describe
from biovl.pretrain.out_of_memory import read_micro_batch, record_halving
from biovl.pretrain.profiling import profile_steps
from biovl.pretrain.publishing import HARDWARE
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import in_history, is_validated, steps_to_keep, steps_waiting
from biovl.pretrain.step import has_batch_statistics, seed_of
from biovl.pretrain.tower_setup import towers_of
from biovl.pretrain.watchdog import Watchdog
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers

ENDED = "ended"
"""Prefix of the notes that record the training error that ended a run."""


@dataclass(frozen=True)
class Callbacks:
    """Callbacks that connect a run to its environment: Ray, or a single process."""

    batches: Callable[[Built, int, Callable[[], None]], Generator[Batch]]
    """Returns this worker's batches from a number of completed steps to the end of the run. They
    call the function about once a second while no batch is there."""

    validate: Callable[[int, int], None]
    """Starts the validation of an epoch from the checkpoint at a step. Called on worker 0."""

    say: Callable[[str], None]
    """Logs a message. Called on worker 0."""

    preempted: Callable[[], bool] = lambda: False
    """Returns whether a node of the run is about to end. Called on worker 0 after every step, and
    while it waits for a batch: where the node had all CPUs that load pairs, no step follows."""

    line_every_s: float = 10.0
    """Minimum seconds between two log lines of steps."""

    save_requested: Callable[[], bool] = lambda: False
    """Returns whether to save now, because the workers will be stopped. Called on worker 0."""

    saved: Callable[[], None] = lambda: None
    """Confirms the requested save."""


def run(
    config: PretrainConfig,
    plan: Plan,
    validated_every: int | None,
    callbacks: Callbacks,
    *,
    workers: Workers,
    device: torch.device,
    caption_tokens: np.ndarray | None = None,
) -> None:
    """Train from the last checkpoint, if there is one, until the end of the plan.

    Every worker calls this at the same time. Worker 0 writes checkpoints, the journal and messages.

    Args:
        config: Configuration of the run.
        plan: Its steps.
        validated_every: Epochs between validations; None: no validation.
        callbacks: Connections to the environment.
        workers: The process group.
        device: This worker's device.
        caption_tokens: Tokens of captions of train, with start and end, or of a sample of them.
            None assumes captions that fill the context. Shape [N].

    Raises:
        TrainingError: If the run diverged or collapsed. All workers raise it together.
        RestartNeeded: If the run returns to earlier weights; all workers raise it together. Or if
            one of several workers ran out of memory; only that worker raises it. The draft records
            the rollback or the smaller micro-batch for the restart.
        BiovlError: If an input of the run is unavailable.
    """
    _configure_backends(config)
    allow_tf32(config.step.precision, device)
    draft = Draft(config.out)
    lineage = read_lineage(draft)
    checkpoints = Checkpoints(
        config.out,
        keep_last=config.save.keep_last,
        pinned=lambda: [
            *steps_to_keep(draft, plan, validated_every),
            *(to_return_to() if may_roll_back(config) else []),
        ],
        is_history=lambda steps: in_history(steps, plan, config.save.keep_every),
    )

    def to_return_to() -> list[int]:
        return rollback.steps_to_keep(
            checkpoints.steps(), since_good=trainer.guard.since_good, skipped=skipped
        )

    configured = config.step.micro_batch

    def read() -> tuple[dict[str, Any] | None, int | None, list[range]]:
        rollback.apply_rollbacks(draft, checkpoints, plan)
        return (
            checkpoints.load_last(callbacks.say),
            read_micro_batch(draft, configured),
            rollback.skipped_steps(rollback.read_rollbacks(draft)),
        )

    # Worker 0 reads them for all: storage sends one copy, and no two decide differently.
    state, micro_batch, skipped = workers.broadcast(read, device)
    if state is None and config.checkpoint is not None:
        raise TrainingError(
            "no checkpoint of the run is left; the same command starts again at the one of from"
        )
    steps_done = 0 if state is None else state["steps_done"]
    config = replace(config, step=replace(config.step, micro_batch=micro_batch))
    described = describe(config.model, config.optim)
    cost = flops.forward_cost(described.model)
    if caption_tokens is None:
        caption_tokens = np.array([described.context_length])
    properties = gpu_settings.Device.of(config, device)
    say = callbacks.say if workers.rank == 0 else lambda line: None
    config = replace(
        config,
        step=gpu_settings.choose_step(
            *(config, cost, plan, caption_tokens),
            context=described.context_length,
            steps_done=steps_done,
            device=properties,
            workers=workers.count,
            say=say,
        ),
    )
    torch.manual_seed(seed_of(config.seed))
    built = build(config.model, with_weights=state is None)
    if state is None:
        check_unchanged_weights(config)
    towers = towers_of(built, config.step, device, config.optim)
    assert isinstance(towers.text, TextTower)
    gpu_settings.choose_attention(
        *(
            towers.text,
            caption_tokens,
            config.step.micro_batch or plan.epochs[0][0] // workers.count,
        ),
        deterministic=config.deterministic,
        bf16=properties.bf16,
        device=device,
        say=say,
    )
    local = math.ceil(max(size for size, _ in plan.epochs) / workers.count)
    if (config.step.micro_batch or local) < local and has_batch_statistics(towers):
        say(
            f"step.micro_batch: batch norm takes its statistics from {config.step.micro_batch:,} "
            f"of a worker's {local:,} pairs at a time, so the steps are not those of a whole batch"
        )

    def record_halving_and_say(before: int, after: int) -> None:
        step = trainer.steps_done + 1
        record_halving(draft, configured, step=step, before=before, after=after)
        # Several workers restart, and the driver logs the reason.
        if workers.count == 1:
            callbacks.say(out_of_memory_line(step, before, after))

    trainer = Trainer(
        towers,
        built.model,
        config,
        plan,
        device=device,
        workers=workers,
        halved=record_halving_and_say,
    )
    if state is not None:
        workers.together(lambda: trainer.load(state), device)
        # Several gigabytes, which training needs for activations.
        del state
    if workers.rank == 0 and steps_done:
        callbacks.say(f"resumes from step {steps_done:,} of {plan.steps:,}")
    elif workers.rank == 0 and skipped and skipped[0].start:
        callbacks.say(
            f"warning: no checkpoint from before the rollback is left: trains again from step 1 to "
            f"{skipped[0].start:,}. Lower save.every_steps"
        )
    saver = _Saver(config, plan, validated_every, checkpoints, trainer, callbacks, workers.rank)
    if workers.rank == 0:
        saver.validate_pending()
    if steps_done == plan.steps:
        return

    accelerator = hardware.detect(device)
    precision = "bf16" if uses_bf16(config.step.precision, device) else "fp32"
    meter = Meter(
        steps=plan.steps,
        epochs=config.epochs,
        pairs=pairs_seen(lineage, plan, plan.steps)
        - rollback.skipped_pairs(plan, skipped, plan.steps),
        pairs_done=pairs_seen(lineage, plan, steps_done)
        - rollback.skipped_pairs(plan, skipped, steps_done),
        workers=workers.count,
        peak_flops=None if accelerator is None else accelerator.peak_flops(precision),
        memory_bytes=lambda: memory_bytes(device),
        every_s=callbacks.line_every_s,
        clock=time.monotonic,
        unit="GPU" if device.type == "cuda" else "worker",
    )
    with ExitStack() as stack:
        if workers.rank == 0:
            draft.note(HARDWARE, _hardware(workers, device))
            saver.journal = stack.enter_context(Journal(config, steps_done))
        watchdog = Watchdog(config.trouble.stuck_minutes, "waiting for the first step")
        stack.callback(watchdog.close)
        watch = stack.enter_context(contextlib.closing(CompileWatch()))

        def train_all() -> Generator[StepReport]:
            for part in rollback.trained_steps(plan, skipped, steps_done):
                saver.skip_to(part.start)
                batches = callbacks.batches(built, part.start, saver.save_if_asked)
                with contextlib.closing(batches):
                    # To the end of the run, the stream ends by itself.
                    own = batches if part.stop == plan.steps else islice(batches, len(part))
                    yield from train(trainer, own)
            saver.skip_to(plan.steps)

        # Closed also if the code below raises: loading of pairs then ends.
        reports = stack.enter_context(contextlib.closing(train_all()))
        profiled = config.profile if workers.rank == 0 else 0
        after_step = stack.enter_context(profile_steps(profiled, draft.folder, device, say))
        with _recorded_failures(config, plan, trainer, checkpoints, workers, draft):
            for report in reports:
                watchdog.reset(f"running step {report.steps_done + 1}")
                if config.step.compile and workers.rank == 0:
                    for line in watch.messages():
                        callbacks.say(line)
                if workers.rank == 0:
                    saver.write(meter, report, cost)
                    saver.after(report)
                saver.save_if_asked()
                after_step(report.steps_done)
        if workers.rank == 0:
            saver.save_last()


@contextlib.contextmanager
def _recorded_failures(
    config: PretrainConfig,
    plan: Plan,
    trainer: Trainer,
    checkpoints: Checkpoints,
    workers: Workers,
    draft: Draft,
) -> Iterator[None]:
    """Note a training error of the block in the draft; where configured, roll back instead.

    Raises:
        TrainingError: The error, if the run does not roll back. All workers raise it together.
        RestartNeeded: If the run rolls back: the draft says where to. All raise it together.
    """
    try:
        yield
    except TrainingError as error:
        trouble = config.trouble
        # First and last skipped step, and number of pairs, as worker 0 records them.
        recorded = torch.zeros(3, dtype=torch.long, device=trainer.device)
        if workers.rank == 0:
            is_nan = isinstance(error, Diverged) and error.steps == 0
            policy = trouble.not_finite if is_nan else trouble.on_divergence
            number = len(rollback.read_rollbacks(draft)) + 1
            if policy == "rollback" and isinstance(error, Diverged) and number <= trouble.rollbacks:
                # A checkpoint that is still being written may be one to discard.
                checkpoints.wait()
                record = rollback.record_rollback(draft, plan, error, steps_done=trainer.steps_done)
                recorded[:] = torch.tensor([*record["skipped_steps"], record["skipped_pairs"]])
            else:
                draft.note(f"{ENDED}/{trainer.steps_done:09d}", {"reason": str(error)})
        # No worker may end before worker 0 has written: the others would be stopped.
        first, last, pairs = workers.sum(recorded).tolist()
        if not last:
            raise
        raise RestartNeeded(
            f"{error.what if isinstance(error, Diverged) else error}. Rolls back to step "
            f"{first - 1:,} and skips steps {first:,} to {last:,}, {pairs:,} pairs"
        ) from error


def most_checkpoints(config: PretrainConfig, plan: Plan) -> int:
    """Return the number of checkpoints that a run retains at most.

    They are the last ones, that of the best epoch, those to roll back to, and the history.
    """
    every = config.save.keep_every
    steps = {*plan.ends(), *(range(every, plan.steps, every) if isinstance(every, int) else ())}
    history = sum(in_history(steps_done, plan, every) for steps_done in steps)
    return (
        config.save.keep_last + 1 + (rollback.MOST_KEPT if may_roll_back(config) else 0) + history
    )


def may_roll_back(config: PretrainConfig) -> bool:
    """Return whether a run returns to earlier weights when it diverges or its loss is NaN."""
    return "rollback" in (config.trouble.on_divergence, config.trouble.not_finite)


def read_failures(draft: Draft) -> list[dict[str, Any]]:
    """Return the training errors recorded in a draft: the completed steps, and the reason."""
    return [
        {"step": int(name.rpartition("/")[2]), **(draft.read_note(name) or {})}
        for name in draft.note_names(ENDED)
    ]


class _Saver:
    """Checkpoints, validations and log lines of worker 0."""

    def __init__(
        self,
        config: PretrainConfig,
        plan: Plan,
        validated_every: int | None,
        checkpoints: Checkpoints,
        trainer: Trainer,
        callbacks: Callbacks,
        rank: int,
    ) -> None:
        self._config, self._plan, self._validated_every = config, plan, validated_every
        self._checkpoints, self._trainer, self._callbacks = checkpoints, trainer, callbacks
        self._saved_at = time.monotonic()
        self._saved_steps = trainer.steps_done
        self._rank, self._preempted = rank, False
        self._is_due = self._is_postponed = False
        self.journal: Journal | None = None

    def write(self, meter: Meter, report: StepReport, cost: flops.ForwardCost) -> None:
        """Add a step to the journal, log alarms, and log a line at intervals."""
        # Caption lengths on the other workers are assumed equal on average.
        share = report.place.batch_pairs / len(report.lengths_B)
        record = meter.add(
            report,
            tokens=round(int(report.lengths_B.sum()) * share),
            flops=flops.training_flops(cost, report.lengths_B.numpy()) * share,
        )
        guard, steps_done = self._trainer.guard, report.steps_done
        ranks = self._trainer.ranks.take(steps_done)
        if ranks is not None:
            guard.add_ranks(*ranks)
            record |= dict(zip(("image_feature_rank", "text_feature_rank"), ranks, strict=True))
        record |= {f"{name}_spikes": count for name, count in guard.spikes.items()}
        for alarm in guard.take_alarms():
            self._callbacks.say(f"step {steps_done}: {alarm}")
        if self.journal is not None:
            self.journal.add(record)
            if report.by_rank is not None:
                self.journal.add_ranks(steps_done, report.by_rank)
        line = meter.line()
        if line is not None:
            self._callbacks.say(line)

    def after(self, report: StepReport) -> None:
        """Save a checkpoint at the end of an epoch, for the history, or when one is due.

        One that is due by steps or minutes is postponed while the previous one is being written,
        since a later step is as good. The others are for a fixed step: they wait for that write.

        Raises:
            OSError: If a checkpoint could not be written since the last step.
        """
        self._checkpoints.check()
        if report.skipped:
            self._callbacks.say(f"step {report.steps_done} skipped: its loss is {report.loss}")
        if report.steps_done in self._plan.ends():
            self._save_epoch()
            return
        if self._checkpoints.is_history(report.steps_done):
            self._save()
            return
        every_steps, every_minutes = self._config.save.every_steps, self._config.save.every_minutes
        late_s = time.monotonic() - self._saved_at
        self._is_due |= every_steps is not None and report.steps_done % every_steps == 0
        self._is_due |= every_minutes is not None and late_s >= every_minutes * 60
        if not self._is_due:
            return
        if not self._checkpoints.is_writing():
            self._save()
        elif not self._is_postponed:
            self._is_postponed = True
            self._callbacks.say(
                f"the checkpoint after step {report.steps_done} is postponed: the previous one is "
                "still being written. Raise save.every_steps and save.every_minutes, or use "
                "faster storage"
            )

    def skip_to(self, steps_done: int) -> None:
        """Count steps as done without an update; save the epochs that end in between."""
        for end in self._plan.ends():
            if self._trainer.steps_done < end <= steps_done:
                self._trainer.steps_done = end
                if self._rank == 0:
                    self._save_epoch()
        self._trainer.steps_done = max(self._trainer.steps_done, steps_done)

    def _save_epoch(self) -> None:
        """Save the checkpoint of an epoch that ends here, and start its validation."""
        steps_done = self._trainer.steps_done
        epoch = self._plan.ends().index(steps_done)
        if is_validated(epoch, self._plan, self._validated_every):
            self._save(lambda: self._callbacks.validate(epoch, steps_done))
        else:
            self._save()

    def save_if_asked(self) -> None:
        """Save a checkpoint if a node will be preempted, or the number of workers will change.

        While a batch is awaited, the previous step may have gradients but no update yet: weights
        are those before it, but running averages of batch norm include it.
        """
        if self._rank != 0:
            return
        self._checkpoints.check()
        if self._callbacks.save_requested():
            self._save_now("the number of workers changes")
            self._callbacks.saved()
        if not self._preempted and self._callbacks.preempted():
            self._preempted = True
            self._save_now("a node is about to be preempted")

    def _save_now(self, reason: str) -> None:
        """Save a checkpoint, wait until it is written, and log the reason."""
        self.save_last()
        self._callbacks.say(f"saved after step {self._trainer.steps_done}: {reason}")

    def save_last(self) -> None:
        """Save the last state, and wait until it is written."""
        if self._saved_steps != self._trainer.steps_done:
            self._save()
        self._checkpoints.wait()

    def validate_pending(self) -> None:
        """Start the validations of epochs that ended before the run was interrupted."""
        waiting = steps_waiting(Draft(self._config.out), self._plan, self._validated_every)
        for steps_done in self._checkpoints.steps():
            # Later checkpoints were unreadable, and their steps are repeated.
            if steps_done in waiting and steps_done <= self._trainer.steps_done:
                self._callbacks.validate(waiting[steps_done], steps_done)

    def _save(self, then: Callable[[], None] = lambda: None) -> None:
        self._saved_at, self._saved_steps = time.monotonic(), self._trainer.steps_done
        self._is_due = self._is_postponed = False
        journal = self.journal
        if journal is None:
            self._checkpoints.save(self._trainer.state(), then=then)
            return
        journal.add_scores(self._trainer.steps_done)
        self._checkpoints.save(self._trainer.state(), before=journal.upload, then=then)


def _hardware(workers: Workers, device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{workers.count} x {name}"


def _configure_backends(config: PretrainConfig) -> None:
    # Convolutions have the same shapes in every step: cuDNN times its algorithms once, as in
    # open_clip_train.
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        # cuBLAS reads this variable on its first use.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
