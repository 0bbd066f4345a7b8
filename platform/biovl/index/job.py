"""Build ``index/`` from a model and a corpus.

1. embed    actors with a copy of the model process units of pairs: vectors, thumbnails, a receipt
2. gather   a task per part sorts vectors by row
3. train    on the driver, on a sample; or the trained index of a previous version is reused
4. fill     a task per part encodes its vectors
5. finish   on the driver: merge the parts, write table, filters and words, measure recall

Every task writes a receipt, from which an interrupted job resumes. The driver keeps only the
vectors of the sample and the codes of one index in memory.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import ray

from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest
from biovl.core.chance import retrieval_warning
from biovl.core.errors import ConfigError
from biovl.core.harvests import open_harvests
from biovl.index import copies, corpus, files, previous, recall, rows, units
from biovl.index.config import IndexConfig
from biovl.index.previous import Previous
from biovl.index.vectors import check_factory, choose_factory, least_vectors
from biovl.models import encoder as encoders
from biovl.models import weight_identity
from biovl.runtime.connection import connect_ray
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages, run_with_model

KIND = "index"
FORMAT = 6
"""Version of the output format: increase it when published bytes change. See ``Draft.begin``."""

_WRITTEN_BY = {
    "concept": "resolve",
    "panel_type": "resolve",
    "panel_subtype": "resolve",
    "image_type": "annotate image_type",
    "mesh_term": "enrich",
    "label": "harvest table (source.keep, and label_columns here)",
}
"""Optional filters and the job that writes their columns."""

_LATE = ("factory", "profile", "seed", "recall")
"""Settings without effect before step 3: a draft can be resumed with other values."""


@entry_point
def index(config: IndexConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Embed a corpus and publish an index of its figures.

        out/
          images.faiss  captions.faiss      faiss indexes; id = row
          images.f16.npy  captions.f16.npy  the vectors, float16
          table.arrow  lookup/              metadata of each row
          thumbnails.bin                    concatenated JPEG thumbnails
          filters/  words/                  indexes for filters and word search
          contents.npy                      hashes by which the next version finds unchanged pairs
          manifest.json                     counts; search settings and their measured recall

    Raises:
        ArtifactError: If the inputs are not a model and a corpus, or ``out`` contains something
            else or is being written by another process.
        StorageError: If a disk or bucket fails; run the job again to resume.
        BiovlError: If recall is below the minimum; the message lists all measurements.
    """
    report = Progress("index", progress)
    inputs, before, reason = _inputs(config)
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["workers"])
    published = job.find_published()
    if published is not None:
        return published
    units.check_columns(config)
    if config.factory:
        check_factory(config.factory, _dim(config.model))
    with job.begin(
        plans=["planned", "dim", "precision", f"{units.PLANS}/"],
        accepts=functools.partial(_accepts_settings, config.over),
    ) as draft:
        planned = draft.once("planned", lambda: units.plan(config))
        pairs: int = planned["pairs"]
        if config.factory and pairs < least_vectors(config.factory):
            raise ConfigError(
                f"factory {config.factory!r} takes {least_vectors(config.factory):,} vectors to "
                f"learn from, and {config.corpus} has {pairs:,} pairs"
            )
        unit_count = units.unit_count(config, pairs)
        dim = draft.once("dim", lambda: _dim(config.model))
        with connect_ray():
            stages = _Stages(draft, report)
            # Once: whoever resumes on other machines goes on in the same precision.
            precision = draft.once("precision", lambda: _precision(config))
            if before is not None:
                reason = reason or previous.other_precision(precision, before)
            if reason:
                report.say(f"nothing of {config.previous} is reused: {reason}")
                before = None
            same = replace(config, precision=precision)
            reuses = before is not None
            receipts = stages.embed(same, inputs[0].fingerprint, reuses, unit_count)
            count = draft.once("rows", lambda: rows.number_rows(config, receipts))
            part_count = rows.part_count(config, count)
            stages.run("gathering part", part_count, rows.gather, (config, dim))
            with files.workplace(config.out) as place:
                factories: dict[str, str] = {}
                for name in config.over:
                    files.write_vectors(config, place, name, (count, dim))
                    factories[name] = draft.once(
                        f"factory-{name}",
                        functools.partial(_train, config, place, name, (count, dim), before),
                    )
                    stages.run(f"filling {name} part", part_count, rows.fill, (config, dim, name))
                    files.write_index(config, place, name, count)
                report.stage("finishing", 2)
                groups = files.write_rows(config, place, count, unit_count)
                without_values = files.write_filters_and_words(place)
                if not config.label_columns:
                    # Nobody asked for labels.
                    without_values = [name for name in without_values if name != "label"]
                report.add("filters and words")
                found = recall.evaluate(config, place)
                report.add("recall measured")
                described = files.publish_files(config.out, place)
        totals = _totals(receipts)
        from_index = corpus.path_from_index(config.corpus, config.out)
        present = totals.pop("present")
        if before is not None:
            totals["removed"] = before.counts["rows"] - present
        _say_what_is_missing(report, without_values)
        warning = retrieval_warning(found["captions_to_own_images"], "of a sample of the corpus")
        warnings = [warning] if warning else []
        report.warn(warnings)
        manifest = job.manifest(
            counts={
                **planned,
                **totals,
                "license_groups": dict(sorted(groups.items())),
            },
            files=described,
            notes={
                "rows": count,
                "dim": dim,
                "prepared": previous.PREPARED,
                "precision": precision,
                "factories": factories,
                "bytes": files.bytes_by_part(described),
                "filters_without_values": without_values,
                **found,
                **({"not_reused": reason} if reason else {}),
                **({corpus.NOTE: from_index} if from_index else {}),
            },
            warnings=warnings,
        )
        return draft.publish(copies.with_checksum(manifest))


