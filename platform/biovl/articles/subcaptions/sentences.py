"""Sentences of a caption, and the words that indicate the subject of a sentence."""

import re

from biovl.articles.subcaptions.words import MARKS, STAIN
from biovl.core.records import Span

# A point that ends a sentence: not an initial, an abbreviation or a decimal.
_END = re.compile(
    r"[.!?]+[)\]\"”’]?\s+|(?<=[a-z\d)])\.(?=[A-Z(\[][a-z)\]]?)|\.(?=[(\[])|\n+|[。！？；]+\s*"
    # "(n = 6); ∗p < .05", "at 2.0 m; LT: tillering; JT: jointing": a key for all begins.
    r"|;\s(?=[*∗#†‡]{1,3}\s?p\s?[<=>]|[A-Z]{2,5}\s?[:,=]\s[^.;:]{2,40};\s[A-Z]{2,5}\s?[:,=]\s)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:[Ff]igs?|e\.g|i\.e|vs|cf|ca|approx|resp|[Nn]os?|et al|etc|Dr|St|var|subsp|spp?|"
    r"n\. ?sp|Eq|Ref|[Rr]efs|incl|max|min|Suppl?|aff|ed|eds|viz|cv|ssp|St|str|mag|temp|nov|gen|"
    r"Inc|Ltd|Co|Tb|Ct)|(?<![\w\-–°])[A-Z])$"
)
# "… after i.v. (2 mg/kg) administration", "mean ± S.D. (n = 4)".
_DOTTED = re.compile(r"(?<![\w.])[A-Za-z](?:\.[A-Za-z]){1,2}\Z")
# "… with the exception of E and F. Embryos …", "… as in panel A. Bars …": no initial.
_PANELS = re.compile(
    r"\b(?:(?:[Ii]n|[Oo]f|[Ff]or|[Ff]rom|to)\s[A-Z](?:,\s[A-Z]){0,4},?\s(?:and|&)|"
    r"[Pp]anels?(?:\s[A-Z](?:,|\sand))?)\s[A-Z]\Z"
)
# "Pinus krempfii (Lec.) Chang": the author of a name.
_AUTHOR = re.compile(r"\([A-Z][a-z]{0,8}\Z")
# An entry of a key, ``LT: tillering stage``.
_ENTRY = re.compile(r"(?:^|[\s;(])(?:[A-Z][A-Za-z\d-]{1,6}\s?[:,=]\s|[*∗#†‡]\s?p\s?[<=>])")
SCALE = re.compile(
    r"(?:all\s|the\s)?(?:scale\s?-?\s?bars?|bars?|(?:original\s)?magnifications?)\b", re.IGNORECASE
)
# An abbreviation in a key: "CW", "Ch", "GUS2", "wt (−)".
_SHORT = r"(?-i:[A-Z]\w?|[A-Z][\w+-]*[A-Z\d][\w+-]*|wt)(?:\s\([+−–-]\))?"
TRAILING = re.compile(
    r"(?:[\[(]?(?:(?:all\s|the\s)?(?:scale\s?-?\s?bars?|bars?|scales?|error\sbars?|magnifications?|"
    r"original\smagnification)\b|"
    rf"(?:the\s)?(?:{MARKS}|(?-i:[IT])[\s-]bars?\s)|{STAIN.pattern}|"
    r"(?:all\s)?(?:figures?|images?|illustrations?|schematics?|maps?)?\s?(?:(?:was|were)\s)?"
    r"created\s(?:with|in|using)\s|best\sviewed|base\s?maps?\s|zoom(?:ed)?\sin\sfor|written\sinformed\sconsent|"
    r"(?:(?:the|all)\s)?(?:un-?cropped|full-length|original|raw)\s(?:\w+\s)?"
    r"(?:blots?|gels?|images?)\s(?:are|is|can)\b|"
    r"(?:\d+|two|three|four|five|six)\s(?:independent|biological|technical)\s(?:\w+\s)?"
    r"(?:replicates|experiments|repeats)\b|"
    # "OS overall survival": its first two letters are those of words; "NT, non-treated".
    r"(?-i:(?P<i>[A-Z])(?P<j>[A-Z])[A-Za-z\d-]{0,6})\s(?-i:(?=[a-z]))(?P=i)"
    r"(?:(?P=j)|\w{0,20}[\s-](?P=j))[\w\s/-]{2,80}(?:\Z|[.,;])|"
    r"(?-i:(?P<k>[A-Z])[A-Za-z\d-]{0,6}[A-Z\d][a-z]?)\s?[,:=]\s(?-i:(?=[a-z]))(?P=k)"
    r"[^.;:,=]{2,60}(?:\.\s|\.?\s*\Z)|"
    # "CL: cuticular layer, CW: cell wall"; not "Top: control, bottom: drug".
    rf"{_SHORT}\s?[:=]\s?[^.;:=]{{2,70}},\s(?:and\s)?{_SHORT}\s?[:=]\s|"
    # "AgNP indicates silver nanoparticle; SEM, scanning electron microscopy".
    r"(?-i:[A-Z][a-z]?[A-Z][\w+-]{0,6})\sindicates\s(?!(?:an?\s|no\s)?(?:signif|diff))[^.;]{4,60}(?:;\s|\.?\s*\Z)|"
    # "CK: water was sprayed. IAA: 60 mg of IAA was sprayed".
    rf"{_SHORT}\s?[:=]\s?[^.;:=]{{2,70}}\.\s{_SHORT}\s?[:=]\s|"
    # "RNP ribonucleoprotein, GUS β-glucuronidase".
    rf"(?-i:(?P<l>[A-Z])\w*[A-Z\d]\w*)\s(?:[α-ω]-)?(?P=l)[^.;:,=]{{2,60}},\s"
    rf"(?-i:(?P<m>[A-Z])\w*[A-Z\d]\w*)\s(?:[α-ω]-)?(?P=m)\w|"
    r"(?:\d+|two|three|four|five|six|ten)\s\w{1,12}\s(?:per|in\seach)\sgroup\b|"
    r"(?:all\s|the\s)?(?:experiments?|assays?)\s(?:was|were)\s(?:repeated|performed)\s|values\s(?:sharing|with)\s"
    r"(?:the|different)\s|"
    r"these\s(?:images|micrographs|figures|photographs)\s(?:are|were)\s|"
    r"(?:all\s|the\s)?(?:data|values|percentages|results|error|graphs|bars|experiments|means?|columns)\s(?:\w+\s){0,3}"
    r"(?:are|were|is|represent|show|shown|indicate|expressed|presented|denote|correspond)|"
    r"(?:the\s)?(?:different|same|identical|distinct|lowercase|lower-case|capital)\s(?:\w+\s){0,3}letters?\b|"
    # "lnc, long non-coding".
    r"(?-i:(?P<n>[a-z])[a-z]{1,4}),\s(?-i:(?P=n)[a-z-]+)(?:\s[\w-]+){0,4}\.?\s*\Z|"
    r"the\ssignificance\sof\s(?:the\s)?differences?\s|represented\svalues\s|(?:the\s)?others?\s(?:are|is)\s(?:the\s)?same\sas\s|"
    r"(?:all\s)?(?:the\s)?(?:(?:single|double)\sand\s(?:single|double)\s)?asterisks\b|"
    r"(?:statistical|significan|asterisk|abbreviation|legend|colou?r|notes?:|n\.?b\.?[:,]?\s|key|source|credit|"
    r"adapted|reproduced|reprinted|modified|image\scredit|photo|doi|https?:|(?:see\s)?also(?:\ssee)?\b|"
    r"(?:numerical|raw)\sdata|chromosomes\swere\s(?:counter-?)?stained|(?:(?-i:[a-f])\s?)?p\s?[<=>≤]|"
    r"n\s?=|n\.s\.|ns[,:=\s]|[“\"'‘]?[*∗⁎＊]|#|†|‡|§|levels?\sof\ssignifican|sem\b|sd\b|means?\s?±|mean\svalues|two-tailed|one-way|two-way|"
    r"student|images\s(?:and\svideos?\s)?(?:are\s|were\s)?(?:reproduced|reprinted|adapted|"
    r"courtesy)\b|(?:appendix\s\d{1,2}—)?figure\s\d{1,2}(?:—figure\ssupplement\s\d{1,2})?—source\s"
    r"(?:data|code)\b|"
    r"for\s(?:more\s)?(?:details|interpretation|all)|in\sall|in\seach|"
    r"in\sboth\s(?:the\s)?(?:sub)?(?:panels|figures|images|graphs|plots|cases)|"
    r"(?:all|each|both)\s(?:panels?|images?|symbols?|bars?|points?|dots?|values?|data|columns?|"
    r"experiments?|figures?|photographs?|samples|measurements|lines?|box(?:es)?)\b|"
    r"[xy][\s-]ax[ie]s|letters\s|lanes?\s)|"
    r"(?-i:[A-Z])[\w-]{0,11}\s?=\s?[^.;=]{2,60}[.;]\s(?-i:[A-Z])[\w-]{0,11}\s?=|"
    r"(?-i:[A-Z][A-Z+\d]{1,7})\s?=\s?[^.;=]{2,60}[,;.]\s(?-i:[A-Z][A-Z+\d]{1,7})\s?=|"
    r"[\w*'′-]{1,12}(?:\s(?-i:[A-Z][\w-]{1,6}))?(?:\s?[,:=]|\s[–—-])\s(?:[^.;]|\bvs\.|\b[A-Z]\.(?=\s[a-z])){2,60};\s"
    r"[\w*'′-]{1,12}(?:\s(?-i:[A-Z][\w-]{1,6}))?(?:\s?[,:=]|\s[–—-])\s))",
    re.IGNORECASE,
)


