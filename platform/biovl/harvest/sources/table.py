"""A folder of images and a table of captions: private data, or any data that is not JATS."""

import datetime
import functools
import hashlib
import itertools
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow.fs as pafs

from biovl.articles.content import ArticleContent, FigureContent, Graphic
from biovl.articles.graphics import FileLookup
from biovl.articles.licenses import license_from_text
from biovl.core import records
from biovl.core.artifacts import Input
from biovl.core.errors import ArtifactError, SourceError
from biovl.core.filesystems import Tree, translate_storage_errors
from biovl.core.records import Article, Panel, plain_doi
from biovl.harvest import table_images
from biovl.harvest.sources import Address, Package
from biovl.harvest.table_groups import ColumnStatistics, join_groups
from biovl.harvest.table_rows import SPILLED, raw_rows
from biovl.images import dicom

log = logging.getLogger(__name__)

SPILLS = "row has more cells than the header"

_NEEDED = ("image", "caption")
_KNOWN = (
    *_NEEDED,
    *("article_id", "figure_label", "title", "abstract", "journal", "license", "published", "year"),
    *("language", "doi", "pmid", "article_type", "group"),
)
_CALLED = {"group": "group_id"}
"""Default names of columns in the table where they differ from ours; ``columns`` overrides them.
Many tables use ``group`` for the arm of a trial."""
_TAKEN = frozenset(
    [
        *(*records.schema(Panel).names, *records.schema(Article).names),
        # Columns that later jobs add.
        *("pair_id", "split", "shard", "offset", "size", "text", "superseded"),
        "uncaptioned",
    ]
)
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?(?!\d)")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_PER_ADDRESS = 64
"""Articles per address: the table is read once for all of them."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Location of the table and its images."""

    path: str
    """A .csv, .tsv, .xlsx, .jsonl or .parquet file, local or ``s3://``. Needs the columns image (a
    path below ``images``) and caption; rows that share an article_id, or without one a doi, are one
    article, whose title and so on are those of the first row that has them. A licence is that of
    its row; an empty cell states none. Also read: figure_label, title,
    abstract, journal, license, published (2011, 2011-07 or 2011-07-18) or year, language, doi,
    pmid, article_type, and group: rows that must be in the same split, such as those of a patient
    (``columns.group=patient_id``; without this setting, only a column group_id is used)."""

    images: str = ""
    """The folder that image paths are relative to; the table's own folder if empty."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Column names of the table by our name: ``columns.caption=text``."""

    encoding: str = "utf-8"
    """Encoding of a .csv, .tsv or .jsonl file without a byte-order mark: cp1252 for Excel's plain
    "CSV" of Western Europe and America. Semicolons and tabs as delimiters are detected."""

    sheet: str = ""
    """Sheet of an .xlsx file; empty: the only visible one that has the needed columns."""

    keep: tuple[str, ...] = ()
    """Other columns of the table to publish as columns of figures, and of the corpus: labels for
    filters and benchmarks, such as ``finding``. None by default: columns may name patients."""

    dicom_frame: int | Literal["middle", "all"] = "middle"
    """Frame of a DICOM image with several: ``middle``, a number from 1, or ``all``, each as a
    figure with the same caption."""

    dicom_burned_in: bool = False
    """Whether to read DICOM images that state that annotations are burned into their pixels:
    these may name the patient. Otherwise they are defects."""

    dicom_columns: tuple[str, ...] = ()
    """Attributes of DICOM images to publish as columns of figures, by keyword, such as
    ``Modality``. None by default: no value of a DICOM header is published."""

    def __post_init__(self) -> None:
        if isinstance(self.dicom_frame, int) and self.dicom_frame < 1:
            raise ValueError(f"dicom_frame must be at least 1, got {self.dicom_frame}")
        extra = [*self.keep, *self.dicom_columns]
        taken = [name for name in extra if name in _TAKEN or "=" in name or extra.count(name) > 1]
        if taken:
            raise ValueError(
                f"keep, dicom_columns: {taken[0]} is already a name of a column, or contains =; "
                "rename it in the table"
            )
        unknown = [name for name in self.dicom_columns if not dicom.is_keyword(name)]
        if unknown:
            raise ValueError(f"dicom_columns: {unknown[0]} is not a keyword of DICOM")


