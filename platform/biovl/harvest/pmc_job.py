"""Harvest from PMC's bucket: tasks select records, then download and read their articles."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import ray

from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.limits import LocalLimiter
from biovl.core.plugins import Plugin
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import check_figures, job_of, manifest_of, read_units, write_unit
from biovl.harvest.pmc import listing, outcome, steps
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.estimate import format_estimate
from biovl.harvest.pmc.settings import HOW, Config
from biovl.harvest.pmc.unfetched import Unfetched
from biovl.harvest.sources import Package
from biovl.harvest.sources.pmc_open_data import OpenData
from biovl.runtime import limiter
from biovl.runtime.connection import connect_ray
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

NAME = "pmc_open_data"
"""The source that this module implements."""

Unit = tuple[int, int, int]
"""A chunk of records, and the first (included) and last (excluded) record that one task reads."""


@dataclass(frozen=True)
class _Acquired:
    """The units to read, and the counts and tables about all other versions."""

    units: list[Unit]
    counts: dict[str, Any]
    files: dict[str, dict[str, int]]
    notes: dict[str, Any]
    warnings: list[str]


def check(config: HarvestConfig) -> None:
    """Reject invalid settings, before anything is written.

    Raises:
        ConfigError: If the settings of the source are invalid.
        ArtifactError: If the earlier harvest has other settings or another source.
    """
    _inputs(_settings(config.source))


def estimate(config: HarvestConfig) -> str:
    """Return an estimate of a harvest's size and time, as text; writes nothing."""
    return format_estimate(_settings(config.source))


def harvest(config: HarvestConfig, report: Progress) -> Manifest:
    """Harvest from the bucket and publish; see ``harvest.job.harvest``."""
    settings = _settings(config.source)
    job = job_of(config, _inputs(settings))
    source = _plain_settings(config.source)
    job = replace(job, config={**job.config, "source": source})
    published = job.find_published()
    if published is not None:
        return published
    _refuse_other_settings(settings, source)
    planned = Draft(config.out).read_note("acquisition") or _plan(settings, config.out)
    with job.begin() as draft:
        plan: dict[str, Any] = draft.once("acquisition", lambda: planned)
        with connect_ray(), _context(settings, config.out) as place:
            found = _acquire(place, plan, draft, config.packages_per_unit, report)
            # The shared limiter is an actor handle, which cannot be pickled with the code of a
            # task.
            shared = ray.put((place, plan["url"]))

            def read(task: Mapping[str, Any]) -> dict[str, int]:
                place, url = ray.get(shared)
                unit, rows = task["unit"], task["rows"]
                seen = write_unit(config, unit, _packages(place, url, unit, rows))
                place.store(f"unit-{unit:06d}").drop()
                return seen

            read_units(config, draft, [{"rows": unit} for unit in found.units], read, report)
            unfetched = outcome.publish_unfetched(place)
        if not found.units and draft.read_note("units/000000") is None:
            write_unit(config, 0, ())
        whole = manifest_of(job, draft, max(len(found.units), 1), found.warnings)
        # An incremental harvest may have no new rows.
        if not settings.since:
            check_figures(config, whole)
        manifest = replace(
            whole,
            counts={**whole.counts, "versions": found.counts},
            files={**whole.files, **found.files, **unfetched},
            notes={**whole.notes, **found.notes},
        )
        return draft.publish(manifest)


def _settings(source: Plugin) -> Config:
    """Return the settings of the source."""
    found: Config = plugins.resolve("harvest.sources", source)[1]
    return found


def _inputs(config: Config) -> list[Input]:
    """Return the earlier harvest that an incremental one is based on, if any.

    Raises:
        ArtifactError: If it is not a harvest of this source, or used other settings.
    """
    if not config.since:
        return []
    earlier = read_manifest(config.since, "figures")
    source = dict(earlier.config.get("source") or {})
    if source.get("name") != NAME:
        raise ArtifactError(
            f"source.since: {config.since} was harvested from {source.get('name')}, not from {NAME}"
        )
    return [Input(name="since", uri=config.since, fingerprint=fingerprint(config.since))]


def _plain_settings(source: Plugin) -> dict[str, Any]:
    """Return the explicitly set settings that change the published bytes, in normalized form."""
    default = configs.to_plain(Config())
    given = configs.to_plain(_settings(source))
    return {
        "name": source.name,
        **{k: v for k, v in given.items() if k not in HOW and v != default[k]},
    }


def _refuse_other_settings(config: Config, plain: Mapping[str, Any]) -> None:
    """Verify that an incremental harvest uses the settings of the earlier one.

    Args:
        config: Settings of the incremental harvest.
        plain: Its source as in a manifest.

    Raises:
        ArtifactError: If they differ: the two harvests together would not be equal to a full one.
    """
    if not config.since:
        return
    earlier = dict(read_manifest(config.since, "figures").config["source"])
    may_differ = {"since", "snapshot", "endpoint", "max_xml_mb", "max_file_mb"}
    # A setting that is absent has its default.
    names = sorted((earlier.keys() | plain.keys()) - may_differ)
    told = [
        f"source.{name}: {earlier.get(name, '(default)')!r} -> {plain.get(name, '(default)')!r}"
        for name in names
        if earlier.get(name) != plain.get(name)
    ]
    if told:
        raise ArtifactError(
            f"source.since: {config.since} was harvested with other settings; what differs now:\n  "
            + "\n  ".join(told)
            + "\nUse the same settings, or harvest without source.since."
        )


