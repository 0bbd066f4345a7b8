"""Stages of a job: numbered tasks on workers, each with a receipt that lets a job resume."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray
from ray.data import ActorPoolStrategy

from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import without_credentials
from biovl.runtime.failures import Attempts, raise_task_error, run_task
from biovl.runtime.progress import Progress


class Stages:
    """Runs the stages of a job: for each stage, the tasks without a receipt."""

    def __init__(self, draft: Draft, report: Progress) -> None:
        self._draft, self._report = draft, report

    def run(
        self,
        name: str,
        total: int,
        task: Callable[..., Mapping[str, Any] | None],
        arguments: tuple[Any, ...],
        *,
        key: str = "",
        cpus: float = 1,
        gpus: float = 0,
    ) -> list[dict[str, Any]]:
        """Run ``task(*arguments, number)`` on a worker for every number below ``total``.

        Args:
            name: Name of the stage, ending in the counted unit: ``writing shard``.
            total: Number of tasks.
            task: The function that a task runs. Its return value is stored in the draft as a
                receipt, after all its files are written.
            arguments: Arguments shared by all tasks; sent once.
            key: Folder of the receipts in the draft; empty: after the stage, ``writing-shard``.
            cpus: CPUs of one task.
            gpus: GPUs of one task.

        Returns:
            The receipts in the order of the numbers, including those of an earlier run.
        """
        key = key or name.replace(" ", "-")
        pending = self.pending(name, key, total)
        if pending:
            uri = self._draft.folder.uri
            shared = ray.put((task, arguments))

            def work(row: dict[str, Any]) -> dict[str, Any]:
                number = int(row["item"])

                def done() -> dict[str, Any]:
                    own, rest = ray.get(shared)
                    Draft(uri).note(f"{key}/{number:06d}", own(*rest, number) or {})
                    return row

                return run_task(uri, done, f"{name} {number}")

            numbers = ray.data.from_items(pending, override_num_blocks=len(pending))
            for row in numbers.map(work, num_cpus=cpus, num_gpus=gpus).iter_rows():
                raise_task_error(row)
                self._report.add()
        return self.receipts(key, total)

    def pending(self, name: str, key: str, total: int) -> list[int]:
        """Begin a stage, and return the numbers without a receipt under ``key``."""
        finished = {int(note.rpartition("/")[2]) for note in self._draft.note_names(key)}
        self._report.stage(name, total, done_before=len(finished))
        return [number for number in range(total) if number not in finished]

    def receipts(self, key: str, total: int) -> list[dict[str, Any]]:
        """Return the receipts of all tasks of a finished stage.

        Raises:
            ArtifactError: If one is missing: another job has published or deleted the folder.
        """
        return [self._receipt(f"{key}/{number:06d}") for number in range(total)]

    def _receipt(self, name: str) -> dict[str, Any]:
        receipt: dict[str, Any] | None = self._draft.read_note(name)
        if receipt is None:
            raise ArtifactError(
                f"{self._draft.folder.described}/.draft has lost the receipt {name}: another job "
                "has published or changed this folder"
            )
        return receipt


def run_with_model(
    load: Callable[[], Callable[[dict[str, Any]], int]],
    items: list[dict[str, Any]],
    report: Progress,
    *,
    workers: Any,
    uri: str,
    unit: str,
) -> None:
    """Run ``load()(row)`` for every item, in actors that each load a model once.

    If one actor without GPU on a single machine suffices, the job's own process runs the function
    instead: an actor would be a second process with all imports.

    Args:
        load: Returns the function that processes a row and returns its number of results.
        items: Rows, one per unit without a receipt: its ``number``, and the ``uri`` of its draft if
            there are several.
        report: Progress, whose current stage counts the items.
        workers: Settings with ``count`` of actors, and ``cpus`` and ``gpus`` of each.
        uri: Location of the output, for errors of its storage.
        unit: Name of the results in progress messages.
    """
    if not items:
        return
    shared, count = [ray.put(load)], min(workers.count, len(items))
    if count == 1 and not workers.gpus and len(ray.nodes()) == 1:
        # Imported here: most jobs compute nothing with PyTorch.
        from biovl.runtime.in_process import as_worker

        # A crash ends this process, which nobody begins again.
        with as_worker(workers.cpus):
            _add_rows(map(_Embed(uri, shared, report.stage_name), items), report, unit)
        return
    actor: Any = _Embed
    done = ray.data.from_items(items, override_num_blocks=len(items)).map(
        actor,
        fn_constructor_args=(uri, shared, report.stage_name, Attempts()),
        compute=ActorPoolStrategy(size=count),
        num_cpus=workers.cpus,
        num_gpus=workers.gpus,
    )
    _add_rows(done.iter_rows(), report, unit)


def _add_rows(done: Iterable[dict[str, Any]], report: Progress, unit: str) -> None:
    total = 0
    for row in done:
        total += raise_task_error(row)["rows"]
        report.add(f"{total:,} {unit} ({total / report.seconds:.0f}/s)")


class _Embed:
    """One copy of a model on a worker."""

    def __init__(
        self, uri: str, shared: list[Any], stage: str, attempts: Attempts | None = None
    ) -> None:
        self._uri, self._shared, self._stage, self._attempts = uri, shared, stage, attempts

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        of = f" of {without_credentials(row['uri'])}" if "uri" in row else ""
        what = f"{self._stage} {row['number']}{of}"
        return run_task(self._uri, lambda: {"rows": self._embed(row)}, what, self._attempts)

    # Loaded with the first item: its errors are reported, those of __init__ only kill the actor.
    @functools.cached_property
    def _embed(self) -> Callable[[dict[str, Any]], int]:
        embed: Callable[[dict[str, Any]], int] = ray.get(self._shared[0])()
        return embed
