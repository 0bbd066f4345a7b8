"""Fetching articles from a local bucket: by us, one by one, and by s3fs used plainly.

    python benchmarks/acquire.py fetch --articles 100 --latency-ms 0 20 100 --concurrent 1 8 32
    python benchmarks/acquire.py memory --articles 10000
    python benchmarks/acquire.py catalogue --rows 9000000

Prints JSON lines. The bucket is served by a process of its own; files are made up, so that what is
measured is the fetching, the parsing and the storing.
"""

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from biovl.core.folders import Folder
from biovl.core.limits import LocalLimiter, RequestLimits
from biovl.harvest.pmc import articles, catalogue, inventory, listing, steps
from biovl.harvest.pmc.articles import SizeLimits
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.records import Medium, Record
from biovl.harvest.pmc.settings import Config
from biovl.harvest.pmc.store import Store

FIGURES, IMAGE_BYTES, PARAGRAPHS = 6, 120_000, 150
"""Of an article: about what PMC's have, 6 images of 120 kB and an XML of 100 kB."""
BUCKET = "pmc-oa-opendata"


def xml_of(number: int) -> bytes:
    """Return an article with figures and some text."""
    figures = "".join(
        f"<fig id='F{i}'><label>Figure {i}</label><caption><p>Figure {i} of {number}.</p></caption>"
        f"<graphic xlink:href='g{i:03}'/></fig>"
        for i in range(FIGURES)
    )
    text = "".join(
        f"<p>Paragraph {i} cites <xref rid='F{i % FIGURES}'>Figure {i}</xref>. {'Words. ' * 80}</p>"
        for i in range(PARAGRAPHS)
    )
    return (
        '<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta/></front>'
        f"<body><sec><title>Results</title>{text}{figures}</sec></body></article>"
    ).encode()


def image_of(number: int, figure: int) -> bytes:
    """Return bytes that are unlike those of any other."""
    return np.random.default_rng((number, figure)).bytes(IMAGE_BYTES)


def record_of(number: int) -> Record:
    """Return the record of an article of the bucket."""

    def md5(data: bytes) -> str:
        return hashlib.md5(data, usedforsecurity=False).hexdigest()

    return Record(
        number=number, version=1, pmid=None, doi=None, license_code="CC BY", is_open_access=True,
        is_manuscript=False, is_historical_ocr=False, is_retracted=False, published=None,
        last_modified="2026-10-01", xml_name=f"PMC{number}.1.xml", xml_md5=md5(xml_of(number)),
        media=[Medium(f"g{i:03}.jpg", md5(image_of(number, i))) for i in range(FIGURES)],
    )  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    latency_s = 0.0
    kept: ClassVar[dict[str, bytes]] = {}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        time.sleep(self.latency_s)
        name = self.path.partition("?")[0].removeprefix(f"/{BUCKET}").rpartition("/")[2]
        number = int(self.path.removeprefix(f"/{BUCKET}").split(".")[0].removeprefix("/PMC"))
        if name not in self.kept and len(self.kept) > 3_000:
            self.kept.clear()
        key = f"{number} {name}"
        if key not in self.kept:
            is_xml = name.endswith(".xml")
            self.kept[key] = xml_of(number) if is_xml else image_of(number, int(name[1:4]))
        data = self.kept[key]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Oct 2026 12:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def _serve(latency_s: float, port: Any) -> None:
    _Handler.latency_s = latency_s
    http = _Http(("127.0.0.1", 0), _Handler)
    port.send(http.server_port)
    http.serve_forever()


