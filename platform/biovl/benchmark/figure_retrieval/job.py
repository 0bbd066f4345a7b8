"""Make a figure retrieval task from a harvest. Runs on the driver: images of drawn figures only."""

import sys
from collections import Counter
from typing import TextIO

import numpy as np
import pyarrow as pa

from biovl.benchmark.datasets.queries import KIND
from biovl.benchmark.datasets.reports import drawn_key
from biovl.benchmark.figure_retrieval import candidates, leaks
from biovl.benchmark.figure_retrieval.card import card, description
from biovl.benchmark.figure_retrieval.config import FigureRetrievalConfig
from biovl.benchmark.figure_retrieval.files import SUBSETS, write_task
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest, refuse_overlap
from biovl.core.errors import NothingUsable
from biovl.core.filesystems import without_credentials
from biovl.core.folders import Folder
from biovl.core.tables import write_table
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

FORMAT = 5
"""Version of the output format; see ``output_format`` of ``Draft.begin``."""
FEW = 1_000
"""Fewer figures than this are worth a warning: recall says little."""


@entry_point
def figure_retrieval(config: FigureRetrievalConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Publish a retrieval task: captions and citing sentences as queries, figures as corpus.

        out/
          corpus/ caption/ mention/     MTEB's layout, Parquet
          beir/ images/                 BEIR's layout
          credits.parquet               article, citation and licence of each figure
          left_out.parquet              every other figure of the articles after the cut-off
          README.md eval.yaml manifest.json

    Raises:
        ArtifactError: If the figures or training data are not published folders.
        NothingUsable: If no figure is left.
        StorageError: If a disk or bucket fails; run the same command again.
    """
    report = Progress(KIND, progress)
    source = read_manifest(config.figures, "figures")
    inputs = [_input("figures", config.figures)]
    for number, uri in enumerate(config.training):
        read_manifest(uri, *leaks.KINDS)
        inputs.append(_input(f"training {number}", uri))
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["figures", "training"])
    published = job.find_published()
    if published is not None:
        return published
    places = {"figures": config.figures, **{f"training {uri}": uri for uri in config.training}}
    refuse_overlap(config.out, places)
    with job.begin() as draft:
        return _make(config, source, job, draft, report)


def _make(
    config: FigureRetrievalConfig, source: Manifest, job: Job, draft: Draft, report: Progress
) -> Manifest:
    harvest = candidates.read_harvest(config, source)
    known, folder = harvest.candidates, Folder(config.figures)
    report.say(f"{len(known):,} figures may be used, {len(harvest.figures):,} others may not")
    repeated, same = leaks.find_repeated(known, folder, source)
    left_out = {**repeated, **leaks.find_trained_on(known, config.training)}
    order = np.array(
        sorted(range(len(known)), key=lambda row: drawn_key(known[row].figure_id, config.seed)),
        np.int64,
    )
    rows = leaks.draw(known, order, same, left_out, config.articles)
    reasons = {**harvest.figures, **{known[row].figure_id: why for row, why in left_out.items()}}
    counts = {
        "figures": len(rows),
        "queries": len(rows) * len(SUBSETS),
        "articles_left_out": dict(sorted(harvest.articles.items())),
        "figures_left_out": dict(sorted(Counter(reasons.values()).items())),
    }
    if not rows:
        raise NothingUsable(
            f"no figure of {folder.described} is left, of articles published on {config.after} or "
            f"later; articles: {counts['articles_left_out']}, figures: {counts['figures_left_out']}"
        )
    drawn = [known[row] for row in rows]
    files = write_task(
        draft.folder,
        folder,
        drawn,
        seed=config.seed,
        description=description(config, len(drawn)),
    )
    names = sorted(reasons)
    why = pa.table({"figure_id": names, "reason": [reasons[name] for name in names]})
    write_table(draft.folder, "left_out.parquet", why)
    manifest = job.manifest(counts=counts, files=files, warnings=_warnings(config, len(drawn)))
    text = card(
        config,
        drawn,
        counts,
        code=manifest.code,
        unknown_retraction=harvest.unknown_retraction,
    )
    draft.folder.write("README.md", text.encode())
    report.warn(manifest.warnings)
    return draft.publish(manifest)


def _warnings(config: FigureRetrievalConfig, figures: int) -> list[str]:
    few = f"{figures:,} figures: recall depends on their number, and intervals are wide below "
    blind = "no training data were given: figures that models know are found in this harvest only"
    return [f"{few}{FEW:,}"] * (figures < FEW) + [blind] * (not config.training)


def _input(name: str, uri: str) -> Input:
    return Input(name=name, uri=without_credentials(uri), fingerprint=fingerprint(uri))
