"""Splitting of compound captions: the text about each panel, and about all of them.

Rules over the text and its bold ranges, and a small model of which letters are labels. A caption
with uncertain labels stays whole.
Every character belongs to the preamble, to a part or to the trailing text.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from biovl.articles.subcaptions.clauses import Segment, segments
from biovl.articles.subcaptions.evidence import confidence, qualities
from biovl.articles.subcaptions.label_selection import System, choose
from biovl.articles.subcaptions.markers import markers
from biovl.articles.subcaptions.nested import ordered, with_children
from biovl.core.records import Span

LONGEST = 50_000
"""Maximum length of a caption in characters, eight times the longest one known."""

_REAGENTS = re.compile(r"\breagents(?:,?\s(?:and\s)?(?:reaction\s)?conditions)?\s?:?\s*\Z", re.I)
_FEWEST_INITIALS = 3
_SEPARATORS = " \t\n\r\xa0,;:–—|="
_WORDS_BEFORE = ("and", "or", "&")
_WORDS_BEHIND = (*_WORDS_BEFORE, "while", "whereas", "but")


@dataclass(frozen=True, slots=True)
class CaptionPart:
    """The text about one panel, or about several together."""

    labels: tuple[str, ...]
    """Labels of the part as printed in the figure: ``A``, ``b``, ``A.i``, ``left``; ranges are
    expanded."""
    spans: tuple[Span, ...]
    """Ranges of the part in the caption, including the marker."""
    text: str
    """Text of the part without its marker and outer separators."""


@dataclass(frozen=True, slots=True)
class SplitCaption:
    """A split caption; without parts it is not compound."""

    preamble: str
    parts: tuple[CaptionPart, ...]
    """Parts in the order of the caption; a label may have several."""
    trailing: str
    system: str | None
    """Style and alphabet of the labels, as in ``bracket-upper``."""
    confidence: float
    """Probability that labels and texts are right, in [0, 1]; 0 for a caption that stays whole."""

    def labels(self) -> tuple[str, ...]:
        """Return the labels in order, without duplicates."""
        return tuple(dict.fromkeys(label for part in self.parts for label in part.labels))

    def text_of(self, label: str) -> str:
        """Return the text about a panel: preamble, its parts and trailing text."""
        own = [part.text for part in self.parts if label in part.labels]
        return " ".join(text for text in (self.preamble, *own, self.trailing) if text)


def split_caption(
    caption: str,
    *,
    bold: Sequence[Span] = (),
    italic: Sequence[Span] = (),
    cited: Collection[str] = (),
    seen: Collection[str] = (),
) -> SplitCaption:
    """Split the caption of a compound figure into the text about each panel.

    Args:
        caption: Caption as published, with or without its figure label.
        bold: Bold ranges: the best cue for labels without brackets.
        italic: Italic ranges: a letter in them, if not bold, is a symbol.
        cited: Labels in sentences of the article that cite the figure; a hint.
        seen: Labels read in the image; a hint.
    """
    if len(caption) > LONGEST:
        return SplitCaption(caption.strip(), (), "", None, 0.0)
    candidates = markers(caption, bold, italic)
    system = choose(caption, candidates, cited, seen)
    if system is None:
        corners = tuple(ordered(caption))
        if corners:
            system = System("word", "ordered", corners, score=3.0)
    if system is None:
        return SplitCaption(caption.strip(), (), "", None, 0.0)
    found, certainty = segments(caption, system)
    if system.kind == "upper":
        found = with_children(found, candidates)
    return _assembled(caption, system, found, certainty)


def _assembled(
    caption: str, system: System, found: Sequence[Segment], certainty: float
) -> SplitCaption:
    every = tuple(dict.fromkeys(name for marker in system.markers for name in marker.names()))
    first = next((at for at, s in enumerate(found) if s.labels is not None), len(found))
    last = next((at for at in range(len(found), first, -1) if found[at - 1].labels is not None), 0)
    if not last:
        return SplitCaption(caption.strip(), (), "", None, 0.0)
    parts = [_part(caption, segment, every) for segment in found[first:last]]
    if _is_key(caption[: found[first].start], parts, system):
        return SplitCaption(caption.strip(), (), "", None, 0.0)
    ranges = [(part.labels, part.spans[0]) for part in parts]
    trailing = caption[found[last - 1].end :].strip().lstrip(") ,;").lstrip()
    features = qualities(caption, system.markers, ranges, trailing, certainty)
    return SplitCaption(
        # "Leaves (a fresh, b dry).": the bracket is around the parts.
        preamble=caption[: found[first].start].strip().rstrip(" \n([（"),
        parts=tuple(parts),
        trailing=trailing,
        system=system.name(),
        confidence=round(confidence(features), 3),
    )


def _is_key(before: str, parts: Sequence[CaptionPart], system: System) -> bool:
    """Return whether letters are a key, ``A, aorta; B, bladder``, or steps of a synthesis."""
    if _REAGENTS.search(before):
        return True
    return (
        len(parts) >= _FEWEST_INITIALS
        and not system.name().startswith("bracket")
        and all(part.text[:1].upper() == part.labels[0].upper() for part in parts)
    )


def _part(caption: str, segment: Segment, every: tuple[str, ...]) -> CaptionPart:
    pieces = []
    at = segment.start
    for cut in segment.cuts:
        pieces.append(caption[at : cut.start])
        if cut.tail_start < cut.end:
            pieces.append(caption[cut.tail_start : cut.end - 1])
        at = cut.end
    pieces.append(caption[at : segment.end])
    text = " ".join(filter(None, map(_trimmed, pieces)))
    return CaptionPart(segment.labels or every, (Span(segment.start, segment.end),), _trimmed(text))


def _trimmed(text: str) -> str:
    """Return a text without the separators that join it to its neighbours."""
    # Each round removes a separator, a bracket or a word: three are common, more are adversarial
    # text.
    for _ in range(8):
        shorter = text.lstrip(_SEPARATORS + ".").rstrip(" \n\t\xa0,;:")
        if shorter[:1] == "-" and shorter[1:2].isalpha():
            shorter = shorter[1:]
        for opening, closing in ("()", "[]", "（）"):
            if shorter.startswith(closing):
                shorter = shorter[1:]
            if shorter.endswith(opening) or (
                shorter.endswith(closing) and shorter.count(closing) > shorter.count(opening)
            ):
                shorter = shorter[:-1]
            elif shorter.endswith(f"{closing}.") and not _opens(shorter[:-2], opening, closing):
                shorter = f"{shorter[:-2]}."
        for word in _WORDS_BEFORE:
            shorter = shorter.removeprefix(f"{word} ")
        for word in _WORDS_BEHIND:
            shorter = shorter.removesuffix(f" {word}")
            shorter = "" if shorter == word else shorter
        if shorter == text:
            break
        text = shorter
    return text


def _opens(text: str, opening: str, closing: str) -> bool:
    """Return whether a bracket is open at the end of a text."""
    depth = 0
    for character in reversed(text):
        depth += (character == closing) - (character == opening)
        if depth < 0:
            return True
    return False
