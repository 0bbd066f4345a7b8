"""Concepts in the demo: clusters of images, simulated votes, and labels.

The votes of three reviewers are simulated. Each simulated reviewer knows the kind of every image
but looks at only ten of the thirty images of a cluster, so that reviewers sometimes disagree.
"""

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.chain.job import run_chain
from biovl.chain.links import Link, read_chain
from biovl.chain.steps import STEPS
from biovl.concepts.votes import ReviewVote, write_votes
from biovl.sample.kinds import CONCEPTS, kind_of, make_kinds

_KINDS = (
    *("bars", "heat_map", "survival", "flow_diagram", "electron_micrograph", "fluorescence"),
    *("histology", "immunohistochemistry", "brain_scan", "electrocardiogram", "fundus"),
    "ultrasound",
)
_EACH = 20
_CLUSTERS = 36
_REVIEWERS = ("ada", "ben", "eve")
_LOOKED_AT = 10


def run(folder: Path, model: Path) -> tuple[list[Link], dict[str, float]]:
    """Generate images of known kinds, cluster them, and label them by simulated votes.

    Args:
        folder: Working folder; steps published there are not repeated.
        model: Model used to embed the images.

    Returns:
        The steps that embed, cluster and label, and the durations of those run now, in seconds.
    """
    if not (folder / "captions.csv").exists():
        make_kinds(folder, each=_EACH, kinds=_KINDS)
    values: dict[str, Any] = {
        "folder": str(folder),
        "source.path": str(folder / "captions.csv"),
        "harvest.recipe": "table",
        "annotate.recipe": "clip",
        "annotate.weights": str(model),
        "cluster.recipe": "default",
        "cluster.components": 25,
        "cluster.clusters": _CLUSTERS,
    }
    seconds: dict[str, float] = {}
    run_chain(read_chain(STEPS, "demo", values), after=lambda _, took: seconds.update(took))
    votes = folder / "votes.csv"
    votes.write_bytes(write_votes(planted_votes(folder / "concepts")))
    values |= {"resolve.recipe": "default", "resolve.votes": str(votes)}
    chain = read_chain(STEPS, "demo", values)
    published = run_chain(chain, after=lambda _, took: seconds.update(took))
    # The demo already has a step of this name, for its articles.
    seconds.pop("harvest", None)
    return [link for link in published if link.step.name != "harvest"], seconds


def planted_votes(concepts: Path) -> list[ReviewVote]:
    """Return votes on every cluster by three simulated reviewers."""
    clusters = pq.read_table(concepts / "clusters.parquet", columns=["cluster_id", "key"])
    members = pq.read_table(concepts / "members.parquet", columns=["cluster_id", "rank", "row_id"])
    members = members.sort_by([("cluster_id", "ascending"), ("rank", "ascending")])
    votes = []
    for cluster in clusters.to_pylist():
        here = members.filter(pc.equal(members["cluster_id"], cluster["cluster_id"]))
        kinds = [kind_of(name) for name in here["row_id"].to_pylist()]
        for number, reviewer in enumerate(_REVIEWERS):
            # Reviewers of small clusters look at the same images.
            visible = kinds[number * _LOOKED_AT :][:_LOOKED_AT] or kinds[:_LOOKED_AT]
            (kind, _), *_ = Counter(visible).most_common(1)
            topic, local = CONCEPTS[kind]
            votes.append(
                ReviewVote(
                    cluster_id=cluster["cluster_id"],
                    key=cluster["key"],
                    reviewer=reviewer,
                    panel_type="single",
                    panel_subtype=None,
                    global_concepts=(topic,),
                    local_concepts=(local,),
                    created=datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC).isoformat(),
                )
            )
    return votes


def summary(labels: Path) -> str:
    """Return a sentence with the share of images whose label is correct."""
    parts = sorted(labels.glob("part-*.parquet"))
    labelled = [pq.read_table(part) for part in parts]
    table = sorted((labels.parent / "figures" / "figures").glob("*.parquet"))
    names = [
        name for part in table for name in pq.read_table(part, columns=["figure_id"])[0].to_pylist()
    ]
    predicted = [concepts for part in labelled for concepts in part["global_concepts"].to_pylist()]
    right = sum(
        bool(concepts) and CONCEPTS[kind_of(name)][0] in concepts
        for name, concepts in zip(names, predicted, strict=True)
    )
    return (
        f"{len(names)} images of {len(_KINDS)} kinds in {_CLUSTERS} clusters, three votes for "
        f"each: {right / len(names):.0%} of the images have the topic that was drawn; the others "
        "are in clusters of several kinds, since the model has seen a hundred images only."
    )
