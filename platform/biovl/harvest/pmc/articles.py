"""An article version to a package: its XML, then only the media that its figures refer to."""

import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from biovl.articles.content import ArticleContent
from biovl.articles.graphics import FileLookup
from biovl.articles.jats import read_article
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.records import Medium, Record
from biovl.harvest.pmc.store import Store
from biovl.harvest.pmc.unfetched import Unfetched
from biovl.harvest.pmc.version_selection import is_cleared
from biovl.harvest.sources import FileError, Package, SourceMetadata

XML_DEFECT = "xml: "
"""Prefix of the reason why the XML of an article is unavailable."""

_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """Maximum sizes of downloaded files."""

    xml_bytes: int
    file_bytes: int


class Media:
    """Downloads of one article's media: in parallel, each file once."""

    def __init__(
        self,
        record: Record,
        service: BucketClient,
        store: Store,
        sizes: SizeLimits,
        pool: ThreadPoolExecutor,
        unfetched: Unfetched,
    ) -> None:
        self._record, self._service, self._store = record, service, store
        self._sizes, self._pool, self._unfetched = sizes, pool, unfetched
        self._media = {medium.name: medium for medium in record.media}
        self._coming: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def begin(self, names: Sequence[str]) -> None:
        """Start to download files in the background."""
        for name in names:
            with self._lock:
                if name not in self._coming:
                    self._coming[name] = self._pool.submit(self._fetch, self._media[name])

    def read(self, name: str) -> bytes:
        """Return the content of a downloaded file; waits until it is complete.

        Raises:
            FileError: If it is unavailable.
        """
        if name not in self._media:
            raise FileNotFoundError(f"{name} is not among the media of {self._record.name}")
        self.begin([name])
        medium = self._media[name]
        key = self._key(medium)
        try:
            self._coming[name].result()
            return self._store.read(
                self._service, key, medium.md5, max_bytes=self._sizes.file_bytes
            )
        except FileError as error:
            self._unfetched.add(self._record, key, error)
            raise

    def _fetch(self, medium: Medium) -> None:
        self._store.fetch(
            self._service, self._key(medium), medium.md5, max_bytes=self._sizes.file_bytes
        )

    def _key(self, medium: Medium) -> str:
        return f"{self._record.name}/{medium.name}"


@dataclass(frozen=True)
class _Begun:
    """An article whose XML was parsed and whose media are being fetched."""

    xml: bytes | None
    content: ArticleContent | None
    defect: str | None
    detail: str | None
    files: Media


def packages(
    records: Sequence[Record],
    service: BucketClient,
    store: Store,
    *,
    bucket: str,
    sizes: SizeLimits,
    threads: int,
    unfetched: Unfetched | None = None,
) -> Iterator[Package]:
    """Yield the package of each record, in order; the next ones are downloaded meanwhile.

    Args:
        records: Records of the selected versions.
        service: The bucket.
        store: Stores the downloads.
        bucket: Name of the bucket, for the addresses of packages.
        sizes: Maximum file sizes.
        threads: Number of threads that download XML; media have as many of their own.
        unfetched: Collects failed downloads, up to date when the next package is requested.

    Raises:
        StorageError: If the service, a disk or a bucket fails.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
    # Media have their own threads, so that no article waits for one that waits for it.
    media_pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch-media")
    failures = unfetched or Unfetched()
    try:
        coming: list[Future[_Begun]] = []
        for number, record in enumerate(records):
            for later in records[len(coming) : number + threads]:
                files = Media(later, service, store, sizes, media_pool, failures)
                coming.append(pool.submit(_begun, later, files, service, store, sizes, failures))
            begun = coming[number].result()
            # Free it as soon as it was processed.
            coming[number] = Future()
            yield _package(record, begun, bucket)
    finally:
        # Cancel what was not started; wait for the rest, because its turns count.
        pool.shutdown(wait=True, cancel_futures=True)
        media_pool.shutdown(wait=True, cancel_futures=True)


def _begun(
    record: Record,
    files: Media,
    service: BucketClient,
    store: Store,
    sizes: SizeLimits,
    unfetched: Unfetched,
) -> _Begun:
    key = f"{record.name}/{record.xml_name}"
    try:
        xml = store.read(service, key, record.xml_md5, max_bytes=sizes.xml_bytes)
    except FileError as error:
        unfetched.add(record, key, error)
        return _Begun(None, None, XML_DEFECT + error.defect, str(error)[:300], files)
    reading = read_article(xml)
    if reading.content is not None:
        files.begin(referenced_media(reading.content, record))
    return _Begun(xml, reading.content, reading.defect, reading.detail, files)


def referenced_media(content: ArticleContent, record: Record) -> list[str]:
    """Return the names of media that may be the image of a figure, without thumbnails."""
    files = FileLookup((medium.name for medium in record.media), content.figures)
    names = [
        name
        for figure in content.figures
        for graphic in figure.graphics
        for name in files.candidates(graphic.hrefs)
    ]
    return list(dict.fromkeys(names))


def _package(record: Record, begun: _Begun, bucket: str) -> Package:
    refused = f"; media refused: {'; '.join(record.refused[:3])}" if record.refused else ""
    return Package(
        name=_NOT_IN_NAME.sub("-", record.name),
        uri=source_uri(record.name, bucket),
        xml=begun.xml,
        content=begun.content,
        stated=SourceMetadata(
            article_id=f"PMC{record.number}",
            version=str(record.version),
            license_code=record.license_code,
            cleared=is_cleared(record),
            retracted=record.is_retracted,
            snapshot=record.last_modified,
            pmid=record.pmid,
            doi=record.doi,
        ),
        files={medium.name: None for medium in record.media},
        read=begun.files.read,
        defect=begun.defect,
        defect_detail=f"{begun.detail}{refused}"[:300] if begun.defect else None,
    )


def source_uri(name: str, bucket: str) -> str:
    """Return the canonical URI of a version's XML, independent of the endpoint."""
    return f"s3://{bucket}/{name}/{name}.xml"
