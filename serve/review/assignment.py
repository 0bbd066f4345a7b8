"""Which cluster a reviewer is given next.

First those for practice. Then, of the clusters with a free place, the one with the fewest votes;
a place is taken by a vote, or by a reviewer who has the cluster open. Clusters whose votes tie have
one place more, for somebody who has not voted on them; and where nothing else is left, those who
have may look at theirs once more.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from biovl.concepts.votes import ReviewVote
from serve.review.concepts import Cluster, order
from serve.review.store import State, states_of
from serve.review.tables import answered, reservations, skips, votes
from serve.review.ties import TieList

Kind = Literal["practice", "vote", "again"]

_NO_STATE = State()


@dataclass(frozen=True)
class Offer:
    """A cluster for a reviewer."""

    cluster_id: int
    kind: Kind
    """``again``: its votes tie."""
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What assignment keeps to."""

    votes_per_cluster: int
    clusters_per_reviewer: int | None
    reservation_s: float
    seed: int
    practice: tuple[int, ...]
    """Clusters to practise on, in their order."""
    ties: TieList = field(default_factory=TieList)
    """Clusters to be looked at again, until somebody has since they were listed."""

    def ties_of(self, cluster_id: int, state: State) -> tuple[str, ...]:
        """Return the fields on which a cluster ties; none while votes are still to come."""
        if state.again == 0 and cluster_id in self.ties.fields:
            return self.ties.fields[cluster_id]
        return state.ties if state.votes >= self.votes_per_cluster else ()

    def places(self, cluster_id: int, state: State) -> int:
        """Return how many reviewers a cluster is for."""
        if self.ties_of(cluster_id, state):
            return max(self.votes_per_cluster, state.votes + 1)
        return self.votes_per_cluster


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the database says of one reviewer and of the clusters there are."""

    states: Mapping[int, State]
    """Of clusters that are listed as ties, ``again`` counts those who voted since."""
    taken: Mapping[int, int]
    """Places that others have reserved, by cluster."""
    reserved: tuple[int, ...]
    """Clusters that this reviewer has open."""
    own: Mapping[int, bool]
    """This reviewer's votes that count, and whether each was given again (since it was listed)."""
    practised: frozenset[int]
    """Practice clusters that were answered."""
    passed: Mapping[int, float]
    """When this reviewer passed over a cluster for practice."""
    skipped: Mapping[int, float]
    """When this reviewer passed over another cluster."""


def standing(
    connection: Connection, clusters: Mapping[int, Cluster], rules: Rules, reviewer: str
) -> Standing:
    """Return how things stand for a reviewer at this moment."""
    keys = {one.cluster_id: one.key for one in clusters.values()}
    own: dict[int, bool] = {}
    practised: set[int] = set()
    for row in connection.execute(
        sa.select(votes.c.cluster_id, votes.c.key, votes.c.practice, votes.c.is_again).where(
            votes.c.reviewer == reviewer
        )
    ):
        if keys.get(row.cluster_id) != row.key:
            continue
        if row.practice:
            practised.add(row.cluster_id)
        else:
            own[row.cluster_id] = row.is_again
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
        # A second look of before the list is none at what the list asks for.
        who = since.get(cluster_id, set())
        if cluster_id in states:
            states[cluster_id] = replace(states[cluster_id], again=len(who))
        if cluster_id in own:
            own[cluster_id] = reviewer in who
    return Standing(
        states=states,
        taken=taken,
        reserved=tuple(sorted(reserved)),
        own=own,
        practised=frozenset(practised),
        passed=passed,
        skipped=skipped,
    )


def note_answered(connection: Connection, vote: ReviewVote, rules: Rules) -> None:
    """Note that somebody voted on a cluster that the list of ties asks for."""
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
    """Return who has voted on each cluster since the list of ties asked for it."""
    found: dict[int, set[str]] = {}
    if rules.ties.fields:
        wanted = answered.select().where(answered.c.list == rules.ties.sha256)
        for row in connection.execute(wanted):
            if keys.get(row.cluster_id) == row.key:
                found.setdefault(row.cluster_id, set()).add(row.reviewer)
    return found


def choose(clusters: Iterable[Cluster], rules: Rules, now: Standing) -> Offer | None:
    """Return what a reviewer is given next; None if nothing is left for them."""
    practice = [one for one in rules.practice if one not in now.practised]
    if practice:
        # The first in their order; those that were skipped only after the others.
        return Offer(min(practice, key=lambda one: now.passed.get(one, 0.0)), "practice")
    for cluster_id in now.reserved:
        return _offer(cluster_id, rules, now)
    is_full = rules.clusters_per_reviewer is not None and (
        len(now.own) >= rules.clusters_per_reviewer
    )
    best: tuple[tuple[float, ...], int] | None = None
    for cluster in clusters:
        one = cluster.cluster_id
        if not (_is_open_again(one, rules, now) if one in now.own else _is_open(one, rules, now)):
            continue
        if is_full and one not in now.own:
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
    return None if best is None else _offer(best[1], rules, now)


def may_vote(cluster_id: int, rules: Rules, now: Standing) -> bool:
    """Say whether there is a place for a reviewer's vote on a cluster, or they have one."""
    return cluster_id in now.own or cluster_id in now.reserved or _is_open(cluster_id, rules, now)


def reserve(connection: Connection, cluster: Cluster, reviewer: str, reservation_s: float) -> None:
    """Keep a place of a cluster for a reviewer, and give back the others that they had."""
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
    """Give back all places that were kept for a reviewer."""
    connection.execute(reservations.delete().where(reservations.c.reviewer == reviewer))


def renew(connection: Connection, cluster: Cluster, reviewer: str, reservation_s: float) -> bool:
    """Keep a place for longer; False if it is not kept any more."""
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
    """Note that a reviewer passed over a cluster: it comes again when nothing else is left."""
    one = {
        "cluster_id": cluster.cluster_id,
        "key": cluster.key,
        "reviewer": reviewer,
        "practice": practice,
    }
    connection.execute(skips.delete().where(*(skips.c[name] == one[name] for name in one)))
    connection.execute(skips.insert().values(**one, at=time.time()))
    release(connection, reviewer)


def _is_open(cluster_id: int, rules: Rules, now: Standing) -> bool:
    state = now.states.get(cluster_id, _NO_STATE)
    return state.votes + now.taken.get(cluster_id, 0) < rules.places(cluster_id, state)


def _is_open_again(cluster_id: int, rules: Rules, now: Standing) -> bool:
    state = now.states.get(cluster_id, _NO_STATE)
    is_free = not now.own[cluster_id] and not now.taken.get(cluster_id, 0)
    return is_free and bool(rules.ties_of(cluster_id, state))


def _offer(cluster_id: int, rules: Rules, now: Standing) -> Offer:
    ties = rules.ties_of(cluster_id, now.states.get(cluster_id, _NO_STATE))
    return Offer(cluster_id, "again" if ties else "vote", ties)
