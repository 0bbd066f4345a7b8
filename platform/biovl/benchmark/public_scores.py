"""Scores of a report that may be published: of one model, on data with a public name.

A score is exported if its task is a published benchmark of ``benchmarks.yaml``, or if the user
names the data set on the hub that it was evaluated on. Scores on other data, which may be private,
are withheld, and so are their names.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from biovl.benchmark.benchmark_table import BENCHMARKS
from biovl.benchmark.leakage import UNLEAKED
from biovl.benchmark.report_files import KIND
from biovl.core.artifacts import MANIFEST, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import without_credentials
from biovl.core.folders import Folder

NO_NAME = "its data have no public name"
OWN_DRAW = "its data are articles of your own harvest"
_RANK = "median_rank"


@dataclass(frozen=True, kw_only=True)
class PublicScore:
    """Scores of a model on one task, with what a reader must know to compare them."""

    report: str
    """Location of the report."""
    model: str
    """Name of the model in the report."""
    task: str
    """Name of the task in the report."""
    protocol: str
    """Task plug-in: ``zero_shot``, ``retrieval`` …"""
    about: str
    """Question that the benchmark asks, or the name of the task."""
    source: str
    """Authors of the data; empty if unknown."""
    licence: str
    """Licence of the data; empty if unknown."""
    scores: tuple[Mapping[str, Any], ...]
    """Scores on all examples, as in ``scores.json``; the paper's metric is the first."""
    notes: Mapping[str, Any]
    """Details of the evaluation, as in ``scores.json``."""
    data: str
    """Fingerprint of images, labels and texts; empty if the report has none."""
    settings: Mapping[str, Any]
    """``seed``, ``resamples`` and ``precision`` of the run."""
    code: str
    """Version of biovl that evaluated the model."""
    date: str
    """Day of the file time of the report's manifest, UTC, ISO 8601; a copy may have a later one."""

    def sentence(self, score: Mapping[str, Any]) -> str:
        """Return the interval, the protocol and the data of a score in words."""
        low, high = (display(score["name"], score[end]) for end in ("low", "high"))
        parts = [
            f"95 % interval {low} to {high} (bootstrap, {self.settings['resamples']:,} resamples), "
            f"{score['count']:,} examples",
            f"{score['name']}, biovl's {self.protocol}{_prompts(self.notes)}",
        ]
        share = max((fit.get("fraction", 1) for fit in self.notes.get("fits", ())), default=1)
        if share < 1:
            parts.append(f"trained on {100 * share:.6g} % of the training images")
        unreadable = self.notes.get("unreadable") or 0
        if isinstance(unreadable, Mapping):
            unreadable = sum(unreadable.values())
        if unreadable:
            parts.append(f"{unreadable:,} images unreadable")
        leaked = (self.notes.get("leaks") or {}).get("leaked", {}).get("any")
        if leaked is not None:
            parts.append(f"{leaked:,} images are near duplicates of training images")
        parts += [f"data {self.data}"] * bool(self.data)
        return "; ".join([*parts, self.code])


def display(name: str, value: float) -> str:
    """Return a score as text in the unit of ``published``, to two decimals."""
    return f"{in_published_unit(name, value):.2f}"


def in_published_unit(name: str, value: float) -> float:
    """Return a score in the unit in which it is published: per cent, but ranks as they are."""
    return round(float(value), 5) if name.endswith(_RANK) else round(100 * float(value), 5)


