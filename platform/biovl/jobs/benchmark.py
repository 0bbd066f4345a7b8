"""Models and benchmarks to ``report/``.

1. open     on the driver: what each task asks about; labels and texts, no image
2. embed    a model at a time: actors with a copy of it take units of images and texts
3. judge    a task of Ray for every model and task; before, what is learnt on Ray Train (vqa)
4. compare  on the driver: scores, models against models, the table

Vectors are kept in a cache by what made them, and every step leaves receipts: a killed run goes on,
and a later one embeds only what is new.
"""

import contextlib
import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.data import ActorPoolStrategy

from biovl import config as configs
from biovl import plugins
from biovl.errors import ArtifactError, BiovlError, ConfigError, StorageError
from biovl.evaluation import benchmarks, embedding, encoders, leak_report, report
from biovl.evaluation.between import WiseFt, name_of
from biovl.evaluation.config import BenchmarkConfig
from biovl.evaluation.embedding import Wanted
from biovl.evaluation.encoders import Known, Model
from biovl.evaluation.plots import between_plot
from biovl.evaluation.report import Judged
from biovl.evaluation.stored_images import parts_of
from biovl.evaluation.tasks import Embedded, Outcome, Task
from biovl.evaluation.tasks.vqa import Vqa
from biovl.jobs.connection import connected
from biovl.jobs.failures import checked, resumable, returned
from biovl.jobs.progress import Progress
from biovl.jobs.vqa import answered_and_judged
from biovl.leases import held
from biovl.plugins import Plugin
from biovl.storage import (
    Draft,
    Folder,
    Input,
    Manifest,
    fingerprint,
    published,
    to_json,
)

KIND = "report"

TASKS = "evaluation.tasks"


@dataclass(frozen=True)
class Asked:
    """A task that is ready: built, and its data opened."""

    name: str
    plugin: Plugin
    data: Any
    needs_text: bool
    learns: Vqa | None
    """The task itself where a model learns before it is judged: it asks for no vectors."""


