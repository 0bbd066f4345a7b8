"""Settings of enrich: the service, its credentials and the request rate."""

import os
from dataclasses import dataclass, field, replace

from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.tables import COLUMNS

NCBI = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"

PER_SECOND, PER_SECOND_WITH_KEY = 3.0, 10.0
"""Requests per second that NCBI allows (its knowledge base, KA-05318): per address, or per key."""


@dataclass(frozen=True, kw_only=True)
class EntrezSettings:
    """The E-utilities. These settings do not change the result, so no manifest contains them."""

    url: str = NCBI
    """URL up to ``/efetch.fcgi``."""
    tool: str = "biovl"
    """Program name required by NCBI, without spaces …"""
    email: str = ""
    """… and a contact address that NCBI writes to before it blocks a client; empty: ``NCBI_EMAIL``.
    """
    api_key: str = field(default="", repr=False)
    """Key of your NCBI account; empty: ``NCBI_API_KEY``, which process lists do not show."""
    requests_per_s: float = 0
    """Requests per second, including retries; 0: 3, or 10 with a key."""
    connections: int = 4
    """Concurrent requests: responses take seconds."""
    tries: int = 6
    """Attempts per request before its ids are tried separately or the job stops."""
    backoff_s: float = 1.0
    """Maximum wait before the second attempt; doubles with each one, up to half a minute."""
    timeout_s: float = 120.0
    """Timeout without receiving a byte."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: expected http://… or https://…, got {self.url!r}")
        if not self.tool or " " in self.tool:
            raise ValueError(f"tool: expected a name without spaces, got {self.tool!r}")
        if min(self.connections, self.tries) < 1:
            raise ValueError("connections and tries must be positive")
        if min(self.requests_per_s, self.backoff_s) < 0 or self.timeout_s <= 0:
            raise ValueError(
                "requests_per_s and backoff_s must not be negative, timeout_s positive"
            )

    def credentials(self) -> dict[str, str]:
        """Return the parameters that identify the client: tool, email, api_key."""
        said = {
            "tool": self.tool,
            "email": self.email or os.environ.get("NCBI_EMAIL", ""),
            "api_key": self.api_key or os.environ.get("NCBI_API_KEY", ""),
        }
        return {name: value for name, value in said.items() if value}

    def rate(self) -> float:
        """Return the maximum requests per second."""
        allowed = PER_SECOND_WITH_KEY if "api_key" in self.credentials() else PER_SECOND
        return self.requests_per_s or allowed


@dataclass(frozen=True, kw_only=True)
class EnrichConfig:
    """Which articles to enrich, and with which data of PubMed."""

    articles: str
    """A published harvest, local or ``s3://``: the folder that holds ``articles/``."""
    out: str = ""
    """The folder to publish; empty: ``columns/entrez`` in the harvest's."""
    citations: bool = True
    """Whether to request the articles that cite each article; doubles the requests."""
    cache: str = ""
    """A folder that caches every response for later jobs, local or ``s3://``; empty: until the
    folder is published."""
    max_age_days: int = 30
    """Cached responses that are older at the start of a job are requested again."""
    entrez: EntrezSettings = field(default_factory=EntrezSettings)

    may_be_empty: bool = False
    """Whether a result without usable rows is published instead of an error."""

    def __post_init__(self) -> None:
        if self.max_age_days < 0:
            raise ValueError("max_age_days must not be negative")
        if not self.out and not is_unfinished(self):
            object.__setattr__(self, "out", f"{self.articles.rstrip('/')}/{COLUMNS}/entrez")


def entrez() -> EnrichConfig:
    """What PubMed knows of articles, and who cites them (needs articles)."""
    return EnrichConfig(articles=REQUIRED)


def entrez_records() -> EnrichConfig:
    """The same without who cites them: half the requests (needs articles)."""
    return replace(entrez(), citations=False)


RECIPES: dict[str, Recipe[EnrichConfig]] = {"entrez": entrez, "entrez_records": entrez_records}
