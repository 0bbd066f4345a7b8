"""Annotate a table of images: prepare rows, compute columns, join parts.

0. select   if not all rows are wanted: a task per part applies rules and draws random keys
1. prepare  CPU tasks read ranges of rows, decode and resize: batches of pixels, or of tokens
2. compute  an autoscaling pool of actors, each with a copy of the model; every computed batch is
            written as a piece
3. join     a task per part combines the pieces, in the order of the table's part

Steps 1 and 2 run concurrently, with batches passed through Ray's object store; each has its own
workers. Only the columns that the annotator names are read. An interrupted job resumes from its
pieces.
"""

import functools
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TextIO

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy

from biovl.annotate import articles, batches, pieces, selection
from biovl.annotate.annotators import Annotator, LoadedModel, PrefetchesAnswers
from biovl.annotate.batches import BATCH, Unit
from biovl.annotate.config import AnnotateConfig
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.tables import COLUMNS, Table, open_table
from biovl.models import hub, weight_identity
from biovl.runtime.connection import check_room, connect_ray
from biovl.runtime.failures import (
    Attempts,
    check_usable,
    raise_task_error,
    run_steps,
    run_task,
)
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

_SHARE = 0.25
"""CPUs of a decoding task where models compute on the same cores: it mostly waits for them."""
_WAITING = 0.01
"""CPUs of a model copy that only waits for a server: low, but enough that Ray schedules it apart
from decoding tasks."""
_BLOCK_BYTES = 1 << 20
"""Smaller than a batch, so that each batch is passed on immediately."""

_JOINED = "joined"
"""Folder of the receipts of joined parts in the draft."""

FORMAT = 4
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""


