"""The bucket's metadata record of an article version, ``metadata/PMC<id>.<version>.json``."""

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import pyarrow as pa

RECORD_BYTES = 4_000_000

_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{1,2}(?:/|$)|//|^/|/$")
_MOST_MEDIA = 20_000
_KEY_CHARS = 1_024
_YEAR = re.compile(r"\.\s+((?:19|20)\d\d)(?:\s+([A-Z][a-z]{2})(?:\s+(\d{1,2}))?)?\b")
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


class RecordError(ValueError):
    """A metadata record is invalid; the message is the reason."""


@dataclass(frozen=True)
class Medium:
    """A media file of an article version: name, size and checksum."""

    name: str
    """File name relative to the version's prefix; compared with the hrefs of the XML."""
    md5: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """Metadata record of one version of an article."""

    number: int
    version: int
    pmid: str | None
    doi: str | None
    license_code: str | None
    is_open_access: bool
    is_manuscript: bool
    is_historical_ocr: bool
    is_retracted: bool
    published: str | None
    """Publication date, ISO, at the precision of the citation."""
    last_modified: str
    """Date of the last modification in the inventory, ISO."""
    xml_name: str
    xml_md5: str
    media: list[Medium] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Names of media that are not downloaded: they are outside the version's prefix, or have no
    MD5."""

    @property
    def name(self) -> str:
        """Name of the version: ``PMC<id>.<version>``."""
        return f"PMC{self.number}.{self.version}"


_TEXT, _FLAG = pa.string(), pa.bool_()
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        *(pa.field(name, _TEXT) for name in ("pmid", "doi", "license_code")),
        *(
            pa.field(name, _FLAG, nullable=False)
            for name in ("is_open_access", "is_manuscript", "is_historical_ocr", "is_retracted")
        ),
        pa.field("published", _TEXT),
        *(
            pa.field(name, _TEXT, nullable=False)
            for name in ("last_modified", "xml_name", "xml_md5")
        ),
        pa.field("media", pa.list_(pa.struct([("name", _TEXT), ("md5", _TEXT)])), nullable=False),
        pa.field("refused", pa.list_(_TEXT), nullable=False),
    ]
)


def from_row(row: dict[str, Any]) -> Record:
    """Return the record of a row of ``SCHEMA``."""
    return Record(**{**row, "media": [Medium(**item) for item in row["media"]]})


def read(data: bytes, number: int, version: int, last_modified: str, bucket: str) -> Record:
    """Return a metadata record from its JSON.

    Args:
        data: JSON.
        number: Article number from the record's key. The content must agree with it.
        version: Version from the record's key.
        last_modified: ISO date from the inventory.
        bucket: Files in other buckets are rejected.

    Raises:
        RecordError: If it is not a record of this version.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"no JSON: {str(error)[:100]}") from error
    if not isinstance(values, dict):
        raise RecordError(f"expected an object, got {type(values).__name__}")
    stated = (
        str(values.get("pmcid") or f"PMC{number}").upper().removeprefix("PMC").partition(".")[0]
    )
    if stated != str(number):
        raise RecordError(f"it is of PMC{stated[:20]}")
    prefix = f"PMC{number}.{version}/"
    xml, problem = _file(values.get("xml_url"), prefix, bucket)
    if xml is None:
        raise RecordError(f"xml_url {problem}")
    media: dict[str, Medium] = {}
    refused = []
    listed = values.get("media_urls") or []
    if not isinstance(listed, list) or len(listed) > _MOST_MEDIA:
        raise RecordError("media_urls is no list of files")
    for url in listed:
        medium, problem = _file(url, prefix, bucket)
        if medium is None:
            refused.append(f"{problem}: {str(url)[:200]}")
        else:
            media.setdefault(medium.name, medium)
    return Record(
        number=number,
        version=version,
        pmid=_text(values, "pmid"),
        doi=_text(values, "doi"),
        license_code=_text(values, "license_code"),
        is_open_access=_flag(values, "is_pmc_openaccess"),
        is_manuscript=_flag(values, "is_manuscript"),
        is_historical_ocr=_flag(values, "is_historical_ocr"),
        is_retracted=_flag(values, "is_retracted"),
        published=published_by(_text(values, "citation") or ""),
        last_modified=last_modified,
        xml_name=xml.name,
        xml_md5=xml.md5,
        media=list(media.values()),
        refused=refused,
    )


def published_by(citation: str) -> str | None:
    """Return the date in a citation: ``Breast Cancer Res. 2001 Nov 2; 3(1):55-60`` is 2001-11-02.

    ISO, at the precision stated.
    """
    found = _YEAR.search(citation)
    if found is None:
        return None
    year, month, day = found.groups()
    if month not in _MONTHS:
        return year
    date = f"{year}-{_MONTHS.index(month) + 1:02d}"
    return f"{date}-{int(day):02d}" if day and 1 <= int(day) <= 31 else date


def _file(url: Any, prefix: str, bucket: str) -> tuple[Medium | None, str]:
    """Return a file of a version, or why it is invalid. The URL only gives a key, never a host."""
    if not isinstance(url, str) or len(url) > 4 * _KEY_CHARS:
        return None, "is missing or no text"
    path, _, query = url.rpartition("?")
    key = path.removeprefix(f"s3://{bucket}/")
    if key == path:
        key = unquote(path.removeprefix(f"https://{bucket}.s3.amazonaws.com/"))
        if key == unquote(path):
            return None, "is in another place or has no MD5"
    name = key.removeprefix(prefix)
    if name == key or not name or len(key) > _KEY_CHARS or _UNSAFE.search(key):
        return None, "is not a file of this version"
    md5 = (parse_qs(query).get("md5") or [""])[-1]
    if not _MD5.fullmatch(md5):
        return None, "has no MD5"
    return Medium(name, md5.lower()), ""


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    # JSON may contain lone surrogates, which cannot be encoded in UTF-8.
    text = str(value).encode("utf-8", "replace").decode().strip()[:2_000]
    return text if text and isinstance(value, str | int) and not isinstance(value, bool) else None


def _flag(values: dict[str, Any], name: str) -> bool:
    value = values.get(name)
    return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "y", "1")
