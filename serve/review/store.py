"""Functions that save, count, export and import votes in the database.

Each function takes a connection: the caller controls the transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from biovl.concepts.resolution import countable
from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import ReviewVote, moment, reviewer_key, validate_vote
from biovl.core.errors import ConfigError
from serve.review.tables import history, names, reservations, skips, states, votes
from serve.review.ties import tied_fields

Source = Literal["page", "import"]

_KEYS = ("cluster_id", "key", "reviewer", "practice")
_LISTS = ("global_concepts", "local_concepts")
_SAID = ("panel_type", "panel_subtype", *_LISTS, "created")
_MAX_CHARS = {"key": 64, "reviewer": 64, "created": 64}


@dataclass(frozen=True)
class State:
    """State of a cluster, computed from its votes."""

    votes: int = 0
    again: int = 0
    """Number of votes that were given after a tie."""
    ties: tuple[str, ...] = ()
    """Fields on which the cluster's votes are tied."""


def now() -> str:
    """Return the current time in the format of votes: ISO 8601, UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def save(
    connection: Connection, vote: ReviewVote, taxonomy: Taxonomy, *, is_again: bool, source: Source
) -> None:
    """Save a vote, replacing the reviewer's previous one, which remains in the history.

    Args:
        connection: Connection in a write transaction.
        vote: A validated vote.
        taxonomy: Determines ties.
        is_again: Whether the vote was requested because of a tie.
        source: Origin of the vote.
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
    """Return the row of ``states`` for a cluster with these votes.

    Votes with names that the taxonomy lacks do not count, but have a part in the majority.
    """
    given = [_vote(row) for row in rows]
    return {
        "votes": len(countable(given, taxonomy)[0]),
        "again": sum(row.is_again for row in rows),
        "ties": list(tied_fields(given, taxonomy)),
    }


def is_counted(row: Any, taxonomy: Taxonomy) -> bool:
    """Return whether a row of ``votes`` counts: the taxonomy may have changed since."""
    return bool(countable([_vote(row)], taxonomy)[0])


def recount_votes(connection: Connection, taxonomy: Taxonomy) -> None:
    """Count the votes of all clusters again, as the taxonomy may have changed."""
    found: dict[tuple[int, str], list[Any]] = {}
    for row in connection.execute(votes.select().where(votes.c.practice.is_(False))):
        found.setdefault((row.cluster_id, row.key), []).append(row)
    for state in connection.execute(states.select()).all():
        values = _counts(found.get((state.cluster_id, state.key), []), taxonomy)
        if (values["votes"], values["ties"]) != (state.votes, state.ties):
            at = (states.c.cluster_id == state.cluster_id, states.c.key == state.key)
            connection.execute(states.update().where(*at).values(**values))


def states_of(connection: Connection, keys: Mapping[int, str]) -> dict[int, State]:
    """Return the state of each cluster that has votes.

    Args:
        connection: Connection in any transaction.
        keys: Keys of the existing clusters, by id. Votes for other keys are ignored.
    """
    return {
        row.cluster_id: State(row.votes, row.again, tuple(row.ties))
        for row in connection.execute(states.select())
        if keys.get(row.cluster_id) == row.key
    }


def known_name(connection: Connection, reviewer: str) -> str | None:
    """Return the first spelling of a reviewer's name; None if the name is new."""
    name: str | None = connection.scalar(
        sa.select(names.c.name).where(names.c.folded == _fold(reviewer))
    )
    return name


def store_name(connection: Connection, reviewer: str) -> str:
    """Store the spelling of a reviewer's name if it is new, and return the first spelling.

    Args:
        connection: Connection in a write transaction.
        reviewer: The name in ASCII, whose lower case is the same in every database.
    """
    spelling = known_name(connection, reviewer)
    if spelling is None:
        # The reviewer may have votes from an import or from an earlier version without names.
        spelling = connection.scalar(
            sa.select(history.c.reviewer)
            .where(sa.func.lower(history.c.reviewer) == _fold(reviewer))
            .order_by(history.c.number)
            .limit(1)
        )
        spelling = reviewer if spelling is None else spelling
        connection.execute(names.insert().values(folded=_fold(reviewer), name=spelling))
    return spelling