@entry_point
def annotate(config: AnnotateConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Compute columns for every row of a table and publish them part by part.

        out/
          part-000000-000.parquet …   the parts of the table, by the same names and row for row:
                                      the columns, null where there is none, and <name>_defect
          image_types.png             frequency of each value, for categorical columns
          manifest.json               rows seen, annotated, defective and not selected, by reason

    Raises:
        ConfigError: If the table lacks a column that the annotator reads, or this machine lacks
            the resources in ``workers``.
        ArtifactError: If there is no table, the weights are missing or do not fit the annotator,
            or ``out`` holds another artifact or is being written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    report = Progress("annotate", progress)
    table = open_table(config.table)
    pins = hub.pins([config.weights], Draft(config.out).read_note(hub.PINNED))
    weights = pins.get(config.weights, config.weights)
    inputs = [table.as_input(), *config.inputs(weights), *selection.inputs(config)]
    made = Job.of(
        config, COLUMNS, inputs, output_format=FORMAT, without=["workers", "may_be_empty"]
    )
    job = replace(
        made,
        config={**made.config, "annotator": config.settings()},
        defaults={**made.defaults, **config.defaults()},
    )
    published = job.find_published()
    if published is not None:
        return published
    # From here on, on all workers: these files, also if the repository is replaced meanwhile.
    config = replace(config, weights=weights)
    annotator = config.make()
    articles.check(table, annotator.reads)
    missing = [
        name
        for name in annotator.reads
        if name not in table.names and not name.startswith(articles.PREFIX)
    ]
    if missing:
        raise ConfigError(
            f"{config.table} has no column {', '.join(missing)}, which {config.annotator.name} "
            f"reads; found {', '.join(sorted(table.names))}"
        )
    selection.check(config, table)
    with job.begin(plans=[*selection.PLANS, hub.PINNED]) as draft:
        draft.note(hub.PINNED, pins)
        units = batches.plan(table, config.rows_per_task)
        with connect_ray():
            selected = _select(config, table, draft, report)
            if isinstance(annotator, PrefetchesAnswers):
                annotator.prefetch_answers(config, table, units, report)
            known = {item.name: item.fingerprint for item in inputs}.get("weights")
            _compute(config, annotator, known, table, units, report)
            receipts = Stages(draft, report).run(
                "joining part",
                len(table.parts),
                _join_part,
                (config, annotator, table, units),
                key=_JOINED,
            )
        if isinstance(annotator, PrefetchesAnswers):
            report.say(annotator.spent())
        counts = {**pieces.totals(receipts), **selected}
        check_usable(
            counts["annotated"],
            f"{counts['rows']:,} rows of {config.table}",
            {**counts["defects"], **counts.get("not_selected", {})},
            may_be_empty=config.may_be_empty,
        )
        for name in annotator.counted:
            # Imported here: workers do not need matplotlib.
            from biovl.annotate import chart

            several = f"{name}es" if name.endswith("s") else f"{name}s"
            drawn = chart.frequencies(
                counts[name], title=several.replace("_", " ").capitalize(), what="images"
            )
            draft.folder.write(f"{several}.png", drawn)
        manifest = job.manifest(
            counts=counts,
            files={
                part.name: {name: receipt[name] for name in ("rows", "size_bytes")}
                for part, receipt in zip(table.parts, receipts, strict=True)
            },
            notes={"columns": pieces.schema_of(annotator).names, **annotator.notes},
        )
        return draft.publish(manifest)


def _select(config: AnnotateConfig, table: Table, draft: Draft, report: Progress) -> dict[str, Any]:
    """Store in the draft which rows are selected, and return their counts; none if all are."""
    if not config.select.is_set:
        return {}
    Stages(draft, report).run(selection.STAGE, len(table.parts), selection.store, (config, table))
    counts: dict[str, Any] = draft.once("selected", lambda: selection.decide(config, table))
    report.say(selection.described(counts))
    check_usable(
        counts["selected"],
        f"{table.rows:,} rows of {config.table}",
        counts["not_selected"],
        may_be_empty=config.may_be_empty,
    )
    return counts


def _compute(
    config: AnnotateConfig,
    annotator: Annotator,
    known: str | None,
    table: Table,
    units: Sequence[Unit],
    report: Progress,
) -> None:
    """Prepare and compute the batches that no earlier run has computed.

    Args:
        config: Configuration of the job.
        annotator: Computes the columns.
        known: Fingerprint of the weights when the job began; None without weights.
        table: The table.
        units: All units of the table.
        report: Progress of the job.
    """
    joined = _joined_parts(Draft(config.out))
    parts = sorted({unit.part for unit in units} - joined)
    found = {number: batches.finished_batches(config.out, number) for number in parts}
    total = sum(1 for unit in units for _ in unit.batches(config.batch))
    pending = [
        unit
        for unit in units
        if unit.part not in joined
        and not {first for first, _ in unit.batches(config.batch)} <= found[unit.part]
    ]
    left = sum(
        first not in found[unit.part] for unit in pending for first, _ in unit.batches(config.batch)
    )
    report.stage("batch", total, done_before=total - left)
    if not pending:
        return
    # With models on GPUs, decoding gets whole cores.
    beside = 1 if config.workers.gpus else 0
    check_room(config.workers.cpus + beside, config.workers.gpus, report.say)
    # Shared inputs are stored once, not with every task.
    shared = ray.put((config, annotator, table, pending, found))
    cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
    pool = _pool(config, left, cores)
    numbers = ray.data.from_items(list(range(len(pending))), override_num_blocks=len(pending))
    numbers.context.target_max_block_size = _BLOCK_BYTES
    waits = config.batches_at_once > 1
    prepares_alone = waits or config.workers.gpus > 0
    prepared = numbers.map_batches(
        functools.partial(_prepare, shared),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=1 if prepares_alone else _SHARE,
        # With GPUs or servers, as many tasks as there are cores and memory for batches.
        concurrency=None if prepares_alone else max(1, cores // 4),
    )
    computed = prepared.map_batches(
        _Compute,
        # One row is one batch of the model. Ray requires a number if GPUs are requested.
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=(
            *(config, annotator, known),
            *([part.name for part in table.parts], Attempts()),
        ),
        compute=pool,
        num_cpus=_WAITING if waits else config.workers.cpus - (0 if prepares_alone else _SHARE),
        num_gpus=config.workers.gpus,
    )
    rows = 0
    for row in computed.iter_rows():
        rows += raise_task_error(row)["rows"]
        report.add(f"{rows:,} rows ({rows / report.seconds:.0f}/s)")


def _pool(config: AnnotateConfig, left: int, cores: int) -> ActorPoolStrategy:
    """Return the initial and maximum number of model copies."""
    workers, at_once = config.workers, config.batches_at_once
    if at_once > 1:
        # A single copy tracks all requests and spending.
        return ActorPoolStrategy(
            size=1,
            max_tasks_in_flight_per_actor=2 * at_once,
            max_concurrent_calls_per_actor=at_once,
            enable_true_multi_threading=True,
        )
    most = workers.count or (left if workers.gpus else max(1, cores // workers.cpus))
    most = max(1, min(most, left))
    return ActorPoolStrategy(min_size=min(workers.least, most), max_size=most)


def _prepare(shared: Any, numbers: pa.Table) -> Iterator[pa.Table]:
    """Yield the batches of one unit, or the error that prevented reading it."""
    config, annotator, table, pending, found = ray.get(shared)
    (number,) = numbers["item"].to_pylist()
    unit = pending[number]
    what = f"{table.parts[unit.part].name}, {unit.rows} rows from row {unit.first}"

    def prepared() -> Iterator[pa.Table]:
        selected = selection.is_selected(config, unit)
        return batches.prepare(annotator, table, unit, config.batch, found[unit.part], selected)

    for step in run_steps(config.table, prepared, what):
        yield step if isinstance(step, pa.Table) else pa.Table.from_pylist([step], schema=BATCH)


class _Compute:
    """One copy of the model on a worker."""

    def __init__(
        self,
        config: AnnotateConfig,
        annotator: Annotator,
        known: str | None = None,
        parts: Sequence[str] = (),
        attempts: Attempts | None = None,
    ) -> None:
        self._config, self._annotator, self._known = config, annotator, known
        self._parts, self._attempts = parts, attempts
        self._loading = threading.Lock()

    def __call__(self, table: pa.Table) -> pa.Table:
        rows = [self._row(table, number) for number in range(len(table))]
        schema = pa.schema([("rows", pa.int64()), ("failed", pa.binary())])
        return pa.Table.from_pylist(rows, schema=schema)

    def _row(self, table: pa.Table, number: int) -> dict[str, Any]:
        failed = table["failed"][number].as_py()
        if failed is not None:
            return {"rows": 0, "failed": failed}
        batch = batches.batch_of(table, number)

        def done() -> dict[str, Any]:
            # Batches may arrive concurrently.
            with self._loading:
                model = self._model
            return {"rows": pieces.write(self._config.out, self._annotator, model, batch)}

        what = f"{self._parts[batch.part]}, {len(batch.defects)} rows from row {batch.first}"
        return run_task(self._config.out, done, what, self._attempts)

    # Loaded with the first batch, to report errors: a failing constructor kills the actor.
    @functools.cached_property
    def _model(self) -> LoadedModel:
        if not self._config.has_weights:
            return self._annotator.load("cpu", self._config.precision)
        import torch

        workers = self._config.workers
        if workers.gpus and not torch.cuda.is_available():
            raise BiovlError(
                f"workers.gpus={workers.gpus:g}, and PyTorch {torch.__version__} finds no GPU that "
                f"it can use on {platform.node()}: install a PyTorch for its driver, or set "
                "workers.gpus=0"
            )
        torch.set_num_threads(workers.cpus)
        device = "cuda" if workers.gpus else "cpu"
        model = self._annotator.load(device, self._config.precision)
        weight_identity.check_unchanged(self._config.weights, self._known)
        return model


def _joined_parts(draft: Draft) -> set[int]:
    return {int(note.rpartition("/")[2]) for note in draft.note_names(_JOINED)}


def _join_part(
    config: AnnotateConfig, annotator: Annotator, table: Table, units: Sequence[Unit], number: int
) -> dict[str, Any]:
    own = [unit for unit in units if unit.part == number]
    return pieces.join(config.out, annotator, table.parts[number], own, config.batch)
