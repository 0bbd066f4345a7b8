"""Assignment of clusters to reviewers.

Practice clusters come first. Then, of the clusters with a free slot, the one with the fewest votes
is assigned. A slot is taken by a vote, or by a reviewer who has the cluster open. Clusters whose
votes tie get one more slot, for a reviewer who has not voted on them yet. When nothing else is
left, reviewers may review their own tied clusters once more.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlalchemy.engine import Connection

from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import ReviewVote
from serve.review.concepts import Cluster, order
from serve.review.store import State, is_counted, states_of
from serve.review.tables import answered, reservations, skips, votes
from serve.review.ties import TieList

Kind = Literal["practice", "vote", "again"]

_NO_STATE = State()


@dataclass(frozen=True)
class Offer:
    """A cluster that is assigned to a reviewer."""

    cluster_id: int
    kind: Kind
    """Reason of the assignment. ``practice``: the vote is not counted; ``vote``: regular;
    ``again``: the cluster's votes tie."""
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules by which clusters are assigned to reviewers."""

    votes_per_cluster: int
    clusters_per_reviewer: int | None
    reservation_s: float
    seed: int
    practice: tuple[int, ...]
    """Ids of the practice clusters, in order."""
    ties: TieList = field(default_factory=TieList)
    """Tied clusters to review again, until their votes no longer tie."""

    def ties_of(self, cluster_id: int, state: State) -> tuple[str, ...]:
        """Return the fields on which a cluster's votes tie.

        Empty before it has enough votes, unless it is in the list of ties.
        """
        if cluster_id in self.ties.fields:
            return state.ties if state.again else self.ties.fields[cluster_id]
        return state.ties if state.votes >= self.votes_per_cluster else ()

    def places(self, cluster_id: int, state: State) -> int:
        """Return the number of reviewers that a cluster needs."""
        if self.ties_of(cluster_id, state):
            return max(self.votes_per_cluster, state.votes + 1)
        return self.votes_per_cluster


@dataclass(frozen=True, kw_only=True)
class ReviewerState:
    """State of the database, for one reviewer, on which an assignment is based."""

    states: Mapping[int, State]
    """State of each cluster. For clusters in the list of ties, ``again`` is the number of reviewers
    who have voted since."""
    taken: Mapping[int, int]
    """Number of slots reserved by other reviewers, by cluster."""
    reserved: tuple[int, ...]
    """Clusters that are reserved for this reviewer."""
    own: Mapping[int, bool]
    """Clusters with a counted vote of this reviewer, and whether the vote was given after a tie."""
    lost: frozenset[int]
    """Clusters with a vote of this reviewer that no longer counts: the taxonomy has changed."""
    practised: frozenset[int]
    """Practice clusters for which this reviewer has voted."""
    passed: Mapping[int, float]
    """Times at which this reviewer skipped practice clusters, by cluster; Unix time."""
    skipped: Mapping[int, float]
    """Times at which this reviewer skipped other clusters, by cluster; Unix time."""


def reviewer_state(
    connection: Connection,
    clusters: Mapping[int, Cluster],
    rules: Rules,
    reviewer: str,
    taxonomy: Taxonomy,
) -> ReviewerState:
    """Return the current state of the database for one reviewer."""
    keys = {one.cluster_id: one.key for one in clusters.values()}
    own: dict[int, bool] = {}
    lost: set[int] = set()
    practised: set[int] = set()
    for row in connection.execute(votes.select().where(votes.c.reviewer == reviewer)):
        if keys.get(row.cluster_id) != row.key:
            continue
        if row.practice:
            practised.add(row.cluster_id)
        elif is_counted(row, taxonomy):
            own[row.cluster_id] = row.is_again
        else:
            lost.add(row.cluster_id)
    skipped: dict[int, float] = {}
    passed: dict[int, float] = {}
    for row in connection.execute(skips.select().where(skips.c.reviewer == reviewer)):
        if keys.get(row.cluster_id) != row.key:
            continue
        (passed if row.practice else skipped)[row.cluster_id] = row.at
    taken: Counter[int] = Counter()
    reserved = []
    for row in connection.execute(reservations.select().where(reservations.c.until > time.time())):
        if keys.get(row.cluster_id) != row.key:
            continue
        if row.reviewer == reviewer:
            reserved.append(row.cluster_id)
        else:
            taken[row.cluster_id] += 1
    states = states_of(connection, keys)
    since = _answered(connection, keys, rules)
    for cluster_id in rules.ties.fields:
        # Votes from before the list of ties do not count as a second review.
        who = since.get(cluster_id, set())
        if cluster_id in states:
            states[cluster_id] = replace(states[cluster_id], again=len(who))
        if cluster_id in own:
            own[cluster_id] = reviewer in who
    return ReviewerState(
        states=states,
        taken=taken,
        reserved=tuple(sorted(reserved)),
        own=own,
        lost=frozenset(lost),
        practised=frozenset(practised),
        passed=passed,
        skipped=skipped,
    )


def note_answered(connection: Connection, vote: ReviewVote, rules: Rules) -> None:
    """Record that a reviewer voted on a cluster of the list of ties."""
    if vote.practice or vote.cluster_id not in rules.ties.fields:
        return
    one = {
        "list": rules.ties.sha256,
        "cluster_id": vote.cluster_id,
        "key": vote.key,
        "reviewer": vote.reviewer,
    }
    connection.execute(answered.delete().where(*(answered.c[name] == one[name] for name in one)))
    connection.execute(answered.insert().values(**one))


def _answered(connection: Connection, keys: Mapping[int, str], rules: Rules) -> dict[int, set[str]]:
    """Return the reviewers who have voted on each cluster of the list of ties."""
    reviewers: dict[int, set[str]] = {}
    if rules.ties.fields:
        query = answered.select().where(answered.c.list == rules.ties.sha256)
        for row in connection.execute(query):
            if keys.get(row.cluster_id) == row.key:
                reviewers.setdefault(row.cluster_id, set()).add(row.reviewer)
    return reviewers


def choose(clusters: Iterable[Cluster], rules: Rules, now: ReviewerState) -> Offer | None:
    """Return the next cluster for a reviewer; None if nothing is left."""
    practice = [one for one in rules.practice if one not in now.practised]
    if practice:
        # In order; skipped ones come last.
        return Offer(min(practice, key=lambda one: now.passed.get(one, 0.0)), "practice")
    if now.reserved:
        return offer(now.reserved[0], rules, now)
    best: tuple[tuple[float, ...], int] | None = None
    for cluster in clusters:
        one = cluster.cluster_id
        if not may_reserve(one, rules, now):
            continue
        state = now.states.get(one, _NO_STATE)
        place = (
            one in now.own,
            now.skipped.get(one, 0.0),
            state.votes + now.taken.get(one, 0),
            order("vote", rules.seed, cluster.key),
        )
        if best is None or place < best[0]:
            best = place, one
    return None if best is None else offer(best[1], rules, now)


def offer(cluster_id: int, rules: Rules, now: ReviewerState, *, practice: bool = False) -> Offer:
    """Return how a reviewer is given a cluster: for practice, to vote, or because of a tie."""
    if practice:
        return Offer(cluster_id, "practice")
    ties = rules.ties_of(cluster_id, now.states.get(cluster_id, _NO_STATE))
    return Offer(cluster_id, "again" if ties else "vote", ties)


def may_reserve(cluster_id: int, rules: Rules, now: ReviewerState) -> bool:
    """Return whether a cluster may be assigned to a reviewer.

    A slot must be free, and the reviewer below ``clusters_per_reviewer``. A cluster on which they
    have already voted is assigned once more only if its votes tie.
    """
    if cluster_id in now.own:
        return _is_open_again(cluster_id, rules, now)
    most = rules.clusters_per_reviewer
    is_full = most is not None and len(now.own) >= most
    return not is_full and _is_open(cluster_id, rules, now)


def may_vote(cluster_id: int, rules: Rules, now: ReviewerState) -> bool:
    """Return whether a reviewer may vote on a cluster: they hold a slot, or one is free."""
    has_slot = cluster_id in now.own or cluster_id in now.lost or cluster_id in now.reserved
    return has_slot or _is_open(cluster_id, rules, now)


def reserve(connection: Connection, cluster: Cluster, reviewer: str, reservation_s: float) -> None:
    """Reserve a slot of a cluster for a reviewer, and release their other reservations."""
    release(connection, reviewer)
    connection.execute(reservations.delete().where(reservations.c.until <= time.time()))
    connection.execute(
        reservations.insert().values(
            cluster_id=cluster.cluster_id,
            key=cluster.key,
            reviewer=reviewer,
            until=time.time() + reservation_s,
        )
    )


def release(connection: Connection, reviewer: str) -> None:
    """Release all slots reserved by a reviewer."""
    connection.execute(reservations.delete().where(reservations.c.reviewer == reviewer))


def renew(connection: Connection, cluster: Cluster, reviewer: str, reservation_s: float) -> bool:
    """Extend a reservation; return False if it has expired."""
    renewed = connection.execute(
        reservations.update()
        .where(
            reservations.c.cluster_id == cluster.cluster_id,
            reservations.c.key == cluster.key,
            reservations.c.reviewer == reviewer,
            reservations.c.until > time.time(),
        )
        .values(until=time.time() + reservation_s)
    )
    return renewed.rowcount > 0


def skip(connection: Connection, cluster: Cluster, reviewer: str, *, practice: bool) -> None:
    """Record that a reviewer skipped a cluster: it is assigned again after all others."""
    one = {
        "cluster_id": cluster.cluster_id,
        "key": cluster.key,
        "reviewer": reviewer,
        "practice": practice,
    }
    connection.execute(skips.delete().where(*(skips.c[name] == one[name] for name in one)))
    connection.execute(skips.insert().values(**one, at=time.time()))
    release(connection, reviewer)


def _is_open(cluster_id: int, rules: Rules, now: ReviewerState) -> bool:
    state = now.states.get(cluster_id, _NO_STATE)
    return state.votes + now.taken.get(cluster_id, 0) < rules.places(cluster_id, state)


def _is_open_again(cluster_id: int, rules: Rules, now: ReviewerState) -> bool:
    state = now.states.get(cluster_id, _NO_STATE)
    is_free = not now.own[cluster_id] and not now.taken.get(cluster_id, 0)
    return is_free and bool(rules.ties_of(cluster_id, state))
