"""The places a licence hides, to one SPDX identifier and its PMC group.

Where the text states no version, neither do we: ``CC-BY`` is then the identifier, which is not in
SPDX's list but says no more than the publisher did.
"""

import re
from collections.abc import Iterable, Sequence

from lxml import etree

from biovl.articles.content import License
from biovl.records import LicenseGroup

_HREF = "{http://www.w3.org/1999/xlink}href"
_ALI = "{http://www.niso.org/schemas/ali/1.0/}license_ref"

_URL = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/"
    r"(?:licen[sc]es?/(?P<kind>by(?:-nc)?(?:-nd|-sa)?|by-nd-nc)(?:/(?P<version>\d\.\d))?"
    r"|publicdomain/(?P<public>zero|mark)(?:/\d\.\d)?|licenses/publicdomain)",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"\bCC[\s_-]*(?:(?P<zero>0|zero)|(?P<kind>BY(?:[\s_-]*NC)?(?:[\s_-]*(?:ND|SA))?))"
    r"(?:[\s_-]*(?P<version>\d\.\d))?(?![\w-])",
    re.IGNORECASE,
)
_LONG = re.compile(
    r"creative\s+commons\s+(?P<words>(?:attribution|by)[\w\s,/()–-]{0,60}?)"
    r"(?:licen[sc]e|(?P<version>\d\.\d)|[.;]|$)",
    re.IGNORECASE,
)
_VERSION_AFTER = re.compile(r"^\W{0,3}(?:version\s|v\.?\s?)?(\d\.\d)", re.IGNORECASE)
_ZERO = re.compile(r"creative\s+commons\s+(?:cc0|zero|public\s+domain)|\bCC0\b", re.IGNORECASE)

_COMMERCIAL = ("CC0", "CC-BY", "CC-BY-SA", "CC-BY-ND")
_NONCOMMERCIAL = ("CC-BY-NC", "CC-BY-NC-SA", "CC-BY-NC-ND")
_UNVERSIONED = re.compile(r"-\d\.\d$")
# Of two statements that differ, the one that allows less holds.
_STRICTNESS = ("CC0", "CC-BY", "CC-BY-SA", "CC-BY-ND", "CC-BY-NC", "CC-BY-NC-SA", "CC-BY-NC-ND")


def license_of(permissions: Sequence[etree._Element]) -> License:
    """Return the licence stated in ``<permissions>`` or ``<license>`` elements.

    A link beats prose. Of two that differ, the one that allows less holds.
    """
    stated = [
        part
        for element in permissions
        for part in ([element] if element.tag == "license" else element.iter("license"))
    ]
    links = [found for part in stated for url in _links(part) if (found := _from_url(url))]
    if links:
        return max(links, key=_strictness)
    prose = [license_from_text(" ".join(part.itertext())) for part in stated]
    prose += [license_from_text(part.get("license-type", "")) for part in stated]
    if not any(found.spdx for found in prose):
        prose += [
            license_from_text(" ".join(part.itertext()))
            for element in permissions
            for part in element.iter("copyright-statement", "license-p")
        ]
    known = [found for found in prose if found.spdx]
    if known:
        return max(known, key=_strictness)
    url = next((url for part in stated for url in _links(part)), None)
    return License(None, url, "other")


def license_from_text(text: str) -> License:
    """Return the licence that a sentence, a link or a short name states."""
    if not text:
        return License()
    by_url = [found for match in _URL.finditer(text) if (found := _from_match(match))]
    if by_url:
        return max(by_url, key=_strictness)
    found = []
    for match in _SHORT.finditer(text):
        if match["zero"]:
            found.append(_license("CC0", "1.0"))
        else:
            found.append(_license("CC-" + re.sub(r"[\s_-]+", "-", match["kind"].upper()), match["version"]))
    for match in _LONG.finditer(text):
        after = _VERSION_AFTER.match(text[match.end() :])
        version = match["version"] or (after[1] if after else None)
        found.append(_license(_kind_of(match["words"]), version))
    if not found and _ZERO.search(text):
        found.append(_license("CC0", "1.0"))
    return max(found, key=_strictness) if found else License()


def group_of(spdx: str | None) -> LicenseGroup:
    """Return PMC's group: what may be used commercially, what not, and everything else."""
    bare = _UNVERSIONED.sub("", spdx or "")
    if bare in _COMMERCIAL:
        return "commercial"
    return "noncommercial" if bare in _NONCOMMERCIAL else "other"


def _links(license_: etree._Element) -> Iterable[str]:
    if license_.get(_HREF):
        yield license_.get(_HREF)
    for element in license_.iter(_ALI, "ext-link", "uri"):
        for link in (element.get(_HREF), element.text):
            if link and "://" in link:
                yield link.strip()


def _from_url(url: str) -> License | None:
    match = _URL.search(url)
    return _from_match(match) if match else None


def _from_match(match: re.Match[str]) -> License | None:
    url = match[0]
    if match["kind"]:
        kind = match["kind"].upper().replace("BY-ND-NC", "BY-NC-ND")
        return _license(f"CC-{kind}", match["version"], url)
    if (match["public"] or "").lower() == "zero":
        return _license("CC0", "1.0", url)
    return License("CC-PDDC", url, "other")


def _license(kind: str, version: str | None, url: str | None = None) -> License:
    spdx = f"{kind}-{version}" if version else kind
    return License(spdx, url, group_of(spdx))


def _kind_of(words: str) -> str:
    bare = words.lower().replace("–", "-")
    kind = "CC-BY"
    if re.search(r"non-?\s?commercial|\bnc\b", bare):
        kind += "-NC"
    if re.search(r"no-?\s?deriv|\bnd\b", bare):
        kind += "-ND"
    elif re.search(r"share-?\s?alike|\bsa\b", bare):
        kind += "-SA"
    return kind


def _strictness(found: License) -> int:
    bare = _UNVERSIONED.sub("", found.spdx or "")
    return _STRICTNESS.index(bare) if bare in _STRICTNESS else -1
