"""Database of a review: tables and durable transactions.

Write transactions are serialized: by SQLite's file lock, or by a locked row in other databases.
Values read in a write transaction remain valid until it ends, so two reviewers never get the same
reservation.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from biovl.core.errors import ConfigError

_VERSION = "1"
_BUSY_S = 20
"""How long a transaction waits for the lock, in seconds."""
_ATTEMPTS = 5

metadata = sa.MetaData()


def _keys(*names: str) -> tuple[sa.Column[Any], ...]:
    """Return the columns of a primary key, which is not numbered by the database."""
    kinds = {"cluster_id": sa.Integer, "practice": sa.Boolean}
    return tuple(
        sa.Column(name, kinds.get(name, sa.String(64)), primary_key=True, autoincrement=False)
        for name in names
    )


def _of_a_vote() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("panel_type", sa.String(200), nullable=False),
        sa.Column("panel_subtype", sa.String(200)),
        sa.Column("global_concepts", sa.JSON, nullable=False),
        sa.Column("local_concepts", sa.JSON, nullable=False),
        sa.Column("created", sa.String(64), nullable=False),
        sa.Column("is_again", sa.Boolean, nullable=False),
    )


about = sa.Table(
    "about",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)

votes = sa.Table(
    "votes",
    metadata,
    *_keys("cluster_id", "key", "reviewer", "practice"),
    *_of_a_vote(),
)
"""The current vote of each reviewer. ``is_again``: given after a tie."""

history = sa.Table(
    "history",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("cluster_id", sa.Integer, nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("reviewer", sa.String(64), nullable=False),
    sa.Column("practice", sa.Boolean, nullable=False),
    *_of_a_vote(),
    sa.Column("saved", sa.String(64), nullable=False),
    sa.Column("source", sa.String(16), nullable=False),
)
"""Every vote that was ever saved; nothing is deleted here."""

states = sa.Table(
    "states",
    metadata,
    *_keys("cluster_id", "key"),
    sa.Column("votes", sa.Integer, nullable=False),
    sa.Column("again", sa.Integer, nullable=False),
    sa.Column("ties", sa.JSON, nullable=False),
)
"""State of each cluster with votes: number of votes, number of votes with ``is_again``, and tied
fields. Updated in the transaction that changes ``votes``."""

reservations = sa.Table(
    "reservations",
    metadata,
    *_keys("cluster_id", "key", "reviewer"),
    sa.Column("until", sa.Float(53), nullable=False),
)

skips = sa.Table(
    "skips",
    metadata,
    *_keys("cluster_id", "key", "reviewer", "practice"),
    sa.Column("at", sa.Float(53), nullable=False),
)


answered = sa.Table(
    "answered",
    metadata,
    *_keys("list", "cluster_id", "key", "reviewer"),
)
"""Reviewers who have voted on a cluster of a list of ties, identified by its SHA-256."""


names = sa.Table(
    "names",
    metadata,
    sa.Column("folded", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
)
"""Reviewers without API keys: the name in lower case, and its first spelling."""


class Database:
    """A database of votes, created if it does not exist."""

    def __init__(self, url: str) -> None:
        """Connect, and create missing tables.

        Raises:
            ConfigError: If the database cannot be opened, or has another version.
        """
        self.described = redact_url(url)
        try:
            parsed = make_url(url)
            self._engine = _sqlite(parsed) if _is_sqlite(parsed) else _other(parsed)
            self._prepare()
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(f"database {self.described} cannot be used: {error}") from error
        except DBAPIError as error:
            raise ConfigError(
                f"database {self.described} cannot be opened: {error.orig}"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent state of the database."""
        with self._engine.connect().execution_options(only_reads=True) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open an exclusive write transaction, which is committed when the block ends."""
        with self._engine.begin() as connection:
            connection.execute(
                sa.select(about.c.value).where(about.c.name == "version").with_for_update()
            )
            yield connection

    def _prepare(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._engine.begin() as connection:
                    metadata.create_all(connection)
                    found = connection.scalar(
                        sa.select(about.c.value).where(about.c.name == "version")
                    )
                    if found is None:
                        connection.execute(about.insert().values(name="version", value=_VERSION))
                        found = _VERSION
                break
            except DBAPIError:
                # Another replica may be creating the same tables.
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(0.2 * attempt)
        if found != _VERSION:
            raise ConfigError(
                f"database {self.described} is of version {found}, expected {_VERSION}: export its "
                "votes by the release that wrote it, and import them into a new one"
            )


def redact_url(url: str) -> str:
    """Return a database URL for messages, without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "(no URL of a database)"


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _other(url: URL) -> sa.Engine:
    return sa.create_engine(url, pool_pre_ping=True, pool_size=8)


def _sqlite(url: URL) -> sa.Engine:
    if url.database in (None, "", ":memory:"):
        raise ConfigError(
            "database is in memory: votes would be lost with the process; name a file"
        )
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_S, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def set_up(connection: Any, _: Any) -> None:
        # Transactions are started explicitly below; Python's driver would start them too late.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # An acknowledged vote must survive a power failure.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        only_reads = connection.get_execution_options().get("only_reads", False)
        connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")

    return engine
