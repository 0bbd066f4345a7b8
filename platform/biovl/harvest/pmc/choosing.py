"""Which version of an article is taken, if any, and why the others are not.

Records alone decide, before a file is asked for.
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
    """What is wanted."""

    licenses: Sequence[LicenseGroup] = ("commercial", "noncommercial", "other")
    retracted: str = "left out"
    ocr: str = "left out"
    modified_from: str = ""
    modified_until: str = ""
    published_from: str = ""
    published_until: str = ""


@dataclass(frozen=True)
class Known:
    """A version by the catalogue."""

    number: int
    version: int
    modified: str
    """ISO date."""


@dataclass(frozen=True)
class Choice:
    """What became of the versions of one article."""

    record: Record | None
    """Of the version that is taken."""
    states: list[str] = field(default_factory=list)
    """Of each version: ``harvested`` or the reason why not."""


def chosen(
    versions: Sequence[Known], record_of: Callable[[Known], Record | str], filters: Filters
) -> Choice:
    """Choose among the versions of an article: the highest that is no manuscript and has media.

    Filters are about the article as it stands: where its chosen version is retracted or of another
    licence, no earlier one is taken in its place.

    Args:
        versions: Of one article, each once.
        record_of: Returns a version's record, or the reason why there is none. Asked for as few as
            the choice needs.
        filters: What is wanted.
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
        # Said of an article whose other versions have nothing to take either.
        states = {k: RETRACTED if s in (MANUSCRIPT, NO_MEDIA) else s for k, s in states.items()}
    return Choice(taken if is_wanted else None, [states[known] for known in versions])


def _left_out(seen: Sequence[Record], known: Known, filters: Filters) -> str | None:
    """Return the reason why the version seen last is not wanted."""
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
    """Return whether the bucket offers a version for reuse under the licence it states.

    A code that is no Creative Commons licence (``TDM``), or one without ``is_pmc_openaccess``, is
    not cleared, whatever the XML says.
    """
    has_code = license_from_text(record.license_code or "").group != "other"
    return record.is_open_access and (has_code or record.license_code is None)


def group_of(record: Record) -> LicenseGroup:
    """Return the group of a version's licence; ``other`` where it is not cleared."""
    return license_from_text(record.license_code or "").group if is_cleared(record) else "other"


def _is_between(date: str, begin: str, until: str) -> bool:
    """Return whether a date, as precise as it is, may lie between two others, both included."""
    if not begin and not until:
        return True
    if not date:
        return False
    return (not begin or date >= begin[: len(date)]) and (not until or date[: len(until)] <= until)
