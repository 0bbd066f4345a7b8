"""Headers and first bytes of HTTP responses."""

import email.utils
import ipaddress
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def first_bytes(answer: httpx.Response) -> bytes:
    """Return the first bytes of a response body, at most 4 kB."""
    for block in answer.iter_raw(4_096):
        return block
    return b""


def length(headers: Mapping[str, str]) -> int | None:
    """Return the ``Content-Length`` of a response in bytes, None if absent or invalid."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return ``Retry-After``, a number or a date, in seconds; None if absent."""
    text = headers.get("retry-after", "").strip()
    # Fractions are not in the standard, but some servers send them.
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is on the loopback interface: this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