def _is_within(before: str) -> bool:
    """Return whether a bracket or a key is open behind a text: its semicolon ends no sentence."""
    return before.count("(") > before.count(")") or _ENTRY.search(before) is not None


# Anywhere in a sentence: it is about the whole figure.
OVERALL = re.compile(
    r"\b(?:in|of|for|underlying)\s(?:both|each|every|this|the\swhole|the\sentire|all(?:\sthe)?)\s"
    r"(?:figures?|(?:sub-?)?panels?|images?|graphs?|plots?)\b"
)


def sentences(caption: str, openings: frozenset[int] | set[int] = frozenset()) -> list[Span]:
    """Return the sentences, which together are the whole caption.

    Args:
        caption: The text.
        openings: Starts of markers: a full stop before one ends a sentence even after an initial.
    """
    spans = []
    start = 0
    for match in _END.finditer(caption):
        end = match.end()
        rest = caption[end : end + 2]
        if not rest:
            break
        if match[0][0] == ";" and _is_within(caption[start : match.start()]):
            continue
        if end not in openings:
            # A full stop without a following space ends a sentence only before a label: "mice.(A)".
            if match[0] == "." and rest[0] in "([":
                continue
            if rest[0] == "(" and _DOTTED.search(caption, max(0, match.start() - 6), match.start()):
                continue
            if match[0] == ".) " and _AUTHOR.search(
                caption, max(0, match.start() - 12), match.start()
            ):
                continue
            short = _ABBREVIATION.search(caption, max(0, match.start() - 10), match.start())
            if short and _PANELS.search(caption, max(0, match.start() - 40), match.start()):
                short = None
            if short and "\n" not in match[0] and not TRAILING.match(caption, end):
                continue
            is_low = rest[0].islower() and "\n" not in match[0]
            if is_low and not TRAILING.match(caption, end):
                continue
        if end > start:
            spans.append(Span(start, end))
            start = end
    spans.append(Span(start, len(caption)))
    return spans
