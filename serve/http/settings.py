"""Settings that the search and review services share, and functions that read settings."""

from collections.abc import Mapping
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.overrides import value_of

Kind = TypeVar("Kind", bound=BaseModel)


class ApplicationError(ConfigError, click.ClickException):
    """Invalid settings or inputs. ``serve run`` prints the message without a traceback."""


class Checked(BaseModel):
    """A group of settings: immutable, and unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Auth(Checked):
    """Settings of authentication by API keys.

    Without keys the service accepts requests from the loopback interface only, and refuses to start
    on any other address.
    """

    keys_file: str | None = None
    """YAML file of names, SHA-256 digests and scopes, see ``serve.auth``. Create keys with
    ``python -m serve.auth new``."""
    keys: tuple[dict[str, Any], ...] | None = None
    """The entries of such a file inline, for clusters without a shared disk. An empty list rejects
    every request. Digests are not secret."""

    @property
    def are_keys_required(self) -> bool:
        """Whether keys are configured, in a file or inline."""
        return self.keys_file is not None or self.keys is not None


class Limits(Checked):
    """Limits of one request. A request over a limit is rejected with the value and the limit."""

    body_mib: PositiveFloat = 20
    """Maximum size of a request body, in MiB."""
    image_mib: PositiveFloat = 10
    """Maximum size of one encoded image, in MiB."""
    image_megapixels: PositiveFloat = 64
    """Maximum size of one decoded image, in megapixels."""
    request_megapixels: PositiveFloat = 128
    """Maximum megapixels of all images of a request together, by their headers. Decoding the
    default as WebP takes one core about a second."""
    text_chars: PositiveInt = 4_096
    """Maximum characters of one text."""
    k_max: PositiveInt = 200
    """Maximum number of results per page."""
    depth_max: PositiveInt = 2_000
    """Maximum rank that pages can reach: offset + k."""
    exact_figures: NonNegativeInt = 2_000_000
    """Largest index for which ``exact`` is allowed, in figures: it reads all vectors."""
    inputs_max: NonNegativeInt = 64
    """Maximum number of texts or images per request."""
    classes_max: NonNegativeInt = 1_000
    """Maximum classes of a classification request."""
    templates_max: NonNegativeInt = 32
    """Maximum prompt templates of a classification request."""
    timeout_s: PositiveFloat = 30
    """Maximum seconds from the last byte of a request to the first byte of the response."""
    body_s: PositiveFloat = 30
    """Maximum seconds from the first byte of a request to the last; slower uploads are answered
    with 408."""
    concurrent_requests: PositiveInt = 128
    """Maximum concurrent requests per replica; more are answered with 503 and Retry-After."""

    @property
    def drain_s(self) -> float:
        """Seconds in which requests in flight end: upload, processing, and 5 s for the response."""
        return self.body_s + self.timeout_s + 5


class Rate(Checked):
    """Rate limits of requests and pixels, per API key, or per client address without keys."""

    per_s: PositiveFloat | None = None
    """Maximum requests per second; None: no limit."""
    burst: PositiveInt = 40
    """Requests that may exceed ``per_s`` at once: the size of the token bucket."""
    megapixels_per_s: PositiveFloat | None = 100
    """Maximum decoded megapixels per second, by image headers; more are answered with 429. None: no
    limit."""
    megapixels_burst: PositiveInt = 512
    """Megapixels that may exceed ``megapixels_per_s`` at once: the size of the token bucket."""


def read_settings(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """Return settings from Python values or from the strings of a command line.

    Raises:
        ConfigError: If settings are unknown, missing or invalid; the message lists all of them.
    """
    parsed = {
        name: value_of(name, value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    return configs.build(kind, parsed, name="the configuration of the service")