def _inputs(config: IndexConfig) -> tuple[list[Input], Manifest | None, str | None]:
    """Return the inputs, the manifest of the previous index, and why it cannot be reused."""
    inputs = []
    for name, uri in (("model", config.model), ("corpus", config.corpus)):
        read_manifest(uri, name)
        inputs.append(Input(name=name, uri=uri, fingerprint=fingerprint(uri)))
    inputs += [
        Input(name="updates", uri=harvest.uri, fingerprint=harvest.fingerprint)
        for harvest in open_harvests(config.updates)
    ]
    if config.previous is None:
        return inputs, None, None
    before = read_manifest(config.previous, KIND)
    if copies.is_local(config.previous):
        copies.verify(Path(config.previous).expanduser(), before)
    of = Input(name="previous", uri=config.previous, fingerprint=fingerprint(config.previous))
    reason = previous.reason_not_to_reuse(config, inputs[0].fingerprint, before)
    return [*inputs, of], before, reason


def _accepts_settings(over: Sequence[str], draft: Draft, changed: set[str]) -> bool:
    """Return whether a draft's embeddings remain valid; delete what does not."""
    if not changed.issubset(_LATE):
        return False
    if changed != {"recall"}:
        # Delete receipts first: after an interruption their outputs are then computed again.
        for name in over:
            draft.folder.delete_folder(f".draft/filling-{name}-part")
            if draft.read_note(f"factory-{name}") is not None:
                draft.delete_note(f"factory-{name}")
    return True


def _say_what_is_missing(report: Progress, without_values: Sequence[str]) -> None:
    """Log the filter fields without values, and which job writes them."""
    told = [
        f"{name} (columns of {_WRITTEN_BY[name]})" if name in _WRITTEN_BY else name
        for name in without_values
    ]
    if told:
        report.say(
            f"no figure has a value of {', '.join(told)}: the index offers no filter by them. "
            "assemble brings such columns into a corpus: columns=[…]"
        )


def _dim(model: str) -> int:
    return encoders.load_preparation(model).dim


def _precision(config: IndexConfig) -> str:
    """Return the precision to compute in; ``auto`` is resolved on a worker."""
    if config.precision != "auto":
        return config.precision
    if not config.workers.gpus:
        return "float32"
    with_gpu = ray.remote(num_cpus=config.workers.cpus, num_gpus=config.workers.gpus)
    return str(ray.get(with_gpu(encoders.automatic_precision).remote("cuda")))


def _train(
    config: IndexConfig, place: Path, name: str, shape: tuple[int, int], before: Manifest | None
) -> str:
    """Write a trained, empty index; return its factory string."""
    found = previous.reusable_index(config, name, before, shape[0]) if before else None
    if found is None:
        factory = config.factory or choose_factory(*shape, config.profile)
        found = factory, files.train(config, place, name, factory)
    Draft(config.out).folder.write(rows.trained_path(name), found[1])
    return str(found[0])


def _totals(receipts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {
        name: sum(receipt[name] for receipt in receipts)
        for name in ("rows", "embedded", "reused", "present")
    }
    left_out = sum((Counter(receipt["left_out"]) for receipt in receipts), Counter())
    return {**totals, "left_out": dict(sorted(left_out.items()))}


def _load(config: IndexConfig, model: str, reuses: bool) -> Callable[[dict[str, Any]], int]:
    """Load the model; return the function that embeds a unit and returns its number of rows.

    Args:
        config: Configuration of the job.
        model: Fingerprint of the model when the job began.
        reuses: Whether vectors of the previous index are reused.
    """
    device = "cuda" if config.workers.gpus else "cpu"
    encoder = encoders.load(config.model, device=device, precision=config.precision)
    weight_identity.check_unchanged(config.model, model)
    before = Previous(config.previous, config.over) if config.previous and reuses else None

    def embed(row: dict[str, Any]) -> int:
        number = int(row["number"])
        receipt = units.embed_unit(config, encoder, before, number, config.workers.cpus)
        Draft(config.out).note(f"embedded/{number:06d}", receipt)
        return int(receipt["rows"])

    return embed


class _Stages(Stages):
    """Stages of the job, including embedding, which runs in actors."""

    def embed(
        self, config: IndexConfig, model: str, reuses: bool, total: int
    ) -> list[dict[str, Any]]:
        """Embed the remaining units; return the receipts of all units. See ``_load``."""
        numbers = self.pending("embedding unit", "embedded", total)
        pending = [{"number": number} for number in numbers]
        run_with_model(
            *(functools.partial(_load, config, model, reuses), pending, self._report),
            workers=config.workers,
            uri=config.out,
            unit="pairs",
        )
        return self.receipts("embedded", total)