def build(config: Config) -> "TableSource":
    """Return the source for a configuration.

    Raises:
        SourceError: If ``columns`` or ``encoding`` has an unknown name.
    """
    unknown = sorted(set(config.columns) - set(_KNOWN))
    if unknown:
        raise SourceError(
            f"source.columns: there is no column {', '.join(unknown)}; "
            f"choose from {', '.join(_KNOWN)}"
        )
    try:
        " ".encode(config.encoding)
    except LookupError:
        raise SourceError(
            f"source.encoding: unknown encoding {config.encoding!r}; "
            "Excel's plain CSV is usually in cp1252"
        ) from None
    return TableSource(config)


class TableSource:
    """Source of articles made of the rows of a table."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._articles: list[tuple[str, list[dict[str, str]]]] | None = None
        self._columns = ColumnStatistics()

    def warnings(self) -> list[str]:
        """Return warnings about dates, and about the splits: without groups, patients may leak."""
        self._read_table()
        config, undated = self._config, self._columns.undated
        found = self._columns.warnings(
            group=_called(config, "group"), article=_called(config, "article_id")
        )
        if undated:
            found.append(
                f"the column published of {undated:,} rows begins with no date such as 2011, "
                "2011-07 or 2011-07-18: it is ignored there, and year is used if there is one"
            )
        return found

    def extra_columns(self) -> list[str]:
        """Return the names of the columns to keep."""
        return [*self._config.keep, *self._config.dicom_columns]

    def addresses(self) -> Iterator[Address]:
        """Yield ranges of articles, in the order of their first rows."""
        images, folder = self._images
        if not images.has(folder, pafs.FileType.Directory):
            raise SourceError(f"source.images: there is no folder {images.uri(folder)}")
        count = len(self._read_table())
        for start in range(0, count, _PER_ADDRESS):
            articles = min(_PER_ADDRESS, count - start)
            yield Address(self._uri(start), f"rows-{start:09d}", articles)

    def read(self, address: Address) -> Iterator[Package]:
        """Yield the articles of a range."""
        start = int(address.uri.rpartition("#")[2])
        articles = self._read_table()[start : start + _PER_ADDRESS]
        for number, (article_id, rows) in enumerate(articles, start=start):
            name = _NOT_IN_NAME.sub("-", article_id).strip("-")[:100] or "article"
            if name != article_id:
                name = f"{name}-{hashlib.sha256(article_id.encode()).hexdigest()[:12]}"
            uri = self._uri(number)
            yield _package(self._config, name, uri, article_id, rows, *self._images)

    def folders(self) -> list[str]:
        """Return the folders with images, except that of the table."""
        images, folder = self._images
        inside = {
            row["image"].rpartition("/")[0]
            for _, rows in self._read_table()
            for row in rows
            if row["image"]
        }
        if self._config.images:
            return [images.uri(folder)]
        tops = {path.partition("/")[0] for path in inside} - {""}
        return [images.uri(f"{folder}/{top}") for top in sorted(tops)]

    def inputs(self) -> list[Input]:
        """Return the table, identified by its SHA-256."""
        table, digest = self._table, ""
        if table.has(table.path, pafs.FileType.File):
            with (
                translate_storage_errors(self._config.path),
                table.filesystem.open_input_stream(table.path, compression=None) as stream,
            ):
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return [Input(name="table", uri=self._config.path, fingerprint=digest)]

    def _uri(self, number: int) -> str:
        return f"{self._table.uri(self._table.path)}#{number}"

    @functools.cached_property
    def _table(self) -> Tree:
        return _tree("path", self._config.path)

    @functools.cached_property
    def _images(self) -> tuple[Tree, str]:
        """The tree of the images, and the folder in it that image paths are relative to."""
        if self._config.images:
            images = _tree("images", self._config.images)
            return images, images.path
        return self._table, self._table.path.rpartition("/")[0]

    def _read_table(self) -> list[tuple[str, list[dict[str, str]]]]:
        """Return the articles of the table in order, each with its rows."""
        if self._articles is None:
            articles: dict[str, list[dict[str, str]]] = {}
            for number, row in enumerate(_rows(self._table, self._config, self._columns)):
                # A row without either is an article of its own.
                own = row["article_id"] or row["doi"].lower() or f"row-{number:09d}"
                articles.setdefault(own, []).append(row)
            if not articles:
                raise SourceError(f"source.path: {self._config.path} has no rows")
            join_groups(articles.values())
            self._articles = list(articles.items())
        return self._articles


def _called(config: Config, ours: str) -> str:
    """Return the table's name of one of our columns."""
    return config.columns.get(ours, _CALLED.get(ours, ours))


