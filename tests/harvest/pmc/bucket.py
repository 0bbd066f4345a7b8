"""A stand-in for PMC's open-data bucket: a real HTTP server with its layout, and its bad days.

It answers GET, HEAD, ranges and ListObjectsV2, at its root and below the bucket's name, and keeps
every request with its time.
"""

import contextlib
import gzip
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from biovl.sample.flavours import FLAVOURS
from biovl.sample.packages import PackageFiles, make_article

NAME = "pmc-oa-opendata"
FIRST_DAY = datetime(2026, 9, 1, 12, tzinfo=UTC)


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@dataclass
class Fault:
    """What goes wrong with a key: ``slowdown``, ``error``, ``truncated``, ``held`` (until the server
    is closed), ``forbidden``, ``wrong``, ``gone``, ``redirect``, ``reset`` or ``after_first``; so
    many times, -1 always."""

    kind: str
    times: int = -1
    seconds: float = 0.0
    to: str = ""


@dataclass
class Asked:
    """One request."""

    method: str
    key: str
    at: float
    status: int = 0
    open: int = 0
    """Requests that were being answered, this one included."""


@dataclass
class Bucket:
    """Objects by key."""

    name: str = NAME
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, data: bytes, modified: datetime = FIRST_DAY) -> None:
        self.objects[key] = (data, modified)
        # As of an upload in parts: no MD5 of anything.
        self.etags[key] = md5(data)[::-1] + "-2"

    def drop(self, prefix: str) -> None:
        for key in [key for key in self.objects if key.startswith(prefix)]:
            del self.objects[key]

    def put_article(
        self,
        package: PackageFiles,
        version: int = 1,
        *,
        modified: datetime = FIRST_DAY,
        license_code: str | None = "CC BY",
        with_media: bool = True,
        **record: Any,
    ) -> str:
        """Put one version of an article; return its name."""
        name = f"{package.pmcid}.{version}"
        urls = {}
        for file, data in package.files.items():
            is_xml = file == package.xml_name
            key = f"{name}/{name}.xml" if is_xml else f"{name}/{file}"
            if is_xml or with_media:
                self.put(key, data, modified)
                urls[file] = f"s3://{self.name}/{key}?md5={md5(data)}"
        values = {
            "pmcid": package.pmcid, "version": version, "pmid": 4_000_000, "doi": None, "mid": None,
            "title": "A title", "citation": "J Sample Med. 2021 Nov 2; 3(1):55-60",
            "is_pmc_openaccess": True, "is_manuscript": False, "is_historical_ocr": False,
            "is_retracted": False, "license_code": license_code,
            "xml_url": urls.pop(package.xml_name), "text_url": f"s3://{self.name}/{name}/{name}.txt",
            "media_urls": list(urls.values()), **record,
        }  # fmt: skip
        if not with_media:
            del values["media_urls"]
        data = json.dumps(values).encode()
        self.put(f"{name}/{name}.json", data, modified)
        self.put(f"metadata/{name}.json", data, modified)
        return name

    def put_inventory(self, date: str, parts: int = 2, extra: tuple[str, ...] = ()) -> str:
        """List what there is in ``metadata/``, as the service does once a day."""
        where = f"inventory-reports/{self.name}/metadata"
        rows = [
            f'"{self.name}","{key}","{when:%Y-%m-%dT%H:%M:%S.000Z}","{self.etags[key]}"'
            for key, (_, when) in sorted(self.objects.items())
            if key.startswith("metadata/")
        ] + list(extra)
        files = []
        for part in range(parts):
            data = gzip.compress("".join(f"{row}\n" for row in rows[part::parts]).encode(), mtime=0)
            key = f"{where}/data/{md5(data)}.csv.gz"
            self.put(key, data)
            files.append({"key": key, "size": len(data), "MD5checksum": md5(data)})
        manifest = {
            "sourceBucket": self.name, "destinationBucket": f"arn:aws:s3:::{self.name}",
            "fileFormat": "CSV", "fileSchema": "Bucket, Key, LastModifiedDate, ETag", "files": files,
        }  # fmt: skip
        key = f"{where}/{date}T01-00Z/manifest.json"
        self.put(key, json.dumps(manifest).encode())
        return key


def sample(articles: int) -> list[PackageFiles]:
    """Return packages of our own, by all publishers in turn."""
    made: list[PackageFiles] = []
    for index in range(articles):
        made.append(make_article(index, FLAVOURS[index % len(FLAVOURS)], seed=0, earlier=made))
    return made


