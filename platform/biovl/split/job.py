"""Split compound figures: ``figures/`` to ``panels/``, one Ray task per part.

Parts keep their names and order, and the articles are copied, so that every reader of figures can
read panels. An interrupted job resumes from the receipts of its parts.
"""

import functools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from biovl.core import records, tombstones
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest
from biovl.core.counts import counts_below, usable_and_defective
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.parts import PartWriter
from biovl.core.records import Panel
from biovl.core.tables import open_part
from biovl.images.labels.network import builtin_network
from biovl.models import weight_identity
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import check_usable
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages
from biovl.split.config import NO_DETECTOR, SplitConfig
from biovl.split.detector import config as detection
from biovl.split.rows import Propose, figure_of, split

KIND = "panels"
FORMAT = 11
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""

_FIGURES, _ARTICLES = "figures/", "articles/"
_BLOCK = 1 << 24


@entry_point
def split_figures(config: SplitConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Split the compound figures of a harvest and publish all figures and panels.

        out/
          figures/part-000000-000.parquet …    a row per panel or unsplit figure (records.Panel)
          articles/part-000000-000.parquet …   copied from figures
          tombstones.parquet                   copied from figures, if it exists
          manifest.json                        counts, with the reasons why figures stay whole

    Raises:
        ArtifactError: If the input is not published figures, or ``out`` holds another artifact or
            is being written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    report = Progress("split", progress)
    harvest = read_manifest(config.figures, "figures")
    names = sorted(name for name in harvest.files if name.startswith(_FIGURES))
    if not names:
        raise ArtifactError(f"{config.figures} has no parts of figures")
    inputs = [Input(name="figures", uri=config.figures, fingerprint=fingerprint(config.figures))]
    known = ""
    if detector := _detector(config):
        read_manifest(detector, detection.KIND)
        # Where the package is installed is of no interest.
        named = config.detector or "included in biovl"
        known = fingerprint(detector)
        inputs.append(Input(name=detection.KIND, uri=named, fingerprint=known))
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["workers", "may_be_empty"])
    published = job.find_published()
    if published is not None:
        return published
    others = sorted(set(harvest.files) - set(names))
    copied = [name for name in others if name.startswith(_ARTICLES)]
    with job.begin() as draft:
        if Folder(config.figures).exists(tombstones.FILE):
            _copy(config, [tombstones.FILE], 0)
        with connect_ray():
            stages = Stages(draft, report)
            receipts = stages.run(
                "splitting part",
                len(names),
                _split_part,
                (config, names, known),
                cpus=config.workers.cpus,
            )
            stages.run("copying part of articles", len(copied), _copy, (config, copied))
        seen = sum((Counter(receipt["seen"]) for receipt in receipts), Counter[str]())
        counts = _counts(seen, harvest.counts)
        check_usable(
            counts["figures"]["usable"],
            f"{counts['figures']['seen']:,} rows made of {config.figures}",
            counts["figures"]["defects"],
            may_be_empty=config.may_be_empty,
        )
        manifest = job.manifest(
            counts=counts,
            files={
                **{name: r["file"] for name, r in zip(names, receipts, strict=True)},
                **{name: harvest.files[name] for name in others if name in copied},
            },
            notes={
                **harvest.notes,
                "box_px": "x0, y0, x1, y1 in the published image as displayed, end exclusive",
                "pixels": f"JPEG quality {config.jpeg_quality}, 4:4:4, where the figure is a JPEG, "
                "else PNG; uncut figures as published",
            },
        )
        return draft.publish(manifest)


def _split_part(
    config: SplitConfig, names: Sequence[str], known: str, number: int
) -> dict[str, Any]:
    """Split the figures of one part; return its file and its counts.

    Args:
        config: Configuration of the job.
        names: The parts of figures.
        known: Fingerprint of the detector when the job began.
        number: Number of the part.
    """
    # A label reader that does not load is no fault of a figure: it ends the job here, where below
    # every figure would stay whole.
    builtin_network()
    name = names[number]
    unit, first = name.removeprefix(f"{_FIGURES}part-").removesuffix(".parquet").split("-")
    source, folder = Folder(config.figures), Draft(config.out).folder
    how, propose = config.splitting(), _proposer(config, known)
    seen: Counter[str] = Counter()
    with open_part(source, name) as parts:
        extra = records.extra_columns(parts.schema_arrow)
        taken = set(parts.read(columns=["figure_id"])["figure_id"].to_pylist())
        size = sys.maxsize  # One output part per input part.
        with PartWriter(
            folder, "figures", int(unit), Panel, size, first=int(first), extra=extra
        ) as panels:
            for group in range(parts.num_row_groups):
                for row in parts.read_row_group(group).to_pylist():
                    rows = split(figure_of(row, extra), how, taken, propose)
                    _count(seen, rows)
                    for panel in rows:
                        panels.add(panel)
    return {"file": panels.files[name], "seen": dict(seen)}


def _detector(config: SplitConfig) -> str:
    """Return the folder of the detector; empty if there is none."""
    return "" if config.detector == NO_DETECTOR else config.detector or str(detection.BUILTIN)


def _proposer(config: SplitConfig, known: str) -> Propose | None:
    """Return the detector of this process, shared by all its tasks."""
    uri = _detector(config)
    return _loaded(uri, known) if uri else None


@functools.cache
def _loaded(uri: str, known: str) -> Propose:
    # ``known``, the fingerprint, distinguishes detectors published in the same place at different
    # times. Imported here: not every job has a detector.
    from biovl.split.detector.detector import Detector

    propose = Detector.load(uri).propose
    weight_identity.check_unchanged(uri, known)
    return propose


def _copy(config: SplitConfig, names: Sequence[str], number: int) -> dict[str, Any]:
    """Copy a file of figures unchanged."""
    source, folder = Folder(config.figures), Draft(config.out).folder
    with (
        source.filesystem.open_input_stream(source.at(names[number])) as stream,
        folder.writer(names[number]) as copy,
    ):
        while block := stream.read(_BLOCK):
            copy.write(block)
    return {}


def _count(seen: Counter[str], rows: Sequence[Panel]) -> None:
    """Count the rows of one figure."""
    for row in rows:
        seen[f"rows/{row.defect or ''}"] += 1
        seen["mentions"] += len(row.mentions)
    if rows[0].whole_because is not None:
        seen[f"whole/{rows[0].whole_because}"] += 1
        return
    seen["split"] += 1
    seen["panels"] += len(rows)
    for row in rows:
        seen["panels with own caption"] += row.own_caption is not None
        seen["panels with mentions of their own"] += any(
            not mention.figure_level for mention in row.mentions
        )
        seen[f"label/{row.how.label}"] += 1
        seen[f"box/{row.how.box}"] += 1


def _counts(seen: Counter[str], harvested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts in the format of harvest's manifest, and the counts of panels."""
    whole = counts_below(seen, "whole/")
    return {
        "articles": harvested.get("articles", {}),
        "figures": usable_and_defective(seen, "rows/"),
        "mentions": seen["mentions"],
        "parents": {"seen": seen["split"] + sum(whole.values()), "split": seen["split"]},
        "whole": whole,
        "panels": {
            "seen": seen["panels"],
            "with_own_caption": seen["panels with own caption"],
            "with_own_mentions": seen["panels with mentions of their own"],
            "label": counts_below(seen, "label/"),
            "box": counts_below(seen, "box/"),
        },
    }
