"""Authentication by API keys: SHA-256 digests in a YAML file, reloaded when it changes.

    keys:
      - {name: ward-7, sha256: 9f86d081884c7d65…, scopes: [search, embed]}
      - {name: operator, sha256: …, scopes: [search, embed, admin, metrics], rate_per_s: 50}

    python -m serve.auth new ward-7 --scopes search,embed     prints a key once, and its entry

If the file is deleted, unreachable or invalid, reading is retried every second. The last keys read
remain valid for a minute, as an editor or a network disk may be about to restore the file. After
that, every request gets 503 until the file can be read: its new version may have revoked a key.

Without keys, only requests from this machine are accepted, and from browsers only those of pages
that this service serves.
"""

import argparse
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from serve.http.problems import Problem
from serve.http.request_context import Caller, exchange_in
from serve.http.settings import Auth

SCOPES = ("search", "embed", "review", "admin", "metrics")
"""search: search and classify; embed: embeddings of texts and images; review: label clusters;
admin: reload, export and import votes; metrics: read metrics."""

_LOG = logging.getLogger("serve.auth")
_Stamp = tuple[int, int, int, int]
_NAME = r"^[A-Za-z0-9._-]{1,64}$"
_MAX_KEY_CHARS = 512
_LOOK_AGAIN_S = 1.0
_GRACE_S = 60.0
"""How long the last keys remain valid while their file cannot be read, in seconds."""
# Usual names of API keys in URLs, which end up in logs, browser histories and referrers.
_IN_QUERY = re.compile(r"(?:^|&)(?:api[_-]?key|x-api-key|key|access_token|token)=", re.IGNORECASE)


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    scopes: frozenset[str]
    rate_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class _KeysFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: list[_Key]