def _package(
    config: Config,
    name: str,
    uri: str,
    article_id: str,
    rows: list[dict[str, str]],
    images: Tree,
    folder: str,
) -> Package:
    spilled = next((row[SPILLED] for row in rows if row[SPILLED]), None)
    if spilled is not None:
        # The cells of such a row cannot be assigned to columns: a comma is not quoted.
        return Package(name=name, uri=uri, defect=SPILLS, defect_detail=spilled[:300])
    sizes = {path: _size(images, folder, path) for path in {row["image"] for row in rows} - {""}}
    found = FileLookup(path for path, size_bytes in sizes.items() if size_bytes is not None)

    # A file is read once for all of its frames.
    @functools.lru_cache(maxsize=1 if config.dicom_frame == "all" else 0)
    def read_file(path: str) -> bytes:
        return images.read(f"{folder}/{path}")

    figures: list[FigureContent] = []
    files: dict[str, int] = {}
    chosen: dict[str, tuple[str, dicom.Frame]] = {}
    for number, row in enumerate(rows, start=1):
        path, size_bytes = row["image"], None
        graphics = []
        if path:
            # A table refers to this exact file, not to others with the same stem or name.
            is_plain = all(other == path for other in found.candidates([path]))
            image_name = path if is_plain else f"{path}#{number}"
            size_bytes = sizes[path]
            frames: dict[str, dicom.Frame]
            if config.dicom_frame != "all":
                frames = {image_name: config.dicom_frame}
            elif size_bytes is None:
                frames = {image_name: 1}
            else:
                frames = table_images.all_frames(image_name, path, read_file)
            graphics = [Graphic([name]) for name in frames]
            if size_bytes is not None:
                files |= dict.fromkeys(frames, size_bytes)
                chosen |= {name: (path, frame) for name, frame in frames.items()}
        figures.append(
            FigureContent(
                key=str(number),
                label=row["figure_label"] or None,
                caption="\n".join(
                    " ".join(line.split()) for line in row["caption"].splitlines()
                ).strip(),
                # An empty cell states no licence, whatever other rows of the article have.
                license=license_from_text(row["license"]),
                graphics=graphics,
                group_id=row["group"] or None,
                extra_columns={
                    **{name: row[_kept(name)] or None for name in config.keep},
                    **table_images.dicom_values(
                        path if size_bytes is not None else "", read_file, config.dicom_columns
                    ),
                },
            )
        )

    def read(image_name: str) -> bytes:
        if image_name not in chosen:
            raise FileNotFoundError(f"{image_name} is not among the images below {folder}")
        path, frame = chosen[image_name]
        return table_images.pixels_of(
            read_file(path), path, frame=frame, burned_in=config.dicom_burned_in
        )

    def first(*columns: str) -> str | None:
        return next((row[column] for column in columns for row in rows if row[column]), None)

    dates = [first("published"), first("year")]
    published = next(filter(None, (_DATE.match(date) for date in dates if date)), None)
    content = ArticleContent(
        pmcid=article_id if re.fullmatch(r"PMC\d+", article_id) else None,
        pmid=first("pmid"),
        doi=first("doi"),
        title=first("title"),
        abstract=first("abstract"),
        journal=first("journal"),
        published=published[0] if published else None,
        article_type=first("article_type"),
        language=(first("language") or "").lower() or None,
        license=license_from_text(first("license") or ""),
        figures=figures,
    )
    place = images.uri(folder)
    return Package(
        name=name,
        uri=uri,
        article_id=article_id,
        content=content,
        files=files,
        place=place,
        read=read,
    )


