"""Licence statements in JATS to one SPDX identifier and its PMC group.

Licences without an SPDX identifier get one that states no more than the publisher did:

    CC-BY, CC-BY-NC, …                 no version is stated, so none is assumed
    LicenseRef-Public-Domain           in the public domain, without a Creative Commons instrument
    LicenseRef-All-Rights-Reserved     rights are reserved, or a figure is excluded from the licence
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lxml import etree

from biovl.articles.content import License
from biovl.core.records import LicenseGroup

PUBLIC_DOMAIN = "LicenseRef-Public-Domain"
RESERVED = "LicenseRef-All-Rights-Reserved"

_HREF = "{http://www.w3.org/1999/xlink}href"
# Some publishers write the namespace without its slash.
_REFERENCES = (
    "{http://www.niso.org/schemas/ali/1.0/}license_ref",
    "{http://www.niso.org/schemas/ali/1.0}license_ref",
)

# From the most to the least permissive.
_COMMERCIAL = ("CC0", "CC-BY", "CC-BY-SA", "CC-BY-ND")
_NONCOMMERCIAL = ("CC-BY-NC", "CC-BY-NC-SA", "CC-BY-NC-ND")
_STRICTNESS = (*_COMMERCIAL, *_NONCOMMERCIAL)
_VERSION = re.compile(r"-\d\.\d(?:-[A-Z]{2,3})?$")
# Source: SPDX licence list 3.27. A port that is not on it has the identifier of the licence it
# translates.
_PORTS = {
    "CC-BY-2.5": ("AU",),
    "CC-BY-3.0": ("AT", "AU", "DE", "IGO", "NL", "US"),
    "CC-BY-NC-3.0": ("DE",),
    "CC-BY-NC-ND-3.0": ("DE", "IGO"),
    "CC-BY-NC-SA-2.0": ("DE", "FR", "UK"),
    "CC-BY-NC-SA-3.0": ("DE", "IGO"),
    "CC-BY-ND-3.0": ("DE",),
    "CC-BY-SA-2.0": ("UK",),
    "CC-BY-SA-2.1": ("JP",),
    "CC-BY-SA-3.0": ("AT", "DE", "IGO"),
}

_URL = re.compile(
    r"""
    (?:https?://\s?)?(?:www\.)?creativecommons\.org/\s?
    (?:licen[sc]es?/(?P<terms>by(?:-n[cd]|-sa)*|publicdomain)|publicdomain/(?P<public>zero|mark))
    (?![\w-])
    (?:/(?P<version>\d\.\d)(?:/(?P<port>[a-z]{2,3})(?![a-z]))?)?
    [\w./-]*
    """,
    re.IGNORECASE | re.VERBOSE,
)
_TERM = r"""
    (?:non[\s-]?commer\w+|n[oã]o?[\s-]?comercial|nc|no[\s-]?deriv\w*|s[ei][nm][\s-]?(?:obra)?
    [\s-]?deriv\w*|nd|share[\s-]?alike|compart\w+[\s-]?igual|sa)(?![a-z])
"""
# "CC BY-NC 4.0", and the long form in English, Spanish and Portuguese (SciELO).
_NAMED = re.compile(
    rf"""
    \bCC[\s_-]*(?:(?P<zero>0|zero)\b|(?P<short>BY(?![a-z])
        (?:[\s_-]*(?:N[CD]|SA)(?![a-z]))*))
        (?:[\s_/-]*v?(?P<short_version>[1-4](?:\.\d)?)(?![\d.]\d))?
        (?:[\s_-]*(?P<short_port>(?-i:[A-Z]{{2,3}}))\b)?
    |
    creative[\s_-]*commons[\s_-]*(?:(?:public|licen[sc]\w+|deed|cc)[\s,:_-]*)*
    (?P<long>
        (?:(?:by\s+)?attribution|atribu\w+|reconoc\w+|by(?![ \w])|(?-i:BY)
            |non[\s-]?commer\w+|n[oã]o?[\s-]?comercial)
        (?:[\s,/()-]*{_TERM})*
    )
    (?:[\s,(]*(?:licen[sc]\w+|international|unported|generic|internac\w+))*
    (?:[\s,(.]*(?:version\s|v\.?\s?)?(?P<long_version>[1-4]\.\d))?
    (?:\s(?P<long_port>(?-i:IGO))\b)?
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Terms behind a licence's name: "Attribution 4.0 International, NonCommercial", "CC BY (and
# non-commercial)".
_FURTHER = re.compile(
    rf"""
    [\s,/()|+:-]*
    (?:(?:and|y|e|deed|public|unported|international|generic|internac\w+|licen[sc]\w+|attribution
        |cc|by|version|v?[1-4](?:\.\d)?)(?![a-z]) [\s,/()|+:-]*)*+
    (?P<terms>{_TERM}(?:[\s,/()-]*{_TERM})*) (?:[\s,]*v?[1-4]\.\d)?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ZERO = re.compile(
    r"creative\s+commons\s+(?:cc\s?0|zero|public\s+domain\s+(?:dedication|declaration))",
    re.IGNORECASE,
)
_NO_COPYRIGHT = re.compile(
    r"public[\s-]domain|work of the (?:U\.?S\.?|United States) government"
    r"|(?:U\.?S\.?|United States) government work|not subject to (?:U\.?S\.? )?copyright",
    re.IGNORECASE,
)
_ALL_RESERVED = re.compile(
    r"all rights (?:are )?reserved|not covered by|no re-?use"
    r"|(?:reproduced|reprinted|adapted|republished|used)\b.{0,200}?\bwith (?:kind )?permission"
    r"|without\b.{0,30}\bpermission",
    re.IGNORECASE | re.DOTALL,
)
# "… panel B is not covered by the" CC-BY 4.0 licence.
_EXCLUDED = re.compile(
    r"""
    \b(?:not\s(?:covered|licen[sc]ed|published|available|included|distributed)\s(?:by|under|in)
    |excluded\sfrom) \s+ (?:(?:the|this|a|our|article[’']s)\s+)* \(?\s*$
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LOOK_BACK = 60
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-"))
_NOT_LICENSED = License()


def license_of(permissions: Sequence[etree._Element]) -> License:
    """Return the licence that an article or a figure states.

    Machine-readable statements (links, ``license-type``) take precedence over prose, which then
    only adds a version or a restriction. If two statements differ, the more restrictive one counts.

    Args:
        permissions: ``<permissions>`` elements; or, as in articles before 2008, bare ``<license>``
            and ``<copyright-statement>`` elements.

    Returns:
        The licence; its ``url`` is the link it was read from, as published. An unknown link is
        returned with no identifier and group ``other``.
    """
    links = [link for element in permissions for link in _links(element)]
    text = " ".join([" ".join(element.itertext()) for element in permissions])
    coded = [_from_url(match) for link in links if (match := _URL.search(link))]
    coded += _linked_in(text)
    coded += [
        _named_in(kind)
        for element in permissions
        for part in element.iter("license")
        if (kind := part.get("license-type"))
    ]
    best = _strictest(coded)
    if best.spdx is None:
        best = license_from_text(text)
        return best if best.spdx else License(url=links[0] if links else None)
    return _with_prose(text, best)


def license_from_text(text: str) -> License:
    """Return the licence that a sentence, a link or a short name states.

    A link takes precedence over words that permit more. "Creative Commons public domain
    dedication" is CC0's own name and that of its predecessor (2004), which permitted the same: both
    are ``CC0-1.0``.
    """
    if not text:
        return _NOT_LICENSED
    linked = _strictest(_linked_in(text))
    if linked.spdx:
        return _with_prose(text, linked)
    named = _named_in(text)
    if named.spdx:
        return named
    if _ZERO.search(text):
        return _licensed("CC0", "1.0")
    if _ALL_RESERVED.search(text):
        return License(RESERVED)
    return License(PUBLIC_DOMAIN) if _NO_COPYRIGHT.search(text) else _NOT_LICENSED


def group_of(spdx: str | None) -> LicenseGroup:
    """Return PMC's group of an identifier, with or without version.

    ``commercial`` is CC0, BY, BY-SA, BY-ND; ``noncommercial`` is BY-NC, BY-NC-SA, BY-NC-ND;
    everything else, the public domain included, is ``other``.
    """
    terms = _VERSION.sub("", spdx or "")
    if terms in _COMMERCIAL:
        return "commercial"
    return "noncommercial" if terms in _NONCOMMERCIAL else "other"


@dataclass(frozen=True)
class Allowed:
    """Uses that a licence permits; None if the licence is unknown."""

    redistributable: bool | None = None
    derivatives: bool | None = None


def allowed_by(license_: License) -> Allowed:
    """Return the uses that a licence permits, even if only for some purposes (CC BY-NC)."""
    if license_.spdx is None:
        return Allowed()
    if license_.spdx == RESERVED:
        return Allowed(False, False)
    return Allowed(True, "-ND" not in license_.spdx)


def strictest(*found: License) -> License:
    """Return the most restrictive of the stated licences."""
    return _strictest([license_ for license_ in found if license_.spdx is not None])


def _links(element: etree._Element) -> Iterator[str]:
    for part in element.iter("license", "ext-link", "uri", *_REFERENCES):
        target = part.get(_HREF) or part.text or ""
        is_link = "://" in target or "creativecommons.org" in target
        # The text of <license> is prose.
        if is_link and (part.tag != "license" or part.get(_HREF)):
            if part.tag in ("ext-link", "uri") and _EXCLUDED.search(_before(part)):
                continue
            yield target.strip()


def _before(part: etree._Element) -> str:
    earlier = part.getprevious()
    if earlier is not None:
        return (earlier.tail or "")[-_LOOK_BACK:]
    parent = part.getparent()
    return ((parent.text if parent is not None else None) or "")[-_LOOK_BACK:]


def _linked_in(text: str) -> list[License]:
    if "creativecommons" not in text.lower():
        return []
    return [
        _from_url(match) for match in _URL.finditer(text) if not _is_excluded(text, match.start())
    ]


def _with_prose(text: str, found: License) -> License:
    """Return the licence of a link or code, with the version that only the text states.

    If the text names a stricter licence, it is that one: PMC links CC BY for articles whose text
    says NonCommercial.
    """
    named = _named_in(text)
    if named.spdx is not None and _strictness(named)[0] > _strictness(found)[0]:
        return named
    agree = named.spdx is not None and _VERSION.sub("", named.spdx) == found.spdx
    return License(named.spdx, found.url, found.group) if agree else found


def _from_url(match: re.Match[str]) -> License:
    url = match[0].rstrip(".")
    if match["public"]:
        kind = "CC0" if match["public"].lower() == "zero" else "CC-PDM"
        return _licensed(kind, "1.0", url=url)
    if match["terms"].lower() == "publicdomain":
        return License("CC-PDDC", url)
    return _licensed(_kind_of(match["terms"]), match["version"], match["port"], url)


def _named_in(text: str) -> License:
    text = text.translate(_DASHES)
    found = []
    for match in _NAMED.finditer(text):
        if _is_excluded(text, match.start()):
            continue
        if match["zero"]:
            found.append(_licensed("CC0", "1.0"))
            continue
        version = match["short_version"] or match["long_version"]
        if version and "." not in version:
            version += ".0"
        terms = match["short"] or match["long"]
        further = _FURTHER.match(text, match.end())
        if further:
            terms += f" {further['terms']}"
            stated = re.search(r"[1-4]\.\d", further[0])
            version = version or (stated[0] if stated else None)
        kind = _kind_of(terms)
        found.append(_licensed(kind, version, match["short_port"] or match["long_port"]))
    return _strictest(found)


def _kind_of(terms: str) -> str:
    """Return the identifier without version of ``by-nd-nc`` or ``Attribution Non-Commercial``."""
    terms = terms.lower()
    kind = "CC-BY"
    if re.search(r"comm?er|nc\b", terms):
        kind += "-NC"
    if re.search(r"deriv|nd\b", terms):
        return kind + "-ND"
    return kind + "-SA" if re.search(r"alike|igual|sa\b", terms) else kind


def _licensed(
    kind: str, version: str | None, port: str | None = None, url: str | None = None
) -> License:
    spdx = f"{kind}-{version}" if version else kind
    if port and port.upper() in _PORTS.get(spdx, ()):
        spdx = f"{spdx}-{port.upper()}"
    return License(spdx, url, group_of(spdx))


def _strictest(found: Sequence[License]) -> License:
    return max(found, key=_strictness, default=_NOT_LICENSED)


def _strictness(found: License) -> tuple[int, bool]:
    """Order by permissiveness; of equals, one that states a version is preferred."""
    if found.spdx is None:
        return (-2, False)
    terms = _VERSION.sub("", found.spdx)
    rank = _STRICTNESS.index(terms) if terms in _STRICTNESS else -1
    return (rank, terms != found.spdx)


def _is_excluded(text: str, start: int) -> bool:
    return _EXCLUDED.search(text, max(0, start - _LOOK_BACK), start) is not None