@contextmanager
def served(latency_s: float) -> Iterator[str]:
    """Serve the bucket from another process; yield its URL."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(latency_s, theirs), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/{BUCKET}"
    finally:
        server.terminate()
        server.join()


def by_us(url: str, records: list[Record], concurrent: int) -> int:
    """Fetch, verify and parse as a worker does; return the bytes of what came."""
    limiter, total = LocalLimiter(RequestLimits(requests_per_s=1e6, concurrent=concurrent)), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        BucketClient(url, limiter, threads=concurrent) as service,
    ):
        for start in range(0, len(records), 32):
            store = Store(Folder(folder), f"unit{start}", is_kept=False)
            for package in articles.packages(
                records[start : start + 32],
                service,
                store,
                bucket=BUCKET,
                sizes=SizeLimits(xml_bytes=100_000_000, file_bytes=512_000_000),
                threads=min(concurrent, 32),
            ):
                assert package.content is not None
                total += len(package.xml or b"") + sum(len(package.read(n)) for n in package.files)
            store.drop()
    return total


def one_by_one(url: str, records: list[Record]) -> int:
    """Fetch as ``aws s3 sync`` with one request at a time: no parsing, nothing verified."""
    total = 0
    with tempfile.TemporaryDirectory() as folder, httpx.Client() as client:
        for record in records:
            for name in (record.xml_name, *(medium.name for medium in record.media)):
                data = client.get(f"{url}/{record.name}/{name}").content
                Path(folder, name).write_bytes(data)
                total += len(data)
    return total


def by_s3fs(url: str, records: list[Record], concurrent: int) -> int:
    """Fetch with s3fs, many keys at once: no parsing, nothing verified."""
    import s3fs

    fs = s3fs.S3FileSystem(
        anon=True, endpoint_url=url.removesuffix(f"/{BUCKET}"), use_listings_cache=False,
        config_kwargs={"max_pool_connections": concurrent, "s3": {"addressing_style": "path"}},
    )  # fmt: skip
    keys = [
        f"{BUCKET}/{record.name}/{name}"
        for record in records
        for name in (record.xml_name, *(medium.name for medium in record.media))
    ]
    total = 0
    for start in range(0, len(keys), 224):
        found = fs.cat(keys[start : start + 224], batch_size=concurrent)
        total += sum(map(len, found.values()))
    return total


def fetch(arguments: argparse.Namespace) -> None:
    """Measure articles and megabytes a second."""
    records = [record_of(number) for number in range(1, arguments.articles + 1)]
    for latency_ms in arguments.latency_ms:
        with served(latency_ms / 1000) as url:
            by_us(url, records, 32)  # the server has made its files
            few = records[: 20 if latency_ms else len(records)]
            _measured("one by one", latency_ms, 1, few, lambda few=few: one_by_one(url, few))
            for concurrent in arguments.concurrent:
                for name, work in (("biovl", by_us), ("s3fs", by_s3fs)):
                    some = records if concurrent > 1 or not latency_ms else records[:20]
                    _measured(
                        name, latency_ms, concurrent, some,
                        lambda work=work, some=some, c=concurrent: work(url, some, c),
                    )  # fmt: skip


def _measured(name: str, latency_ms: float, concurrent: int, records: list, work: Any) -> None:
    cpu, begun = time.process_time(), time.perf_counter()
    total = work()
    seconds = time.perf_counter() - begun
    requests = len(records) * (1 + FIGURES)
    bound = concurrent / (latency_ms / 1000) / (1 + FIGURES) if latency_ms else None
    _say(
        by=name, latency_ms=latency_ms, concurrent=concurrent, articles=len(records),
        articles_per_s=round(len(records) / seconds, 1), mb_per_s=round(total / seconds / 1e6, 1),
        cpu_ms_per_request=round((time.process_time() - cpu) / requests * 1000, 2),
        articles_per_s_by_latency=bound and round(bound, 1),
    )  # fmt: skip


def memory(arguments: argparse.Namespace) -> None:
    """Say how much memory a worker takes while it reads many articles."""
    with served(0) as url:
        for done in range(0, arguments.articles, arguments.articles // 10):
            numbers = range(done + 1, done + 1 + arguments.articles // 10)
            by_us(url, [record_of(number) for number in numbers], 16)
            _say(articles=done + len(numbers), mb=round(_resident_mb()), peak_mb=round(_peak_mb()))


def catalogue_of(arguments: argparse.Namespace) -> None:
    """Read an inventory of made-up rows, compare it with an earlier one; say time and memory."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder, since = Path(temporary, "new"), Path(temporary, "since")
        numbers = np.sort(rng.choice(14_000_000, arguments.rows, replace=False) + 1)
        etags = rng.integers(0, 16, (4096, 32), np.uint8)
        texts = ["".join("0123456789abcdef"[d] for d in row) for row in etags]
        files = []
        for part in np.array_split(numbers, arguments.parts):
            rows = (
                f'"{BUCKET}","metadata/PMC{n}.1.json","2026-0{1 + n % 9}-11T10:00:00.000Z",'
                f'"{n:016x}{texts[n % 4096][:16]}"\n'
                for n in part.tolist()
            )
            path = Path(temporary, f"{len(files)}.csv.gz")
            with gzip.open(path, "wt", compresslevel=1) as stream:
                stream.writelines(rows)
            files.append(path)
        # Of the earlier catalogue a hundredth is different, and as many rows are gone or new.
        _earlier(numbers, texts, since)
        size = sum(path.stat().st_size for path in files)
        _say(rows=arguments.rows, packed_mb=round(size / 1e6), made="yes")
        begun, cpu = time.perf_counter(), time.process_time()
        place = AcquisitionContext(
            config=Config(since=str(since)), out=str(folder),
            limiter=LocalLimiter(RequestLimits(requests_per_s=1, concurrent=1)),
        )  # fmt: skip
        read = [_read(place, path, number) for number, path in enumerate(files)]
        told = time.perf_counter() - begun
        parts = listing.parts_of(read)
        plan = {"asked": None, "date": "2026-10-01"}
        changes: Counter[str] = Counter()
        for number in range(len(parts)):
            changes.update(steps.compare(place, plan, len(files), parts, number)["changes"])
        seconds = round(time.perf_counter() - begun, 1)
        _say(
            rows=arguments.rows, ranges=len(parts), read_s=round(told, 1), in_all_s=seconds,
            cpu_s=round(time.process_time() - cpu, 1), peak_mb=round(_peak_mb()),
            changes=dict(changes),
        )  # fmt: skip


