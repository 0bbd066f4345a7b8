"""Selection of a caption's panel labels among the candidate markers.

A caption's labels follow one alphabet from the first letter, mostly in one style. This excludes
``(g)`` after a quantity, ``As(V)`` or ``E. coli`` without a list of exceptions.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from biovl.articles.subcaptions.completion import complete, with_ranges, without_overlaps
from biovl.articles.subcaptions.evidence import likely
from biovl.articles.subcaptions.labels import ALPHABETS
from biovl.articles.subcaptions.markers import Family, Marker
from biovl.articles.subcaptions.sentences import sentences
from biovl.articles.subcaptions.words import REFERRING

_WEIGHT: dict[Family, float] = {
    "bracket": 1.0,
    "half": 1.0,
    "panel": 1.0,
    "dot": 0.9,
    "colon": 0.9,
    "comma": 0.85,
    "bare": 0.9,
    "inner": 0.5,
    "loose": 0.6,
    "word": 1.0,
}
_CLEAR: tuple[Family, ...] = ("bracket", "half", "panel")
# Numerals mark steps and conditions more often than panels.
_DOUBTFUL_KINDS = frozenset({"digit", "roman", "Roman", "greek"})
_LEAST = 1.5
_BARS = re.compile(r"(?:scale\s?-?\s?)?bars?\s?[:=]", re.IGNORECASE)
_POINT = re.compile(r"\.\s[A-ZΑ-Ω]")
_OPPOSITE = (("left", "right"), ("top", "bottom"), ("upper", "lower"))


@dataclass(frozen=True, slots=True)
class System:
    """The labels of a caption, which share a style and an alphabet."""

    family: Family
    kind: str
    markers: tuple[Marker, ...]
    """Markers in the order of their start, without overlaps."""
    score: float

    def name(self) -> str:
        """Return style and alphabet, as in ``bracket-upper``."""
        return f"{self.family}-{self.kind}"


def choose(
    caption: str, candidates: Sequence[Marker], cited: Collection[str], seen: Collection[str]
) -> System | None:
    """Return the most plausible set of panel labels of a caption, or None if it has none.

    Args:
        caption: The caption.
        candidates: Text that may be a label.
        cited: Labels in sentences of the article that cite the figure.
        seen: Labels that were read in the image.
    """
    hints = frozenset(cited) | frozenset(seen)
    for system in proposed(caption, candidates, hints):
        if system.family == "word":
            return system
        kept = likely(caption, system.markers, hints)
        if kept and (_is_of_bars(caption, kept[0]) or _is_mention(caption, kept)):
            continue
        if kept and (len(kept) > 1 or hints or _may_stand_alone(kept[0])):
            return replace(system, markers=tuple(kept))
    return None


def _is_of_bars(caption: str, first: Marker) -> bool:
    """Return whether labels first occur in a scale: ``Bars: a = 2 cm; b–d = 10 µm``."""
    spans = sentences(caption, {first.start})
    start = max(span.start for span in spans if span.start <= first.start)
    return _BARS.match(caption, start) is not None and start < first.start


def _is_mention(caption: str, kept: Sequence[Marker]) -> bool:
    """Return whether the only label is a reference, as in ``The line in (b) is the path``."""
    (first, *others) = kept
    before = caption[max(0, first.start - 12) : first.start]
    is_alone = not others and len(first.labels) == 1 and not first.opens
    return is_alone and REFERRING.search(before) is not None


def _may_stand_alone(marker: Marker) -> bool:
    """Return whether one list can name all panels: not ``ten blocks (A2, B1, C1)``."""
    return marker.family != "inner" and (marker.opens or all(len(n) == 1 for n in marker.names()))


def proposed(
    caption: str, candidates: Sequence[Marker], hints: Collection[str]
) -> Iterator[System]:
    """Yield the best system of each degree of reliability, the most reliable first."""
    candidates = with_ranges(caption, candidates)
    for systems in _systems(caption, candidates, hints):
        best = max(systems, key=lambda system: system.score)
        if best.family == "word":
            yield best
            continue
        best = _around(best, systems)
        alike = [marker for marker in candidates if marker.kind == best.kind]
        # "BamHI [B] fragments", where panels are in round brackets: no label; "([B]; n = 3)" is.
        if caption[best.markers[0].start] == "(":
            kept = [m for m in best.markers if not _is_square(caption, m)]
            best = replace(best, markers=tuple(kept))
            alike = [marker for marker in alike if not _is_square(caption, marker)]
        alike = sorted([*alike, *_in_other_case(candidates, best.kind)], key=lambda m: m.start)
        yield replace(best, markers=complete(caption, best.family, best.markers, alike))


def _systems(
    caption: str, candidates: Sequence[Marker], hints: Collection[str]
) -> Iterator[list[System]]:
    """Yield the candidate systems by degree of reliability."""
    groups: dict[tuple[Family, str], list[Marker]] = {}
    mixed: dict[str, list[Marker]] = {}
    for marker in candidates:
        groups.setdefault((marker.family, marker.kind), []).append(marker)
        if marker.family not in ("loose", "inner", "word"):
            mixed.setdefault(marker.kind, []).append(marker)
    # Letters in one style; in mixed styles; numerals; letters without any mark; sides.
    attempts: list[list[tuple[Family, str, list[Marker]]]] = [[], [], [], [], []]
    for (family, kind), group in groups.items():
        if family == "word":
            attempts[4].append((family, kind, group))
        elif family == "loose":
            attempts[0 if _alphabet(kind, hints) else 3].append((family, kind, group))
        elif family == "inner":
            attempts[3].append((family, kind, group))
        else:
            is_doubtful = kind in _DOUBTFUL_KINDS and not _alphabet(kind, hints)
            attempts[2 if is_doubtful else 0].append((family, kind, group))
    attempts[1] = [
        ("bracket", k, without_overlaps(g)) for k, g in mixed.items() if k not in _DOUBTFUL_KINDS
    ]
    for attempt in attempts:
        systems = []
        for family, kind, group in attempt:
            if family == "word":
                chain = _sides_of(group)
            elif family == "loose":
                chain = _loose_chain(caption, group)
            else:
                chain = _chain(group, kind, hints)
            if kind in _DOUBTFUL_KINDS and not _is_certain(chain, hints):
                continue
            if chain:
                systems.append(_scored(family, kind, chain, hints, len(caption)))
        if any(system.score >= _LEAST for system in systems):
            yield systems


def _is_square(caption: str, marker: Marker) -> bool:
    return caption[marker.start] == "[" and caption[marker.start - 1 : marker.start] != "("


def _in_other_case(candidates: Sequence[Marker], kind: str) -> list[Marker]:
    """Return later letters that are printed in the other case: ``(A, B) … (c) …``."""
    other = {"upper": "lower", "lower": "upper"}.get(kind)
    found = [
        marker
        for marker in candidates
        if marker.kind == other and marker.starts and marker.family in ("bracket", "half")
    ]
    is_nested = any(marker.labels[0].index == 1 for marker in found)
    return [] if is_nested else found


def _alphabet(kind: str, hints: Collection[str]) -> set[int]:
    """Return the positions in an alphabet that hints name."""
    return {ALPHABETS[kind].index(hint) + 1 for hint in hints if hint in ALPHABETS[kind]}


def _is_certain(chain: Sequence[Marker], hints: Collection[str]) -> bool:
    """Return whether numerals are labels: they occur in the figure, or each starts a sentence."""
    if not chain:
        return False
    if set(chain[0].names()) & set(hints):
        return True
    if all(marker.family == "panel" for marker in chain):
        return True
    openings = chain if chain[0].kind == "digit" else chain[:2]
    is_marked = all(m.bold or m.family in _CLEAR or m.kind == "greek" for m in chain)
    return is_marked and len(chain) > 1 and all(marker.starts for marker in openings)


def _around(best: System, systems: Sequence[System]) -> System:
    """Return the enclosing system if the best one only enumerates inside its parts.

    ``A, … (a) … (b) … B, … (a)`` restarts in every part; ``a … b … c for (a) …, (b) …, (c) …``
    is inside one.
    """
    first = best.markers[0].labels[0].index
    restarts = [m.start for m in best.markers if m.labels[0].index == first]
    for other in systems:
        starts = [marker.start for marker in other.markers if marker.opens]
        if other is best or other.score < _LEAST or len(starts) < 2:
            continue
        if len(restarts) > 1 and other.kind != best.kind:
            edges = [-1, *restarts]
            if all(
                any(low < start < high for start in starts)
                for low, high in itertools.pairwise(edges)
            ):
                return other
        # "(A) … (a), (b). (B) … (a), (c) … (a)": capitals that open every sentence they stand in.
        is_outer = other.kind == "upper" and all(m.starts for m in other.markers)
        is_inner = best.kind == "lower" and not any(m.starts for m in best.markers)
        if is_outer and is_inner and starts[0] < best.markers[0].start:
            return other
        part = bisect_right(starts, best.markers[0].start)
        if part and part == bisect_right(starts, best.markers[-1].start):
            return other
    return best


def _chain(group: Sequence[Marker], kind: str, hints: Collection[str]) -> list[Marker]:
    """Return the markers that form a run of labels from the alphabet's start."""
    opening = [marker for marker in group if marker.starts]
    indices = [label.index for marker in opening for label in marker.labels]
    # "(A) … (E) … (H) …": some panels; no other letters start sentence after sentence.
    if len(opening) > 2 and indices == sorted(set(indices)) and opening[0].family in _CLEAR:
        named = [m for m in group if {label.index for label in m.labels} <= set(indices)]
        has_gap = any(b > a + 2 for a, b in itertools.pairwise(indices))
        is_later = all(marker.labels[0].index > 1 for marker in group)
        if is_later or (has_gap and len(named) == len(group)):
            return named
    places: dict[int, int] = {}
    for marker in group:
        for label in marker.labels:
            places.setdefault(label.index, marker.start)
    first = 1
    if 1 not in places:
        # "(B) … (C) …": a label the author forgot, if it is the only one.
        if not (2 in places and 3 in places) and not _alphabet(kind, hints) & places.keys():
            return []
        first = min(places)
    last, missing = first, 0
    while last + 1 in places or (
        places.get(last + 2, -1) >= places[last] and missing < 1 + last // 4
    ):
        missing += last + 1 not in places
        last += 1 if last + 1 in places else 2
    kept = [marker for marker in group if all(label.index <= last for label in marker.labels)]
    if kind not in _DOUBTFUL_KINDS:
        plain = {x.index for marker in kept for x in marker.labels if len(x.name) == 1}
        # "C1", a tooth, where there is a plain (C).
        kept = [
            marker
            for marker in kept
            if not all(x.name[1:].isdigit() and x.index in plain for x in marker.labels)
        ]
    ordered: list[Marker] = []
    reached = first - 1
    last_start = {label.index: marker.start for marker in kept for label in marker.labels}
    for marker in kept:
        own = {label.index for label in marker.labels}
        # A symbol that happens to be a label: "slope (b) … from (a, b) small … (c)".
        is_repeated = all(last_start[index] > marker.start for index in own)
        if min(own) > reached + 1 and is_repeated:
            continue
        ordered.append(marker)
        reached = max(reached, *own)
    # "A, B and D indicate its subgenomes."
    return [] if missing and len(ordered) == 1 else ordered


