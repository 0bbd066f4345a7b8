"""Which service is asked, by whom and how fast."""

import os
from dataclasses import dataclass, field

from biovl.core.tables import COLUMNS

NCBI = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"

PER_SECOND, PER_SECOND_WITH_KEY = 3.0, 10.0
"""Requests that NCBI allows (its knowledge base, KA-05318): of one address, or of one key."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """The E-utilities. Nothing of this changes what is answered, so no manifest says it."""

    url: str = NCBI
    """What stands before ``/efetch.fcgi``."""
    tool: str = "biovl"
    """NCBI asks every program for its name, without spaces …"""
    email: str = ""
    """… and an address to write to before it blocks somebody; empty: ``NCBI_EMAIL``."""
    api_key: str = field(default="", repr=False)
    """Of your NCBI account; empty: ``NCBI_API_KEY``, which no list of processes shows."""
    requests_per_s: float = 0
    """Of all that is asked, tries again included; 0: 3, or 10 with a key."""
    connections: int = 4
    """Requests under way at a time: answers take seconds."""
    tries: int = 6
    """How often a request is sent before its ids are told apart or the job stops."""
    backoff_s: float = 1.0
    """The longest wait before the second try; it doubles with each, up to half a minute."""
    timeout_s: float = 120.0
    """Without a byte of an answer."""

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
        """Return what every request says of who asks: tool, email, api_key."""
        said = {
            "tool": self.tool,
            "email": self.email or os.environ.get("NCBI_EMAIL", ""),
            "api_key": self.api_key or os.environ.get("NCBI_API_KEY", ""),
        }
        return {name: value for name, value in said.items() if value}

    def rate(self) -> float:
        """Return how many requests a second may be sent."""
        allowed = PER_SECOND_WITH_KEY if "api_key" in self.credentials() else PER_SECOND
        return self.requests_per_s or allowed


@dataclass(frozen=True, kw_only=True)
class EnrichConfig:
    """Which articles, and what PubMed is asked about them."""

    articles: str
    """A published harvest, local or ``s3://``: the folder that holds ``articles/``."""
    out: str = ""
    """The folder to publish; empty: ``columns/entrez`` in the harvest's."""
    citations: bool = True
    """Whether it is asked who cites each article; it doubles the requests."""
    cache: str = ""
    """A folder that keeps every answer for later jobs, local or ``s3://``; empty: answers are kept
    until the folder is published."""
    max_age_days: int = 30
    """Kept answers that are older when a job begins are asked for again."""
    entrez: Service = field(default_factory=Service)

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    def __post_init__(self) -> None:
        if self.max_age_days < 0:
            raise ValueError("max_age_days must not be negative")
        if not self.out:
            object.__setattr__(self, "out", f"{self.articles.rstrip('/')}/{COLUMNS}/entrez")
