"""Sweep: pretrain on a corpus with many settings, as trials of Ray Tune.

A trial runs the ordinary pretrain job: the driver of a Ray Train run, inside a trial of Ray Tune.
Each trial resumes from its folder, and the sweep's draft records the trials that have ended.
Ray stores nothing: the same command completes an interrupted sweep.
"""

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.util.placement_group import remove_placement_group

from biovl.benchmark.retrieval import mean_recall_at_1
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Input, Manifest, find_manifest, fingerprint
from biovl.core.errors import (
    ArtifactError,
    BiovlError,
    RayError,
    StorageError,
    TrainingError,
    TrainingStopped,
)
from biovl.core.leases import STALE_S, acquire_lease
from biovl.models import hub
from biovl.pretrain.config import PretrainConfig, PretrainWorkers
from biovl.pretrain.job import pretrain
from biovl.pretrain.models import identify_weights, named_weights, pins_of
from biovl.runtime import ray_train
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.connection import connect_ray
from biovl.runtime.job import Job, entry_point
from biovl.sweep import report
from biovl.sweep.config import SweepConfig
from biovl.sweep.outcomes import FAILED, FINISHED, STOPPED, outcome_of, scores_of
from biovl.sweep.trials import (
    Trial,
    check_rungs,
    corpora_of,
    defaults_of,
    identity_of,
    times_of,
    trials_of,
)

KIND = "sweep"
FORMAT = 1
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""

_RETRIES = 3
"""Retries of a trial whose process or node died; it resumes from its checkpoint."""

_GIVE_BACK_S = 5.0

_MAY_RESUME = "may_resume"
"""Whether a failure may pass, in the note of a trial that ended."""

_OVER = "over"
"""Note in the draft of a trial that will not resume."""

_RANKED_BY, _TIME = "mean_recall_at_1", "training_done"


