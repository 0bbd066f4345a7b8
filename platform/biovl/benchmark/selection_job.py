"""Run the selections of tasks that choose their data with a model, and label texts on workers."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark import embedding, labellers
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import Images
from biovl.benchmark.embed_job import embed
from biovl.benchmark.embedding import Texts
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.labellers import LabelledTexts
from biovl.benchmark.stored_images import hash_of
from biovl.benchmark.tasks import SelectionRun, SelectsFirst
from biovl.core.artifacts import Draft
from biovl.core.plugins import Plugin
from biovl.core.tables import write_table
from biovl.runtime.progress import Progress
from biovl.runtime.units import run_with_model

_TEXTS = 256
"""Texts per unit of labelling."""


def select(
    config: BenchmarkConfig,
    draft: Draft,
    known: Mapping[str, ModelDescription],
    name: str,
    task: SelectsFirst,
    data: Any,
    say: Progress,
) -> Any:
    """Return the dataset that a task selects; call within ``connect_ray``.

    It is selected again when a run resumes, from cached embeddings and stored labels.
    """

    def embedded(model: ModelDescription, source: Images | Texts) -> np.ndarray:
        parts = embedding.tasks_of(config, model, source)
        named = (own for own, one in known.items() if one.uri == model.uri)
        embed(config, next(named, "selector"), parts, say)
        rows = [embedding.vectors(part.uri) for part in parts]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def publish(table: pa.Table) -> None:
        write_table(draft.folder, f"selection/{name}.parquet", table)

    return task.select(
        data,
        SelectionRun(
            models=known,
            embed=embedded,
            label=functools.partial(_labelled, config, draft, f"labelled/{name}", say),
            publish=publish,
        ),
    )


def _labelled(
    config: BenchmarkConfig,
    draft: Draft,
    key: str,
    say: Progress,
    labeller: str | Plugin,
    texts: Sequence[str],
) -> LabelledTexts:
    """Return the findings of texts; units of them are labelled on workers and stored."""
    units = -(-len(texts) // _TEXTS)
    # Others where the selection was interrupted and is another one now.
    key += f"/{hash_of(texts)}"
    finished = {int(note.rpartition("/")[2]) for note in draft.note_names(key)}
    pending = [
        {"number": n, "texts": list(texts[n * _TEXTS : (n + 1) * _TEXTS])}
        for n in range(units)
        if n not in finished
    ]
    if pending:
        say.stage("labelling texts: unit", units, done_before=len(finished))
        run_with_model(
            *(functools.partial(_load, config, key, labeller), pending, say),
            workers=config.workers,
            uri=config.out,
            unit="texts",
        )
    states: list[Any] = []
    truncated = 0
    for number in range(units):
        note: Any = draft.read_note(f"{key}/{number:06d}")
        states += note["states"]
        truncated += note["truncated"]
    return LabelledTexts(states=states, truncated=truncated)


def _load(
    config: BenchmarkConfig, key: str, labeller: str | Plugin
) -> Callable[[dict[str, Any]], int]:
    """Load the labeller; return the function that labels a unit and returns its number of texts."""
    label = labellers.make(labeller).load("cuda" if config.workers.gpus else "cpu")

    def work(row: dict[str, Any]) -> int:
        found = label([str(text) for text in row["texts"]])
        note = {"states": found.states, "truncated": found.truncated}
        Draft(config.out).note(f"{key}/{int(row['number']):06d}", note)
        return len(found.states)

    return work
