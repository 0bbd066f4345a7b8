"""HTTP client of a public bucket: objects by key, listings, retries and errors.

A problem with one object is a ``FileError`` with a reason; a problem with the service is a
``StorageError``, which ends the job so that it can be resumed later. To distinguish them, an object
that existed before is requested again.
"""

import hashlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import quote

import httpx
from lxml import etree

from biovl.core.errors import SourceError, StorageError
from biovl.core.http import first_bytes, is_loopback, length, retry_after_s
from biovl.core.limits import Limiter
from biovl.core.xml import parse_xml
from biovl.harvest.sources import FileError

MISSING = "object is missing"
REFUSED = "object is refused"
FAILING = "object cannot be fetched"
TOO_LARGE = "object is too large"
DAMAGED = "object differs from its checksum"
UNSAFE = "object has an unsafe name"

_LISTING_BYTES = 16_000_000
_RENEW_S = 15.0
_SLOW_AFTER_S, _SLOW_BYTES_PER_S = 120.0, 1_000
"""Minimum throughput after an initial period: slower responses block others, and are aborted and
retried."""
_LONGEST_WAIT_S = 60.0
_REFUSED_IN_A_ROW = 5
"""After the first refused object, and after each further run of this length, check whether the
service refuses all objects."""
DAMAGED_TRIES = 3
_UNSAFE_KEY = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{1,2}(?:/|$)|^/|//|://")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Timeouts and number of attempts."""

    tries: int = 6
    first_wait_s: float = 0.5
    """Upper bound of the random wait before the second attempt; doubles with each further one."""
    connect_s: float = 20.0
    read_s: float = 30.0
    """Timeout without receiving a byte."""


@dataclass(frozen=True)
class Listed:
    """One object of a bucket listing."""

    key: str
    last_modified: str
    etag: str
    size_bytes: int