class Server:
    """Serves a bucket over HTTP on loopback."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket, self.faults = bucket, dict[str, Fault]()
        self.latency_s = 0.0
        self.is_down = ""
        self.asked: list[Asked] = []
        self._open, self._lock = 0, threading.Lock()
        self.is_closed = threading.Event()
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.is_closed.set()
        self._http.shutdown()
        self._http.server_close()

    @contextlib.contextmanager
    def answering(self, asked: Asked) -> Iterator[None]:
        with self._lock:
            self._open += 1
            asked.open = self._open
            self.asked.append(asked)
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1

    def forget(self) -> None:
        self.asked = []

    def got(self) -> Counter[str]:
        """Return how often each object was given."""
        return Counter(a.key for a in self.asked if a.method == "GET" and a.status == 200)

    def keys(self, *, but: tuple[str, ...] = ()) -> set[str]:
        return {a.key for a in self.asked if not a.key.startswith(but)}

    def most_in_a_second(self) -> int:
        times = sorted(a.at for a in self.asked)
        return max(
            (sum(begin <= t < begin + 1 for t in times[i:]) for i, begin in enumerate(times)),
            default=0,
        )

    def fault_of(self, key: str) -> Fault | None:
        with self._lock:
            fault = self.faults.get(key)
            if fault is None or fault.times == 0:
                return None
            fault.times -= fault.times > 0
            return fault


@contextlib.contextmanager
def serving(bucket: Bucket) -> Iterator[Server]:
    server = Server(bucket)
    try:
        yield server
    finally:
        server.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients break off; that is no trouble of ours."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        server, parts = self.owner, urlsplit(self.path)
        path = unquote(parts.path).removeprefix("/")
        if path == server.bucket.name or path.startswith(f"{server.bucket.name}/"):
            path = path.removeprefix(server.bucket.name).removeprefix("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key = path or f"?{query.get('prefix', '')}"
        asked = Asked(self.command, key, time.monotonic())
        with server.answering(asked):
            time.sleep(server.latency_s)
            fault = Fault(server.is_down) if server.is_down else server.fault_of(key)
            if fault is not None and self._fail(fault, asked, path):
                return
            if not path:
                self._list(query, asked)
            elif path not in server.bucket.objects:
                self._error(404, "NoSuchKey", asked)
            else:
                data, when = server.bucket.objects[path]
                if fault is not None and fault.kind == "wrong":
                    data = bytes(byte ^ 1 for byte in data[:10]) + data[10:]
                self._send(200, data, asked, {"Last-Modified": f"{when:%a, %d %b %Y %X GMT}"},
                           cut=fault is not None and fault.kind == "truncated")  # fmt: skip

    def _fail(self, fault: Fault, asked: Asked, path: str) -> bool:
        match fault.kind:
            case "slowdown":
                self._error(503, "SlowDown", asked)
            case "retry_after":
                self._error(503, "SlowDown", asked, {"Retry-After": str(int(fault.seconds))})
            case "error":
                self._error(500, "InternalError", asked)
            case "gone":
                self._error(404, "NoSuchKey", asked)
            case "forbidden":
                self._error(403, "AccessDenied", asked)
            case "redirect":
                self._error(307, "TemporaryRedirect", asked, {"Location": fault.to})
            case "reset":
                self.close_connection = True
                self.connection.close()
            case "after_first":
                # Given once, and from then on as all others.
                self.owner.faults[path] = Fault(fault.to)
                return False
            case "held":
                self.owner.is_closed.wait(600)
                return False
            case _:
                return False
        return True

    def _list(self, query: Mapping[str, str], asked: Asked) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        contents, common = [], dict[str, None]()
        for key in sorted(self.owner.bucket.objects):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix) or key <= after:
                continue
            if delimiter and delimiter in rest:
                common[prefix + rest.partition(delimiter)[0] + delimiter] = None
            else:
                contents.append(key)
        most = int(query.get("max-keys", 1000))
        page, left = contents[:most], contents[most:]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{when:%Y-%m-%dT%H:%M:%S}.000Z"
            f"</LastModified><ETag>&quot;{self.owner.bucket.etags[key]}&quot;</ETag>"
            f"<Size>{len(data)}</Size></Contents>"
            for key in page
            for data, when in [self.owner.bucket.objects[key]]
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in common
        )
        token = f"<NextContinuationToken>{quote(page[-1])}</NextContinuationToken>" if left else ""
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{NAME}</Name><IsTruncated>{'true' if left else 'false'}</IsTruncated>"
            f"{token}{items}{folders}</ListBucketResult>"
        )
        self._send(200, body.encode(), asked, {"Content-Type": "application/xml"})

    def _error(
        self, status: int, code: str, asked: Asked, more: Mapping[str, str] | None = None
    ) -> None:
        body = f"<Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()
        self._send(status, body, asked, dict(more or {}))

    def _send(
        self, status: int, body: bytes, asked: Asked, more: Mapping[str, str], *, cut: bool = False
    ) -> None:
        wanted = self.headers.get("Range", "")
        if status == 200 and wanted.startswith("bytes="):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            whole, status = body, 206
            body = whole[int(first) : int(last) + 1 if last else None]
            more = {
                **more,
                "Content-Range": f"bytes {first}-{int(first) + len(body) - 1}/{len(whole)}",
            }
        asked.status = status if not cut else 0
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(body)
