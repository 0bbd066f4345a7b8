"""Build the review service as a Ray Serve application; export and import its votes as CSV.

serve run serve.review:build concepts=DIR database=sqlite:///votes.db reviewers_file=keys.yaml
python -m serve.review export --database sqlite:///votes.db > votes.csv
python -m serve.review import --database sqlite:///votes.db --concepts DIR votes.csv
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from biovl.concepts.votes import write_votes
from biovl.core.errors import BiovlError, ConfigError
from serve.auth import Keys
from serve.http.draining import Draining
from serve.http.loopback import require_loopback
from serve.http.settings import ApplicationError, read_settings
from serve.http.stopping import drain_before_exit
from serve.review import store
from serve.review.actions import open_desk
from serve.review.api import review_api
from serve.review.settings import ReviewSettings
from serve.review.tables import Database

_HEADROOM = 256
"""Requests beyond limits.concurrent_requests that reach a replica, which rejects them with 503."""


def build(settings: Mapping[str, Any]) -> Application:
    """Return the review service for Ray Serve.

    Args:
        settings: Fields of ``serve.review.settings.ReviewSettings``, as on a command line.

    Raises:
        ConfigError: If settings are unknown, missing or invalid, or a file or database they name
            cannot be opened.
    """
    try:
        own = settings_of(settings)
        # Fail before anything is started; replicas open everything again on their nodes.
        open_desk(own).database.close()
        Keys(own.auth, setting="reviewers_file", scopes="review")
    except BiovlError as error:
        raise ApplicationError(str(error)) from error
    drain_before_exit(own.limits.drain_s)
    deployment = serve.deployment(name="Review")(_Review).options(
        num_replicas=own.replicas,
        ray_actor_options={"num_cpus": 0.5},
        # The application writes its own access log, without queries.
        logging_config={"enable_access_log": False},
        max_ongoing_requests=own.limits.concurrent_requests + _HEADROOM,
        max_surge_percent=100,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=own.limits.drain_s,
    )
    application: Application = deployment.bind(own.model_dump(mode="json"))
    return application


def settings_of(values: Mapping[str, Any]) -> ReviewSettings:
    """Return settings from Python values or from the strings of a command line.

    Paths are made absolute: replicas have another working directory.

    Raises:
        ConfigError: If settings are unknown, missing or invalid; the message lists all of them.
    """
    own = read_settings(ReviewSettings, values)
    paths = {
        name: _absolute(found)
        for name in ("concepts", "reviewers_file", "taxonomy", "ties")
        if (found := getattr(own, name)) is not None
    }
    return own.model_copy(update={**paths, "database": _absolute_database(own.database)})


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _absolute_database(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        example = "sqlite:///review.db"
        raise ConfigError(f"database is not a SQLAlchemy URL, such as {example}") from None
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (
        None,
        "",
        ":memory:",
    )
    if is_file and not str(parsed.database).startswith("file:"):
        parsed = parsed.set(database=str(Path(str(parsed.database)).expanduser().absolute()))
    return parsed.render_as_string(hide_password=False)


@serve.ingress()
class _Review:
    """HTTP ingress of a ``Desk``."""

    async def __init__(self, settings: Mapping[str, Any]) -> None:  # type: ignore[misc]
        own = ReviewSettings.model_validate(settings)
        await require_loopback(own.auth, setting="reviewers_file")
        self._desk = open_desk(own)
        self._desk.recount_votes()
        self._draining = Draining()

    def __serve_build_asgi_app__(self) -> FastAPI:
        replica = serve.get_replica_context().replica_id.unique_id
        return review_api(self._desk, replica=replica, draining=self._draining)

    async def drain(self) -> None:
        """Reject new requests from now on; return when those in flight are completed."""
        await self._draining.drain()


def main(arguments: Sequence[str] | None = None) -> None:
    """Export votes from a database, or import votes into it."""
    parser = argparse.ArgumentParser(prog="python -m serve.review", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write all current votes to standard output")
    bring = commands.add_parser("import", help="save the votes of a CSV file")
    for one in (export, bring):
        one.add_argument("--database", required=True, help="its URL: sqlite:///review.db")
    bring.add_argument("--concepts", required=True, help="the clusters that the votes are for")
    bring.add_argument("--taxonomy", help="YAML of concepts; the paper's by default")
    bring.add_argument("--ties", help="the list of ties that the service has, if it has one")
    bring.add_argument("votes", type=Path, help="CSV, as export writes it")
    chosen = parser.parse_args(arguments)
    try:
        _export(chosen.database) if chosen.command == "export" else _import(chosen)
    except (BiovlError, OSError) as error:
        parser.exit(1, f"{error}\n")


def _export(url: str) -> None:
    _check_there(url)
    database = Database(url)
    with database.reading() as connection:
        sys.stdout.buffer.write(write_votes(store.export_votes(connection)))
    database.close()


def _check_there(url: str) -> None:
    """Raise ConfigError if a database file does not exist: opening it would create an empty one."""
    parsed = make_url(_absolute_database(url))
    name = parsed.database
    if parsed.get_backend_name() == "sqlite" and name and not Path(name).exists():
        raise ConfigError(f"database {name} does not exist")


def _import(chosen: argparse.Namespace) -> None:
    settings = ReviewSettings(
        concepts=chosen.concepts,
        database=chosen.database,
        taxonomy=chosen.taxonomy,
        ties=chosen.ties,
    )
    desk = open_desk(settings)
    done = desk.import_csv(chosen.votes.read_bytes())
    desk.database.close()
    print(f"saved {done.saved}, unchanged {done.unchanged}, refused {done.refused_total}")  # noqa: T201
    for row in done.refused:
        where = f"line {row.line}" if row.line else f"cluster {row.cluster_id} of {row.reviewer}"
        print(f"  {where}: {row.reason}", file=sys.stderr)  # noqa: T201
    if done.refused_total > len(done.refused):
        print(f"  and {done.refused_total - len(done.refused)} more", file=sys.stderr)  # noqa: T201
