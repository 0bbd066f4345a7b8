"""Resolve votes about clusters to labels of images.

1. resolve    on the driver: valid votes, majorities, agreement
2. propagate  a task per part of the table writes the labels of its rows
"""

import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from biovl.concepts import agreement, label_sheets, propagation, report
from biovl.concepts.blocks import EmbeddedTable, open_source
from biovl.concepts.clusters import Concepts, check_embedding, open_concepts
from biovl.concepts.resolution import (
    CONTRADICTORY,
    NO_ROW,
    RefusedVote,
    Resolved,
    contradictory_reviewers,
    countable,
)
from biovl.concepts.resolution import resolve as resolved_of
from biovl.concepts.resolve_config import ResolveConfig
from biovl.concepts.taxonomy import Taxonomy, load_taxonomy
from biovl.concepts.votes import read_votes
from biovl.core.artifacts import Input, Manifest, to_json
from biovl.core.errors import ConfigError
from biovl.core.filesystems import open_location
from biovl.core.tables import COLUMNS, open_table
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import check_usable
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

FORMAT = 2
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""


@entry_point
def resolve(config: ResolveConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Label clusters by majority vote, and images by their clusters.

        out/
          part-000000-000.parquet …   labels of images (propagation.SCHEMA), with the file names
                                      and row order of the table
          clusters.csv                every cluster: its labels, or the reason for having none
          ties.csv                    questions without a majority: to be reviewed again
          refused_votes.csv           votes that do not count, with reasons
          agreement.json              disagreement and Krippendorff's alpha of each question
          disagreement.png            its histogram
          sheets.png                  members of labelled clusters, by concept
          manifest.json               counts of votes, clusters and images

    Raises:
        ConfigError: If no vote counts, or the taxonomy is invalid.
        ArtifactError: If an input is invalid, or ``out`` holds another artifact or is being
            written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    say = Progress("resolve", progress)
    concepts, taxonomy = open_concepts(config.concepts), load_taxonomy(config.taxonomy)
    source = _new_table(config, concepts)
    data = _bytes(config.votes)
    inputs = [
        *([concepts.input_named("table")] if source is None else source.as_inputs()),
        concepts.as_input(),
        Input(name="votes", uri=config.votes, fingerprint=hashlib.sha256(data).hexdigest()),
        Input(
            name="taxonomy",
            uri=config.taxonomy or "biovl",
            fingerprint=hashlib.sha256(to_json(_plain(taxonomy))).hexdigest(),
        ),
    ]
    job = Job.of(config, COLUMNS, inputs, output_format=FORMAT, without=["may_be_empty"])
    published = job.find_published()
    if published is not None:
        return published
    outcome = _outcome(config, data, taxonomy, concepts)
    with job.begin() as draft:
        labels = propagation.labels_of(outcome.resolved, len(concepts.keys))
        with connect_ray():
            write: Callable[[int], dict[str, Any]]
            if source is None:
                parts = concepts.parts()
                write = functools.partial(
                    propagation.write_members, config.out, concepts, labels, parts
                )
            else:
                parts = [part.name for part in source.table.parts]
                limits_K = concepts.limits_K(config.reach, config.max_distance)
                write = functools.partial(
                    propagation.write_new, config.out, concepts, labels, limits_K, source
                )
            receipts = Stages(draft, say).run("labelling part", len(parts), write, ())
        kind = propagation.VOTES if source is None else propagation.NEAREST
        counts = propagation.totals(receipts, kind)
        check_usable(
            counts["labelled"][kind],
            f"{counts['rows']:,} images: none has a label",
            counts["unlabelled"],
            may_be_empty=config.may_be_empty,
            hint="Where votes are tied, ties.csv, which is then published, says what to vote on.",
        )
        agreed = agreement.summary([item.votes for item in outcome.resolved])
        draft.folder.write("clusters.csv", report.clusters_csv(concepts, outcome.resolved))
        draft.folder.write("ties.csv", report.ties_csv(outcome.resolved))
        draft.folder.write("refused_votes.csv", report.refused_csv(outcome.refused))
        draft.folder.write("agreement.json", to_json(agreed))
        draft.folder.write("disagreement.png", report.disagreement_png(outcome.resolved, agreed))
        draft.folder.write("sheets.png", label_sheets.labelled_png(concepts, outcome.resolved))
        manifest = job.manifest(
            counts={
                **counts,
                "clusters": _clusters(outcome.resolved, len(concepts.keys)),
                "votes": _votes(outcome),
            },
            files={
                part: {name: receipt[name] for name in ("rows", "size_bytes")}
                for part, receipt in zip(parts, receipts, strict=True)
            },
            notes={"columns": propagation.SCHEMA.names, "agreement": agreed},
            warnings=_warnings(outcome),
        )
        return draft.publish(manifest)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """Result of the votes."""

    resolved: Sequence[Resolved]
    refused: Sequence[RefusedVote]
    counted: int
    contradictory_reviewers: Mapping[int, int]
    """Number of reviewers with contradictory votes alone, by cluster."""


def _new_table(config: ResolveConfig, concepts: Concepts) -> EmbeddedTable | None:
    """Return the table to label with its embedding, or None for the clustered table."""
    if config.table is None:
        return None
    table = open_table(config.table)
    if table.fingerprint == concepts.input_named("table").fingerprint:
        return None
    source = open_source(config.table, config.embedding)
    check_embedding(concepts, source.uri, source.dim)
    return source


def check(config: ResolveConfig) -> None:
    """Check that votes and taxonomy can be read, before clusters exist.

    Raises:
        ConfigError: If one of them cannot.
    """
    load_taxonomy(config.taxonomy)
    _bytes(config.votes)


def _bytes(votes: str) -> bytes:
    try:
        filesystem, path = open_location(votes)
        with filesystem.open_input_stream(path) as stream:
            data: bytes = stream.read()
    except OSError as error:
        raise ConfigError(f"the votes {votes} cannot be read: {error}") from error
    if data.startswith(b"SQLite format 3\0"):
        raise ConfigError(f"{votes} is a database; export its votes as CSV and give that file")
    return data


def _plain(taxonomy: Taxonomy) -> dict[str, Any]:
    return {
        "panels": [[panel.panel_type, panel.panel_subtype] for panel in taxonomy.panels],
        "concepts": {name: list(below) for name, below in taxonomy.concepts.items()},
        "aliases": dict(taxonomy.aliases),
    }


def _outcome(
    config: ResolveConfig, data: bytes, taxonomy: Taxonomy, concepts: Concepts
) -> _Outcome:
    """Return the result of the votes.

    Raises:
        ConfigError: If no vote counts.
    """
    votes, defects = read_votes(data)
    keys = dict(enumerate(concepts.keys))
    counted, others = countable(votes, taxonomy, keys)
    no_rows = [RefusedVote(kind=NO_ROW, reason=reason, line=line) for line, reason in defects]
    refused = [*no_rows, *others]
    if not counted:
        kinds = Counter(item.kind for item in refused)
        found = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
        first = next((f"; the first: {item.reason}" for item in refused), "")
        raise ConfigError(
            f"none of the votes in {config.votes} counts for {config.concepts}: "
            f"{found or 'there are none'}{first}"
        )
    # Contradictory votes have a part in the majority, though they name nothing.
    contradictory = [item.vote for item in others if item.kind == CONTRADICTORY and item.vote]
    resolved = resolved_of([*counted, *contradictory], taxonomy)
    return _Outcome(
        resolved=resolved,
        refused=refused,
        counted=len(counted),
        contradictory_reviewers=dict(contradictory_reviewers(counted, others)),
    )


def _warnings(outcome: _Outcome) -> list[str]:
    """Return a warning of votes whose names are not in the taxonomy, if there are any."""
    lost = outcome.contradictory_reviewers
    if not lost:
        return []
    return [
        f"{sum(lost.values()):,} votes for {len(lost):,} clusters have names that are not in the "
        "taxonomy (refused_votes.csv): they count as votes without a label. If a name has "
        "changed, add the old one as an alias"
    ]


def _clusters(resolved: Sequence[Resolved], total: int) -> dict[str, int]:
    labelled = sum(item.is_labelled for item in resolved)
    return {
        "labelled": labelled,
        "tied": len(resolved) - labelled,
        "without votes": total - len(resolved),
    }


def _votes(outcome: _Outcome) -> dict[str, Any]:
    kinds = Counter(item.kind for item in outcome.refused)
    return {"counted": outcome.counted, "refused": dict(sorted(kinds.items()))}
