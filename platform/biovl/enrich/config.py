"""Settings of enrich: the service, its credentials and the request rate."""

import os
from dataclasses import dataclass, field, replace

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.tables import columns_of

NCBI = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"

PER_SECOND, PER_SECOND_WITH_KEY = 3.0, 10.0
"""Requests per second that NCBI allows (its knowledge base, KA-05318): per address, or per key."""


@dataclass(frozen=True, kw_only=True)
class EntrezSettings:
    """The E-utilities. These settings do not change the result, so no manifest contains them."""

    url: str = NCBI
    """Base URL of the E-utilities, without ``/efetch.fcgi``."""
    tool: str = "biovl"
    """Name of the program, which NCBI requires with every request; no spaces."""
    email: str = ""
    """Contact address that NCBI writes to before it blocks a client; empty: the environment
    variable ``NCBI_EMAIL``."""
    api_key: str = field(default="", repr=False)
    """Key of your NCBI account; empty: the environment variable ``NCBI_API_KEY``, which, unlike an
    argument, process lists do not show."""
    requests_per_s: NonNegativeFloat = 0
    """Maximum requests per second, including retries; 0: NCBI's limit, 3 without a key and 10 with
    one."""
    connections: PositiveInt = 4
    """Maximum concurrent requests; a response takes seconds."""
    tries: PositiveInt = 6
    """Attempts per request. After the last one, the ids of a failed request are requested
    separately, or the job stops."""
    backoff_s: NonNegativeFloat = 1.0
    """Maximum wait before the second attempt, in seconds; doubles with each attempt, up to 30."""
    timeout_s: PositiveFloat = 120.0
    """Maximum time without receiving data, in seconds."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: expected http://… or https://…, got {self.url!r}")
        if not self.tool or " " in self.tool:
            raise ValueError(f"tool: expected a name without spaces, got {self.tool!r}")

    def credentials(self) -> dict[str, str]:
        """Return the parameters that identify the client: tool, email, api_key."""
        parameters = {
            "tool": self.tool,
            "email": self.email or os.environ.get("NCBI_EMAIL", ""),
            "api_key": self.api_key or os.environ.get("NCBI_API_KEY", ""),
        }
        return {name: value for name, value in parameters.items() if value}

    def rate(self) -> float:
        """Return the maximum requests per second, by the setting or NCBI's limit."""
        allowed = PER_SECOND_WITH_KEY if "api_key" in self.credentials() else PER_SECOND
        return self.requests_per_s or allowed


@dataclass(frozen=True, kw_only=True)
class EnrichConfig:
    """Settings of the job: the articles, and the PubMed data to request."""

    articles: str
    """A harvest, local or ``s3://``: the folder that contains ``articles/``."""
    out: str = ""
    """The folder to publish, local or ``s3://``; empty: ``columns/entrez`` in the harvest's
    folder."""
    citations: bool = True
    """Whether to request the articles that cite each article; doubles the requests."""
    cache: str = ""
    """A folder that caches responses for later jobs, local or ``s3://``; empty: responses are
    cached only until the folder is published."""
    max_age_days: NonNegativeInt = 30
    """Maximum age of a cached response at the start of a job; older ones are requested again."""
    entrez: EntrezSettings = field(default_factory=EntrezSettings)
    """The service, its credentials and the request rate."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""

    def __post_init__(self) -> None:
        if not self.out and not is_unfinished(self):
            object.__setattr__(self, "out", columns_of(self.articles, "entrez"))


def entrez() -> EnrichConfig:
    """PubMed's records of the articles, and the articles that cite them (needs articles)."""
    return EnrichConfig(articles=REQUIRED)


def entrez_records() -> EnrichConfig:
    """PubMed's records without citing articles: half the requests (needs articles)."""
    return replace(entrez(), citations=False)


RECIPES: dict[str, Recipe[EnrichConfig]] = {"entrez": entrez, "entrez_records": entrez_records}
