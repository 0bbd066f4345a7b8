"""Fine-tune a given model on a corpus, and evaluate it before and after.

1. tune     pretrain, from the weights of the given model; the best epoch on val
            (``pretrain/scores.py``)
2. select   benchmark of interpolations between the given and the tuned model (WiSE-FT), on val and
            on the tasks to retain
3. judge    benchmark of the given model and the selected one, on test and all other tasks

Each step is the job of its own command, with a folder in ``out``: an interrupted run resumes.
"""

import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from biovl.benchmark import benchmarks, encoders
from biovl.benchmark.config import BenchmarkConfig, BenchmarkWorkers, WiseFt
from biovl.benchmark.job import benchmark
from biovl.benchmark.report_files import predictions
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin
from biovl.core.tables import read_table
from biovl.finetune import card, start
from biovl.finetune.config import TEST, VAL, FinetuneConfig
from biovl.finetune.merge_job import Merger
from biovl.finetune.selection import Judgement, Selection, judge, points_of, select
from biovl.models import encoder
from biovl.models.weight_files import local_copy
from biovl.pretrain import job as pretrain_job
from biovl.pretrain.config import MAY_CHANGE, PretrainConfig, ValidationConfig
from biovl.runtime.connection import connect_ray
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

KIND = "model"
FORMAT = 1
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""

BEFORE, AFTER = "before", "after"
"""Names of the given and the published model in the report."""


