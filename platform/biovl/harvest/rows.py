"""Rows of ``articles/`` and ``figures/`` from a package: figures, and exactly one article."""

import hashlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from biovl.articles import licenses
from biovl.articles.content import ArticleContent, FigureContent, Graphic, License
from biovl.articles.credits import is_of_others
from biovl.articles.graphics import FileLookup
from biovl.articles.jats import read_article
from biovl.core.errors import StorageError
from biovl.core.records import Article, Figure
from biovl.harvest.sources import FileError, Package
from biovl.images import decode, hashing

log = logging.getLogger(__name__)

NO_FIGURES = "no figures"
NO_GRAPHIC = "no graphic"
NO_CAPTION = "no caption"
IMAGE_MISSING = "image missing"
IMAGE_UNREADABLE = "image cannot be read"
READER_FAILED = "reader failed"
VIDEO = "graphic is a video"

_LARGE_BYTES = 64_000_000
"""Files above this size are not held while others are inspected, and not stored unless they are
images."""

_NOT_CLEARED = licenses.Allowed(redistributable=False, derivatives=False)
_PMCID = re.compile(r"PMC\d+", re.IGNORECASE)
_VERSIONED = re.compile(r"(?<=[/#])(PMC\d+)(?:\.(\d+))?(?![A-Za-z0-9])", re.IGNORECASE)
"""A part of a location that names an article: ``PMC123``, or its version ``PMC123.2``."""
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True)
class _Image:
    """The file selected for a graphic and its decoded properties."""

    name: str | None = None
    data: bytes | None = None
    inspected: decode.Inspected | None = None
    defect: str | None = None
    detail: str | None = None
    size_bytes: int = 0


def rows(package: Package) -> Iterator[Figure | Article]:
    """Yield a package's figures, then its article. Never raises for the content of a package.

    Errors of a disk, bucket or service are not a defect of the package and are raised.

    Only one figure is in memory at a time, regardless of the size of the package.
    """
    sha256 = hashlib.sha256(package.xml).hexdigest() if package.xml is not None else None
    content, defect, detail = package.content, package.defect, package.defect_detail
    count = 0
    try:
        if defect is None and content is None and package.xml is not None:
            reading = read_article(package.xml)
            content, defect, detail = reading.content, reading.defect, reading.detail
        if defect is None and content is not None:
            for figure in _figures(package, content):
                count += 1
                yield figure
            if count == 0:
                defect = NO_FIGURES
    except StorageError:
        raise
    # A bug that affects one article in ten million must not end the run. It is counted under its
    # own defect, and the log contains the traceback.
    except Exception as error:
        log.exception("reading %s failed", package.uri)
        defect, detail = READER_FAILED, f"{type(error).__name__}: {error}"[:300]
    yield _article(package, content or ArticleContent(), sha256, count, defect, detail)


def article_id(package: Package, content: ArticleContent) -> str:
    """Return the id given by the source, else the PMCID, the DOI or the package's name.

    DOIs are case-insensitive: as an id they are in lower case.
    """
    if package.article_id:
        return package.article_id
    if package.stated is not None:
        return package.stated.article_id
    named = _PMCID.match(package.name)
    doi = content.doi.lower() if content.doi else None
    return content.pmcid or doi or (named[0].upper() if named else package.name)


@dataclass(frozen=True)
class _Standing:
    """Rights and status of an article and its figures, merged from its source and its XML."""

    license: License
    license_code: str | None
    cleared: bool
    version: str | None
    retracted: bool | None
    snapshot: str | None

    @classmethod
    def of(cls, package: Package, content: ArticleContent) -> "_Standing":
        stated = package.stated
        if stated is None:
            own = content.license
            version = content.version or _version_in(package.uri)
            return cls(own, None, True, version, content.retracted, None)
        coded = licenses.license_from_text(stated.license_code or "")
        # If both state the same licence, the XML's includes the version and the link.
        license_ = licenses.strictest(content.license, coded)
        return cls(
            license_ if license_.spdx else content.license,
            stated.license_code,
            stated.cleared,
            stated.version,
            content.retracted or stated.retracted,
            stated.snapshot,
        )

    def of_figure(self, own: License | None) -> "_Standing":
        return self if own is None else replace(self, license=own)

    def columns(self) -> dict[str, Any]:
        """Return the columns that articles and figures share."""
        may = licenses.allowed_by(self.license) if self.cleared else _NOT_CLEARED
        return {
            "version": self.version,
            "license": self.license.spdx,
            "license_url": self.license.url,
            "license_code": self.license_code,
            "license_group": self.license.group if self.cleared else "other",
            "redistributable": may.redistributable,
            "derivatives_allowed": may.derivatives,
            "retracted": self.retracted,
            "snapshot": self.snapshot,
        }


def _version_in(uri: str) -> str | None:
    """Return the version in ``…/PMC123.2/PMC123.xml``, of the article that is named last."""
    named = _VERSIONED.findall(uri)
    return next((number for pmcid, number in named if number and pmcid == named[-1][0]), None)


