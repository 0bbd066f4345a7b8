"""Resolve votes to one label per cluster by majority."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from biovl.concepts.agreement import FIELDS, answer, disagreement
from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import ReviewVote, moment, reviewer_key, validate_vote
from biovl.core.errors import ConfigError

PRACTICE = "practice"
SUPERSEDED = "superseded"
UNKNOWN_CLUSTER = "unknown cluster"
CLUSTER_CHANGED = "cluster changed"
CONTRADICTORY = "outside the taxonomy or contradictory"
NO_ROW = "row is no vote"


@dataclass(frozen=True, kw_only=True)
class RefusedVote:
    """A vote, or a row of a file, that does not count."""

    kind: str
    """Category of the rejection for counts: one of the constants above."""
    reason: str
    """Explanation of the rejection for the reviewer."""
    vote: ReviewVote | None = None
    line: int | None = None
    """Line of the file, if the row could not be parsed as a vote."""


@dataclass(frozen=True, kw_only=True)
class Tie:
    """A question without a majority, and the distribution of votes."""

    field: str
    """Question without a majority: one of ``agreement.FIELDS``."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Result of the votes for a cluster. Tied fields are empty."""

    cluster_id: int
    key: str
    votes: tuple[ReviewVote, ...]
    """Votes that count, by reviewer."""
    panel_type: str | None
    panel_subtype: str | None
    global_concepts: tuple[str, ...]
    local_concepts: tuple[str, ...]
    ties: tuple[Tie, ...] = ()
    disagreement: Mapping[str, float] = field(default_factory=dict)
    """Disagreement by field, in percent: see ``agreement.disagreement``."""

    @property
    def is_labelled(self) -> bool:
        """Whether all fields are resolved, so that the labels can be published."""
        return not self.ties


def countable(
    votes: Iterable[ReviewVote], taxonomy: Taxonomy, keys: Mapping[int, str] | None = None
) -> tuple[list[ReviewVote], list[RefusedVote]]:
    """Return the votes that count, with the taxonomy's spelling; and the others, with reasons.

    A vote does not count if it is a practice vote; if its cluster does not exist or has changed
    since; if ``validate_vote`` rejects it; or if its reviewer gave a later valid one for the
    same cluster (at equal times the later one in this order wins).

    Args:
        votes: Votes in any order.
        taxonomy: Allowed names.
        keys: Keys of the existing clusters, by id; None accepts all clusters.
    """
    counted: dict[tuple[int, str], ReviewVote] = {}
    refused: list[RefusedVote] = []
    for vote in votes:
        if vote.practice:
            refused.append(RefusedVote(kind=PRACTICE, reason="given for practice", vote=vote))
            continue
        if keys is not None and vote.cluster_id not in keys:
            reason = f"there is no cluster {vote.cluster_id}, only 0 to {max(keys, default=-1)}"
            refused.append(RefusedVote(kind=UNKNOWN_CLUSTER, reason=reason, vote=vote))
            continue
        if keys is not None and vote.key != keys[vote.cluster_id]:
            reason = f"the cluster has changed since: its key is {keys[vote.cluster_id]} now"
            refused.append(RefusedVote(kind=CLUSTER_CHANGED, reason=reason, vote=vote))
            continue
        try:
            good = validate_vote(vote, taxonomy)
        except ConfigError as error:
            refused.append(RefusedVote(kind=CONTRADICTORY, reason=str(error), vote=vote))
            continue
        place = good.cluster_id, reviewer_key(good.reviewer)
        before = counted.get(place)
        if before is not None:
            later = moment(good.created) >= moment(before.created)
            old, good = (before, good) if later else (good, before)
            reason = f"its reviewer voted again: {good.created or 'further down'}"
            refused.append(RefusedVote(kind=SUPERSEDED, reason=reason, vote=old))
        counted[place] = good
    return [counted[place] for place in sorted(counted)], refused


