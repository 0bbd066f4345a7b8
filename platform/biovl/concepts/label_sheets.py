"""Contact sheet of labelled clusters: example images per label."""

from collections import Counter
from collections.abc import Iterable

from biovl.concepts.clusters import Concepts
from biovl.concepts.contact_sheet import SheetRow, contact_sheet
from biovl.concepts.members import read_cluster
from biovl.concepts.resolution import Resolved

_MOST_ROWS = 40


def labelled_png(concepts: Concepts, resolved: Iterable[Resolved]) -> bytes:
    """Return a PNG with members of labelled clusters by concept, the largest cluster first.

    At most 40 clusters are shown, chosen from the concepts in turn.
    """
    labelled = [item for item in resolved if item.is_labelled]
    largest_first = sorted(labelled, key=lambda item: -int(concepts.sizes_K[item.cluster_id]))
    seen, turns = Counter[tuple[str, ...]](), []
    for item in largest_first:
        turns.append((seen[item.global_concepts], item))
        seen[item.global_concepts] += 1
    shown = [item for _, item in sorted(turns, key=lambda turn: turn[0])[:_MOST_ROWS]]
    rows = [
        SheetRow(
            title=", ".join(item.global_concepts),
            lines=[
                f"cluster {item.cluster_id}: {concepts.sizes_K[item.cluster_id]:,} images",
                _agreement(item),
                *item.local_concepts[:2],
                item.panel_subtype or item.panel_type or "",
            ],
            images=read_cluster(concepts.uri, item.cluster_id)["thumbnail"].to_pylist(),
        )
        for item in sorted(shown, key=lambda item: item.global_concepts)
    ]
    return contact_sheet(rows, heading=f"{len(rows):,} of {len(labelled):,} labelled clusters")


def _agreement(item: Resolved) -> str:
    """Return how many reviewers gave this topic: reviewers of a mixed cluster disagree."""
    same = sum(set(vote.global_concepts) == set(item.global_concepts) for vote in item.votes)
    return f"{same} of {len(item.votes)} votes agree"