def _article(
    package: Package,
    content: ArticleContent,
    sha256: str | None,
    figure_count: int,
    defect: str | None,
    detail: str | None,
) -> Article:
    standing, stated = _Standing.of(package, content), package.stated
    return Article(
        **standing.columns(),
        article_id=article_id(package, content),
        pmid=content.pmid or (stated.pmid if stated else None),
        doi=content.doi or (stated.doi if stated else None),
        title=content.title,
        abstract=content.abstract,
        keywords=content.keywords,
        subjects=content.subjects,
        journal=content.journal,
        published=content.published,
        article_type=content.article_type,
        language=content.language,
        citation=content.citation,
        reference_pmids=content.reference_pmids,
        full_text=content.full_text,
        abbreviations=content.abbreviations,
        figure_count=figure_count,
        source_uri=package.uri,
        xml_sha256=sha256,
        defect=defect,
        defect_detail=detail,
    )


def _figures(package: Package, content: ArticleContent) -> Iterator[Figure]:
    files = FileLookup(package.files, content.figures)
    article, standing = article_id(package, content), _Standing.of(package, content)
    taken: set[str] = set()
    ids: dict[str, str] = {}
    for figure in content.figures:
        stem = _unique(f"{_safe(package.name)}_{_safe(figure.key)}", taken)
        ids[figure.key] = stem
        for number, graphic in enumerate(figure.graphics or [Graphic([])], start=1):
            figure_id = stem if number == 1 else _unique(f"{stem}_{number}", taken)
            image = _image(package, files, graphic, figure)
            found = image.inspected
            yield Figure(
                **standing.of_figure(figure.license).columns(),
                figure_id=figure_id,
                article_id=article,
                source_uri=package.uri,
                xml_id=figure.xml_id,
                kind=figure.kind,
                parent_figure_id=ids.get(figure.parent_key) if figure.parent_key else None,
                figure_label=figure.label,
                caption=figure.caption,
                caption_bold=figure.caption_bold,
                caption_superscripts=figure.caption_superscripts,
                mentions=figure.mentions,
                alt_text=figure.alt_text,
                credit=figure.credit,
                section=figure.section,
                graphic_href=next(iter(graphic.hrefs + graphic.lesser), None),
                image_name=image.name,
                image=image.data,
                image_format=found.format if found else None,
                image_mode=found.mode if found else None,
                size_bytes=image.size_bytes or (0 if image.data is not None else None),
                width_px=found.width_px if found else None,
                height_px=found.height_px if found else None,
                image_sha256=hashing.sha256_hex(image.data) if image.data is not None else None,
                phash=found.phash if found else None,
                group_id=figure.group_id,
                extra_columns=figure.extra_columns,
                third_party=is_of_others(figure.caption, figure.credit, content.authors),
                defect=image.defect or (None if figure.caption else NO_CAPTION),
                defect_detail=image.detail,
            )


def _image(package: Package, files: FileLookup, graphic: Graphic, figure: FigureContent) -> _Image:
    """Return the largest usable image of a graphic, or the defect."""
    if not graphic.hrefs and not graphic.lesser:
        return _Image(defect=VIDEO if figure.has_video else NO_GRAPHIC)
    best: _Image | None = None
    for hrefs in (graphic.hrefs, graphic.lesser):
        for name in files.candidates(hrefs):
            image = _inspected(package, name)
            if best is None or _rank(image) > _rank(best):
                best = image
            if best.size_bytes > _LARGE_BYTES:
                best = replace(best, data=None)
            # Free it before the next one is read.
            del image
        if best is not None and best.defect is None:
            break
    if best is None:
        href = (graphic.hrefs + graphic.lesser)[0]
        return _Image(defect=IMAGE_MISSING, detail=_looked_at(package.place, href)[:300])
    if best.data is None and best.defect is None and best.name is not None:
        return _inspected(package, best.name)
    return best


def _looked_at(place: str, href: str) -> str:
    """Return the location of a missing file, or why there is none."""
    if not place:
        return href
    if href.startswith(("/", "\\")) or ".." in href.replace("\\", "/").split("/"):
        return f"{href} is not a path below {place}"
    return f"{place.rstrip('/')}/{href}"


def _inspected(package: Package, name: str) -> _Image:
    try:
        data = package.read(name)
    except FileError as error:
        return _Image(name=name, defect=error.defect, detail=str(error)[:300])
    except OSError as error:
        return _Image(name=name, defect=IMAGE_UNREADABLE, detail=str(error)[:300])
    found = decode.inspect(data)
    return _Image(name, data, found, found.defect, found.defect_detail, len(data))


def _rank(image: _Image) -> tuple[bool, int, int]:
    found = image.inspected
    pixels = (found.width_px or 0) * (found.height_px or 0) if found else 0
    return image.defect is None, pixels, image.size_bytes


def _safe(name: str) -> str:
    return _NOT_IN_ID.sub("-", name).strip("-") or "x"


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate
