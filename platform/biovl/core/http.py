"""What the headers and first bytes of an HTTP answer say."""

import email.utils
import ipaddress
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def first_bytes(answer: httpx.Response) -> bytes:
    """Return what of an answer comes first, 4 kB at most."""
    for block in answer.iter_raw(4_096):
        return block
    return b""


def length(headers: Mapping[str, str]) -> int | None:
    """Return the bytes that an answer announces, None where it does not."""
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date; None without."""
    text = headers.get("retry-after", "").strip()
    # Fractions are not in the standard, but sent.
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
    """Return whether a URL is of this very machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