def _kept(name: str) -> str:
    """Return the key of a kept column among the columns of a row, which are named by us."""
    return f"keep.{name}"


def _size(images: Tree, folder: str, path: str) -> int | None:
    """Return the size of an image in bytes, or None if there is no such file."""
    full = f"{folder}/{path}"
    parts = path.replace("\\", "/").split("/")
    try:
        if path.startswith(("/", "\\")) or ".." in parts or not images.is_inside(full):
            log.warning("skipped because it leads out of %s: %s", folder, path[:300])
            return None
        with translate_storage_errors(images.uri(full)):
            info = images.filesystem.get_file_info(full)
    # The name may be too long or invalid.
    except (OSError, ValueError):
        return None
    return int(info.size) if info.type == pafs.FileType.File else None


def _rows(table: Tree, config: Config, columns: ColumnStatistics) -> Iterator[dict[str, str]]:
    """Yield the rows of the table under our column names, all values as text.

    Raises:
        SourceError: If a required or configured column is missing.
    """
    raw = raw_rows(
        table,
        config.path,
        sheet=config.sheet,
        encoding=config.encoding,
        needed=[_called(config, ours) for ours in _NEEDED],
    )
    first = next(raw, None)
    if first is None:
        return
    names = {ours: _called(config, ours) for ours in _KNOWN}
    # A column that is only kept groups nothing.
    read = {*names.values(), SPILLED}
    names |= {_kept(name): name for name in config.keep}
    there = [name for name in first if name != SPILLED]
    absent = [ours for ours in _NEEDED if names[ours] not in first]
    if absent:
        raise SourceError(
            f"{config.path} has no column {', '.join(names[ours] for ours in absent)}; it has "
            f"{', '.join(there)}. Name yours with "
            + " ".join(f"--set source.columns.{ours}=…" for ours in absent)
        )
    ignored = sorted(set(there) - {*names.values(), ""})
    if ignored:
        log.warning(
            "unused columns of %s: %s; source.keep publishes columns that it names",
            *(config.path, ", ".join(ignored)),
        )
    names[SPILLED] = SPILLED
    for row in itertools.chain([first], raw):
        columns.add(row, read)
        shown = {ours: _text(theirs, row.get(theirs)) for ours, theirs in names.items()}
        columns.undated += bool(shown["published"]) and not _DATE.match(shown["published"])
        yield {**shown, "doi": plain_doi(shown["doi"])}
    # In JSON Lines, any row may be the first that has a column.
    columns_of = {f"{ours}={theirs}": theirs for ours, theirs in config.columns.items()}
    for setting, wanted in (("columns", columns_of), ("keep", {n: n for n in config.keep})):
        lacking = [shown for shown, name in wanted.items() if name not in columns.names]
        if lacking:
            raise SourceError(
                f"source.{setting}: {config.path} has no column for {', '.join(lacking)}; it has "
                f"{', '.join(columns.names)}"
            )


def _text(column: str, value: Any) -> str:
    if isinstance(value, dict | list | bytes):
        raise SourceError(f"source.path: column {column} holds {type(value).__name__}, not text")
    # Libraries write integers as 7.0 and missing values as NaN.
    if isinstance(value, float):
        value = None if math.isnan(value) else int(value) if value.is_integer() else value
    if isinstance(value, datetime.datetime):
        value = value.date()
    # JSON may contain lone surrogates, which cannot be encoded in UTF-8.
    return "" if value is None else str(value).encode("utf-8", "replace").decode().strip()


def _tree(setting: str, uri: str) -> Tree:
    try:
        return Tree(uri)
    except ArtifactError as error:
        raise SourceError(f"source.{setting}: {error}") from error
