"""Raw files of a benchmark data set to Parquet, split by split, and a manifest.

Images are decoded and converted by threads of one process; rows keep the order of the raw files.
Finished splits are kept in the draft: an interrupted job resumes with the next one.
"""

import functools
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.datasets.prepared import KIND
from biovl.benchmark.prepare import card
from biovl.benchmark.prepare.config import PrepareConfig
from biovl.benchmark.prepare.raw_files import RawFiles, raw_fingerprint
from biovl.benchmark.prepare.rows import Row, convert
from biovl.benchmark.prepare.sets import KIND as READERS
from biovl.benchmark.prepare.sets import Examples, RawSet, known_sets
from biovl.benchmark.prepare.statistics import statistics, warnings_of
from biovl.benchmark.prepare.writer import draft_name, schema_of, split_writer
from biovl.core import plugins
from biovl.core.artifacts import Draft, Input, Manifest, find_manifest, refuse_overlap
from biovl.core.errors import NothingUsable
from biovl.core.folders import Folder
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

FORMAT = 1
"""Version of the output format; see ``output_format`` of ``Draft.begin``."""

_REPEATED = "id occurs before"
_CONTRADICTED = "id occurs before with another label"
_REPLACED = ("parts/", "splits/")
"""What is read anew if the raw files changed before publication."""


@entry_point
def prepare(config: PrepareConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Read the raw files of a data set and publish its images, labels and splits.

        out/
          train-00000-of-00002.parquet …   id, image and the columns of the data set, by split
          README.md                        dataset card: licence, source, our and the papers' counts
          manifest.json                    the same in machine-readable form

    Raises:
        SourceError: If a raw file is missing, truncated, or has no labels.
        NothingUsable: If no image is usable.
        ArtifactError: If ``out`` holds something else, or lies within the raw files.
        StorageError: If a disk or bucket fails; the same command resumes the job.
    """
    report = Progress("prepare", progress)
    job = Job.of(config, KIND, _inputs(config), output_format=FORMAT, without=["threads"])
    published = job.find_published()
    if published is not None:
        return published
    reader, settings = plugins.resolve(READERS, config.reader)
    about = known_sets()[config.name][1]
    report.say(f"{config.name}: looking for its files in {config.raw}")
    with RawFiles(config.raw, about.get) as raw:
        opened: RawSet = reader.read(settings, raw)
        report.say(
            f"{config.name}: "
            + ", ".join(f"{len(rows):,} {split}" for split, rows in opened.splits.items())
        )
        for reason, count in opened.left_out.items():
            report.say(f"left out: {count:,}, {reason}")
        with job.begin(plans=_REPLACED) as draft:
            for split in _splits(opened):
                write = functools.partial(_write, config, draft, split, opened, report)
                draft.once(f"splits/{split}", write)
            return _publish(config, job, draft, opened, raw.warnings, report)


def _inputs(config: PrepareConfig) -> list[Input]:
    """Return the raw files as an input; if they were deleted, as they were when published."""
    if "://" not in config.raw and Path(config.raw).expanduser().exists():
        refuse_overlap(config.out, {"raw": config.raw})
        known = raw_fingerprint(config.raw)
        return [Input(name="raw", uri=config.raw, fingerprint=known)]
    manifest = find_manifest(config.out)
    return list(manifest.inputs) if manifest is not None and manifest.kind == KIND else []


def _splits(opened: RawSet) -> list[str]:
    return [split for split in SPLITS if len(opened.splits.get(split, ()))]


def _write(
    config: PrepareConfig, draft: Draft, split: str, opened: RawSet, report: Progress
) -> dict[str, Any]:
    """Write the rows of a split and return its receipt: files, and rows left out by reason."""
    examples: Examples = opened.splits[split]
    report.stage(split, len(examples))
    left_out, first, label_of = Counter[str](), dict[str, str](), dict[str, Any]()
    part_bytes = config.part_mb * 1_000_000
    with split_writer(draft.folder, split, schema_of(opened.columns), part_bytes) as writer:
        for row in convert(examples, config.threads):
            label, reason = row.values.get("label"), row.defect
            if reason is None and row.id in label_of:
                reason = _REPEATED if label_of[row.id] == label else _CONTRADICTED
            if reason is None:
                label_of[row.id] = label
                writer.add(row)
            else:
                left_out[reason] += 1
                first.setdefault(reason, _described(row))
            report.add()
    return {
        "parts": [*writer.files.values()],
        "left_out": dict(sorted(left_out.items())),
        "first": first,
    }


def _described(row: Row) -> str:
    return f"{row.path}: {row.detail}" if row.detail else row.path


def _publish(
    config: PrepareConfig,
    job: Job,
    draft: Draft,
    opened: RawSet,
    warnings: list[str],
    report: Progress,
) -> Manifest:
    about = known_sets()[config.name][1]
    left_out = Counter(opened.left_out)
    warnings, files = list(warnings), dict[str, dict[str, Any]]()
    rows_of: dict[str, int] = {}
    for split in _splits(opened):
        receipt = draft.read_note(f"splits/{split}") or {}
        left_out.update(receipt["left_out"])
        warnings += [
            f"{split}: {count:,} left out, {reason}; the first: {receipt['first'][reason]}"
            for reason, count in receipt["left_out"].items()
        ]
        rows_of[split] = sum(part["rows"] for part in receipt["parts"])
        if rows_of[split]:
            files |= _move(draft.folder, split, receipt["parts"])
    if not files:
        raise NothingUsable(
            f"no image of {config.raw} is usable; nothing is published\n" + "\n".join(warnings)
        )
    rows_of = {split: count for split, count in rows_of.items() if count}
    found = statistics(draft.folder, files, opened)
    warnings += warnings_of(found, rows_of, about, opened)
    notes = {
        "set": config.name,
        "title": about.title,
        "holds": opened.holds,
        "classes": list(opened.classes),
        "licence": about.licence,
        "source": about.get,
        "citation": about.citation,
        "papers": {name: dict(counts) for name, counts in about.papers.items()},
        "differs": about.differs,
        **found,
    }
    counts = {"rows": sum(rows_of.values()), **rows_of, "left_out": dict(sorted(left_out.items()))}
    manifest = job.manifest(counts=counts, files=files, notes=notes, warnings=warnings)
    draft.folder.write("README.md", card.card(manifest).encode())
    report.warn(warnings)
    return draft.publish(manifest)


def _move(folder: Folder, split: str, parts: list[Mapping[str, int]]) -> dict[str, dict[str, Any]]:
    """Rename the parts of a split to ``SPLIT-NUMBER-of-COUNT``; return them by name. Idempotent."""
    files = {}
    for number, part in enumerate(parts):
        unfinished = draft_name(split, number)
        name = f"{split}-{number:05}-of-{len(parts):05}.parquet"
        if folder.exists(unfinished):
            folder.filesystem.move(folder.at(unfinished), folder.at(name))
        files[name] = dict(part)
    return files
