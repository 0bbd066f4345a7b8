"""Votes in the database: saved, counted, exported and imported.

Each function is given a connection: its caller decides what happens together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import Vote, checked, moment
from biovl.core.errors import ConfigError
from serve.review.tables import history, names, reservations, skips, states, votes
from serve.review.ties import tied_fields

Source = Literal["page", "import"]

_KEYS = ("cluster_id", "key", "reviewer", "practice")
_SAID = ("panel_type", "panel_subtype", "global_concepts", "local_concepts", "created")
_MAX_CHARS = {"key": 64, "reviewer": 64, "created": 64}


@dataclass(frozen=True)
class State:
    """What is known of a cluster from its votes."""

    votes: int = 0
    again: int = 0
    """How many of them were given when the cluster's votes had tied."""
    ties: tuple[str, ...] = ()
    """Fields on which its votes tie now."""


def now() -> str:
    """Return the time as votes have it: ISO 8601, UTC, to the microsecond."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def save(
    connection: Connection, vote: Vote, taxonomy: Taxonomy, *, is_again: bool, source: Source
) -> None:
    """Let a vote be what its reviewer says of its cluster; what was said before is in the history.

    Args:
        connection: Of a transaction that writes.
        vote: A checked one.
        taxonomy: Decides what ties.
        is_again: Whether it was asked for because votes tied.
        source: Where it came from.
    """
    values = _values(vote) | {"is_again": is_again}
    connection.execute(history.insert().values(**values, saved=now(), source=source))
    one = [votes.c[name] == values[name] for name in _KEYS]
    if connection.execute(votes.update().where(*one).values(**values)).rowcount == 0:
        connection.execute(votes.insert().values(**values))
    for table in (reservations, skips):
        same = [table.c[name] == values[name] for name in _KEYS if name in table.c]
        if not (vote.practice and table is reservations):
            connection.execute(table.delete().where(*same))
    if not vote.practice:
        _count(connection, vote.cluster_id, vote.key, taxonomy)


def _count(connection: Connection, cluster_id: int, key: str, taxonomy: Taxonomy) -> None:
    found = connection.execute(
        votes.select().where(
            votes.c.cluster_id == cluster_id, votes.c.key == key, votes.c.practice.is_(False)
        )
    ).all()
    values = _counts(found, taxonomy)
    one = (states.c.cluster_id == cluster_id, states.c.key == key)
    if connection.execute(states.update().where(*one).values(**values)).rowcount == 0:
        connection.execute(states.insert().values(cluster_id=cluster_id, key=key, **values))


def _counts(rows: Sequence[Any], taxonomy: Taxonomy) -> dict[str, Any]:
    """Return what is kept in ``states`` of a cluster with these votes."""
    return {
        "votes": len(rows),
        "again": sum(row.is_again for row in rows),
        "ties": list(tied_fields([_vote(row) for row in rows], taxonomy)),
    }


def states_of(connection: Connection, keys: Mapping[int, str]) -> dict[int, State]:
    """Return the state of each cluster that has votes; of others nothing is known.

    Args:
        connection: Of any transaction.
        keys: Of the clusters there are, by id. Votes for others are not looked at.
    """
    return {
        row.cluster_id: State(row.votes, row.again, tuple(row.ties))
        for row in connection.execute(states.select())
        if keys.get(row.cluster_id) == row.key
    }


def known_name(connection: Connection, told: str) -> str | None:
    """Return how a reviewer's name was first written; None for one that is not known."""
    name: str | None = connection.scalar(
        sa.select(names.c.name).where(names.c.folded == _fold(told))
    )
    return name


def keep_name(connection: Connection, told: str) -> str:
    """Keep how a reviewer's name is written, and return how it was first.

    Args:
        connection: Of a transaction that writes.
        told: In ASCII, which every database folds alike.
    """
    known = known_name(connection, told)
    if known is None:
        # Somebody may have voted by a file, or before names were kept.
        known = connection.scalar(
            sa.select(history.c.reviewer)
            .where(sa.func.lower(history.c.reviewer) == _fold(told))
            .order_by(history.c.number)
            .limit(1)
        )
        known = told if known is None else known
        connection.execute(names.insert().values(folded=_fold(told), name=known))
    return known


def _fold(name: str) -> str:
    return name.lower()


def vote_of(
    connection: Connection, cluster_id: int, key: str, reviewer: str, *, practice: bool
) -> Vote | None:
    """Return what a reviewer says of a cluster."""
    row = connection.execute(
        votes.select().where(
            votes.c.cluster_id == cluster_id,
            votes.c.key == key,
            votes.c.reviewer == reviewer,
            votes.c.practice.is_(practice),
        )
    ).first()
    return None if row is None else _vote(row)


def exported(connection: Connection) -> Iterable[Vote]:
    """Return all votes that stand, those for practice too, in a fixed order."""
    wanted = votes.select().order_by(
        votes.c.practice, votes.c.cluster_id, votes.c.key, votes.c.reviewer
    )
    return [_vote(row) for row in connection.execute(wanted)]


