"""A model and a corpus to ``index/``.

1. embed    actors with a copy of the model take units of pairs: vectors, thumbnails, a receipt
2. gather   a task per part puts vectors into the order of rows
3. train    on the driver, from a sample; or what an earlier index was trained to is taken over
4. fill     a task per part encodes its vectors
5. finish   on the driver: the parts joined, the table, filters and words, and recall measured

Every task leaves a receipt, which is what a killed job goes on from. The driver holds vectors only
of the sample, and the codes of one index at a time.
"""

import functools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import ray
from ray.data import ActorPoolStrategy

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Input, Manifest, find_published, fingerprint, read_manifest
from biovl.core.errors import ConfigError
from biovl.core.harvests import open_harvests
from biovl.core.leases import acquire_lease
from biovl.index import copies, corpus, files, previous, rows, units
from biovl.index import recall as evaluation
from biovl.index.config import IndexConfig
from biovl.index.previous import Previous
from biovl.index.vectors import check_factory, choose_factory, least_vectors
from biovl.models import encoder as encoders
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import explain_resume, raise_task_error, remove_unusable_draft, run_task
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

KIND = "index"
FORMAT = 2
"""Of the published bytes; raise it when a change makes others. See ``Draft.begin``."""

_WRITTEN_BY = {
    "concept": "resolve",
    "panel_type": "resolve",
    "panel_subtype": "resolve",
    "image_type": "annotate image_type",
    "mesh_term": "enrich",
}
"""Which job's columns the filters are made of that not every corpus has."""

_LATE = ("factory", "profile", "seed", "recall")
"""Settings that decide nothing before vectors are in order: a draft goes on with other ones."""


