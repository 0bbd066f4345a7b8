"""Credits in captions and ``<attrib>``: whether a figure belongs to a third party.

An article's licence does not bind others: a figure that is credited to one is not redistributed.
"""

import re
from collections.abc import Sequence

# The people in a picture are no third party; a publisher named after them is.
_PERSONS = r"""
    (?:(?:the|both|all|our|each|this|her|his|their|legal)\s)*
    (?:patients?|parents?|guardians?|famil(?:y|ies)|relatives|participants?|subjects?|volunteers?
        |mother|father|child(?:ren)?)\b
"""
_OF_PERSONS = rf"\s(?:{_PERSONS})(?!['’]?s?,?\s(?:and|or)\s(?!(?:of\s|from\s)?(?:{_PERSONS})))"
# "Reprinted from [12] with permission", "From Lee et al., with permission", "© 2019 Elsevier",
# "under licence from Shutterstock", "image courtesy of", "courtesy Dr. Lee"; but not "adapted
# from the two-step assay".
_OF_OTHERS = re.compile(
    rf"""
    \b(?:re-?produced|re-?printed|re-?published|re-?used|adapted|adopted|modified|redrawn|used|taken
        |obtained|image|figure|photo\w*|illustration\w*)\b [^.]{{0,200}}?
        \b(?:with|by|under)\s(?:the\s)?(?:kind\s|written\s|prior\s)*permission
        (?!\s(?:of|from|by){_OF_PERSONS})
    |\b(?:re-?produced|re-?printed|re-?published)\s(?:with\s\w+\s)?from\b(?!{_OF_PERSONS})
        (?!\sfig(?:ure)?s?\.?\s[\w–-]{{1,8}}+(?:[.;)]|\s(?:for|to|as)\b|\Z))
    |(?-i:\bFrom)\s(?-i:[A-Z]).{{0,200}}?\bwith\s(?:kind\s)?permission\b
        (?!\s(?:of|from|by){_OF_PERSONS})
    |\b(?:adapted|adopted|modified|redrawn|taken)\s(?:with\s\w+\s)?(?:from|after)\s
        (?:fig(?:ure)?s?\.?\s[^.;]{{1,30}}\s(?:in|of|from)\s)?
        (?:the\s(?:study|work|paper|article|review)\s(?:by|of)\s|\()?
        (?:\[|(?<=\()\d{{2,3}}\)|ref\b|refs?\.|reference
            |(?-i:(?:\w{{2,3}}\s){{1,2}}[A-Z][\w’'-]+)\set\sal|(?-i:[A-Z][\w’'-]+)
            (?:\set\sal|\sand\s(?-i:[A-Z])|,?\s\(?\d{{4}}|\s\[\d))
    |\b(?:adapted|adopted|modified|redrawn)\s(?:from|after)\s
        (?-i:[A-Z][\w’'-]+)\s\(\s?\d{{2,3}}\s?\)
    |\bpermission\s(?:from|of|by)\s(?:(?-i:(?:the\s)?[A-Z])|the\s(?:publisher|journal)\b)
    |©|\(c\)\s?(?:19|20)\d\d(?:\s?[–-]\s?(?:\d\d){{1,2}})?,?\s(?:by\s|the\s)?(?-i:[A-Z])
    |\bcopyright\s(?:\(c\)\s?)?(?:\(?(?:19|20)\d\d|by\b|of\b|holder)
    |\boriginally\spublished\s(?:in|by)\b|\bunder\s(?:a\s)?licen[sc]e\sfrom\s(?-i:[A-Z])
    |\bcourtesy(?:\s(?:of|by)\b|:?\s(?-i:[A-Z]))
    |\b(?:photo|image|picture|illustration)\s?(?:credits?|courtesy)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NAME = r"(?:(?:[^\W\d_a-z]\.-?)+|[^\W\d_a-z][\w’'-]*|d[aeo]s?|del|v[ao]n|der|la|le)"
# "Photographs were taken by Canon EOS 600D" names no person.
_TOOLS = "Adobe|BioRender|Canon|Inkscape|Leica|Microsoft|Nikon|Olympus|Sony|Zeiss|SEM|TEM"
# "Photo: J. Silva", "Pictures taken by Ann Lee", "photo credit: Prof. Ann Lee and Li Wei"; but not
# "Photo by AL".
_PHOTOGRAPHERS = re.compile(
    rf"""
    \b(?i:(?:photo(?:graph)?(?:s|y|ic)?|pictures?|illustrations?|drawings?|artwork|images?)\s
        (?:credits?|courtesy)
    |courtesy|credits?(?=\sto\b)
    |(?:photo(?:graph)?(?:s|y)?|pictures?|illustrations?|drawings?|artwork)
        (?=\s?:|\s(?:\w+\s){{0,2}}(?:by|courtesy)\b))
    (?:\s?:)?(?:\s(?:were|was|taken|provided|made|created|courtesy|by|of|to)){{0,4}}+
    \s(?:(?i:the)\s|Drs?\.?\s|Prof\w*\.?\s)*
    (?!(?:{_TOOLS})\b)
    (?P<names>{_NAME}(?:(?:,\s|,?\s(?:and|&)\s|\s){_NAME}){{1,7}})
    """,
    re.VERBOSE,
)
_CREDIT_WORDS = re.compile(
    r"""
    \b(?:sources?|fontes?|fuentes?|courtes\w+|copyright\w*|permi[st]\w*|cr[eé]dit\w*|re-?print\w*
        |re-?produced|re-?publish\w+|adapted|adopted|modified|redrawn|licen[sc]\w+|authors?|autor\w*
        |fotos?|artists?|museum\w*|archives?|ar(?:qu|ch)ivos?|acervos?|et\sal)\b
    |\b(?:photo\w*|pictures?|images?|drawings?|drawn|illustrat\w+|artwork)\s?(?:by\b|:)
    |©|https?:|www\.|\b(?:19|20)\d\d\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LEAST_LEGEND = 12
"""Minimum words of a legend in ``<attrib>``; a shorter text may be names."""
_NOTE = re.compile(r"(?:abbreviations?|notes?)\s?:", re.IGNORECASE)
# "Source: own calculations.", "Fonte: Dados da pesquisa (2022)", "Fuente: los autores".
_OWN_SOURCE = re.compile(
    r"""
    (?:(?:sources?|fontes?|fuentes?)\s?[:.–-]?\s*)?
    (?:own\s(?:calculations?|elaboration|compilation|work|data|research)|research\sdata
        |(?:(?:elaborated|prepared|compiled|created|made)\sby\s)?(?:the\s)?authors?
        |authors?[’']s?\s(?:own\s)?(?:calculations?|elaboration|compilation|work|data|research)
        |personal\s(?:file|archive|collection)
        |dados\sda\spesquisa|datos\sde\sla\sinvestigaci[oó]n|(?:arquivo|acervo)\spessoal
        |archivo\spersonal|(?:elabora\w+|autoria|fuente)\spr[oó]pr?ia
        |(?:(?:elabora|prepara)d[oa]s?\sp(?:or|el[oa]s?)\s)?(?:(?:l?[oa]s?|el)\s)?autor(?:a|es|as)?)
    (?:\s\(\d{4}\)|,\s\d{4})?\.?
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_of_others(caption: str, credit: str | None, authors: Sequence[str] = ()) -> bool:
    """Return whether a figure, or a part of it, is credited to a third party.

    Args:
        caption: The figure's caption.
        credit: The content of its ``<attrib>`` and ``<permissions>``, one per line. The authors
            themselves as the source are no third party.
        authors: The article's authors. They are no third party by name, either, and other
            photographers are one. If unknown, photographers are not considered.
    """
    caption = _PHOTOGRAPHERS.sub(
        lambda given: "" if _are_authors(given["names"], authors) else given[0], caption
    )
    if authors and _PHOTOGRAPHERS.search(caption):
        return True
    lines = credit.split("\n") if credit else []
    is_credited = any(_OWN_SOURCE.fullmatch(line.strip()) is None for line in lines)
    return is_credited or _OF_OTHERS.search(caption) is not None


def _are_authors(names: str, authors: Sequence[str]) -> bool:
    """Return whether each of the names has an author's last name and first initial."""
    known = [words for author in authors if (words := _words(author))]
    return all(
        any(_is_author(_words(name), words) for words in known)
        for name in re.split(r",?\s(?:and|&)\s", names)
    )


def _is_author(name: list[str], author: list[str]) -> bool:
    *given, last = author
    initials = {word[0] for word in name if word != last}
    return last in name and (not given or given[0][0] in initials)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", name.casefold())


def is_legend(attribution: str) -> bool:
    """Return whether the text of an ``<attrib>`` is a legend: Taylor & Francis put it there."""
    is_text = len(attribution.split()) >= _LEAST_LEGEND or _NOTE.match(attribution) is not None
    return is_text and _CREDIT_WORDS.search(attribution) is None