@dataclass
class Imported:
    """What became of votes that were brought in."""

    saved: int = 0
    unchanged: int = 0
    """The database has them already, or a later one of the same reviewer stands."""
    refused: int = 0


def bring(
    connection: Connection,
    brought: Sequence[Vote],
    taxonomy: Taxonomy,
    *,
    keys: Mapping[int, str],
    refuse: Callable[[Vote, str], None],
) -> Imported:
    """Save votes that come from elsewhere; of two by one reviewer the later stands.

    Of two given at the same moment, or at none that is told, it is the one that was brought later:
    so resolution counts them.

    Args:
        connection: Of a transaction that writes.
        brought: Unchecked.
        taxonomy: What they must keep to.
        keys: Of the clusters there are, by id.
        refuse: Told of each that cannot be saved, and why.
    """
    done = Imported()
    later: dict[tuple[Any, ...], Vote] = {}
    for vote in brought:
        try:
            fine = checked(replace(vote, reviewer=vote.reviewer.strip()), taxonomy)
            _check_cluster(fine, keys)
        except ConfigError as error:
            refuse(vote, str(error))
            done.refused += 1
            continue
        place = _place(fine)
        before = later.get(place)
        if before is not None:
            # Either way one of the two is not saved.
            done.unchanged += 1
        if before is None or moment(fine.created) >= moment(before.created):
            later[place] = fine
    for row in connection.execute(votes.select()) if later else ():
        found = later.get(_place(row))
        if found is not None and _stays(_vote(row), found):
            del later[_place(row)]
            done.unchanged += 1
    done.saved = len(later)
    if later:
        _save_all(connection, list(later.values()), taxonomy)
    return done


def _stays(saved: Vote, brought: Vote) -> bool:
    """Say whether a vote stays as it is when another of the same reviewer is brought."""
    at, other = moment(saved.created), moment(brought.created)
    return at > other or (at == other and replace(saved, created=brought.created) == brought)


def _save_all(connection: Connection, brought: Sequence[Vote], taxonomy: Taxonomy) -> None:
    """Save many votes at once, one for each reviewer of a cluster."""
    rows = [_values(vote) | {"is_again": False} for vote in brought]
    connection.execute(
        history.insert(), [{**row, "saved": now(), "source": "import"} for row in rows]
    )
    same = [votes.c[name] == sa.bindparam(f"at_{name}") for name in _KEYS]
    connection.execute(
        votes.delete().where(*same), [{f"at_{name}": row[name] for name in _KEYS} for row in rows]
    )
    connection.execute(votes.insert(), rows)
    changed = {(vote.cluster_id, vote.key) for vote in brought if not vote.practice}
    found: dict[tuple[int, str], list[Any]] = {}
    for row in connection.execute(votes.select().where(votes.c.practice.is_(False))):
        if (row.cluster_id, row.key) in changed:
            found.setdefault((row.cluster_id, row.key), []).append(row)
    if not found:
        return
    at = (states.c.cluster_id == sa.bindparam("at_id"), states.c.key == sa.bindparam("at_key"))
    places = [{"at_id": cluster_id, "at_key": key} for cluster_id, key in found]
    connection.execute(states.delete().where(*at), places)
    counted = [
        {"cluster_id": cluster_id, "key": key, **_counts(rows, taxonomy)}
        for (cluster_id, key), rows in found.items()
    ]
    connection.execute(states.insert(), counted)


def _check_cluster(vote: Vote, keys: Mapping[int, str]) -> None:
    for name, most in _MAX_CHARS.items():
        if len(getattr(vote, name)) > most:
            raise ConfigError(f"{name} has {len(getattr(vote, name))} characters, at most {most}")
    if vote.cluster_id not in keys:
        raise ConfigError(f"there is no cluster {vote.cluster_id}")
    if keys[vote.cluster_id] != vote.key:
        raise ConfigError(
            f"cluster {vote.cluster_id} has changed: the vote is for {vote.key}, and it is "
            f"{keys[vote.cluster_id]} now"
        )


def _place(one: Any) -> tuple[Any, ...]:
    """Return whose vote it is on what; of a vote or its row."""
    return tuple(getattr(one, name) for name in _KEYS)


def _values(vote: Vote) -> dict[str, Any]:
    values = {name: getattr(vote, name) for name in (*_KEYS, *_SAID)}
    for name in ("global_concepts", "local_concepts"):
        values[name] = list(values[name])
    return values


def _vote(row: Any) -> Vote:
    return Vote(
        cluster_id=row.cluster_id,
        key=row.key,
        reviewer=row.reviewer,
        panel_type=row.panel_type,
        panel_subtype=row.panel_subtype,
        global_concepts=tuple(row.global_concepts),
        local_concepts=tuple(row.local_concepts),
        practice=row.practice,
        created=row.created,
    )
