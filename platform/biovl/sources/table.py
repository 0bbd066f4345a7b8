"""A folder of images and a table of captions: private data, or whatever is not JATS."""

import csv
import hashlib
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from biovl.articles.content import ArticleContent, FigureContent, Graphic
from biovl.articles.licenses import license_from_text
from biovl.errors import ArtifactError, SourceError
from biovl.filesystems import open_location
from biovl.sources import Address, Package

log = logging.getLogger(__name__)

_NEEDED = ("image", "caption")
_KNOWN = (
    *_NEEDED,
    *("article_id", "figure_label", "title", "abstract", "journal", "license", "published"),
    *("language", "doi", "pmid", "article_type"),
)
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_PER_ADDRESS = 64
"""Articles read by one address: the table is read once for all of them."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the table and its images are."""

    path: str
    """A .csv, .tsv, .jsonl or .parquet file, local or ``s3://``. Needs the columns image (a path
    below ``images``) and caption; rows that share an article_id are one article. Also read:
    figure_label, title, abstract, journal, license, published, language, doi, pmid,
    article_type."""

    images: str = ""
    """The folder that image paths start from; the table's own folder if empty."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Our name of a column -> the table's: ``columns.caption=text``."""


def build(config: Config) -> "TableSource":
    """Return the source."""
    unknown = sorted(set(config.columns) - set(_KNOWN))
    if unknown:
        raise SourceError(
            f"source.columns: there is no column {', '.join(unknown)}; "
            f"choose from {', '.join(_KNOWN)}"
        )
    return TableSource(config)


class TableSource:
    """Articles made of the rows of a table."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._articles: list[tuple[str, list[dict[str, str]]]] | None = None

    def addresses(self) -> Iterator[Address]:
        """Return runs of articles, in the order in which the table names them."""
        for start in range(0, len(self._read_table()), _PER_ADDRESS):
            yield Address(f"{self._config.path}#{start}", f"rows-{start:09d}")

    def read(self, address: Address) -> Iterator[Package]:
        """Return the articles of a run."""
        start = int(address.uri.rpartition("#")[2])
        filesystem, folder = self._images()
        taken: set[str] = set()
        for number, (article_id, rows) in enumerate(
            self._read_table()[start : start + _PER_ADDRESS], start=start
        ):
            name = _NOT_IN_NAME.sub("-", article_id).strip("-.")[:100] or "article"
            if name != article_id or name in taken:
                name = f"{name}-{hashlib.sha256(article_id.encode()).hexdigest()[:8]}"
            taken.add(name)
            yield _package(
                name, f"{self._config.path}#{number}", article_id, rows, filesystem, folder
            )

    def _images(self) -> tuple[pafs.FileSystem, str]:
        if self._config.images:
            return _location(self._config.images)
        filesystem, path = _location(self._config.path)
        return filesystem, path.rpartition("/")[0]

    def _read_table(self) -> list[tuple[str, list[dict[str, str]]]]:
        """Return the articles of the table in order, each with its rows."""
        if self._articles is None:
            articles: dict[str, list[dict[str, str]]] = {}
            for number, row in enumerate(_rows(self._config)):
                # A row without an article is one of its own.
                articles.setdefault(row["article_id"] or f"row-{number:09d}", []).append(row)
            if not articles:
                raise SourceError(f"source.path: {self._config.path} has no rows")
            self._articles = list(articles.items())
        return self._articles


def _package(
    name: str,
    uri: str,
    article_id: str,
    rows: list[dict[str, str]],
    filesystem: pafs.FileSystem,
    folder: str,
) -> Package:
    first = rows[0]
    license_ = license_from_text(first["license"])
    figures = [
        FigureContent(
            key=str(number),
            label=row["figure_label"] or None,
            caption="\n".join(
                " ".join(line.split()) for line in row["caption"].splitlines()
            ).strip(),
            license=license_from_text(row["license"]),
            graphics=[Graphic([row["image"]])] if row["image"] else [],
        )
        for number, row in enumerate(rows, start=1)
    ]
    # Paths that leave the folder are not looked at: they find no file.
    paths = [row["image"] for row in rows if row["image"] and _is_inside(row["image"])]
    infos = filesystem.get_file_info([f"{folder}/{path}" for path in paths])
    files = {
        path: int(info.size)
        for path, info in zip(paths, infos, strict=True)
        if info.type == pafs.FileType.File
    }

    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(f"{path} is not among the images below {folder}")
        with filesystem.open_input_stream(f"{folder}/{path}", compression=None) as stream:
            data: bytes = stream.read()
        return data

    content = ArticleContent(
        pmcid=article_id if re.fullmatch(r"PMC\d+", article_id) else None,
        pmid=first["pmid"] or None,
        doi=first["doi"] or None,
        title=first["title"] or None,
        abstract=first["abstract"] or None,
        journal=first["journal"] or None,
        published=first["published"] or None,
        article_type=first["article_type"] or None,
        language=first["language"].lower() or None,
        license=license_,
        figures=figures,
    )
    return Package(name=name, uri=uri, content=content, files=files, read=read)


def _rows(config: Config) -> Iterator[dict[str, str]]:
    """Yield the rows of the table with our names for the columns, all values as text."""
    raw = _raw_rows(config.path)
    first = next(raw, None)
    if first is None:
        return
    names = {ours: config.columns.get(ours, ours) for ours in _KNOWN}
    absent = [names[ours] for ours in _NEEDED if names[ours] not in first]
    if absent:
        raise SourceError(
            f"{config.path} has no column {', '.join(absent)}; it has {', '.join(first)}. "
            "Name yours with --set source.columns.caption=…"
        )
    ignored = sorted(set(first) - set(names.values()))
    if ignored:
        log.warning("columns not read of %s: %s", config.path, ", ".join(ignored))
    for row in (first, *raw):
        yield {ours: _text(row.get(theirs)) for ours, theirs in names.items()}


def _raw_rows(path: str) -> Iterator[dict[str, Any]]:
    filesystem, inner = _location(path)
    try:
        with filesystem.open_input_file(inner) as stream:
            if path.endswith(".parquet"):
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield from batch.to_pylist()
                return
            text = stream.read().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise SourceError(f"source.path: {path} cannot be read: {error}") from error
    if path.endswith((".jsonl", ".ndjson")):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _json_object(path, number, line)
        return
    csv.field_size_limit(100_000_000)
    yield from csv.DictReader(io.StringIO(text), delimiter="\t" if path.endswith(".tsv") else ",")


def _json_object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise SourceError(f"{path}, line {number}: {error}") from error
    if not isinstance(values, dict):
        raise SourceError(f"{path}, line {number}: expected an object, got {line[:50]}")
    return values


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _is_inside(path: str) -> bool:
    return not path.startswith(("/", "\\")) and ".." not in path.replace("\\", "/").split("/")


def _location(uri: str) -> tuple[pafs.FileSystem, str]:
    try:
        return open_location(uri)
    except ArtifactError as error:
        raise SourceError(f"source.path: {error}") from error