def resolve(votes: Iterable[ReviewVote], taxonomy: Taxonomy) -> list[Resolved]:
    """Return the result of the votes for every cluster with a counted vote, by id.

    * Panels: the (type, subtype) that more than half of the voters gave; otherwise a tie.
    * Global concepts: all that more than half of the voters named. It is a tie if no concept has a
      majority, or if exactly half of the voters named a further one.
    * Local concepts: as global concepts, but none if more than half of the voters named none. It is
      also a tie if a local concept has a majority, but none of its global concepts.

    So two of three voters decide, and two of two. Three answers of three voters are a tie until
    one of them votes again, or two more agree with one. A reviewer whose only vote for a cluster is
    contradictory, as after a change of the taxonomy, counts as a voter who agrees with nobody.

    Source:
        BIOMEDICA, arXiv 2501.07171, section 14.7: lower case without white space and dashes, then
        the majority vote of each field; ties are evaluated again (section 3.2). The paper does not
        define how several concepts of one voter count: here each is a vote of its own.
    """
    counted, refused = countable(votes, taxonomy)
    lost = contradictory_reviewers(counted, refused)
    groups = itertools.groupby(counted, key=lambda vote: vote.cluster_id)
    return [_resolve_cluster(tuple(group), taxonomy, lost[cluster]) for cluster, group in groups]


def contradictory_reviewers(
    counted: Iterable[ReviewVote], refused: Iterable[RefusedVote]
) -> Counter[int]:
    """Return, by cluster, the number of reviewers who cast only ``CONTRADICTORY`` votes on it."""
    voted = {(vote.cluster_id, reviewer_key(vote.reviewer)) for vote in counted}
    others = {
        (item.vote.cluster_id, reviewer_key(item.vote.reviewer))
        for item in refused
        if item.kind == CONTRADICTORY and item.vote is not None
    }
    return Counter(cluster for cluster, _ in others - voted)


def _resolve_cluster(votes: tuple[ReviewVote, ...], taxonomy: Taxonomy, lost: int) -> Resolved:
    ties: list[Tie] = []
    voters = len(votes) + lost
    panels = Counter((vote.panel_type, vote.panel_subtype) for vote in votes)
    (panel, most), *_ = panels.most_common(1)
    if 2 * most <= voters:
        panel = None, None  # type: ignore[assignment]
        described = {
            f"{kind} ({subtype})" if subtype else kind: count
            for (kind, subtype), count in panels.items()
        }
        ties.append(Tie(field="panel", reason=_vote_counts(described, voters, lost)))
    chosen: dict[str, tuple[str, ...]] = {}
    for name, order in (
        ("global_concepts", tuple(taxonomy.concepts)),
        ("local_concepts", taxonomy.local_concepts),
    ):
        chosen[name], tie = _concepts(name, [getattr(vote, name) for vote in votes], order, lost)
        if tie is not None:
            ties.append(tie)
    above = set(chosen["global_concepts"])
    alone = [
        name for name in chosen["local_concepts"] if above.isdisjoint(taxonomy.globals_of(name))
    ]
    if above and alone:
        reason = f"most named {', '.join(alone)}, but not the concept above it"
        ties.append(Tie(field="local_concepts", reason=reason))
        chosen["local_concepts"] = ()
    return Resolved(
        cluster_id=votes[0].cluster_id,
        key=votes[0].key,
        votes=votes,
        panel_type=panel[0],
        panel_subtype=panel[1],
        global_concepts=chosen["global_concepts"],
        local_concepts=chosen["local_concepts"],
        ties=tuple(ties),
        disagreement={
            name: disagreement([answer(vote, name) for vote in votes]) for name in FIELDS
        },
    )


def _concepts(
    name: str, answers: Sequence[tuple[str, ...]], order: Sequence[str], lost: int
) -> tuple[tuple[str, ...], Tie | None]:
    """Return the concepts that more than half of the voters named, or the tie."""
    named = Counter(itertools.chain(*answers))
    voters = len(answers) + lost
    winners = tuple(concept for concept in order if 2 * named[concept] > voters)
    is_half = any(2 * count == voters for count in named.values())
    most_named_none = 2 * sum(not concepts for concepts in answers) > voters
    if not is_half and (winners or most_named_none):
        return winners, None
    if not all(answers):
        named["(none)"] = sum(not concepts for concepts in answers)
    return (), Tie(field=name, reason=_vote_counts(named, voters, lost))


def _vote_counts(counts: Mapping[str, int], voters: int, lost: int) -> str:
    if lost:
        counts = {**counts, "(refused)": lost}
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name}: {count} of {voters}" for name, count in ordered)