def public_scores(
    reports: Sequence[str], model: str, named: Collection[str] = ()
) -> tuple[list[PublicScore], dict[str, int]]:
    """Return the scores of a model that may be published, and the number withheld by reason.

    Args:
        reports: Folders published by benchmark.
        model: The model's folder; a report names models by their fingerprint.
        named: Tasks on other data, whose public name the user gives.

    Raises:
        ArtifactError: If a report does not have the model, two have the same task, or a task of
            ``named`` is in none.
    """
    own, public, withheld = fingerprint(model), dict[str, PublicScore](), dict[str, int]()
    for uri in reports:
        manifest, where = read_manifest(uri, KIND), without_credentials(uri)
        name = next(
            (
                item.name.removeprefix("model ")
                for item in manifest.inputs
                if item.name.startswith("model ") and item.fingerprint == own
            ),
            None,
        )
        if name is None:
            raise ArtifactError(
                f"{where} has no scores of {without_credentials(model)}: its models are others, or "
                "were trained further since. Evaluate this one with benchmark"
            )
        for task, scores, notes in _of_model(uri, name):
            reason = _reason(task, manifest, named)
            if reason is not None:
                withheld[reason] = withheld.get(reason, 0) + 1
                continue
            if task in public:
                other = without_credentials(public[task].report)
                raise ArtifactError(
                    f"{other} and {where} both have scores for {task}: list one of them in reports"
                )
            public[task] = _public(uri, manifest, name, task, scores, notes)
    missing = sorted(set(named) - public.keys())
    if missing:
        raise ArtifactError(
            f"datasets: no report has a score of {missing[0]}; found {', '.join(public) or 'none'}"
        )
    return list(public.values()), withheld


def _of_model(
    uri: str, model: str
) -> list[tuple[str, tuple[Mapping[str, Any], ...], Mapping[str, Any]]]:
    """Return the scores on all examples, and the notes, of each task of a model."""
    content = json.loads(Folder(uri).read("scores.json"))
    notes = {row["task"]: row for row in content["notes"] if row["model"] == model}
    by_task: dict[str, list[Mapping[str, Any]]] = {}
    for row in content["scores"]:
        is_on_all = "/" not in row["name"] and row["note"] != UNLEAKED
        if row["model"] == model and is_on_all:
            by_task.setdefault(row["task"], []).append(row)
    return [(task, tuple(rows), notes.get(task, {})) for task, rows in by_task.items()]


def _reason(task: str, manifest: Manifest, named: Collection[str]) -> str | None:
    """Return why the scores of a task are withheld, if so."""
    if task in named:
        return None
    # A task that the user configured has data of the user's, whatever it is called.
    if task not in BENCHMARKS or task in manifest.config["tasks"]:
        return NO_NAME
    return OWN_DRAW if BENCHMARKS[task].access == "harvest" else None


def _public(
    uri: str,
    manifest: Manifest,
    model: str,
    task: str,
    scores: Sequence[Mapping[str, Any]],
    notes: Mapping[str, Any],
) -> PublicScore:
    known, config = BENCHMARKS.get(task), manifest.config
    if task in config["tasks"]:
        known, protocol = None, str(config["tasks"][task]["name"])
    else:
        protocol = (known.task if known else "") or str(config["benchmarks_as"])
    first = known.metric if known else ""
    return PublicScore(
        report=uri,
        model=model,
        task=task,
        protocol=protocol,
        about=known.about if known else task,
        source=known.origin if known else "",
        licence=known.licence if known else "",
        scores=tuple(sorted(scores, key=lambda score: score["name"] != first)),
        notes=notes,
        data=next((i.fingerprint for i in manifest.inputs if i.name == f"data {task}"), ""),
        settings={name: config[name] for name in ("seed", "resamples", "precision")},
        code=manifest.code,
        date=_written(uri),
    )


def _written(uri: str) -> str:
    folder = Folder(uri)
    changed = folder.filesystem.get_file_info(folder.at(MANIFEST)).mtime
    return (changed or datetime.now(UTC)).astimezone(UTC).date().isoformat()


def _prompts(notes: Mapping[str, Any]) -> str:
    templates = notes.get("templates")
    if not templates:
        return ""
    # In the order of the data's classes; JSON sorts those of ``words``.
    words = notes["classes"] if notes.get("words") else []
    return f", prompts {' | '.join(templates)}" + f" with {' | '.join(words)}" * bool(words)