def benchmark(config: BenchmarkConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Judge models and publish what came of it.

        out/
          scores.json              every score with its interval; differences between models
          table.md                 the same to read, with what was left out and why
          plots/                   PNG
          predictions/<model>/<task>.parquet     from which every score can be computed again
          leaks/<model>/<task>.parquet           near duplicates in the corpus of ``index``
          manifest.json            settings, fingerprints of models and data, versions

    Raises:
        ArtifactError: If a model or the data of the only task is not there, or ``out`` holds
            something else.
        ConfigError: If a task, a benchmark or a setting is not known.
        StorageError: If a disk or bucket does not do its work; the run can be repeated.
        BiovlError: If nothing could be scored; says why.
    """
    with resumable(config.out):
        return _benchmark(config, progress)


def _benchmark(config: BenchmarkConfig, report_to: TextIO) -> Manifest:
    say = Progress("benchmark", report_to)
    known = {name: encoders.describe(uri) for name, uri in config.named_models().items()}
    described, skipped = benchmarks.resolved(config)
    asked, refused = _opened(described, say)
    if not asked:
        raise BiovlError(_reasons([*skipped, *refused]))
    plain = configs.to_plain(config)
    # The same models and data give the same bytes wherever they are published and whoever works.
    for name in ("out", "workers", "cache"):
        del plain[name]
    inputs = _inputs(config, known, asked)
    manifest = published(config.out, KIND, plain, inputs)
    if manifest is None:
        with held(config.out) as lease:
            draft = Draft.begin(config.out, KIND, plain, inputs)
            wanted = _wanted(config, known, asked)
            with connected():
                for name in known:
                    mine = [
                        item
                        for (model, _), own in wanted.items()
                        if model == name
                        for item in own.all()
                    ]
                    _embed(config, name, mine, say)
                _learn(config, draft, known, asked, say)
                judged = _judge(config, draft, known, asked, wanted, say)
            judged += [Judged(model="", task=task, skipped=why) for task, why in skipped + refused]
            manifest = _manifest(config, draft, judged, plain, inputs)
            lease.check()
            draft.publish(manifest)
    whole, _, parts = Folder(config.out).read("table.md").decode().partition(report.BROKEN_DOWN)
    more = f"Broken down by parts: {config.out}/table.md\n" if parts else ""
    print(f"\n{whole}{more}", file=report_to, flush=True)
    return manifest


def _opened(
    described: Mapping[str, Plugin], say: Progress
) -> tuple[list[Asked], list[tuple[str, str]]]:
    """Return the tasks whose data can be read, and why that of others cannot."""
    asked, refused = [], []
    say.stage("opening", len(described))
    for name, plugin in described.items():
        task: Task = plugins.make(TASKS, plugin)
        try:
            data = task.data()
        except (ArtifactError, OSError) as error:
            if len(described) == 1 or isinstance(error, StorageError):
                raise
            refused.append((name, str(error)))
        else:
            learns = task if isinstance(task, Vqa) else None
            asked.append(Asked(name, plugin, data, task.needs_text, learns))
        say.add(name)
    return asked, refused


def _inputs(
    config: BenchmarkConfig, known: Mapping[str, Known], asked: Sequence[Asked]
) -> list[Input]:
    models = [
        Input(name=f"model {name}", uri=model.uri, fingerprint=model.fingerprint)
        for name, model in known.items()
    ]
    corpora = [
        Input(name=name, uri=uri, fingerprint=fingerprint(uri))
        for name, uri in (("index", config.index), ("figures", config.figures))
        if uri
    ]
    return [*models, *corpora] + [
        Input(name=f"data {task.name}", uri=task.data.name, fingerprint=_fingerprint(task.data))
        for task in asked
    ]


def _fingerprint(data: Any) -> str:
    """Return what identifies the images, labels, texts and answers of a benchmark."""
    known = hashlib.blake2b(data.images.fingerprint.encode(), digest_size=16)
    for item in fields(data):
        value = getattr(data, item.name)
        if isinstance(value, np.ndarray):
            known.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, list | tuple):
            known.update(repr(value).encode("utf-8", "surrogatepass"))
    return known.hexdigest()


def _wanted(
    config: BenchmarkConfig, known: Mapping[str, Known], asked: Sequence[Asked]
) -> dict[tuple[str, str], "_Vectors"]:
    """Return what must be embedded for each model and task."""
    found = {}
    for name, model in known.items():
        for task in asked:
            if task.needs_text and not model.has_text:
                continue
            if task.learns is not None:
                found[name, task.name] = _Vectors([], None)
                continue
            parts = [
                Wanted(
                    model=model,
                    source=part,
                    cache=config.cache_uri(),
                    precision=config.precision,
                    batch=config.batch,
                    per_unit=config.per_unit,
                )
                for part in parts_of(task.data.images)
            ]
            texts = list(getattr(task.data, "texts", ())) if task.needs_text else []
            of_texts = embedding.wanted_texts(parts[0], texts) if texts else None
            found[name, task.name] = _Vectors(parts, of_texts)
    return found


@dataclass(frozen=True)
class _Vectors:
    """What a task needs of a model."""

    images: list[Wanted]
    texts: Wanted | None

    def all(self) -> list[Wanted]:
        return [*self.images, *([self.texts] if self.texts is not None else [])]


class _Embed:
    """One copy of a model on a worker, which embeds unit after unit."""

    def __init__(self, config: BenchmarkConfig, known: Known, todo: list[Any]) -> None:
        self._config, self._known, self._todo = config, known, todo

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return returned(self._config.cache_uri(), lambda: self._embed(row))

    def _embed(self, row: dict[str, Any]) -> dict[str, Any]:
        wanted, threads = self._wanted[str(row["uri"])], max(1, int(self._config.workers.cpus))
        receipt = embedding.embed_unit(wanted, self._model, int(row["number"]), threads)
        return {"rows": receipt["rows"]}

    @functools.cached_property
    def _wanted(self) -> dict[str, Wanted]:
        found: dict[str, Wanted] = ray.get(self._todo[0])
        return found

    # Loaded with the first unit, which can say why it fails: an actor that cannot begin only dies.
    @functools.cached_property
    def _model(self) -> Model:
        device = "cuda" if self._config.workers.gpus else "cpu"
        return encoders.load(self._known.uri, device=device, precision=self._config.precision)


def _embed(config: BenchmarkConfig, name: str, wanted: Sequence[Wanted], say: Progress) -> None:
    """Embed for one model what is not kept yet."""
    todo = {item.uri: item for item in wanted if not item.published()}
    if not todo:
        return
    with contextlib.ExitStack() as leases:
        pending, total = [], 0
        for uri, item in todo.items():
            leases.enter_context(held(uri))
            draft = Draft.begin(uri, embedding.KIND, item.plain, embedding.inputs(item))
            finished = {int(kept.rpartition("/")[2]) for kept in draft.names_noted("embedded")}
            pending += [{"uri": uri, "number": n} for n in range(item.units) if n not in finished]
            total += item.units
        say.stage(f"embedding with {name}: unit", total, done_before=total - len(pending))
        if pending:
            workers = config.workers
            embed: Any = _Embed
            done = ray.data.from_items(pending, override_num_blocks=len(pending)).map(
                embed,
                fn_constructor_args=(config, wanted[0].model, [ray.put(todo)]),
                compute=ActorPoolStrategy(size=min(workers.count, len(pending))),
                num_cpus=workers.cpus,
                num_gpus=workers.gpus,
            )
            seen = 0
            for row in done.iter_rows():
                seen += checked(row)["rows"]
                say.add(f"{seen:,} images and texts ({seen / say.seconds:.0f}/s)")
        for item in todo.values():
            embedding.publish(item)


def _learn(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, Known],
    asked: Sequence[Asked],
    say: Progress,
) -> None:
    """Let models learn what cannot be judged by vectors, one after the other; keep the outcome."""
    for name, model in known.items():
        for task in asked:
            receipt = f"judged/{name}/{task.name}"
            if task.learns is None or not model.has_text or draft.noted(receipt) is not None:
                continue
            place = draft.folder.uri.rstrip("/") + f"/.draft/learning/{name}/{task.name}"
            what = f"{name} {task.name}"
            try:
                outcome = answered_and_judged(
                    *(task.learns, task.data, model.uri, config.workers, place),
                    say=lambda line, what=what: say.say(f"{what}: {line}"),  # type: ignore[misc]
                )
            except (ArtifactError, ConfigError) as error:
                draft.note(receipt, {"skipped": str(error)})
            else:
                reasons = Counter(outcome.notes["unreadable_images"].values())
                draft.note(receipt, _kept(draft.folder, name, task.name, outcome, reasons))


def _judge(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, Known],
    asked: Sequence[Asked],
    wanted: Mapping[tuple[str, str], _Vectors],
    say: Progress,
) -> list[Judged]:
    """Ask every model every task, each on a worker; return what came of it, in order."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    running: dict[Any, tuple[str, str]] = {}
    say.stage("judging", len(known) * len(asked))
    work = ray.remote(num_cpus=1)(_judged)
    for task in asked:
        shared = None
        for name in known:
            key = (name, task.name)
            kept = draft.noted(f"judged/{name}/{task.name}")
            if key not in wanted:
                why = f"{name} has no text tower, which {task.plugin.name} needs"
                found[key] = {"skipped": why}
            elif kept is not None:
                found[key] = kept
            else:
                shared = shared or ray.put(task.data)
                images = wanted[key].images
                arguments = (config, task.name, task.plugin, shared, name, images)
                running[work.remote(*arguments)] = key
    for _ in found:
        say.add()
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        key = running.pop(ready)
        found[key] = dict(checked(ray.get(ready)))
        say.add(" ".join(key))
    return [
        Judged(model=name, task=task.name, **found[name, task.name])
        for task in asked
        for name in known
    ]


def _judged(
    config: BenchmarkConfig,
    name: str,
    plugin: Plugin,
    data: Any,
    model: str,
    images: list[Wanted],
) -> dict[str, Any]:
    """Judge one model by one task on a worker; write predictions, plots and the receipt."""

    def judge() -> dict[str, Any]:
        task: Task = plugins.make(TASKS, plugin)
        vectors = embedding.embedded(model, images)
        draft = Draft(config.out)
        try:
            outcome = task.evaluate(data, vectors)
            if config.index:
                outcome = _with_leaks(config, draft, outcome, data, vectors, images[0].model, name)
        except StorageError:
            raise
        except BiovlError as error:
            receipt: dict[str, Any] = {"skipped": str(error)}
        else:
            reasons = Counter(vectors.unreadable.values())
            receipt = _kept(draft.folder, model, name, outcome, reasons)
        draft.note(f"judged/{model}/{name}", receipt)
        noted: dict[str, Any] = draft.noted(f"judged/{model}/{name}") or {}
        return noted

    return returned(config.out, judge)


def _with_leaks(
    config: BenchmarkConfig,
    draft: Draft,
    outcome: Outcome,
    data: Any,
    vectors: Embedded,
    model: Known,
    task: str,
) -> Outcome:
    """Return an outcome with the near duplicates of the corpus, and scores without them."""
    found = leak_report.leaks_of(data, vectors, config.index, config.figures, model.fingerprint)
    with draft.folder.writer(leaks(vectors.model, task)) as stream:
        pq.write_table(found.pairs, stream, compression="zstd")
    without = leak_report.scores_without(
        outcome.predictions, found, resamples=config.resamples, seed=config.seed
    )
    return replace(
        outcome,
        scores=(*outcome.scores, *without),
        notes={**outcome.notes, "leaks": dict(found.counts)},
    )


def _kept(
    folder: Folder, model: str, task: str, outcome: Outcome, unreadable: Mapping[str, int]
) -> dict[str, Any]:
    """Write predictions and plots; return the receipt."""
    with folder.writer(predictions(model, task)) as stream:
        pq.write_table(outcome.predictions, stream, compression="zstd")
    for plot, png in outcome.plots.items():
        folder.write(f"plots/{model}/{task}-{plot}.png", png)
    return {
        "scores": [asdict(score) for score in outcome.scores],
        "notes": dict(outcome.notes),
        "unreadable": dict(unreadable),
    }


def predictions(model: str, task: str) -> str:
    """Return where what a model answered is kept in the folder of a report."""
    return f"predictions/{model}/{task}.parquet"


def leaks(model: str, task: str) -> str:
    """Return where the near duplicates are listed that the corpus of a model has."""
    return f"leaks/{model}/{task}.parquet"


def _read(folder: Folder, name: str) -> tuple[pa.Table, dict[str, int]]:
    """Return a table, and what the manifest says of its file."""
    with folder.filesystem.open_input_file(folder.at(name)) as stream:
        table = pq.read_table(stream)
    size = folder.filesystem.get_file_info(folder.at(name)).size
    return table, {"rows": len(table), "size_bytes": size}


def _manifest(
    config: BenchmarkConfig,
    draft: Draft,
    judged: Sequence[Judged],
    plain: Mapping[str, Any],
    inputs: Sequence[Input],
) -> Manifest:
    """Write the report but for its manifest, which is returned.

    Raises:
        BiovlError: If there is no score at all.
    """
    scored = [item for item in judged if item.scores]
    if not scored:
        raise BiovlError(_reasons([(item.task, item.skipped or "") for item in judged]))
    folder, tables, files = draft.folder, dict[str, dict[str, pa.Table]](), {}
    for item in scored:
        name = predictions(item.model, item.task)
        found, files[name] = _read(folder, name)
        tables.setdefault(item.task, {})[item.model] = found
        leaked = leaks(item.model, item.task)
        if folder.exists(leaked):
            _, files[leaked] = _read(folder, leaked)
    if config.wise_ft is not None:
        # Of eleven models on a line every two are too many: the ends.
        ends = {
            name_of(alpha) for alpha in (min(config.wise_ft.alphas), max(config.wise_ft.alphas))
        }
        tables = {
            task: {model: found for model, found in by.items() if model in ends}
            for task, by in tables.items()
        }
    differing = report.compared(tables, resamples=config.resamples, seed=config.seed)
    scores = {
        "scores": [
            {"model": item.model, "task": item.task, **score}
            for item in scored
            for score in item.scores
        ],
        "differences": differing,
        "averages": report.averages(judged),
        "notes": [
            {"model": item.model, "task": item.task, "unreadable": item.unreadable, **item.notes}
            for item in scored
            if item.notes is not None
        ],
        "skipped": [
            {"model": item.model, "task": item.task, "reason": item.skipped}
            for item in judged
            if item.skipped
        ],
    }
    folder.write("scores.json", to_json(scores))
    folder.write("table.md", report.table(judged, differing).encode())
    folder.write("plots/scores.png", report.plot(judged))
    for item in scored:
        plot = report.breakdown_plot(item)
        if plot is not None:
            folder.write(f"plots/{item.model}/{item.task}-lengths.png", plot)
    if config.wise_ft is not None:
        folder.write("plots/wise_ft.png", between_plot(_by_alpha(config.wise_ft, scored)))
    first: dict[str, dict[str, float]] = {}
    for item in scored:
        first.setdefault(item.model, {})[item.task] = round(item.scores[0]["value"], 4)
    return Manifest(
        kind=KIND,
        config=plain,
        inputs=inputs,
        counts={
            "tasks": len({item.task for item in scored}),
            "models": len(first),
            "skipped": len(scores["skipped"]),
            "unreadable": sum(sum((item.unreadable or {}).values()) for item in scored),
            "first_scores": first,
        },
        files=files,
        notes={"versions": {name: version(name) for name in _VERSIONS}},
    )


def _by_alpha(
    asked: WiseFt, scored: Sequence[Judged]
) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return the first score of each task by alpha."""
    alphas = {name_of(alpha): alpha for alpha in asked.alphas}
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for item in sorted(scored, key=lambda item: alphas[item.model]):
        score = item.scores[0]
        point = (alphas[item.model], score["value"], score["low"], score["high"])
        found.setdefault(item.task, []).append(point)
    return found


def _reasons(skipped: Sequence[tuple[str, str]]) -> str:
    return "nothing was scored:\n" + "\n".join(f"  {task}: {why}" for task, why in skipped)


_VERSIONS = ("numpy", "open_clip_torch", "pillow", "pyarrow", "torch", "transformers")
