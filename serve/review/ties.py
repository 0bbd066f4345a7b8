"""Fields on which the votes for a cluster tie, and the list of such clusters from resolve."""

import csv
import hashlib
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from biovl.concepts.agreement import FIELDS
from biovl.concepts.resolution import resolve
from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import ReviewVote
from biovl.core import spreadsheets
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.filesystems import open_location, translate_storage_errors
from serve.review.concepts import Cluster


@dataclass(frozen=True)
class TieList:
    """Clusters to review again, with the fields on which their votes tie."""

    fields: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Fields on which the votes tie, by cluster."""
    sha256: str = ""
    """SHA-256 of the file; new votes are requested for a file with another hash."""


def tied_fields(votes: Sequence[ReviewVote], taxonomy: Taxonomy) -> tuple[str, ...]:
    """Return the fields on which the votes for one cluster tie."""
    return tuple(tie.field for resolved in resolve(votes, taxonomy) for tie in resolved.ties)


def read_ties(path: str, clusters: Mapping[int, Cluster]) -> TieList:
    """Read a list of clusters to review again, with their tied fields.

    Each row has one ``field``; a row without one means all fields. Clusters that do not exist
    or have changed since are ignored.

    Raises:
        ArtifactError: If the file does not exist.
        ConfigError: If it is not CSV with ``cluster_id`` and ``key``.
    """
    filesystem, place = open_location(path)
    try:
        with translate_storage_errors(path), filesystem.open_input_stream(place) as stream:
            data = stream.read()
        text = spreadsheets.decode(data)
    except FileNotFoundError:
        raise ArtifactError(f"the list of ties {path} does not exist") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} must be CSV in UTF-8: {spreadsheets.encoding_hint(error)}"
        ) from error
    needed = ("cluster_id", "key")
    try:
        rows = spreadsheets.rows(io.StringIO(text, newline=""), delimiter=",", needed=needed)
        _, header = next(rows, (0, []))
        read = [dict(itertools.zip_longest(header, cells, fillvalue="")) for _, cells in rows]
    except csv.Error as error:
        raise ConfigError(f"{path} is not CSV: {error}") from error
    missing = [name for name in needed if name not in header]
    if missing:
        raise ConfigError(f"{path} has no column {', '.join(missing)}; a list of ties has both")
    ties: dict[int, tuple[str, ...]] = {}
    for row in read:
        cluster = _cluster(row, clusters)
        if cluster is not None:
            named = {row["field"]} if row.get("field") in FIELDS else {*FIELDS}
            named |= {*ties.get(cluster.cluster_id, ())}
            ties[cluster.cluster_id] = tuple(name for name in FIELDS if name in named)
    return TieList(ties, hashlib.sha256(data).hexdigest())


def _cluster(row: Mapping[str, str], clusters: Mapping[int, Cluster]) -> Cluster | None:
    digits = row["cluster_id"]
    if not (digits.isascii() and digits.isdigit()):
        return None
    cluster = clusters.get(int(digits))
    return cluster if cluster is not None and cluster.key == row["key"] else None