class _Again(Exception):
    """A failed attempt that may be retried."""

    def __init__(self, reason: str, wait_s: float = 0.0, *, is_damage: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.is_damage = wait_s, is_damage


class BucketClient:
    """Client of one bucket at one endpoint. Thread-safe.

    Redirects are never followed, so that nobody with write access to the bucket can send requests
    elsewhere. Responses are stored as received, without content decoding.
    """

    def __init__(
        self, endpoint: str, limiter: Limiter, patience: Patience | None = None, threads: int = 32
    ) -> None:
        self._base = endpoint.rstrip("/")
        self._limiter, self._patience = limiter, patience or Patience()
        self._random, self._lock = random.Random(), threading.Lock()
        self._refused_in_a_row, self._gone = 0, ""
        self.known = ""
        """The key of an object that existed: distinguishes an unavailable service from a missing
        object."""
        self._client = httpx.Client(
            follow_redirects=False,
            timeout=httpx.Timeout(self._patience.read_s, connect=self._patience.connect_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=threads),
            headers={"Accept-Encoding": "identity", "User-Agent": "biovl"},
            # A proxy cannot reach the loopback interface of this machine.
            trust_env=not is_loopback(self._base),
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> "BucketClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str, *, max_bytes: int, md5: str | None = None) -> bytes:
        """Return the content of an object of the bucket.

        Raises:
            FileError: If it is unavailable, too large, or does not match its MD5.
            StorageError: If the service fails.
        """
        found: list[bytes] = []

        def begin() -> Callable[[bytes], None]:
            found.clear()
            return found.append

        self.stream(key, begin, max_bytes=max_bytes, md5=md5)
        return b"".join(found)

    def download(self, key: str, to: BinaryIO, *, max_bytes: int, md5: str | None = None) -> None:
        """Write an object into a seekable stream, which is truncated before each attempt.

        Args:
            key: Key of the object.
            to: Opened for writing in binary mode.
            max_bytes: Maximum size of the object.
            md5: Its MD5 in hexadecimal digits; None: not verified.

        Raises:
            FileError: If it is unavailable, too large, or does not match its MD5.
            StorageError: If the service fails.
        """

        def begin() -> Callable[[bytes], object]:
            to.seek(0)
            to.truncate()
            return to.write

        self.stream(key, begin, max_bytes=max_bytes, md5=md5)

    def stream(
        self,
        key: str,
        begin: Callable[[], Callable[[bytes], object]],
        *,
        max_bytes: int,
        md5: str | None,
    ) -> None:
        """Stream an object's bytes to a function, which ``begin`` creates for each attempt.

        Arguments and errors are those of ``download``.
        """
        url = self._url(key)
        self._retry(
            key, lambda: self._request(url, begin(), max_bytes=max_bytes, md5=md5), can_doubt=True
        )

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, None if the service does not report it.

        Raises:
            FileError: If the object is unavailable.
            StorageError: If the service fails.
        """
        found: list[int | None] = []

        def head() -> None:
            with self._limiter.request():
                answer = self._client.head(self._url(key))
                self._raise_for_status(answer)
                found.append(length(answer.headers))

        self._retry(key, head, can_doubt=True)
        return found[-1]

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Yield the objects whose keys start with a prefix, in the order of their keys.

        Raises:
            SourceError: If the response is not a listing.
            StorageError: If the service fails.
        """
        for page in self._pages(prefix, delimiter=""):
            for item in page.iterfind("{*}Contents"):
                yield Listed(
                    item.findtext("{*}Key") or "",
                    item.findtext("{*}LastModified") or "",
                    (item.findtext("{*}ETag") or "").strip('"'),
                    int(item.findtext("{*}Size") or 0),
                )

    def folders(self, prefix: str) -> list[str]:
        """Return the common prefixes one level below a prefix, each with a trailing slash.

        Raises:
            SourceError: If the response is not a listing.
            StorageError: If the service fails.
        """
        return [
            found.text or ""
            for page in self._pages(prefix, delimiter="/")
            for found in page.iterfind("{*}CommonPrefixes/{*}Prefix")
        ]

    def _pages(self, prefix: str, *, delimiter: str) -> Iterator[etree._Element]:
        parameters = {"list-type": "2", "prefix": prefix}
        if delimiter:
            parameters["delimiter"] = delimiter
        token = ""
        while True:
            page = self._page({**parameters, "continuation-token": token} if token else parameters)
            yield page
            following = page.findtext("{*}NextContinuationToken") or ""
            if page.findtext("{*}IsTruncated") != "true" or following in ("", token):
                return
            token = following

    def _page(self, query: Mapping[str, str]) -> etree._Element:
        found: list[bytes] = []
        url = f"{self._base}/?" + "&".join(f"{k}={quote(v, safe='')}" for k, v in query.items())

        def ask() -> None:
            found.clear()
            self._request(url, found.append, max_bytes=_LISTING_BYTES, md5=None)

        try:
            self._retry(f"the listing of {query['prefix']!r}", ask, can_doubt=False)
            page = parse_xml(b"".join(found))
        except (FileError, etree.XMLSyntaxError) as error:
            raise SourceError(
                f"{self._base}: the bucket cannot be listed: {error}. Expected a response to "
                "S3's ListObjectsV2; check source.endpoint"
            ) from error
        if etree.QName(page).localname != "ListBucketResult":
            raise SourceError(
                f"{self._base}: {etree.QName(page).localname} is not a bucket listing: check "
                "source.endpoint"
            )
        return page

    def _url(self, key: str) -> str:
        if _UNSAFE_KEY.search(key) or not key:
            raise FileError(UNSAFE, key[:200])
        return f"{self._base}/{quote(key, safe='/')}"

    def _retry(self, what: str, ask: Callable[[], None], *, can_doubt: bool) -> None:
        """Retry until there is a response or the attempts are exhausted."""
        waits, damaged = self._patience.first_wait_s, 0
        for number in range(1, self._patience.tries + 1):
            if self._gone:
                raise StorageError(self._gone)
            try:
                ask()
            except FileError as error:
                if error.defect == REFUSED and can_doubt:
                    self._check_refusals(str(error))
                raise
            except (_Again, httpx.TransportError) as error:
                last: Exception = error
                asked_s = getattr(error, "wait_s", 0.0)
                damaged += getattr(error, "is_damage", False)
                if damaged >= DAMAGED_TRIES or number == self._patience.tries:
                    break
                # Full jitter: requests that failed together are not retried together.
                time.sleep(min(asked_s, _LONGEST_WAIT_S) + self._random.uniform(0, waits))
                waits = min(2 * waits, _LONGEST_WAIT_S)
            else:
                with self._lock:
                    self._refused_in_a_row = 0
                return
        message = f"{what}: {type(last).__name__.strip('_')}: {last}"
        if damaged:
            raise FileError(DAMAGED, message)
        if not can_doubt or not self._is_available():
            raise StorageError(self._unavailable(message))
        raise FileError(FAILING, message)

    def _check_refusals(self, message: str) -> None:
        """Raise if the service refuses all objects and not only this one."""
        with self._lock:
            self._refused_in_a_row += 1
            is_time = self._refused_in_a_row % _REFUSED_IN_A_ROW == 1
        if is_time and not self._is_available():
            raise StorageError(self._unavailable(message))

    def _is_available(self) -> bool:
        """Return whether the service still returns an object that it returned before."""
        for _ in range(2):
            try:
                with self._limiter.request():
                    url = self._url(self.known) if self.known else f"{self._base}/?list-type=2"
                    self._raise_for_status(
                        self._client.head(url) if self.known else self._client.get(url)
                    )
                return True
            except FileError:
                return False
            except (_Again, httpx.TransportError):
                time.sleep(self._random.uniform(0, 2 * self._patience.first_wait_s))
        return False

    def _unavailable(self, message: str) -> str:
        self._gone = (
            f"{self._base} no longer serves an object that it served before: it is down, "
            f"denies access, or is overloaded (source.requests_per_s, source.concurrent). "
            f"Found: {message[:300]}"
        )
        return self._gone

    def _request(
        self, url: str, write: Callable[[bytes], object], *, max_bytes: int, md5: str | None
    ) -> None:
        digest, size = hashlib.md5(usedforsecurity=False), 0
        with self._limiter.request() as alive, self._client.stream("GET", url) as answer:
            # The code of an error is in the first bytes of the body.
            self._raise_for_status(
                answer, b"" if answer.status_code == 200 else first_bytes(answer)
            )
            announced = length(answer.headers)
            if announced is not None and announced > max_bytes:
                raise FileError(TOO_LARGE, f"{announced} bytes, over {max_bytes}")
            began = renewed = time.monotonic()
            for block in answer.iter_raw():
                size += len(block)
                if size > max_bytes:
                    raise FileError(TOO_LARGE, f"more than {max_bytes} bytes")
                digest.update(block)
                write(block)
                now = time.monotonic()
                if now - renewed > _RENEW_S:
                    alive()
                    renewed = now
                if now - began > _SLOW_AFTER_S and size < _SLOW_BYTES_PER_S * (now - began):
                    raise _Again(f"{size} bytes in {now - began:.0f} s")
        if announced is not None and size != announced:
            raise _Again(f"received {size} of {announced} bytes")
        if md5 is not None and digest.hexdigest() != md5:
            raise _Again(f"MD5 {digest.hexdigest()}, expected {md5}", is_damage=True)

    def _raise_for_status(self, answer: httpx.Response, body: bytes = b"") -> None:
        """Raise unless the response has status 200."""
        status = answer.status_code
        if status == 200:
            return
        message = f"HTTP {status} for {answer.request.url}"
        code = re.search(rb"<Code>(\w{1,60})</Code>", body)
        if code:
            message += f" ({code[1].decode()})"
        if status >= 500 or status in (408, 425, 429) or (code and code[1] == b"SlowDown"):
            raise _Again(message, retry_after_s(answer.headers) or 0.0)
        if status in (404, 410):
            if code and code[1] == b"NoSuchBucket":
                raise StorageError(self._unavailable(message))
            raise FileError(MISSING, message)
        if 300 <= status < 400:
            message += f": a redirect to {answer.headers.get('location', '')[:200]} is not followed"
        raise FileError(REFUSED, message)
