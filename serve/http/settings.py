"""Settings that the search and the review service share, and how settings are read."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from biovl.core.config import nested
from biovl.core.errors import ConfigError

Kind = TypeVar("Kind", bound=BaseModel)


class Checked(BaseModel):
    """A group of settings: immutable, and unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Auth(Checked):
    """Who may ask.

    Without a file of keys the service answers to the loopback interface only, and refuses to start
    where it is bound to more.
    """

    keys_file: str | None = None
    """YAML, see ``serve.auth``: names, SHA-256 digests and scopes. ``python -m serve.auth new``."""
    keys: tuple[dict[str, Any], ...] | None = None
    """The entries of such a file, for clusters without a shared disk. An empty list refuses
    everybody; digests are no secrets."""

    @property
    def are_keys_required(self) -> bool:
        """Whether there are keys, in a file or here."""
        return self.keys_file is not None or self.keys is not None


class Limits(Checked):
    """What one request may take. More is refused with what was found and what is allowed."""

    body_mib: float = 20
    image_mib: float = 10
    image_megapixels: float = 64
    request_megapixels: float = 128
    """Of all images of a request together, by their headers. A second of a core, as WebP."""
    text_chars: int = 4_096
    k_max: int = 200
    depth_max: int = 2_000
    """Of pages: offset + k."""
    exact_figures: int = 2_000_000
    """Up to how many vectors ``exact`` compares with; it reads them all."""
    inputs_max: int = 64
    """Texts or images of one call."""
    classes_max: int = 1_000
    templates_max: int = 32
    timeout_s: float = 30
    """From the last byte of a request to the first of its answer."""
    body_s: float = 30
    """From the first byte of a request to its last; slower clients are answered 408."""
    concurrent_requests: int = 128
    """Per replica; more are answered 503 with Retry-After."""


class Rate(Checked):
    """Requests and pixels of one key, or of one address without keys."""

    per_s: float | None = None
    """None: no limit."""
    burst: int = 40
    megapixels_per_s: float | None = 100
    """Of images to be decoded, by their headers. More is answered 429; None: no limit."""
    megapixels_burst: int = 512


def read_settings(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Return settings from plain values or from those of a command line.

    Raises:
        ConfigError: If one is unknown, missing or not valid; every one is listed.
    """
    try:
        plain = nested({name: _value(name, value) for name, value in values.items()})
        return kind.model_validate(plain)
    except ValidationError as error:
        lines = ["the settings of the service are not valid:"]
        for problem in error.errors(include_url=False):
            where = ".".join(str(part) for part in problem["loc"])
            got = "" if problem["type"] == "missing" else f" (got {problem['input']!r:.100})"
            lines.append(f"  {where}: {problem['msg']}{got}")
        raise ConfigError("\n".join(lines)) from error


def _value(name: str, value: Any) -> Any:
    """Return what a value of the command line means; numbers are read where one is wanted."""
    if not isinstance(value, str):
        return value
    if value in ("null", "true", "false") or value[:1] in ("[", "{", '"'):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ConfigError(f"{name}: {value!r} is not JSON: {error}") from error
    return value
