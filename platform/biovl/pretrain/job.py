"""Pretraining on Ray: workers of Ray Train, batches from Ray Data, validation in separate tasks.

The draft of the output folder holds all state that a run resumes from, whichever process fails: a
worker (Ray restarts the group), the driver (run the same command again), a node. Ray only schedules
the workers and stores nothing.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

import numpy as np
import ray
import ray.exceptions

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError, TrainingError
from biovl.models import encoder, hub
from biovl.models.builders.open_clip import Built, Described
from biovl.pretrain import dry_run, estimate, gpu_settings, memory, rates, stream_job
from biovl.pretrain.batches import Batch
from biovl.pretrain.changes import may_resume, read_changes, read_settings, record_changes
from biovl.pretrain.checks import check_run
from biovl.pretrain.config import PretrainConfig, identity
from biovl.pretrain.fork import Fork, advise_fork, find_fork, start_fork, steps_before
from biovl.pretrain.image_size import stored_px
from biovl.pretrain.journal import Journal
from biovl.pretrain.lineage import pairs_seen, read_lineage, seen_val_warning
from biovl.pretrain.mixture import (
    Mixture,
    describe_mixture,
    find_teacher,
    inputs_of,
    read_mixture,
    read_training,
    text_tokens,
)
from biovl.pretrain.models import (
    build,
    check_optimizer,
    check_weights,
    complete_model,
    describe,
    pinned_model,
    pins_of,
    weights_of,
)
from biovl.pretrain.out_of_memory import read_halvings, read_micro_batch
from biovl.pretrain.publishing import write_model, write_report_files
from biovl.pretrain.rollback import read_rollbacks, skipped_pairs, skipped_steps
from biovl.pretrain.run import Callbacks, read_failures, run
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import (
    comparable,
    epoch_to_publish,
    in_history,
    read_scores,
    steps_waiting,
)
from biovl.pretrain.tower_setup import check_pooled_token
from biovl.pretrain.trackers import read_steps
from biovl.pretrain.validation_job import Listener
from biovl.pretrain.warn import warnings_of
from biovl.runtime import ray_train
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.connection import check_room, connect_ray
from biovl.runtime.job import Job, entry_point
from biovl.runtime.workers import Workers

KIND = "model"
FORMAT = 1
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""


@entry_point
def pretrain(
    config: PretrainConfig,
    *,
    progress: TextIO = sys.stderr,
    validated: Callable[[int, Mapping[str, Any]], None] = lambda epoch, scores: None,
    pins: Mapping[str, str] | None = None,
) -> Manifest:
    """Train a model on a corpus and publish it.

        out/
          open_clip_config.json  open_clip_model.safetensors …   stock open_clip loads local-dir:out
          README.md                    model card: data and its licences, recipe, scores
          plots/                       loss and recall curves
          metrics.jsonl  tensorboard/  every step
          profile/                     with profile=N: traces of N steps
          validation.json              loss and recalls of every epoch
          manifest.json                configuration, data fingerprint, final scores

    Args:
        config: Configuration of the run.
        progress: Stream for progress messages.
        validated: Callback with an epoch, from 0, and its scores, when this call receives them;
            training continues meanwhile.
        pins: Commits of names on the hub, see ``hub.pins``, that a new run loads; a run that
            resumes loads those that it began with. None: the current ones.

    Raises:
        ConfigError: If a setting does not fit the corpus or the model.
        ArtifactError: If ``corpus`` is not a corpus, ``out`` holds another artifact or is being
            written by another process, or the weights do not fit.
        TrainingError: If the run diverged or collapsed.
        TrainingStopped: If the run failed too often.
        StorageError: If a disk or bucket fails; the same command resumes the run.
    """
    with advise_fork(config.out):
        return _published_or_trained(complete_model(config), progress, validated, pins or {})


def check(config: PretrainConfig) -> None:
    """Check the settings of a run against its corpus and model, without starting it.

    Raises:
        ConfigError: If a setting does not fit.
        ArtifactError: If ``corpus`` is not a corpus, or the weights do not exist.
    """
    _checked(complete_model(config))


def _checked(config: PretrainConfig) -> tuple[Described, Mixture, Fork | None]:
    """Return model, corpora and fork of a run whose settings fit."""
    described = describe(config.model, config.optim)
    mixture = read_mixture(config)
    plan = check_run(config, mixture, image_px=described.image_size)
    return described, mixture, find_fork(config, mixture, plan)


def _published_or_trained(
    config: PretrainConfig,
    progress: TextIO,
    validated: Callable[[int, Mapping[str, Any]], None],
    pins: Mapping[str, str],
) -> Manifest:
    what, _ = identity(configs.to_plain(config))
    recorded = Draft(config.out).read_note(hub.PINNED)
    pins = pins_of(config.model, pins if recorded is None else recorded)
    job = Job(
        out=config.out,
        kind=KIND,
        config=what,
        inputs=[*inputs_of(config), *weights_of(config, pins)],
        defaults=configs.defaults(PretrainConfig),
        output_format=FORMAT,
    )
    published = job.find_published()
    if published is not None:
        return published
    mixture = read_mixture(config)
    pairs = mixture.pairs
    # Before anything is written or started, so that mistakes are reported early.
    loaded = replace(config, model=pinned_model(config.model, pins))
    built = build(loaded.model, with_weights=False)
    check_pooled_token(built, config.step)
    plan = check_run(config, mixture, image_px=built.image_size)
    fork = find_fork(config, mixture, plan)
    lines = describe_mixture(config, mixture)
    check_optimizer(built, config.optim)
    if config.checkpoint is None and not Checkpoints(config.out).steps():
        check_weights(config.model)

    def say(line: str) -> None:
        print(f"pretrain: {line}", file=progress, flush=True)

    every = config.validation.every_epochs if pairs["val"] > 1 else None
    if every is None:
        say(f"no validation: {config.corpora[0]} has {pairs['val']} pairs in val")
    for line in lines:
        say(line)
    before = read_settings(config.out)
    # A second driver would kill this one's workers, taking them for those of a dead run.
    with job.begin(
        accepts=lambda draft, changed: may_resume(draft, config), plans=["settings", hub.PINNED]
    ) as draft:
        draft.note(hub.PINNED, pins)
        for line in record_changes(
            draft, before, config, lambda epochs: Plan.of(mixture.draws, config.batch, epochs)
        ):
            say(line)
        if fork is not None:
            for line in fork.lines:
                say(line)
            start_fork(fork, config, plan, built, draft, say)
        _train(loaded, mixture, plan, every, built, draft, say, validated)
        draft.check()
        return _publish(config, mixture, plan, built, job, draft, say)


def _train(
    config: PretrainConfig,
    mixture: Mixture,
    plan: Plan,
    every: int | None,
    built: Built,
    draft: Draft,
    say: Callable[[str], None],
    validated: Callable[[int, Mapping[str, Any]], None],
) -> None:
    """Resume from the state in the draft, train to the last step, and run pending validations."""
    checkpoints = Checkpoints(config.out)
    with connect_ray(), contextlib.closing(Listener(config, say, validated)) as listener:
        if not checkpoints.is_whole(plan.steps):
            check_resources(config, say)
            _fit(config, mixture, plan, every, built, listener.queue, say)
        listener.finish()
        for steps_done, epoch in steps_waiting(draft, plan, every).items():
            if steps_done in checkpoints.steps():
                listener.validate(epoch, steps_done)
        listener.finish()
        listener.raise_failures()
    with Journal(config, plan.steps) as journal:
        journal.add_scores(plan.steps)


def _publish(
    config: PretrainConfig,
    mixture: Mixture,
    plan: Plan,
    built: Built,
    job: Job,
    draft: Draft,
    say: Callable[[str], None],
) -> Manifest:
    _, how = identity(configs.to_plain(config))
    scores = read_scores(draft)
    chosen = epoch_to_publish(scores, config.publish, len(plan.epochs))
    checkpoints = Checkpoints(
        config.out, is_history=lambda steps: in_history(steps, plan, config.save.keep_every)
    )
    try:
        state = checkpoints.load(plan.ends()[chosen])
    except ArtifactError:
        # The last checkpoint is valid: training continued until it was.
        say(f"publishes the last epoch: the checkpoint of epoch {chosen + 1} is corrupt")
        chosen = len(plan.epochs) - 1
        state = checkpoints.load(plan.steps)
    if config.publish == "best" and (ignored := sorted(set(scores) - set(comparable(scores)))):
        say(
            "validated on another number of pairs than the last epoch, and not compared with it: "
            f"epochs {', '.join(str(epoch + 1) for epoch in ignored)}"
        )
    if chosen + 1 < len(plan.epochs):
        say(
            f"publishes epoch {chosen + 1} of {len(plan.epochs)}, the best; publish=last is another"
        )
    files = write_model(draft.folder, built, state["model"])
    rows = read_steps(draft.folder)
    history = checkpoints.prune_history()
    warnings = warnings_of(
        scores,
        rows,
        loss=config.step.loss,
        published=chosen,
        val_pairs=mixture.pairs["val"],
    )
    lineage = read_lineage(draft)
    seen_val = seen_val_warning(lineage[-1]) if lineage else None
    warnings += [seen_val] if seen_val else []
    for warning in warnings:
        say(f"warning: {warning}")
    rollbacks = read_rollbacks(draft)
    pairs_skipped = skipped_pairs(plan, skipped_steps(rollbacks), plan.steps)
    manifest = job.manifest(
        counts={
            "epochs": config.epochs,
            "steps": plan.steps,
            "pairs": {
                **mixture.pairs,
                "seen": pairs_seen(lineage, plan, plan.steps) - pairs_skipped,
            },
            **mixture.counts(),
        },
        files=files,
        notes={
            "computed": {
                "step": {
                    **how["step"],
                    "micro_batch": read_micro_batch(draft, config.step.micro_batch),
                },
                "data": how["data"],
                "trouble": how["trouble"],
                "out_of_memory": read_halvings(draft),
            },
            "lineage": lineage,
            "changed": read_changes(draft),
            "published_epoch": chosen + 1,
            "replaced": _replaced(draft),
            "skipped_checkpoints": checkpoints.corrupt(),
            **({"checkpoints": history} if history else {}),
            "ended": read_failures(draft),
            "rollbacks": rollbacks,
            "spikes": _spikes(rows),
            "validation": scores.get(chosen),
            "weights_sha256": files[encoder.WEIGHTS]["sha256"],
        },
        warnings=warnings,
    )
    write_report_files(config, mixture, manifest, built, scores, chosen)
    return draft.publish(manifest)


def _spikes(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of steps with a spike of the loss or of the gradient."""
    last = rows[-1] if rows else {}
    return {what: last.get(f"{what}_spikes", 0) for what in ("loss", "gradient")}