@entry_point
def finetune(config: FinetuneConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Fine-tune a model, and publish its selected interpolation with the given model.

        out/
          open_clip_config.json  open_clip_model.safetensors …   stock open_clip loads local-dir:out
          README.md        scores before and after, and how the model was selected
          manifest.json    verdict, scores, alpha
          report/          the benchmark of both models on test, retained and other tasks
          selection/       the benchmark of all interpolations on val and retained tasks
          tuned/           the tuned model as pretrain publishes it: curves, model card
          base/            the given model, if it was given by name

    Raises:
        ConfigError: If a setting does not fit the corpus or the model.
        ArtifactError: If the model or corpus cannot be read, a retained task cannot be scored, or
            ``out`` holds another artifact or is being written by another process.
        TrainingError: If training diverged.
        StorageError: If a disk or bucket fails; the same command resumes the job.
    """
    known = encoders.describe(config.model)
    settings = start.settings_of(known)
    pairs = _pairs(config)
    inputs = [
        Input(name="corpus", uri=config.corpus, fingerprint=fingerprint(config.corpus)),
        Input(name="model", uri=config.model, fingerprint=known.fingerprint),
    ]
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["workers"])
    published = job.find_published()
    if published is not None:
        return published
    # All that can be wrong, before hours of training.
    pretrain_job.check(_training(config, settings, pairs))
    _open_tasks(config)
    with job.begin(accepts=functools.partial(_accepts, config)) as draft, connect_ray():
        base = start.base_folder(known, below(config.out, "base"))
        given = {"architecture": base, "weights": base}
        tuned = pretrain_job.pretrain(_training(config, given, pairs), progress=progress)
        selection = _select(config, base, progress)
        after = WiseFt(base=base, tuned=_tuned(config), alphas=(selection.alpha,))
        (uri,) = after.models().values()
        report = _judged(config, base, uri, progress)
        draft.check()
        return _publish(config, job, draft, base, tuned, selection, report, pairs, progress)


def dry_run_text(config: FinetuneConfig) -> str:
    """Return an estimate of the training run as text.

    Raises:
        ConfigError: If a setting does not fit the corpus or the model.
        ArtifactError: If ``corpus`` is not a corpus, or the model cannot be read.
    """
    settings = start.settings_of(encoders.describe(config.model))
    pairs = _pairs(config)
    judged = len(config.alphas) * pairs[VAL] + 2 * pairs[TEST]
    return pretrain_job.dry_run_text(_training(config, settings, pairs)) + (
        f"\n  After it, {judged:,} pairs are embedded to select and judge the model, and the "
        f"images of {len(config.retained) + len(config.tasks)} other tasks.\n"
    )


def _accepts(config: FinetuneConfig, draft: Draft, changed: set[str]) -> bool:
    """Return whether only settings changed with which a run of pretrain resumes."""
    before, now = (draft.read_note("begun") or {})["config"], configs.to_plain(config)

    def fixed(plain: Mapping[str, Any], section: str) -> dict[str, Any]:
        return {k: v for k, v in plain[section].items() if k not in MAY_CHANGE[section]}

    return changed <= {"step", "data"} and all(
        fixed(before, section) == fixed(now, section) for section in changed
    )


def _pairs(config: FinetuneConfig) -> dict[str, int]:
    """Return the number of pairs by split.

    Raises:
        ArtifactError: If val or test has fewer than two.
    """
    pairs: dict[str, int] = read_manifest(config.corpus, "corpus").counts["pairs"]
    for split, use in ((VAL, "select the model"), (TEST, "judge it")):
        if pairs[split] < 2:
            raise ArtifactError(
                f"{config.corpus} has {pairs[split]} {split} pairs to {use} on; assemble with a "
                f"larger split.{split}_permyriad"
            )
    return pairs


def _tuned(config: FinetuneConfig) -> str:
    return below(config.out, "tuned")


def _training(
    config: FinetuneConfig, settings: Mapping[str, Any], pairs: Mapping[str, int]
) -> PretrainConfig:
    """Return the run of pretrain."""
    steps = config.epochs * (pairs["train"] // config.batch.pairs)
    return PretrainConfig(
        corpus=config.corpus,
        out=_tuned(config),
        model=Plugin("open_clip", settings),
        epochs=config.epochs,
        batch=config.batch,
        optim=config.optim.in_pretrain(steps),
        step=config.step,
        data=config.data,
        validation=ValidationConfig(gpus=config.workers.gpus and 1, cpus=config.workers.cpus),
        workers=config.workers,
        deterministic=config.deterministic,
        seed=config.seed,
    )


def _benchmark(config: FinetuneConfig, name: str, tasks: Mapping[str, Plugin]) -> dict[str, Any]:
    workers = BenchmarkWorkers(cpus=config.workers.cpus, gpus=config.workers.gpus)
    return {
        "out": below(config.out, name),
        "tasks": {**tasks, **config.retained},
        "cache": below(config.out, ".draft/embeddings"),
        "resamples": config.resamples,
        "seed": config.seed,
        "workers": workers,
    }


def _retrieval(config: FinetuneConfig, split: str) -> Plugin:
    return Plugin("retrieval", {"corpus": config.corpus, "split": split})


def _open_tasks(config: FinetuneConfig) -> None:
    """Open the data of the retained and the other tasks, without reading images.

    Raises:
        ConfigError: If a task or setting is unknown.
        ArtifactError: If its data cannot be read.
    """
    if not config.tasks and not config.retained:
        return
    settings = _benchmark(config, "report", config.tasks)
    described, skipped = benchmarks.resolve_tasks(BenchmarkConfig(**settings, model=config.model))
    for name, why in skipped:
        raise ArtifactError(f"{name}: {why}")
    for name, plugin in described.items():
        try:
            plugins.make(benchmarks.TASKS, plugin).data()
        except BiovlError as error:
            raise type(error)(f"{name}: {error}") from error


def _select(config: FinetuneConfig, base: str, progress: TextIO) -> Selection:
    """Score all interpolations on val and retained tasks, and select one."""
    settings = _benchmark(config, "selection", {VAL: _retrieval(config, VAL)})
    wise_ft = WiseFt(base=base, tuned=_tuned(config), alphas=config.alphas)
    benchmark(BenchmarkConfig(**settings, wise_ft=wise_ft), progress=progress)
    points = points_of(_scores(settings["out"])["scores"], config.alphas, VAL, [*config.retained])
    found = select(points, retained_loss=config.retained_loss, gain_share=config.gain_share)
    Progress("finetune", progress).say(f"publishes alpha {found.alpha:g}: {found.reason}")
    return found


def _judged(config: FinetuneConfig, base: str, after: str, progress: TextIO) -> dict[str, Any]:
    """Score the given and the selected model on test and all other tasks."""
    settings = _benchmark(config, "report", {TEST: _retrieval(config, TEST), **config.tasks})
    models = {BEFORE: base, AFTER: after}
    benchmark(BenchmarkConfig(**settings, models=models), progress=progress)
    return _scores(settings["out"])


def _scores(report: str) -> dict[str, Any]:
    """Return the scores of a report.

    Raises:
        ArtifactError: If a task has none.
    """
    found: dict[str, Any] = json.loads(Folder(report).read("scores.json"))
    if found["skipped"]:
        why = "; ".join(f"{each['task']}: {each['reason']}" for each in found["skipped"])
        raise ArtifactError(f"not every task could be scored: {why}")
    return found


def _publish(
    config: FinetuneConfig,
    job: Job,
    draft: Draft,
    base: str,
    tuned: Manifest,
    selection: Selection,
    report: Mapping[str, Any],
    pairs: Mapping[str, int],
    progress: TextIO,
) -> Manifest:
    with local_copy(base) as given, local_copy(_tuned(config)) as trained:
        merger = Merger(Path(str(given)), Path(str(trained)))
        files = merger.save(selection.alpha, draft.folder)
    judged = judge(
        *(_predictions(config, model) for model in (BEFORE, AFTER)),
        resamples=config.resamples,
        seed=config.seed,
    )
    rows = card.rows_of(report, BEFORE, AFTER)
    warnings = _warnings(config, judged, pairs)
    Progress("finetune", progress).warn(warnings)
    manifest = job.manifest(
        counts={
            "pairs": dict(pairs),
            "epochs": config.epochs,
            "published_epoch": tuned.notes["published_epoch"],
            "alpha": selection.alpha,
            "parameters": merger.parameters,
            "verdict": judged.verdict,
        },
        files=files,
        notes={
            "test": asdict(judged),
            "scores": rows,
            "selection": selection.reason,
            "weights_sha256": files[encoder.WEIGHTS]["sha256"],
        },
        warnings=warnings,
    )
    stats = json.loads(Folder(config.corpus).read("stats.json"))
    draft.folder.write("README.md", card.model_card(manifest, config, stats).encode())
    return draft.publish(manifest)


def _predictions(config: FinetuneConfig, model: str) -> pa.Table:
    folder = Folder(below(config.out, "report"))
    return read_table(folder, predictions(model, TEST))


def _warnings(config: FinetuneConfig, judged: Judgement, pairs: Mapping[str, int]) -> list[str]:
    found = []
    if judged.verdict != "better":
        found.append(
            f"on {pairs[TEST]:,} test pairs the model is {judged.verdict} than the one it began "
            f"with: mean reciprocal rank {judged.before:.3f} before, {judged.after:.3f} after"
        )
    if not config.retained:
        found.append(
            "no retained task was given, so what else the model could do was not measured: "
            "retained.NAME=zero_shot(data=DIR)"
        )
    return found