def _fold(name: str) -> str:
    return name.lower()


def vote_of(
    connection: Connection, cluster_id: int, key: str, reviewer: str, *, practice: bool
) -> ReviewVote | None:
    """Return a reviewer's vote on a cluster; None if there is none."""
    row = connection.execute(
        votes.select().where(
            votes.c.cluster_id == cluster_id,
            votes.c.key == key,
            votes.c.reviewer == reviewer,
            votes.c.practice.is_(practice),
        )
    ).first()
    return None if row is None else _vote(row)


def export_votes(connection: Connection) -> Iterable[ReviewVote]:
    """Return all current votes, including practice, in a fixed order."""
    query = votes.select().order_by(
        votes.c.practice, votes.c.cluster_id, votes.c.key, votes.c.reviewer
    )
    return [_vote(row) for row in connection.execute(query)]


@dataclass
class Imported:
    """Imported votes, and the number of unchanged ones."""

    unchanged: int = 0
    """Votes that are in the database already, or that a later vote of the reviewer replaces."""
    votes: Sequence[ReviewVote] = ()
    """The saved votes."""


def import_votes(
    connection: Connection,
    brought: Sequence[ReviewVote],
    taxonomy: Taxonomy,
    *,
    keys: Mapping[int, str],
    refuse: Callable[[ReviewVote, str], None],
) -> Imported:
    """Import votes; of two votes of a reviewer on a cluster, the later one is kept.

    If their times are equal or missing, the one imported last is kept, as in the resolve job.

    Args:
        connection: Connection in a write transaction.
        brought: Votes, not yet validated.
        taxonomy: Names that votes may use.
        keys: Keys of the existing clusters, by id.
        refuse: Called with each rejected vote and the reason.
    """
    done = Imported()
    # "anna" in a file is the Anna who voted here.
    spelled = {
        reviewer_key(name): name
        for column in (votes.c.reviewer, names.c.name)
        for name in connection.scalars(sa.select(column).distinct())
    }
    later: dict[tuple[Any, ...], ReviewVote] = {}
    for vote in brought:
        try:
            name = spelled.get(reviewer_key(vote.reviewer), vote.reviewer.strip())
            fine = validate_vote(replace(vote, reviewer=name), taxonomy)
            _check_cluster(fine, keys)
            spelled[reviewer_key(name)] = name
        except ConfigError as error:
            refuse(vote, str(error))
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
    done.votes = list(later.values())
    if done.votes:
        _save_all(connection, done.votes, taxonomy)
    return done


def _stays(saved: ReviewVote, brought: ReviewVote) -> bool:
    """Return whether a stored vote is kept when another of the same reviewer is imported."""
    at, other = moment(saved.created), moment(brought.created)
    return at > other or (at == other and replace(saved, created=brought.created) == brought)


def _save_all(connection: Connection, brought: Sequence[ReviewVote], taxonomy: Taxonomy) -> None:
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


def _check_cluster(vote: ReviewVote, keys: Mapping[int, str]) -> None:
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
    """Return the key of a vote, or of a row of votes: cluster, reviewer and practice."""
    return tuple(getattr(one, name) for name in _KEYS)


def _values(vote: ReviewVote) -> dict[str, Any]:
    values = {name: getattr(vote, name) for name in (*_KEYS, *_SAID)}
    for name in _LISTS:
        values[name] = list(values[name])
    return values


def _vote(row: Any) -> ReviewVote:
    values = {name: getattr(row, name) for name in (*_KEYS, *_SAID)}
    for name in _LISTS:
        values[name] = tuple(values[name])
    return ReviewVote(**values)