class Keys:
    """API keys of a service, reloaded when the key file changes."""

    def __init__(
        self,
        auth: Auth,
        *,
        setting: str = "auth.keys_file",
        scopes: str = "search,embed",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the key file, if one is configured.

        Args:
            auth: Authentication settings.
            setting: Name of the setting of the key file, for messages.
            scopes: Scopes of a typical key, for messages.
            clock: Monotonic clock, seconds.

        Raises:
            ConfigError: If the file cannot be read; the message contains the field or line.
        """
        if auth.keys_file and auth.keys is not None:
            raise ConfigError(f"{setting} and auth.keys are both set; use one of them")
        self._path = Path(auth.keys_file) if auth.keys_file else None
        self._are_required = auth.are_keys_required
        self._setting = setting
        self._make_keys = (
            f"make a key with `python -m serve.auth new NAME --scopes {scopes}` and start the"
            f" service with {setting}"
        )
        self._clock = clock
        self._known: Mapping[bytes, Caller] = {}
        self._stamp: _Stamp | None = None
        self._problem = ""
        self._failing_since: float | None = None
        self._looked_at = clock()
        if auth.keys is not None:
            self._known = _parse({"keys": list(auth.keys)}, "auth.keys")
            if not self._known:
                _LOG.warning("auth.keys is empty: all requests are rejected; %s", self._make_keys)
        if self._path:
            # The stamp first: what changes meanwhile is read again.
            self._stamp = _stamp(self._path, setting)
            self._known = _read(self._path, setting)
            if not self._known:
                raise ConfigError(f"{self._path} is not a file of keys: it has none")

    @property
    def are_required(self) -> bool:
        """Whether keys are configured; without keys only this machine has access."""
        return self._are_required

    def digests(self) -> bytes:
        """Return the sorted digests of the keys, which replicas share and clients do not know."""
        return b"".join(sorted(self._known))

    def caller(self, scope: Mapping[str, Any], headers: Headers) -> Caller:
        """Return the client of a request, authenticated by its key.

        Args:
            scope: ASGI scope; ``client`` and ``query_string`` are read.
            headers: Request headers.

        Raises:
            Problem: 401 for a missing or unknown key, or for another machine if no keys are
                configured; 400 for a key in the URL; 403 or 421 for a browser page of another
                site; 503 if the key file has been unreadable for a minute.
        """
        if not self._are_required:
            return _from_own_machine(scope, headers, self._make_keys)
        if _IN_QUERY.search(scope["query_string"].decode("latin-1")):
            raise Problem(
                400,
                "key-in-url",
                "API keys must not be sent in the URL, which is logged: send"
                " `Authorization: Bearer KEY` or `X-API-Key: KEY`, and replace this key",
            )
        self.check_readable()
        return self._caller_of(_sent(headers))

    def check_readable(self) -> None:
        """Reject the request if the key file has been unreadable for more than a minute.

        Raises:
            Problem: 503 in that case, because a key may have been revoked since.
        """
        self._look_again()
        if self._failing_since is not None and self._clock() - self._failing_since > _GRACE_S:
            raise Problem(
                503,
                "keys-unreadable",
                "the service cannot read its API keys and rejects all of them; try again, or"
                " contact the operator, whose log has the reason",
                headers={"Retry-After": "5"},
            )

    def warnings(self) -> list[str]:
        """Return warnings for the operator, without secrets and paths: health checks are public."""
        if self._failing_since is None:
            return []
        return [
            f"the key file cannot be read: {_GRACE_S:.0f} s after the first request that found it "
            "so, all requests are rejected; the log has the reason"
        ]

    def _caller_of(self, key: str) -> Caller:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        # All digests are compared in constant time, so that timing reveals nothing.
        for known, caller in self._known.items():
            if hmac.compare_digest(known, digest):
                found = caller
        if found is None:
            raise _unauthorized("unknown API key; check it, or contact the operator")
        return found

    def _look_again(self) -> None:
        now = self._clock()
        if self._path is None or now - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = now
        try:
            stamp = _stamp(self._path, self._setting)
            if stamp == self._stamp:
                self._failing_since, self._problem = None, ""
                return
            # Without keys, all that were there are revoked.
            self._known = _read(self._path, self._setting)
        except ConfigError as error:
            # The file may be half edited: that must not lock clients out at once. Nor may a revoked
            # key stay valid because the file was deleted, or its edit has a mistake.
            if self._failing_since is None:
                self._failing_since = now
            if str(error) != self._problem:
                _LOG.error(
                    "key file not reloaded, the previous keys remain valid for %.0f s: %s",
                    _GRACE_S,
                    error,
                )
            self._problem = str(error)
            return
        # Only now: a file that could not be read is tried again, whether it changes or not.
        self._stamp, self._problem, self._failing_since = stamp, "", None
        _LOG.info("key file reloaded: %d keys", len(self._known))
        if not self._known:
            _LOG.warning("%s has no keys: all requests are rejected", self._path)


def check_scope(request: Request, scope: str) -> None:
    """Require that the caller's key has a scope.

    Raises:
        Problem: 403 with the scopes of the caller, if it lacks the scope.
    """
    caller = exchange_in(request.scope).caller
    scopes = caller.scopes if caller else frozenset()
    if scope not in scopes:
        raise Problem(
            403,
            "missing-scope",
            f"this endpoint requires the scope {scope}; the key has"
            f" {', '.join(sorted(scopes)) or 'none'}",
        )


def new_key() -> str:
    """Return a new API key: 256 random bits, with a prefix that secret scanners recognize."""
    return "biovl_" + secrets.token_urlsafe(32)


def _read(path: Path, setting: str) -> dict[bytes, Caller]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting} {path} cannot be read: {error}") from error
    try:
        values = yaml.load(text, configs.UniqueKeys)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path}, line {line}: {error.problem}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path} is not YAML") from None
    known = _parse(values, str(path))
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        _LOG.warning("%s is readable by other users; run chmod 600", path)
    return known


def _parse(values: Any, where: str) -> dict[bytes, Caller]:
    """Return the client of each key, by its digest."""
    try:
        keys = _KeysFile.model_validate(values).keys
    except ValidationError as error:
        # The input is not quoted: it may be a key in place of its digest.
        wrong = [
            f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors()
        ]
        raise ConfigError(f"{where} is not a file of keys:\n  " + "\n  ".join(wrong)) from None
    _check(where, keys)
    return {
        bytes.fromhex(key.sha256): Caller(
            name=key.name, scopes=key.scopes, bucket=f"key:{key.name}", rate_per_s=key.rate_per_s
        )
        for key in keys
    }


def _check(path: str, keys: Sequence[_Key]) -> None:
    for number, key in enumerate(keys):
        unknown = key.scopes.difference(SCOPES)
        if unknown:
            raise ConfigError(
                f"{path}: keys.{number}.scopes has {', '.join(sorted(unknown))}; choose from"
                f" {', '.join(SCOPES)}"
            )
    for what in ("name", "sha256"):
        values = [getattr(key, what) for key in keys]
        twice = [n for n, value in enumerate(values) if value in values[:n]]
        if twice:
            raise ConfigError(f"{path}: keys.{twice[0]}.{what} is that of another key")


def _stamp(path: Path, setting: str) -> _Stamp:
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"{setting} {path} cannot be read: {error}") from error
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _sent(headers: Headers) -> str:
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    key = headers.get("x-api-key") or (bearer.strip() if kind.lower() == "bearer" else "")
    if not key:
        raise _unauthorized(
            "API key required: send `Authorization: Bearer KEY` or `X-API-Key: KEY`"
        )
    if len(key) > _MAX_KEY_CHARS:
        raise _unauthorized(f"the key has {len(key)} characters, at most {_MAX_KEY_CHARS} expected")
    return key


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


# RFC 7239: for=192.0.2.60;proto=http, for="[2001:db8::1]:4711", for=unknown
_FORWARDED = re.compile(r"\bfor\s?=\s?(\"[^\"]*\"|[^;,\s]*)", re.IGNORECASE)


def _from_own_machine(scope: Mapping[str, Any], headers: Headers, make_keys: str) -> Caller:
    client = scope.get("client")
    address = str(client[0]) if client else ""
    # A local proxy forwards requests of other machines. Forwarded addresses can only deny access.
    named = (headers.get("x-forwarded-for", ""), headers.get("x-real-ip", ""))
    forwarded = [hop.strip() for names in named for hop in names.split(",") if hop.strip()]
    forwarded += [
        _name_in("//" + hop.strip('"')) for hop in _FORWARDED.findall(headers.get("forwarded", ""))
    ]
    if not all(is_loopback(one) for one in (address, *forwarded)):
        raise _unauthorized(f"without API keys only this machine has access; {make_keys}")
    # DNS rebinding: the name of another site may resolve to 127.0.0.1. The browser would then let
    # that site's scripts read our responses.
    if not is_loopback(_name_in("//" + headers.get("host", ""))):
        raise Problem(
            421,
            "misdirected-request",
            "without API keys only requests with Host localhost are accepted;"
            f" open http://127.0.0.1, or {make_keys}",
        )
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_name_in(origin)):
        raise Problem(
            403,
            "cross-origin",
            f"without API keys requests from pages of other sites are rejected; {make_keys}",
        )
    return Caller(name="local", scopes=frozenset(SCOPES), bucket=f"address:{address}")


@lru_cache(maxsize=1_024)
def _name_in(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=1_024)
def is_loopback(name: str) -> bool:
    """Return whether a host name or IP address is on the loopback interface."""
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a new API key and its entry for the key file."""
    parser = argparse.ArgumentParser(prog="python -m serve.auth", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="create a key")
    new.add_argument("name", help="name of the client, for the log")
    new.add_argument("--scopes", default="search,embed", help=f"of {','.join(SCOPES)}")
    chosen = parser.parse_args(arguments)
    scopes = [scope.strip() for scope in chosen.scopes.split(",")]
    unknown = sorted(set(scopes).difference(SCOPES))
    if unknown:
        parser.error(f"there is no scope {unknown[0]!r}; choose from {', '.join(SCOPES)}")
    if not re.match(_NAME, chosen.name):
        parser.error("a name is 1 to 64 letters, digits, dots, - and _")
    key = new_key()
    digest = hashlib.sha256(key.encode()).hexdigest()
    print(f"key, shown this once:\n\n  {key}\n\nadd below keys: in auth.keys_file (chmod 600):\n")  # noqa: T201
    # Quoted: YAML reads 7 and no as other types than a text.
    print(f'  - {{name: "{chosen.name}", sha256: {digest}, scopes: [{", ".join(scopes)}]}}')  # noqa: T201


if __name__ == "__main__":
    main()