def check_resources(config: PretrainConfig, say: Callable[[str], None]) -> None:
    """Reject workers that do not fit on a single machine, and report unused GPUs.

    Ray would wait for the missing resources; a run on CPUs, with GPUs idle, would take weeks.

    Raises:
        ConfigError: If this machine has too few CPUs or GPUs for the minimum number of workers.
    """
    workers = config.workers
    fewest, _ = workers.bounds
    what = "the workers and their data" if fewest != 1 else "a worker and its data"
    # At least one more CPU prepares the data.
    check_room(fewest * workers.cpus + 1, fewest * workers.gpus, say, what=what)
    # It may wait for the training to end, but not for what this machine does not have.
    check_room(config.validation.cpus, config.validation.gpus, say, what="validation")
    resources = ray.cluster_resources()
    if resources.get("GPU", 0) and not workers.gpus:
        say(
            f"trains on CPUs, and the cluster has {resources['GPU']:g} GPUs: "
            "workers.gpus=1 uses them"
        )
    if workers.gpus and not config.validation.gpus:
        say("validates on CPUs, which may lag behind training: validation.gpus=1 gives it a GPU")


def _replaced(draft: Draft) -> dict[str, int]:
    """Return how many unreadable pairs were replaced, by shard and reason."""
    counts: Counter[str] = Counter()
    for name in draft.note_names("replaced"):
        counts.update(draft.read_note(name))
    return dict(sorted(counts.items()))