@contextmanager
def _context(config: Config, out: str) -> Iterator[AcquisitionContext]:
    """Yield the context of a job's tasks, with their shared limiter. Needs Ray."""
    with limiter.shared_limiter(config.limits) as shared:
        yield AcquisitionContext(config=config, out=out, limiter=shared)


def _plan(config: Config, out: str) -> dict[str, Any]:
    """Return the bucket, inventory and articles to harvest; see ``listing.plan``. Needs no Ray."""
    return listing.plan(
        AcquisitionContext(config=config, out=out, limiter=LocalLimiter(config.limits))
    )


def _acquire(
    place: AcquisitionContext,
    plan: Mapping[str, Any],
    draft: Draft,
    packages_per_unit: int,
    report: Progress,
) -> _Acquired:
    """Select the records to read, and publish the catalogue and the tombstones.

    Raises:
        SourceError: If the source as a whole cannot be read.
        StorageError: If the source, a disk or a bucket fails.
    """
    config = place.config
    stages = Stages(draft, report)
    files = len(plan.get("lists") or plan["files"])
    read = stages.run("reading list", files, listing.read_inventory, (place, plan))
    parts = listing.parts_of(read, plan)
    shared: tuple[Any, ...] = (place, plan, files, parts)
    compared = stages.run("comparing range", len(parts), steps.compare, shared)
    for number in range(files):
        listing.delete_inventory_file(place, number)
    chunks = steps.chunks_of(compared)
    chosen = stages.run("reading records", len(chunks), steps.read_records, (place, plan, chunks))
    for number in range(len(chunks)):
        steps.delete_downloads(place, number)
    finished = stages.run("writing catalogue", len(parts), outcome.finish, (place, plan, chunks))
    published: dict[str, dict[str, int]] = {}
    for receipt in finished:
        published |= receipt["files"]
    if config.since:
        published |= outcome.publish_tombstones(place, len(parts))
    counts = _counts(read, compared, chosen, finished, is_increment=bool(config.since))
    report.say(
        f"{counts['listed']:,} versions listed, {sum(r['chosen'] for r in chosen):,} articles to "
        f"read; left out: {_told(counts['left_out']) or 'none'}"
    )
    warnings = steps.absent_warnings(compared, plan)
    report.warn(warnings)
    return _Acquired(
        units=_units([receipt["chosen"] for receipt in chosen], packages_per_unit),
        counts=counts,
        files=published,
        notes={
            "snapshot": plan["date"],
            "snapshot of a row": "the day on which the article's record was changed last",
        },
        warnings=warnings,
    )


def _units(chosen: Sequence[int], size: int) -> list[Unit]:
    return [
        (chunk, start, min(start + size, count))
        for chunk, count in enumerate(chosen)
        for start in range(0, count, size)
    ]


def _counts(
    read: Sequence[Mapping[str, Any]],
    compared: Sequence[Mapping[str, Any]],
    chosen: Sequence[Mapping[str, Any]],
    finished: Sequence[Mapping[str, Any]],
    *,
    is_increment: bool,
) -> dict[str, Any]:
    refused = _sum([*read, *compared], "refused")
    listed = sum(receipt["rows"] for receipt in read)
    counts: dict[str, Any] = {
        "listed": listed,
        "harvested": sum(receipt["chosen"] for receipt in chosen),
        "left_out": _sum([*compared, *chosen], "states"),
        "refused": refused,
    }
    if is_increment:
        as_before = listed - refused.get("row comes twice", 0)
        as_before -= counts["harvested"] + sum(counts["left_out"].values())
        counts |= {
            "as_before": as_before,
            "difference": _sum(compared, "changes"),
            "ended": _sum(finished, "ended"),
        }
    return counts


def _sum(receipts: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for receipt in receipts:
        total.update(receipt[name])
    return dict(sorted(total.items()))


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _packages(place: AcquisitionContext, url: str, unit: int, rows: Unit) -> Iterator[Package]:
    """Yield the packages of a unit, downloaded into its own scope of the store."""
    config = place.config
    chunk, start, stop = rows
    records = steps.chosen_records(place, chunk, start, stop)
    source = OpenData(config)
    with place.service(url) as service:
        # It was read a moment ago: if it is unavailable now, the bucket is, and not a single
        # article.
        service.known = f"metadata/{records[0].name}.json"
        unfetched = Unfetched()
        yield from source.packages(records, service, place.store(f"unit-{unit:06d}"), unfetched)
    # Before the unit's receipt, which is written after the last package.
    outcome.write_unfetched(place, unit, unfetched.table())