def _read(place: AcquisitionContext, path: Path, number: int) -> dict[str, Any]:
    """As ``listing.read_inventory``, of a file that was fetched already."""
    refused: Counter[str] = Counter()
    with path.open("rb") as packed:
        size = path.stat().st_size
        columns = ["Bucket", "Key", "LastModifiedDate", "ETag"]
        tables = list(inventory.rows(packed, size, columns, BUCKET, refused))
    table = pa.concat_tables([inventory.LISTED.empty_table(), *tables])
    place.write("inventory", number, table.sort_by("number"))
    return {
        "rows": table.num_rows,
        "refused": dict(refused),
        "counted": catalogue.number_histogram(table),
    }


def _earlier(numbers: np.ndarray, texts: list[str], since: Path) -> None:
    Path(since, "catalogue").mkdir(parents=True)
    old = np.union1d(numbers[numbers % 100 != 7], np.arange(1, 14_000_000, 140))
    for place, part in enumerate(np.array_split(old, 20)):
        when = [
            np.datetime64(f"2026-0{1 + n % 9}-11T10:00:00", "ms") for n in range(9)
        ]  # fmt: skip
        etags = [f"{n:016x}{texts[(n + (n % 100 == 3)) % 4096][:16]}" for n in part.tolist()]
        table = pa.table(
            [
                pa.array(part, pa.int64()), pa.array(np.ones(len(part), np.int32)),
                pa.array(np.array(when)[part % 9], pa.timestamp("ms", "UTC")),
                pa.array(etags), pa.array(["harvested"] * len(part)),
            ],
            schema=catalogue.SCHEMA,
        )  # fmt: skip
        name = f"part-{place:06d}-000.parquet"
        pq.write_table(table, Path(since, "catalogue", name), compression="zstd",
                       row_group_size=100_000)  # fmt: skip


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("fetch")
    command.add_argument("--articles", type=int, default=100)
    command.add_argument("--latency-ms", type=float, nargs="+", default=[0, 20, 100])
    command.add_argument("--concurrent", type=int, nargs="+", default=[1, 8, 32])
    command.set_defaults(run=fetch)
    command = commands.add_parser("memory")
    command.add_argument("--articles", type=int, default=10_000)
    command.set_defaults(run=memory)
    command = commands.add_parser("catalogue")
    command.add_argument("--rows", type=int, default=9_000_000)
    command.add_argument("--parts", type=int, default=9)
    command.set_defaults(run=catalogue_of)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
