"""Addition of labels that a chain lacks: the first, the last, or those in another style."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from biovl.articles.subcaptions.labels import DASH, expand
from biovl.articles.subcaptions.markers import Family, Marker

_OPENS_MEMBER = re.compile(r"(?:[:;,]|\band)\s\Z")
# "C, cortex; X, xylem": a key to letters in the image.
_KEY = re.compile(r"\w\s?[,:=]\s[a-z][^.;:,=]{1,40}(?:\.?\s*\Z|[;,.]\s[A-Za-z]{1,8}\s?[,:=]\s)")
_INITIAL = re.compile(r"\s?\w\.")
_BETWEEN_BRACKETS = re.compile(
    rf"\s?(?:(?P<range>[{DASH}]|to|through)|,\s?(?:and|or)?|and|or|&|/)?\s?"
)


def complete(
    caption: str, family: Family, chain: Sequence[Marker], alike: Sequence[Marker]
) -> tuple[Marker, ...]:
    """Return a chain with missing labels added, and with ``(A) and (B)`` merged.

    Args:
        caption: The text.
        family: The chain's style.
        chain: Markers of one style, by start.
        alike: All markers of the same alphabet, by start.
    """
    whole = _with_first(caption, chain, alike)
    return tuple(_joined(caption, _completed(caption, family, whole, alike)))


def _with_first(
    caption: str, chain: Sequence[Marker], candidates: Sequence[Marker]
) -> Sequence[Marker]:
    """Return a chain with its missing first label, if that is less clearly marked."""
    first = chain[0]
    if first.labels[0].index != 2 or any(m.labels[0].index == 1 for m in chain):
        return chain
    before = [
        marker
        for marker in candidates
        if marker.labels[-1].index == 1
        and marker.end <= first.start
        # An article is not a label.
        and (
            marker.kind != "lower" or caption[marker.end - 1 : marker.end + 1].strip()[-1] in ".):"
        )
    ]
    return [before[-1], *chain] if before else chain


def _completed(
    caption: str, family: Family, chain: Sequence[Marker], others: Sequence[Marker]
) -> list[Marker]:
    """Return a chain and the markers of another style with the missing labels."""
    kept = without_overlaps(chain)
    have = {label.index for marker in kept for label in marker.labels}
    families = {family}
    passed: set[tuple[Family, int]] = set()
    stop = {"colon": ":", "dot": "."}.get(family)
    for other in others:
        if other.family == "loose" and not _may_follow(caption, family, other, stop):
            continue
        if _touches(kept, other):
            continue
        own = {label.index for label in other.labels}
        # "b Spectra of (a) water, (b) oil, (c) wax": a list of its own.
        if (other.family, min(own) - 1) in passed and not other.starts:
            passed.add((other.family, max(own)))
            continue
        before = [m for m in kept if m.start < other.start]
        if own <= have:
            # "C–E. Views from the left (C), …": labels inside the part that lists them;
            # "(f–h) Buds. f Early bud": a heading.
            is_inside = (
                family not in ("bracket", "inner")
                and other.family in ("bracket", "inner")
                and before
                and own < {label.index for label in _last_of(before, family).labels}
            )
            is_heading = before and other.starts and len(own) > 1 and other.family == "bracket"
            if is_inside or is_heading:
                kept = sorted([*kept, other], key=lambda marker: marker.start)
            else:
                passed.add((other.family, max(own)))
            continue
        if own & have or not (other.opens or before):
            continue
        after = [m for m in kept if m.start > other.start]
        low = max((x.index for m in before for x in m.labels), default=0)
        higher = [x.index for m in after for x in m.labels if x.index > low]
        high = min(higher, default=max(own) + 1)
        # "control (C) plants" is no third panel, "(E) … (F) … G)" are.
        follows = {label.index for m in others for label in m.labels if m.start > other.start}
        is_followed = max(own) + 1 in follows
        is_new = other.family not in families and before
        if is_new and _is_of_key(caption, family, other, is_followed=is_followed):
            continue
        is_sure = other.opens or other.family in families or is_followed
        if low < min(own) <= low + 1 and max(own) <= high and is_sure:
            kept = sorted([*kept, other], key=lambda marker: marker.start)
            have |= own
            families.add(other.family)
    if family in ("bracket", "inner"):
        return kept
    return sorted([*kept, *_members(caption, kept, others)], key=lambda marker: marker.start)


def _is_of_key(caption: str, family: Family, other: Marker, *, is_followed: bool) -> bool:
    """Return whether a letter is an abbreviation or an initial, not a label in another style."""
    if _KEY.match(caption, other.start):
        return True
    if family not in ("bracket", "half") or other.family not in ("dot", "colon", "comma", "bare"):
        return False
    indices = [label.index for label in other.labels]
    is_run = indices == list(range(indices[0], indices[0] + len(indices)))
    # "T: Treated, C: Control", "Author: C. Guijarro", "Ci, intercellular CO2", "s. e. m."
    return (
        not is_run
        or (other.kind in ("upper", "lower") and max(len(name) for name in other.names()) > 1)
        or (not is_followed and caption[: other.start].rstrip()[-1:] in (",", ":"))
        or (not is_followed and _INITIAL.match(caption, other.end) is not None)
    )


def _members(caption: str, chain: Sequence[Marker], others: Sequence[Marker]) -> Iterator[Marker]:
    """Yield letters without brackets that name all members of a list: ``a, b MRI: a T1, b T2``."""
    letters = [m for m in others if m.family == "loose" and len(m.labels) == 1]
    for at, listed in enumerate(chain):
        count = len(listed.labels)
        if count < 2:
            continue
        end = chain[at + 1].start if at + 1 < len(chain) else len(caption)
        inside = [
            letter
            for letter in letters
            if listed.end < letter.start < end
            and _OPENS_MEMBER.search(caption, max(listed.end, letter.start - 5), letter.start)
        ]
        if [m.labels[0] for m in inside[:count]] == list(listed.labels):
            yield from inside[:count]
            # "…, c ovoid; d oogonium": those that follow the list.
            last = listed.labels[-1].index
            for number, other in enumerate(inside[count:], last + 1):
                if other.labels[0].index != number:
                    break
                yield other


def _may_follow(caption: str, family: Family, loose: Marker, stop: str | None) -> bool:
    """Return whether a letter without any mark can continue a chain, if it is the next label."""
    if caption[loose.end : loose.end + 1] == stop:
        return True
    before = caption[max(0, loose.start - 5) : loose.start].rstrip()
    is_apart = before.endswith((",", ";", "and", "or"))
    is_small = loose.kind == "lower" and loose.labels[0].index > 1
    return family == "bare" and (is_small or is_apart)


def _last_of(markers: Sequence[Marker], family: Family) -> Marker:
    return next((m for m in reversed(markers) if m.family == family), markers[-1])


def without_overlaps(markers: Sequence[Marker]) -> list[Marker]:
    """Return markers without those that overlap an earlier one."""
    kept: list[Marker] = []
    for marker in markers:
        if not kept or marker.start >= kept[-1].end:
            kept.append(marker)
    return kept


def _touches(kept: Sequence[Marker], other: Marker) -> bool:
    return any(m.start < other.end and other.start < m.end for m in kept)


def _is_symbol(caption: str, bracket: Marker, next_one: Marker) -> bool:
    """Return whether a letter is a symbol in front of a label: ``CO2 concentration (Ci) (E, F)``.

    Labels each in a bracket of its own, ``(A) (C) (E)``, are in the order of the alphabet.
    """
    if caption[next_one.end + 1 : next_one.end + 2].isupper():  # "rye (B) (C, D) Mass of both."
        return False
    (first, *others), behind = bracket.labels, next_one.labels
    return not others and (len(behind) > 1 or behind[0].index < first.index)


def with_ranges(caption: str, candidates: Sequence[Marker]) -> list[Marker]:
    """Return candidates, with each ``(A) through (D)`` or ``(a)(c)(d)`` merged into one marker."""
    groups: dict[tuple[Family, str], list[Marker]] = {}
    for marker in candidates:
        groups.setdefault((marker.family, marker.kind), []).append(marker)
    joined = [m for group in groups.values() for m in _joined(caption, group, only_lists=True)]
    return sorted(joined, key=lambda marker: (marker.start, -marker.end))


def _joined(caption: str, markers: Sequence[Marker], *, only_lists: bool = False) -> list[Marker]:
    """Return the markers with ``(A) and (B)`` merged, and ``(C)–(E)`` expanded.

    With ``only_lists``, only ranges and brackets without words between them are merged.
    """
    joined: list[Marker] = []
    count = Counter(name for marker in markers for name in marker.names())
    for marker in markers:
        if joined and marker.family == joined[-1].family and marker.family in ("bracket", "half"):
            last = joined[-1]
            match = _BETWEEN_BRACKETS.fullmatch(caption, last.end, marker.start)
            is_range = match is not None and match["range"]
            if match is not None and match[0] == " " and _is_symbol(caption, last, marker):
                joined[-1] = marker
                continue
            if (
                match is not None
                and last.tail_start == last.end
                and (is_range or not only_lists or not match[0].strip())
                and (not is_range or marker.labels[0].index > last.labels[-1].index)
            ):
                text = f"{last.labels[-1].name}-{marker.labels[0].name}" if match["range"] else ""
                between = expand(text, marker.kind)[1:-1] if text else ()
                # "RMSDs in (B) to (D)" where both stand elsewhere and there is no (C).
                if all(count[label.name] > 1 for label in (last.labels[-1], marker.labels[0])):
                    between = tuple(label for label in between if count[label.name])
                labels = dict.fromkeys((*last.labels, *between, *marker.labels))
                joined[-1] = replace(
                    last, end=marker.end, tail_start=marker.tail_start, labels=tuple(labels)
                )
                continue
        joined.append(marker)
    return joined