def _loose_chain(caption: str, group: Sequence[Marker]) -> list[Marker]:
    """Return consecutive letters without any mark: ``A femur B tibia C skull``."""
    chain: list[Marker] = []
    has_points = False
    for marker in group:
        index = marker.labels[0].index
        may_start = marker.kind != "lower" or marker.opens or caption[marker.start - 1] == "("
        # "Localization in mutant cells a. Immunostaining …": a title without its point.
        has_point = not may_start and _POINT.match(caption, marker.end) is not None
        if index == 1 and len(chain) < 2 and (may_start or has_point):
            if not (chain and chain[0].starts and not marker.starts):
                chain, has_points = [marker], has_point
        elif (
            chain and index == chain[-1].labels[-1].index + 1 and (marker.starts or not has_points)
        ):
            chain.append(marker)
    # The word before each label; none where only spaces are.
    before = {words[-1] for m in chain if (words := caption[: m.start].rsplit(None, 1))}
    is_sure = chain and chain[0].kind == "lower" and (chain[0].starts or has_points)
    least = 2 if is_sure else 3
    if len(chain) < least or len(before) == 1 < len(chain) - chain[0].starts:
        return []
    return chain


def _sides_of(group: Sequence[Marker]) -> list[Marker]:
    """Return the position words if they are complementary."""
    words = {word for marker in group for name in marker.names() for word in name.split()}
    return list(group) if any(a in words and b in words for a, b in _OPPOSITE) else []


def _scored(
    family: Family, kind: str, chain: list[Marker], hints: Collection[str], length: int
) -> System:
    names = {name for marker in chain for name in marker.names()}
    folded = {name.casefold() for name in names}
    agreed = sum(hint.casefold() in folded for hint in hints) / len(hints) if hints else 0.0
    opening = sum(marker.opens for marker in chain) / len(chain)
    bold = sum(marker.bold for marker in chain) / len(chain)
    score = len(names) * _WEIGHT[family] * (1 + 0.3 * opening + 0.3 * bold)
    # A second pass over the labels ("A, C: ×100.") stands behind the first.
    score *= 1 - 0.25 * chain[0].start / max(length, 1)
    # "(a, b). Scans of a patient. a At first. b Later": one bracket names all, but splits nothing.
    score *= 1.0 if len(chain) > 1 else 0.75
    score += 2 * agreed
    if len(names) == 1 and not agreed:
        score = 0.0
    return System(family, kind, tuple(chain), score)
