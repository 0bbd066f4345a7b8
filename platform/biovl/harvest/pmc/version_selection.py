"""Selection of one version per article, with the reason why others are not selected.

Only records are needed, no files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from biovl.articles.licenses import license_from_text
from biovl.core.records import LicenseGroup
from biovl.harvest.pmc.catalogue import FAILED, HARVESTED
from biovl.harvest.pmc.records import Record

MANUSCRIPT = "author manuscript"
NO_MEDIA = "no media"
NEWER = "another version is taken"
RETRACTED = "retracted"
LICENSE = "licence group is left out"
OCR = "text by OCR"
MODIFIED = "modified at another time"
PUBLISHED = "published at another time"


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Criteria for the versions of articles to harvest."""

    licenses: Sequence[LicenseGroup] = ("commercial", "noncommercial", "other")
    retracted: str = "left out"
    ocr: str = "left out"
    modified_from: str = ""
    modified_until: str = ""
    published_from: str = ""
    published_until: str = ""


@dataclass(frozen=True)
class CatalogueVersion:
    """A version of an article in the catalogue."""

    number: int
    version: int
    modified: str
    """Date of the last modification, ISO."""


@dataclass(frozen=True)
class VersionChoice:
    """Selected version of an article, and the state of every version."""

    record: Record | None
    """Record of the selected version."""
    states: list[str] = field(default_factory=list)
    """State of each version: ``harvested``, or the reason why not."""


def choose_version(
    versions: Sequence[CatalogueVersion],
    record_of: Callable[[CatalogueVersion], Record | str],
    filters: Filters,
) -> VersionChoice:
    """Select a version of an article: the highest that is not a manuscript and has media.

    Filters apply to the article as a whole: if its selected version is retracted or has an excluded
    licence, no earlier version is used instead.

    Args:
        versions: Versions of one article, each once.
        record_of: Returns a version's record, or the reason why there is none. Called as rarely as
            possible.
        filters: Which versions to harvest.
    """
    states = dict.fromkeys(versions, "")
    seen: list[Record] = []
    taken: Record | None = None
    for known in sorted(versions, key=lambda item: item.version, reverse=True):
        if taken is not None or FAILED in states.values():
            states[known] = NEWER if taken is not None else FAILED
            continue
        found = record_of(known)
        if isinstance(found, str):
            states[known] = found
            continue
        seen.append(found)
        if found.is_manuscript:
            states[known] = MANUSCRIPT
        elif not found.media:
            states[known] = NO_MEDIA
        else:
            taken = found
            states[known] = _left_out(seen, known, filters) or HARVESTED
    is_wanted = HARVESTED in states.values()
    if taken is None and any(record.is_retracted for record in seen):
        # Only for an article that has no other version to harvest either.
        states = {k: RETRACTED if s in (MANUSCRIPT, NO_MEDIA) else s for k, s in states.items()}
    return VersionChoice(taken if is_wanted else None, [states[known] for known in versions])


def _left_out(seen: Sequence[Record], known: CatalogueVersion, filters: Filters) -> str | None:
    """Return the reason why the version read last is excluded."""
    record = seen[-1]
    if filters.retracted == "left out" and any(version.is_retracted for version in seen):
        return RETRACTED
    if group_of(record) not in filters.licenses:
        return LICENSE
    if filters.ocr == "left out" and record.is_historical_ocr:
        return OCR
    if not _is_between(known.modified, filters.modified_from, filters.modified_until):
        return MODIFIED
    if not _is_between(record.published or "", filters.published_from, filters.published_until):
        return PUBLISHED
    return None


def is_cleared(record: Record) -> bool:
    """Return whether the bucket clears a version for reuse under the licence it states.

    A code that is not a Creative Commons licence (``TDM``), or one without ``is_pmc_openaccess``,
    is not cleared, whatever the XML states.
    """
    has_code = license_from_text(record.license_code or "").group != "other"
    return record.is_open_access and (has_code or record.license_code is None)


def group_of(record: Record) -> LicenseGroup:
    """Return the licence group of a version; ``other`` if it is not cleared."""
    return license_from_text(record.license_code or "").group if is_cleared(record) else "other"


def _is_between(date: str, begin: str, until: str) -> bool:
    """Return whether a date of any precision may be between two others, both included."""
    if not begin and not until:
        return True
    if not date:
        return False
    return (not begin or date >= begin[: len(date)]) and (not until or date[: len(until)] <= until)
