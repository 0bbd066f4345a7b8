"""Packages to ``figures/`` and ``articles/``: a source is read in units, one Ray task per unit.

A unit is a fixed run of packages in source order and writes its own parts, so the bytes do not
depend on which worker read it, or when. An interrupted job resumes from the receipts of its units.
"""

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TextIO

import pyarrow.compute as pc
import ray

from biovl.core import plugins
from biovl.core.artifacts import Draft, Input, Manifest, recorded_inputs, refuse_overlap
from biovl.core.counts import usable_and_defective
from biovl.core.errors import SourceError, StorageError
from biovl.core.folders import Folder
from biovl.core.parts import PartWriter
from biovl.core.records import Article, Figure
from biovl.core.tables import read_table
from biovl.harvest.config import HarvestConfig
from biovl.harvest.listing import FILE as LISTING
from biovl.harvest.listing import changes, read_listing, write_listing
from biovl.harvest.rows import rows
from biovl.harvest.sources import (
    Address,
    HasInputs,
    HasJob,
    Keeps,
    Lists,
    Package,
    Source,
    SourceJob,
    Warns,
)
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import (
    check_usable,
    raise_task_error,
    run_task,
)
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

KIND = "figures"
_HINTS = {
    "table": "Paths in the column image are relative to source.images, or else to the folder of "
    "the table. Look at these settings of source."
}
"""Advice by source for a harvest without usable figures."""

FORMAT = 9
"""Version of the output format; see ``output_format`` of ``Draft.begin``."""


@entry_point
def harvest(config: HarvestConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Read every package of a source and publish its figures and articles.

        out/
          articles/part-000000-000.parquet …   one row per article (records.Article)
          figures/part-000000-000.parquet …    one row per figure image (records.Figure)
          manifest.json                        counts, by defect
          listing.parquet                      of packages: the files of the source, and their sizes
          catalogue/part-000000-000.parquet …  of pmc_open_data: every version and its state
          tombstones.parquet                   of an incremental harvest: rows no longer valid
          unfetched.parquet                    files that failed to download, if any

    Raises:
        SourceError: If the source as a whole cannot be read, or is a folder that biovl published.
        NothingUsable: If no figure is usable; reports the reasons and the first such figure.
        ArtifactError: If ``out`` holds something else, is inside the source or is being written by
            another process.
        StorageError: If a disk or bucket fails; the same command resumes the job.
    """
    report = Progress("harvest", progress)
    own = _own_job(config)
    if own is not None:
        return own.harvest(config, report)
    inputs = _inputs(config)
    job = job_of(config, inputs)
    published = job.find_published()
    if published is not None:
        return _with_changes(config, published, report)
    # The plan is stored, so that a resumed job reads the same packages. It is made before anything
    # is written, so that a mistyped path leaves no files behind.
    planned, listed = Draft(config.out).read_note("plan"), None
    if planned is None:
        source = _source(config)
        # Before the plan: what is added in between is reported, even if it is harvested.
        listed = source.listing() if isinstance(source, Lists) else None
        planned = plan_units(config)
    with job.begin() as draft:
        if listed is not None:
            write_listing(draft.folder, listed)
        units: list[list[dict[str, Any]]] = draft.once("plan", lambda: planned)
        warnings: list[str] = draft.once("warnings", lambda: warnings_of(config))
        report.warn(warnings)

        def read(task: Mapping[str, Any]) -> dict[str, int]:
            return read_unit(config, task["unit"], task["addresses"])

        read_units(config, draft, [{"addresses": unit} for unit in units], read, report)
        manifest = manifest_of(job, draft, len(units), warnings)
        sizes = draft.folder.sizes([LISTING])
        listing = {name: {"size_bytes": size} for name, size in sizes.items()}
        manifest = replace(manifest, files={**manifest.files, **listing})
        check_figures(config, manifest)
        changed = [item.uri for item in _inputs(config) if item not in inputs]
        if changed:
            raise SourceError(
                f"{', '.join(changed)} changed while it was harvested: {config.out} may mix rows "
                "of both versions. Remove it and harvest again"
            )
        published = draft.publish(manifest)
    # A resumed harvest may have begun long ago.
    return published if listed is not None else _with_changes(config, published, report)


def estimate(config: HarvestConfig) -> str:
    """Return an estimate of size and time of a harvest, as text; writes nothing.

    Raises:
        SourceError: If the source as a whole cannot be read.
        StorageError: If the source, a disk or a bucket fails.
    """
    own = _own_job(config)
    if own is not None:
        return own.estimate(config)
    counts = [address.articles for address in _source(config).addresses()]
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        articles = f"{sum(known):,}"
    else:
        articles = f"{len(counts):,} or more: one for each folder or archive"
    return (
        f"articles    {articles}\n"
        "Size, figures and time are not known before they are read. Nothing was written.\n"
    )


def check(config: HarvestConfig) -> None:
    """Reject invalid settings of a source, and a source without packages.

    Raises:
        ConfigError: If there is no such source, or its settings are invalid.
        SourceError: If the source as a whole cannot be read, or is empty.
        ArtifactError: If ``out`` is inside the source, or the source inside ``out``.
    """
    own = _own_job(config)
    if own is not None:
        own.check(config)
    elif next(_source(config).addresses(), None) is None:
        raise SourceError("the source holds no packages")


def _own_job(config: HarvestConfig) -> SourceJob | None:
    """Return the job of a source that has its own."""
    _, settings = plugins.resolve("harvest.sources", config.source, setting="source")
    return settings.job() if isinstance(settings, HasJob) else None


def _source(config: HarvestConfig) -> Source:
    """Return the source, after checking that ``out`` does not overlap with it.

    Raises:
        ArtifactError: If ``out`` is inside the source, or the source inside ``out``.
        SourceError: If the source as a whole cannot be read.
    """
    source: Source = plugins.make("harvest.sources", config.source)
    # ``folders`` is optional: third-party sources may lack it.
    folders: Iterable[str] = getattr(source, "folders", list)()
    for folder in folders:
        refuse_overlap(config.out, {"source": folder})
    return source


def _with_changes(config: HarvestConfig, published: Manifest, report: Progress) -> Manifest:
    """Return a published manifest, with a warning if its source has changed since."""
    source: Source = plugins.make("harvest.sources", config.source)
    before = read_listing(Folder(config.out)) if isinstance(source, Lists) else None
    if before is None or not isinstance(source, Lists):
        return published
    try:
        now = source.listing()
    except (StorageError, SourceError) as error:
        changed = f"the source cannot be compared with what was harvested: {error}"
    else:
        # A source that was deleted after its harvest is no other source.
        found = changes(before, now) if now else ""
        if not found:
            return published
        changed = (
            f"the source has changed since its harvest began, and {config.out} may lack these "
            f"changes. Files: {found}. To harvest it as it is now, remove {config.out} and run "
            "this again, or choose another folder"
        )
    report.warn([changed])
    notes = {**published.notes, "warnings": [*published.warnings, changed]}
    return replace(published, notes=notes)


def _inputs(config: HarvestConfig) -> list[Input]:
    """Return what the source reads as inputs of the manifest.

    Inputs that do not exist any more are as recorded in ``out``. Those that are not recorded there
    are left out: an earlier version began the harvest.
    """
    source: Source = plugins.make("harvest.sources", config.source)
    inputs = source.inputs() if isinstance(source, HasInputs) else []
    recorded = recorded_inputs(config.out)
    if recorded is None:
        return inputs
    known = {key.partition(" ")[0]: fingerprint for key, fingerprint in recorded.items()}
    return [
        replace(item, fingerprint=item.fingerprint or known[item.name])
        for item in inputs
        if item.name in known
    ]


def check_figures(config: HarvestConfig, manifest: Manifest) -> None:
    """Reject a harvest without usable figures.

    Raises:
        NothingUsable: If no figure is usable.
    """
    articles, figures = manifest.counts["articles"], manifest.counts["figures"]
    if figures["usable"] or config.may_be_empty:
        return
    check_usable(
        figures["usable"],
        f"{figures['seen']:,} figures of {articles['seen']:,} articles",
        {**_prefixed("article: ", articles["defects"]), **figures["defects"]},
        may_be_empty=config.may_be_empty,
        first="\n  ".join(_first_defects(config.out, manifest.files)),
        hint=_HINTS.get(config.source.name, "Look at the settings of source."),
    )


def _prefixed(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {f"{prefix}{name}": count for name, count in counts.items()}


def _first_defects(out: str, files: Iterable[str], most: int = 3) -> list[str]:
    """Return the first defects of figures, or of articles, with the locations of their sources."""
    folder, found = Folder(out), list[str]()
    for kind, name in (("figures/", "figure_id"), ("articles/", "article_id")):
        for path in sorted(path for path in files if path.startswith(kind)):
            columns = [name, "source_uri", "defect", "defect_detail"]
            rows = read_table(folder, path, columns)
            rows = rows.filter(pc.is_valid(rows["defect"]))
            for row in rows.slice(0, most - len(found)).to_pylist():
                detail = f": {row['defect_detail']}" if row["defect_detail"] else ""
                found.append(f"{row[name]}, {row['defect']}{detail} (of {row['source_uri']})")
        if found:
            break
    return found


def manifest_of(job: Job, draft: Draft, units: int, warnings: Sequence[str] = ()) -> Manifest:
    """Return the manifest of the first ``units`` units, from their receipts."""
    receipts: list[dict[str, Any]] = [
        draft.read_note(f"units/{number:06d}") or {} for number in range(units)
    ]
    return job.manifest(
        counts=_counts(sum((Counter(r["seen"]) for r in receipts), Counter())),
        files=dict(itertools.chain.from_iterable(r["files"].items() for r in receipts)),
        notes={
            "offsets": "code points of the text they belong to, end exclusive",
            "phash": "ImageHash phash, 64 bits",
        },
        warnings=warnings,
    )


def read_units(
    config: HarvestConfig,
    draft: Draft,
    units: Sequence[Mapping[str, Any]],
    read_one: Callable[[Mapping[str, Any]], dict[str, int]],
    report: Progress,
) -> None:
    """Read the units that no earlier attempt has finished, one Ray task per unit."""
    finished = {int(name.rpartition("/")[2]) for name in draft.note_names("units")}
    pending = [number for number in range(len(units)) if number not in finished]
    if not pending:
        return
    with connect_ray():
        report.stage("unit", len(units), done_before=len(finished))
        seen: Counter[str] = Counter()
        tasks = ray.data.from_items(
            [{"unit": number, **units[number]} for number in pending],
            override_num_blocks=len(pending),
        )

        def read(task: Mapping[str, Any]) -> dict[str, Any]:
            what = f"unit {task['unit']}"
            return run_task(config.out, lambda: {"seen": read_one(task)}, what)

        for receipt in tasks.map(read, num_cpus=1).iter_rows():
            # Ray adds keys that a row lacks, with value None.
            found = raise_task_error(receipt)["seen"]
            seen.update({key: count for key, count in found.items() if count})
            report.add(_rates(seen, report.seconds))


def job_of(config: HarvestConfig, inputs: Sequence[Input] = ()) -> Job:
    """Return the parameters of the job for a configuration: kind, output folder and inputs."""
    return Job.of(config, KIND, inputs, output_format=FORMAT, without=["may_be_empty"])


def plan_units(config: HarvestConfig) -> list[list[dict[str, Any]]]:
    """Return the addresses of the packages of each unit, in source order.

    An address has ``uri`` and ``name``, see ``harvest.sources.Address``.

    Raises:
        SourceError: If the source has no packages, or cannot be read.
    """
    source: Source = plugins.make("harvest.sources", config.source)
    addresses = [{"uri": a.uri, "name": a.name} for a in source.addresses()]
    if not addresses:
        raise SourceError("the source holds no packages")
    size = config.packages_per_unit
    return [addresses[start : start + size] for start in range(0, len(addresses), size)]


def warnings_of(config: HarvestConfig) -> list[str]:
    """Return the warnings of the source about the resulting corpus."""
    source: Source = plugins.make("harvest.sources", config.source)
    return source.warnings() if isinstance(source, Warns) else []


def read_unit(
    config: HarvestConfig, unit: int, addresses: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Read a unit's packages and write their rows; see ``write_unit``."""
    source: Source = plugins.make("harvest.sources", config.source)
    read = (source.read(Address(address["uri"], address["name"])) for address in addresses)
    extra = source.extra_columns() if isinstance(source, Keeps) else []
    return write_unit(config, unit, itertools.chain.from_iterable(read), extra)


def write_unit(
    config: HarvestConfig, unit: int, packages: Iterable[Package], extra: Sequence[str] = ()
) -> dict[str, int]:
    """Write the parts of a unit, then its receipt. Independent of Ray.

    Args:
        config: Configuration of the job.
        unit: Number of the unit.
        packages: The packages to read.
        extra: Names of the ``extra_columns`` of figures.

    Returns:
        Row counts by ``articles/<defect>`` and ``figures/<defect>``.
    """
    folder = Draft(config.out).folder
    part_bytes = config.part_size_mb * 1_000_000
    seen: Counter[str] = Counter()
    with (
        PartWriter(folder, "articles", unit, Article, part_bytes) as articles,
        PartWriter(folder, "figures", unit, Figure, part_bytes, extra=extra) as figures,
    ):
        for row in itertools.chain.from_iterable(map(rows, packages)):
            if isinstance(row, Figure):
                figures.add(row)
                seen[f"figures/{row.defect or ''}"] += 1
                seen["mentions"] += len(row.mentions)
            else:
                articles.add(row)
                seen[f"articles/{row.defect or ''}"] += 1
    files = {**articles.files, **figures.files}
    Draft(config.out).note(f"units/{unit:06d}", {"seen": dict(seen), "files": files})
    return dict(seen)


def _rates(seen: Counter[str], seconds: float) -> str:
    counts = _counts(seen)
    articles, figures = counts["articles"], counts["figures"]
    return (
        f"{articles['seen']:,} articles ({articles['seen'] / seconds:.0f}/s), "
        f"{figures['seen']:,} figures ({figures['seen'] / seconds:.0f}/s), "
        f"defective: {articles['defective']:,} articles, {figures['defective']:,} figures"
    )


def _counts(seen: Counter[str]) -> dict[str, Any]:
    return {
        "articles": usable_and_defective(seen, "articles/"),
        "figures": usable_and_defective(seen, "figures/"),
        "mentions": seen["mentions"],
    }
