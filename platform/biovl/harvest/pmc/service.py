"""A public bucket over plain HTTP: objects by key, listings, and what went wrong with either.

What is wrong with one object is a ``FileError`` with a reason; what is wrong with the service is a
``StorageError``, which ends a job that can be run again. The two are told apart by asking for an
object that was there before.
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
"""An answer that dribbles holds the turn of others: it is broken off and asked for again."""
_LONGEST_WAIT_S = 60.0
_REFUSED_IN_A_ROW = 5
"""At the first object that is refused, and at each so many more without another that is given, the
service is asked whether it is all of them."""
DAMAGED_TRIES = 3
_UNSAFE_KEY = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{1,2}(?:/|$)|^/|//|://")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a service, and how often to try."""

    tries: int = 6
    first_wait_s: float = 0.5
    """Up to so long, at random, before the second try; twice as long before each other."""
    connect_s: float = 20.0
    read_s: float = 30.0
    """Without a byte."""


@dataclass(frozen=True)
class Listed:
    """One object of a listing."""

    key: str
    last_modified: str
    etag: str
    size_bytes: int


class _Again(Exception):
    """This try failed; another may not."""

    def __init__(self, reason: str, wait_s: float = 0.0, *, is_damage: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.is_damage = wait_s, is_damage


class Service:
    """One bucket at one endpoint. Threads may share it.

    Redirects are not followed, whatever they say: nobody who writes into the bucket can make us
    ask elsewhere. Answers are taken as they are, never unpacked on the way.
    """

    def __init__(
        self, endpoint: str, limiter: Limiter, patience: Patience | None = None, threads: int = 32
    ) -> None:
        self._base = endpoint.rstrip("/")
        self._limiter, self._patience = limiter, patience or Patience()
        self._random, self._lock = random.Random(), threading.Lock()
        self._refused_in_a_row, self._gone = 0, ""
        self.known = ""
        """The key of an object that was there: what tells a service that is gone from an object
        that is."""
        self._client = httpx.Client(
            follow_redirects=False,
            timeout=httpx.Timeout(self._patience.read_s, connect=self._patience.connect_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=threads),
            headers={"Accept-Encoding": "identity", "User-Agent": "biovl"},
            # A proxy cannot reach what listens on this machine alone.
            trust_env=not is_loopback(self._base),
        )

    def close(self) -> None:
        """Close what connections are open."""
        self._client.close()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, key: str, *, max_bytes: int, md5: str | None = None) -> bytes:
        """Return an object.

        Raises:
            FileError: If it cannot be had, is larger, or is not what its MD5 says.
            StorageError: If the service does not work.
        """
        found: list[bytes] = []

        def begin() -> Callable[[bytes], None]:
            found.clear()
            return found.append

        self.stream(key, begin, max_bytes=max_bytes, md5=md5)
        return b"".join(found)

    def download(self, key: str, to: BinaryIO, *, max_bytes: int, md5: str | None = None) -> None:
        """Write an object into a stream that can be begun again, a block at a time."""

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
        """Give an object's bytes, in order, to what ``begin`` returns: called anew at each try."""
        url = self._url(key)
        self._patiently(
            key, lambda: self._once(url, begin(), max_bytes=max_bytes, md5=md5), can_doubt=True
        )

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes, None where the service does not tell."""
        found: list[int | None] = []

        def head() -> None:
            with self._limiter.request():
                answer = self._client.head(self._url(key))
                self._judge(answer)
                found.append(length(answer.headers))

        self._patiently(key, head, can_doubt=True)
        return found[-1]

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Yield the objects whose keys begin so, in order.

        Raises:
            SourceError: If the answer is no listing.
            StorageError: If the service does not work.
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
        """Return the prefixes that stand directly below one, each with its slash."""
        return [
            found.text or ""
            for page in self._pages(prefix, delimiter="/")
            for found in page.iterfind("{*}CommonPrefixes/{*}Prefix")
        ]

    def _pages(self, prefix: str, *, delimiter: str) -> Iterator[etree._Element]:
        wanted = {"list-type": "2", "prefix": prefix}
        if delimiter:
            wanted["delimiter"] = delimiter
        token = ""
        while True:
            page = self._page({**wanted, "continuation-token": token} if token else wanted)
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
            self._once(url, found.append, max_bytes=_LISTING_BYTES, md5=None)

        try:
            self._patiently(f"the listing of {query['prefix']!r}", ask, can_doubt=False)
            page = parse_xml(b"".join(found))
        except (FileError, etree.XMLSyntaxError) as error:
            raise SourceError(
                f"{self._base}: the bucket cannot be listed: {error}. Expected an answer as S3's "
                "to ListObjectsV2; look at source.endpoint"
            ) from error
        if etree.QName(page).localname != "ListBucketResult":
            raise SourceError(
                f"{self._base}: {etree.QName(page).localname} is no listing of a bucket: look at "
                "source.endpoint"
            )
        return page

    def _url(self, key: str) -> str:
        if _UNSAFE_KEY.search(key) or not key:
            raise FileError(UNSAFE, key[:200])
        return f"{self._base}/{quote(key, safe='/')}"

    def _patiently(self, what: str, ask: Callable[[], None], *, can_doubt: bool) -> None:
        """Try until there is an answer or no more patience."""
        waits, damaged = self._patience.first_wait_s, 0
        for number in range(1, self._patience.tries + 1):
            if self._gone:
                raise StorageError(self._gone)
            try:
                ask()
            except FileError as error:
                if error.defect == REFUSED and can_doubt:
                    self._doubt(str(error))
                raise
            except (_Again, httpx.TransportError) as error:
                last: Exception = error
                asked_s = getattr(error, "wait_s", 0.0)
                damaged += getattr(error, "is_damage", False)
                if damaged >= DAMAGED_TRIES or number == self._patience.tries:
                    break
                # Full jitter: those that failed together do not come back together.
                time.sleep(min(asked_s, _LONGEST_WAIT_S) + self._random.uniform(0, waits))
                waits = min(2 * waits, _LONGEST_WAIT_S)
            else:
                with self._lock:
                    self._refused_in_a_row = 0
                return
        said = f"{what}: {type(last).__name__.strip('_')}: {last}"
        if damaged:
            raise FileError(DAMAGED, said)
        if not can_doubt or not self._answers():
            raise StorageError(self._lost(said))
        raise FileError(FAILING, said)

    def _doubt(self, said: str) -> None:
        """Raise if it is not one object that is refused, but every one."""
        with self._lock:
            self._refused_in_a_row += 1
            is_time = self._refused_in_a_row % _REFUSED_IN_A_ROW == 1
        if is_time and not self._answers():
            raise StorageError(self._lost(said))

    def _answers(self) -> bool:
        """Return whether the service still gives what it gave before."""
        for _ in range(2):
            try:
                with self._limiter.request():
                    url = self._url(self.known) if self.known else f"{self._base}/?list-type=2"
                    self._judge(self._client.head(url) if self.known else self._client.get(url))
                return True
            except FileError:
                return False
            except (_Again, httpx.TransportError):
                time.sleep(self._random.uniform(0, 2 * self._patience.first_wait_s))
        return False

    def _lost(self, said: str) -> str:
        self._gone = (
            f"{self._base} does not serve what it served before: it is away, refuses us, or is "
            f"asked too much (source.requests_per_s, source.concurrent). Found: {said[:300]}"
        )
        return self._gone

    def _once(
        self, url: str, write: Callable[[bytes], object], *, max_bytes: int, md5: str | None
    ) -> None:
        digest, size = hashlib.md5(usedforsecurity=False), 0
        with self._limiter.request() as alive, self._client.stream("GET", url) as answer:
            # Of an error, its code stands in the first bytes.
            self._judge(answer, b"" if answer.status_code == 200 else first_bytes(answer))
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
            raise _Again(f"{size} bytes came of {announced}")
        if md5 is not None and digest.hexdigest() != md5:
            raise _Again(f"MD5 {digest.hexdigest()}, expected {md5}", is_damage=True)

    def _judge(self, answer: httpx.Response, body: bytes = b"") -> None:
        """Raise unless an answer is what was asked for."""
        status = answer.status_code
        if status == 200:
            return
        said = f"HTTP {status} for {answer.request.url}"
        code = re.search(rb"<Code>(\w{1,60})</Code>", body)
        if code:
            said += f" ({code[1].decode()})"
        if status >= 500 or status in (408, 425, 429) or (code and code[1] == b"SlowDown"):
            raise _Again(said, retry_after_s(answer.headers) or 0.0)
        if status in (404, 410):
            if code and code[1] == b"NoSuchBucket":
                raise StorageError(self._lost(said))
            raise FileError(MISSING, said)
        if 300 <= status < 400:
            said += f": a redirect to {answer.headers.get('location', '')[:200]} is not followed"
        raise FileError(REFUSED, said)