def index(config: IndexConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Embed a corpus and publish what finds its figures.

        out/
          images.faiss  captions.faiss      faiss indexes; id = row
          images.f16.npy  captions.f16.npy  the vectors, float16
          table.arrow  lookup/              what is known of each row
          thumbnails.bin                    small JPEGs, end to end
          filters/  words/                  what filters and searches for words need
          contents.npy                      what the next version knows unchanged pairs by
          manifest.json                     counts; settings, and the recall they were chosen for

    Raises:
        ArtifactError: If the input is not a model and a corpus, or ``out`` holds something else or
            is being made by another process.
        StorageError: If a disk or bucket does not do its work; the job can be run again.
        BiovlError: If recall is below the floor; says all that was measured.
    """
    with explain_resume(config.out), remove_unusable_draft(config.out):
        return _index(config, Progress("index", progress))


def _index(config: IndexConfig, report: Progress) -> Manifest:
    inputs, before, reason = _inputs(config)
    plain = configs.to_plain(config)
    # The same input gives the same bytes wherever they are published and whoever works.
    del plain["out"], plain["workers"]
    done = find_published(config.out, KIND, plain, inputs, defaults=configs.defaults(IndexConfig))
    if done is not None:
        return done
    units.check_columns(config)
    if config.factory:
        check_factory(config.factory, _dim(config.model))
    with acquire_lease(config.out) as lease:
        _with_late_settings(config.out, plain)
        draft = Draft.begin(
            config.out,
            KIND,
            plain,
            inputs,
            defaults=configs.defaults(IndexConfig),
            output_format=FORMAT,
            plans=["planned", "dim"],
        )
        if reason:
            report.say(f"nothing of {config.previous} is reused: {reason}")
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
            receipts = stages.embed(config, before is not None and not reason, unit_count)
            count = draft.once("rows", lambda: rows.number_rows(config, receipts))
            part_count = rows.part_count(config, count)
            stages.run("gathering part", part_count, rows.gather, (config, dim))
            with files.workplace(config.out) as place:
                usable = before if not reason else None
                factories: dict[str, str] = {}
                for name in config.over:
                    files.write_vectors(config, place, name, (count, dim))
                    factories[name] = draft.once(
                        f"factory-{name}",
                        functools.partial(_train, config, place, name, (count, dim), usable),
                    )
                    stages.run(f"filling {name} part", part_count, rows.fill, (config, dim, name))
                    files.write_index(config, place, name, count)
                report.stage("finishing", 2)
                groups = files.write_rows(config, place, count, unit_count)
                without_values = files.write_filters_and_words(place)
                report.add("filters and words")
                found = evaluation.evaluate(config, place)
                report.add("recall measured")
                described = files.describe_files(place)
        totals = _totals(receipts)
        from_index = corpus.path_from_index(config.corpus, config.out)
        if before is not None:
            totals["removed"] = before.counts["rows"] - totals.pop("present")
        else:
            del totals["present"]
        _say_what_is_missing(report, without_values)
        manifest = Manifest(
            kind=KIND,
            config=plain,
            inputs=inputs,
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
                "factories": factories,
                "bytes": files.bytes_by_part(described),
                "filters_without_values": without_values,
                **found,
                **({"not_reused": reason} if reason else {}),
                **({corpus.NOTE: from_index} if from_index else {}),
            },
        )
        lease.check()
        return draft.publish(copies.with_checksum(manifest))


def _inputs(config: IndexConfig) -> tuple[list[Input], Manifest | None, str | None]:
    """Return what is read; the previous index, if there is one, and why it cannot be reused."""
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


def _with_late_settings(out: str, plain: Mapping[str, Any]) -> None:
    """Let a draft go on with another factory or recall: what was embedded is the same."""
    draft = Draft(out)
    begun = draft.read_note("begun")
    if begun is None or begun["kind"] != KIND or begun["config"] == plain:
        return
    late = {name: plain[name] for name in _LATE}
    begun["config"] = configs.with_defaults(begun["config"], plain, configs.defaults(IndexConfig))
    if {**begun["config"], **late} != plain:
        return
    if any(begun["config"][name] != late[name] for name in _LATE if name != "recall"):
        # Receipts first: killed in between, what they vouch for is made again.
        for name in plain["over"]:
            draft.folder.delete_folder(f".draft/filling-{name}-part")
            if draft.read_note(f"factory-{name}") is not None:
                draft.folder.filesystem.delete_file(draft.folder.at(f".draft/factory-{name}.json"))
    draft.note("begun", {**begun, "config": plain})


def _say_what_is_missing(report: Progress, without_values: Sequence[str]) -> None:
    """Say by which fields no figure can be filtered, and which job writes them."""
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


def _train(
    config: IndexConfig, place: Path, name: str, shape: tuple[int, int], before: Manifest | None
) -> str:
    """Keep an empty, trained index; return its factory."""
    found = previous.trained_before(config, name, before, shape[0]) if before else None
    if found is None:
        factory = config.factory or choose_factory(*shape, config.profile)
        found = factory, files.train(config, place, name, factory)
    Draft(config.out).folder.write(rows.trained(name), found[1])
    return str(found[0])


def _totals(receipts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {
        name: sum(receipt[name] for receipt in receipts)
        for name in ("rows", "embedded", "reused", "present")
    }
    left_out = sum((Counter(receipt["left_out"]) for receipt in receipts), Counter())
    return {**totals, "left_out": dict(sorted(left_out.items()))}


class _Embed:
    """One copy of the model on a worker, which embeds unit after unit."""

    def __init__(self, config: IndexConfig, reuses: bool) -> None:
        self._config, self._reuses = config, reuses

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["item"])
        return run_task(self._config.out, lambda: self._embed(number))

    def _embed(self, number: int) -> dict[str, Any]:
        config, threads = self._config, self._config.workers.cpus
        receipt = units.embed_unit(config, self._encoder, self._previous, number, threads)
        Draft(config.out).note(f"embedded/{number:06d}", receipt)
        return {"rows": receipt["rows"]}

    # Loaded with the first unit, which can say why it fails: an actor that cannot begin only dies.
    @functools.cached_property
    def _encoder(self) -> encoders.Encoder:
        device = "cuda" if self._config.workers.gpus else "cpu"
        return encoders.load(self._config.model, device=device, precision=self._config.precision)

    @functools.cached_property
    def _previous(self) -> Previous | None:
        if self._config.previous is None or not self._reuses:
            return None
        return Previous(self._config.previous, self._config.over)


class _Stages(Stages):
    """Beside its tasks, those that need the model."""

    def embed(self, config: IndexConfig, reuses: bool, total: int) -> list[dict[str, Any]]:
        """Embed the units that are left; return the receipts of all."""
        pending = self.pending("embedding unit", "embedded", total)
        if pending:
            workers = config.workers
            size = min(workers.count, len(pending))
            numbers = ray.data.from_items(pending, override_num_blocks=len(pending))
            embed: Any = _Embed
            done = numbers.map(
                embed,
                fn_constructor_args=(config, reuses),
                compute=ActorPoolStrategy(size=size),
                num_cpus=workers.cpus,
                num_gpus=workers.gpus,
            )
            seen = 0
            for row in done.iter_rows():
                seen += raise_task_error(row)["rows"]
                self._report.add(f"{seen:,} pairs ({seen / self._report.seconds:.0f}/s)")
        return self.receipts("embedded", total)
