"""The part of the demo that is about concepts: images to clusters, votes to labels, a picture.

Instead of people, three reviewers vote that know of every image which kind was drawn. Each looks at
ten of the thirty images that a cluster is shown by, so that they disagree now and then.
"""

import datetime
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.chain import Link, read_chain
from biovl.chain.job import STEPS, run_chain
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
    """Draw images of known kinds, cluster them, and label them as the planted votes say.

    Args:
        folder: To work in; what is published there is not done again.
        model: Whose embedding of images is used.

    Returns:
        The steps that embed, cluster and label, and the seconds of those that were done now.
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
    done = run_chain(chain, after=lambda _, took: seconds.update(took))
    # The demo has a step of this name already, of its articles.
    seconds.pop("harvest", None)
    return [link for link in done if link.step.name != "harvest"], seconds


def planted_votes(concepts: Path) -> list[ReviewVote]:
    """Return what three reviewers say of each cluster who know the kind of every image they see."""
    clusters = pq.read_table(concepts / "clusters.parquet", columns=["cluster_id", "key"])
    members = pq.read_table(concepts / "members.parquet", columns=["cluster_id", "rank", "row_id"])
    members = members.sort_by([("cluster_id", "ascending"), ("rank", "ascending")])
    votes = []
    for cluster in clusters.to_pylist():
        here = members.filter(pc.equal(members["cluster_id"], cluster["cluster_id"]))
        kinds = [kind_of(name) for name in here["row_id"].to_pylist()]
        for number, reviewer in enumerate(_REVIEWERS):
            # Where a cluster is small they look at the same images.
            seen = kinds[number * _LOOKED_AT :][:_LOOKED_AT] or kinds[:_LOOKED_AT]
            (kind, _), *_ = Counter(seen).most_common(1)
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
    """Return how often the label of an image is what was drawn, in words."""
    parts = sorted(labels.glob("part-*.parquet"))
    found = [pq.read_table(part) for part in parts]
    table = sorted((labels.parent / "figures" / "figures").glob("*.parquet"))
    names = [
        name for part in table for name in pq.read_table(part, columns=["figure_id"])[0].to_pylist()
    ]
    given = [concepts for part in found for concepts in part["global_concepts"].to_pylist()]
    right = sum(
        bool(concepts) and CONCEPTS[kind_of(name)][0] in concepts
        for name, concepts in zip(names, given, strict=True)
    )
    return (
        f"{len(names)} images of {len(_KINDS)} kinds in {_CLUSTERS} clusters, three votes for "
        f"each: {right / len(names):.0%} of the images have the global concept that was drawn."
    )