@entry_point
def sweep(config: SweepConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Train the models of a table of settings, and publish it.

        out/
          README.md                    the table in the columns of the paper, and its plots
          trials.parquet  trials.csv   a row per trial: settings, status, scores, time
          curves.parquet               a row per trial and validated epoch
          best.yaml                    the best settings, a recipe for pretrain
          plots/                       scores against context and batch, curves, wasted tokens
          trials/00-…/                 the model of each trial, as pretrain publishes it
          manifest.json                configurations and results of all trials

    A trial that fails because of its settings, such as a diverging loss, is a row with the reason.

    Raises:
        ConfigError: If a trial is not a valid run of pretrain on this corpus.
        ArtifactError: If ``corpus`` is not a corpus, or ``out`` holds another artifact, such as a
            sweep whose corpora or initial weights have changed, or is being written by another
            process.
        TrainingError: If all trials failed, or one for a reason that may not recur, such as a lost
            node; the same command retries them.
        StorageError: If a disk or bucket fails; the same command resumes the sweep.
    """
    trials = trials_of(config)
    inputs = [
        Input(name="corpus", uri=uri, fingerprint=fingerprint(uri))
        for uri in corpora_of(config, trials)
    ]
    # Each only once: trials share weights of many gigabytes, which are read to identify them.
    weights = dict.fromkeys(named for trial in trials for named in named_weights(trial.config))
    pins: dict[str, str] = Draft(config.out).read_note(hub.PINNED) or {}
    for trial in trials:
        pins |= pins_of(trial.config.model, pins)
    inputs += identify_weights(weights, config.out, pins)
    job = Job(
        out=config.out,
        kind=KIND,
        config=identity_of(config, trials),
        inputs=inputs,
        defaults=defaults_of(trials),
        output_format=FORMAT,
    )
    published = job.find_published()
    if published is not None:
        _clear_marked(trials)
        return published
    check_rungs(config, trials)

    def say(line: str) -> None:
        print(f"sweep: {line}", file=progress, flush=True)

    with job.begin(plans=[hub.PINNED]) as draft:
        # All trials load the same commits, however late they begin.
        draft.note(hub.PINNED, pins)
        left = [trial for trial in trials if not _is_over(draft, trial)]
        if len(left) < len(trials):
            say(f"{len(trials) - len(left)} of {len(trials)} trials have ended")
        if left:
            # Trials that have ended report their results to the scheduler again.
            _run(config, trials if config.asha.reduction > 1 else left, draft, say)
        draft.check()
        ended = {trial.name: draft.read_note(_ended(trial.name)) or {} for trial in trials}
        _check_failures(ended)
        outcomes = [outcome_of(trial, ended[trial.name]) for trial in trials]
        if all(outcome.status == FAILED for outcome in outcomes):
            raise TrainingError(
                f"all {len(outcomes)} trials failed; the first: {outcomes[0].reason}\n"
                "The same command tries them again."
            )
        best = report.write(draft.folder, config, outcomes)
        counts = dict.fromkeys((FINISHED, STOPPED, FAILED), 0)
        for outcome in outcomes:
            counts[outcome.status] += 1
        manifest = job.manifest(
            counts={"trials": {"total": len(trials), **counts}},
            notes={
                "best": best,
                "outcomes": {
                    outcome.trial.name: {
                        "status": outcome.status,
                        "reason": outcome.reason,
                        "scores": dict(outcome.final),
                    }
                    for outcome in outcomes
                },
            },
            warnings=[
                f"{outcome.trial.name}: {warning}"
                for outcome in outcomes
                for warning in outcome.warnings
            ],
        )
        # Until the sweep is published, the same command reads scores and checkpoints of unfinished
        # trials again. The mark lets it delete them if this process is killed in between.
        for trial in trials:
            if find_manifest(trial.config.out) is None:
                Draft(trial.config.out).note(_OVER, {})
        draft.publish(manifest)
        _clear_marked(trials)
        return manifest


def _check_failures(ended: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that no trial failed for a reason that may pass.

    Args:
        ended: How each trial ended, by name; empty for a published one.

    Raises:
        TrainingError: With the reason of the first such trial.
    """
    resumable = [name for name, noted in ended.items() if noted.get(_MAY_RESUME)]
    if resumable:
        raise TrainingError(
            f"{len(resumable)} of {len(ended)} trials failed, and not by a loss that diverged. The "
            f"first, {resumable[0]}: {ended[resumable[0]]['reason']}\n"
            "The sweep is not published; the same command resumes these trials."
        )


def _clear_marked(trials: Sequence[Trial]) -> None:
    """Delete the drafts of trials that will not resume, as their sweep is published."""
    for trial in trials:
        draft = Draft(trial.config.out)
        if draft.read_note(_OVER) is not None:
            draft.clear()


def dry_run_text(config: SweepConfig) -> str:
    """Return the trials of a sweep with their settings and estimated times, as text.

    Raises:
        ConfigError: If a trial is not a valid run of pretrain on this corpus.
        ArtifactError: If ``corpus`` is not a corpus.
    """
    trials = trials_of(config)
    check_rungs(config, trials)
    return report.dry_run(config, trials)


def at_once(trials: Sequence[Trial], resources: Mapping[str, float]) -> int:
    """Return the number of trials that the resources can run concurrently, at least one.

    Training workers keep their CPUs while others load pairs and validate: if workers took all
    CPUs, each trial would wait for pairs forever.

    Args:
        trials: The trials; any of them may run concurrently.
        resources: Resources of the whole cluster, by Ray's names.
    """
    rooms = []
    for trial in trials:
        for name, needed in _needs(trial.config).items():
            if needed:
                # Guards against rounding of fractional CPUs.
                rooms.append(math.floor(resources.get(name, 0) / needed + 1e-6))
    return max(1, min(rooms))


def _needs(config: PretrainConfig) -> dict[str, float]:
    workers: PretrainWorkers = config.workers
    # A trial that has no workers trains in its own process.
    count = max(1, workers.bounds[0])
    # One CPU is shared by loading and validation.
    beside = max(1.0, 0.0 if config.validation.gpus else config.validation.cpus)
    return {
        "CPU": count * workers.cpus + beside,
        "GPU": count * workers.gpus + config.validation.gpus,
    }


def _trial_resources(arguments: dict[str, Any]) -> tune.PlacementGroupFactory:
    """Return the resources of a trial's own process."""
    config: PretrainConfig = configs.build(PretrainConfig, arguments["trial"]["config"])
    _, workers = config.workers.bounds
    # A driver only waits; CPUs reserved for it would be missing for workers and data loading. Tune
    # requires some resource: a mebibyte.
    own = {"memory": float(1 << 20)} if workers else {"CPU": config.workers.cpus}
    return tune.PlacementGroupFactory([own])


def _ended(name: str) -> str:
    return f"ended/{name}"


def _is_over(draft: Draft, trial: Trial) -> bool:
    """Return whether a trial finished or was stopped; a failed trial is tried again."""
    if find_manifest(trial.config.out) is not None:
        return True
    return (draft.read_note(_ended(trial.name)) or {}).get("status") == STOPPED


def _run(config: SweepConfig, trials: Sequence[Trial], draft: Draft, say: Any) -> None:
    """Run trials until each has ended, and note the results of unpublished ones.

    Raises:
        KeyboardInterrupt: If Ctrl-C stopped trials.
    """
    folder = draft.folder
    folder.delete_folder(".draft/tune")
    for trial in trials:
        if not _is_over(draft, trial):
            # Of an earlier attempt.
            draft.note(_ended(trial.name), {})
    # Disable Tune's progress boxes, its files next to the trials, and a check that fails for a
    # trial that fails before its first epoch.
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
    # After Ctrl-C it recommends Tuner.restore, which knows nothing of this draft.
    logging.getLogger("ray.tune.tune").setLevel(logging.ERROR)
    asha = config.asha
    times_by_name = {trial.name: times_of(config, trials[0], trial) for trial in trials}
    scheduler = None
    if asha.reduction > 1:
        scheduler = ASHAScheduler(
            time_attr=_TIME,
            metric=_RANKED_BY,
            mode="max",
            # Beyond the last epoch: Tune would stop a trial there before it publishes its model.
            max_t=max(
                math.ceil(max(times[-1] for times in times_by_name.values())) + 1,
                asha.first_epochs,
            ),
            grace_period=asha.first_epochs,
            reduction_factor=asha.reduction,
        )
    with connect_ray():
        concurrent = config.concurrent or at_once(trials, ray.cluster_resources())
        say(f"{len(trials)} trials, {min(concurrent, len(trials))} at a time")
        grid: Any = tune.grid_search(
            [
                {
                    "name": trial.name,
                    "config": configs.to_plain(trial.config),
                    "times": times_by_name[trial.name],
                    "sweep": config.out,
                    "working_folder": os.getcwd(),
                }
                for trial in trials
            ]
        )
        tuner = tune.Tuner(
            tune.with_resources(_run_trial, _trial_resources),
            param_space={"trial": grid},
            tune_config=tune.TuneConfig(
                scheduler=scheduler,
                max_concurrent_trials=concurrent,
                # A stopped trial leaves threads behind.
                reuse_actors=scheduler is None,
                trial_dirname_creator=lambda trial: str(trial.config["trial"]["name"]),
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=folder.at(".draft"),
                storage_filesystem=folder.filesystem,
                failure_config=tune.FailureConfig(max_failures=_RETRIES),
                callbacks=[_Endings(config.out)],
                verbose=0,
            ),
        )
        # Iterable, although its type does not declare it.
        results: Any = tuner.fit()
    errors = {
        result.config["trial"]["name"]: result.error
        for result in results
        if result.error is not None and result.config is not None
    }
    for trial in trials:
        if find_manifest(trial.config.out) is not None:
            continue
        noted = draft.read_note(_ended(trial.name)) or {}
        if trial.name in errors:
            reason = str(errors[trial.name]).strip().splitlines()[-1]
            noted = _failure(draft, trial.name, trial.config.out, TrainingStopped(reason))
        elif not noted:
            # A trial that ends publishes its model or notes the reason: this one did not end. Tune
            # catches Ctrl-C itself, stops all trials and returns as if they were done.
            raise KeyboardInterrupt
        draft.note(_ended(trial.name), noted)
        say(f"{trial.name} {noted['status']} {noted['reason']}".rstrip())


def _run_trial(arguments: dict[str, Any]) -> None:
    """Function of a Ray Tune trial: the driver of one run of pretrain."""
    trial = arguments["trial"]
    # Tune changes the working directory of trials, which would change relative paths.
    if os.path.isdir(trial["working_folder"]):
        os.chdir(trial["working_folder"])
    config: PretrainConfig = configs.build(PretrainConfig, trial["config"])
    draft = Draft(trial["sweep"])
    noted = draft.read_note(_ended(trial["name"])) or {}

    def tell(epoch: int, scores: Mapping[str, Any]) -> None:
        # The last epoch is reported once its model is published: earlier, Tune might stop the
        # trial during publication.
        if epoch + 1 < config.epochs:
            tune.report({_TIME: trial["times"][epoch], _RANKED_BY: mean_recall_at_1(dict(scores))})

    for epoch, scores in sorted(scores_of(config.out).items()):
        tell(epoch, scores)
    if noted.get("status") == STOPPED:
        return
    lines: Any = _Named(trial["name"], sys.stderr)
    try:
        _wait_for_an_earlier_driver(config.out)
        pretrain(config, progress=lines, validated=tell, pins=draft.read_note(hub.PINNED))
    except BiovlError as error:
        draft.note(_ended(trial["name"]), _failure(draft, trial["name"], config.out, error))
        return
    last = scores_of(config.out)[config.epochs - 1]
    tune.report({_TIME: trial["times"][-1], _RANKED_BY: mean_recall_at_1(last)})


def _failure(draft: Draft, name: str, out: str, error: BiovlError) -> dict[str, Any]:
    """Return the note of a failed trial.

    A trial that stops twice without a checkpoint in between would stop again, for instance because
    its settings need more memory than there is: only the first time the failure may pass.

    Args:
        draft: Draft of the sweep.
        name: Name of the trial.
        out: Folder of the trial.
        error: What ended it.
    """
    may_resume = isinstance(error, StorageError | RayError)
    if isinstance(error, TrainingStopped):
        steps = max(Checkpoints(out).steps(), default=0)
        before = draft.read_note(f"stopped/{name}")
        may_resume = before is None or steps > before["steps"]
        draft.note(f"stopped/{name}", {"steps": steps})
    return {"status": FAILED, "reason": str(error), _MAY_RESUME: may_resume}


def _wait_for_an_earlier_driver(out: str) -> None:
    """Wait until the lease of an ended driver, or of one on a lost node, expires.

    Raises:
        ArtifactError: If another process is writing the folder.
    """
    deadline = time.monotonic() + STALE_S + 10
    while find_manifest(out) is None:
        try:
            with acquire_lease(out, settle_s=0):
                return
        except ArtifactError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


class _Endings(tune.Callback):
    """Records stopped trials, and releases the resources of trials whose process died.

    Ray Train's own cleanup of placement groups asks the dashboard which drivers are dead; without a
    dashboard it never frees them, and the next trial would wait forever.
    """

    def __init__(self, out: str) -> None:
        self._draft = Draft(out)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Handle a trial that the scheduler stopped or whose function returned."""
        self._later(trial)
        own = trial.config["trial"]
        key = _ended(own["name"])
        # A trial that returned has published a model, or noted the reason.
        if find_manifest(own["config"]["out"]) is None and not self._draft.read_note(key):
            self._draft.note(key, {"status": STOPPED, "reason": ""})

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Handle a trial whose process died and will be retried."""
        self._later(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Handle a trial whose process died and has no retries left."""
        self._later(trial)

    def _later(self, trial: Any) -> None:
        group = ray_train.reserved_placement_group(trial.config["trial"]["config"]["out"])
        if group is None:
            return
        # After this delay everything that could restart the workers has ended with the trial.
        timer = threading.Timer(_GIVE_BACK_S, remove_placement_group, [group])
        timer.daemon = True
        timer.start()


class _Named:
    """A stream that prefixes the lines of a trial with its name."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream

    def write(self, text: str) -> int:
        written = text.replace("pretrain:", f"{self._name}:", 1)
        return self._stream.write(written)

    def flush(self) -> None:
        self._stream.flush()
