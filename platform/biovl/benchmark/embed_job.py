"""Embed images and texts with a pool of actors, each with a copy of the model."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from biovl.benchmark import embedding, encoders
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.embedding import EmbeddingTask
from biovl.benchmark.encoders import ModelDescription
from biovl.core.artifacts import Draft
from biovl.core.leases import acquire_lease
from biovl.runtime.progress import Progress
from biovl.runtime.units import run_with_model


def _load(
    config: BenchmarkConfig, known: ModelDescription, todo: Mapping[str, EmbeddingTask]
) -> Callable[[dict[str, Any]], int]:
    """Load the model; return the function that embeds a unit and returns its number of rows."""
    device = "cuda" if config.workers.gpus else "cpu"
    model = encoders.load(known, device=device, precision=config.precision)
    threads = max(1, int(config.workers.cpus))

    def embed(row: dict[str, Any]) -> int:
        item = todo[str(row["uri"])]
        return int(embedding.embed_unit(item, model, int(row["number"]), threads)["rows"])

    return embed


def embed(
    config: BenchmarkConfig, name: str, tasks: Sequence[EmbeddingTask], say: Progress
) -> None:
    """Compute the embeddings of one model that are not cached yet; call within ``connect_ray``.

    Args:
        config: Settings of the run: workers, precision, cache.
        name: Name of the model in the report.
        tasks: Images and texts to embed, by one model.
        say: Callback for progress messages.
    """
    todo = {item.uri: item for item in tasks if not item.published()}
    if not todo:
        return
    with contextlib.ExitStack() as leases:
        pending, total = [], 0
        for uri, item in todo.items():
            leases.enter_context(acquire_lease(uri))
            draft = Draft.begin(uri, embedding.KIND, item.plain, embedding.inputs(item))
            finished = {int(note.rpartition("/")[2]) for note in draft.note_names("embedded")}
            pending += [{"uri": uri, "number": n} for n in range(item.units) if n not in finished]
            total += item.units
        say.stage(f"embedding with {name}: unit", total, done_before=total - len(pending))
        run_with_model(
            *(functools.partial(_load, config, tasks[0].model, todo), pending, say),
            workers=config.workers,
            uri=config.cache_uri(),
            unit="images and texts",
        )
        for item in todo.values():
            embedding.publish(item)
