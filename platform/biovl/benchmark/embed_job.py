"""Embed images and texts with a pool of actors, each with a copy of the model."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import ray
from ray.data import ActorPoolStrategy

from biovl.benchmark import embedding, encoders
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.embedding import EmbeddingTask
from biovl.benchmark.encoders import BenchmarkModel, ModelDescription
from biovl.core.artifacts import Draft
from biovl.core.leases import acquire_lease
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.progress import Progress


class _Embed:
    """Actor with a copy of a model, which embeds one unit per call."""

    def __init__(self, config: BenchmarkConfig, known: ModelDescription, todo: list[Any]) -> None:
        self._config, self._known, self._todo = config, known, todo

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return run_task(self._config.cache_uri(), lambda: self._embed(row))

    def _embed(self, row: dict[str, Any]) -> dict[str, Any]:
        wanted, threads = self._wanted[str(row["uri"])], max(1, int(self._config.workers.cpus))
        receipt = embedding.embed_unit(wanted, self._model, int(row["number"]), threads)
        return {"rows": receipt["rows"]}

    @functools.cached_property
    def _wanted(self) -> dict[str, EmbeddingTask]:
        found: dict[str, EmbeddingTask] = ray.get(self._todo[0])
        return found

    # Loaded with the first unit, which can say why it fails: an actor that cannot begin only dies.
    @functools.cached_property
    def _model(self) -> BenchmarkModel:
        device = "cuda" if self._config.workers.gpus else "cpu"
        return encoders.load(self._known.uri, device=device, precision=self._config.precision)


def embed(
    config: BenchmarkConfig, name: str, wanted: Sequence[EmbeddingTask], say: Progress
) -> None:
    """Embed what is not cached yet, for one model; for use within ``connect_ray``.

    Args:
        config: Settings of the run: workers, precision, cache.
        name: Name of the model in the report.
        wanted: Images and texts to embed, by one model.
        say: Callback for progress messages.
    """
    todo = {item.uri: item for item in wanted if not item.published()}
    if not todo:
        return
    with contextlib.ExitStack() as leases:
        pending, total = [], 0
        for uri, item in todo.items():
            leases.enter_context(acquire_lease(uri))
            draft = Draft.begin(uri, embedding.KIND, item.plain, embedding.inputs(item))
            finished = {int(kept.rpartition("/")[2]) for kept in draft.note_names("embedded")}
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
                seen += raise_task_error(row)["rows"]
                say.add(f"{seen:,} images and texts ({seen / say.seconds:.0f}/s)")
        for item in todo.values():
            embedding.publish(item)