def dry_run_text(config: PretrainConfig) -> str:
    """Return an estimate of a run's compute, memory and time, as text.

    Raises:
        ConfigError: If a setting does not fit the corpus or the model.
        ArtifactError: If ``corpus`` is not a corpus.
    """
    config = complete_model(config)
    described, mixture, fork = _checked(config)
    info = memory.model_info(described, config.optim)
    lengths_N = _caption_tokens(config, mixture, sample=mixture.draws)
    about = describe_mixture(config, mixture)
    each_ms = sum(
        part.draws * rates.pair_ms(stored_px(part.manifest.config)) for part in mixture.parts
    )
    cost = estimate.estimate(
        config,
        info,
        lengths_N,
        steps_done=steps_before(config, fork),
        each_ms=each_ms / mixture.draws,
    )
    return dry_run.render(cost, about, () if fork is None else fork.lines)


def _caption_tokens(
    config: PretrainConfig, mixture: Mixture, *, sample: int = gpu_settings.SAMPLE
) -> np.ndarray:
    """Return the tokens of texts of train, with start and end, of every n-th pair."""
    # The index counts CLIP's tokens without start and end.
    lengths_N = text_tokens(config, mixture) + 2
    every_nth: np.ndarray = lengths_N[:: max(1, len(lengths_N) // sample)]
    return every_nth


def _fit(
    config: PretrainConfig,
    mixture: Mixture,
    plan: Plan,
    every: int | None,
    built: Built,
    queue: Any,
    say: Callable[[str], None],
) -> None:
    """Train until the checkpoint of the last step exists."""
    workers = config.workers
    source = stream_job.PairSource.put(
        read_training(config, mixture),
        seed=config.seed,
        image_px=built.image_size,
        data=config.data,
        tokenizer=built.tokenizer,
        teacher=find_teacher(config.step.distill, config.corpora),
    )
    returned = ray_train.fit(
        _work,
        {
            "config": configs.to_plain(config),
            "epochs": plan.epochs,
            "validated_every": every,
            "caption_tokens": _caption_tokens(config, mixture) if workers.gpus else None,
            "queue": queue,
            # In a list: Ray would resolve a top-level reference for every worker.
            "source": [source],
        },
        place=config.out,
        bounds=workers.bounds,
        cpus=workers.cpus,
        gpus=workers.gpus,
        accelerator=workers.accelerator,
        restarts=workers.restarts,
        say=say,
    )
    failed = returned.get("failed")
    if failed is not None:
        raise TrainingError(failed)


def _work(arguments: dict[str, Any]) -> dict[str, Any]:
    """Training function of each Ray Train worker."""
    config: PretrainConfig = configs.build(PretrainConfig, arguments["config"])
    plan = Plan([(size, steps) for size, steps in arguments["epochs"]])
    queue = arguments["queue"]
    workers, device = Workers.current(), ray_train.current_device()

    def batches(
        built: Built, steps_done: int, while_waiting: Callable[[], None]
    ) -> Generator[Batch]:
        pairs = stream_job.stream(
            arguments["source"][0],
            plan,
            steps_done=steps_done,
            rank=workers.rank,
            workers=workers.count,
            data_cpus=config.workers.data_cpus,
            while_waiting=while_waiting,
            pinned=device.type == "cuda",
        )
        known: set[str] = set()
        try:
            with contextlib.closing(pairs):
                for batch in pairs:
                    # Logged once per shard and reason; counts are noted again at the end.
                    if pairs.replaced.keys() - known:
                        for trouble in sorted(pairs.replaced.keys() - known):
                            queue.put(("say", f"pairs are replaced by others: {trouble}"))
                        known = set(pairs.replaced)
                        _note_replaced(config.out, steps_done, workers.rank, pairs.replaced)
                    yield batch
        finally:
            if pairs.replaced:
                _note_replaced(config.out, steps_done, workers.rank, pairs.replaced)

    callbacks = Callbacks(
        batches=batches,
        validate=lambda epoch, steps_done: queue.put(("validate", epoch, steps_done)),
        say=lambda line: queue.put(("say", line)),
        preempted=ray_train.is_preempted,
        save_requested=ray_train.SAVE_REQUEST.is_made,
        saved=ray_train.SAVE_REQUEST.answer,
    )
    try:
        run(
            config,
            plan,
            arguments["validated_every"],
            callbacks,
            workers=workers,
            device=device,
            caption_tokens=arguments["caption_tokens"],
        )
    # All workers raise this together, and would again after a restart by Ray.
    except TrainingError as error:
        return {"failed": str(error)}
    return {}


def _note_replaced(out: str, steps_done: int, rank: int, replaced: Mapping[str, int]) -> None:
    # Keyed by attempt and worker: a step that was repeated counts twice.
    Draft(out).note(f"replaced/{steps_done:09d}-{rank:04d}", dict(replaced))
