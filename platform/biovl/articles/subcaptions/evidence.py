"""How likely a marker is a panel label, from the words around it.

A logistic model over features written by hand; ``benchmarks/train_caption_labels.py`` fits its
weights, which are in ``evidence.json``.
"""

import itertools
import json
import re
from collections.abc import Collection, Sequence
from importlib.resources import files

from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.words import COMPARING, POST_BEHIND, PREDICATE

WEIGHTS: dict[str, float] = json.loads(
    files("biovl.articles.subcaptions").joinpath("evidence.json").read_text()
)

_NEXT = 2.7
"""Log-odds of a letter that continues the alphabet: one in fifteen other letters would."""

_WORD_BEFORE = re.compile(r"([^\W\d_][\w'’-]*)[\s(]*\Z")
_NAMED = re.compile(
    r"(?:groups?|types?|factors?|vitamins?|hepatitis|class|strains?|sites?|stages?|grades?|phases?|"
    r"cases?|curves?|lines?|lanes?|models?|regions?|zones?|steps?|samples?|compounds?|points?|"
    r"proteins?|residues?|subunits?|chains?|genomes?|mutations?)\Z",
    re.IGNORECASE,
)
_FOREIGN = re.compile(r"\(([A-Za-z]{1,4})\)")
_END = re.compile(r"[.!?]\s|\n|\Z")


def features(caption: str, marker: Marker, group: Sequence[Marker], reached: int) -> list[str]:
    """Return the features that a marker has.

    Args:
        caption: The text.
        marker: The marker.
        group: All markers of its style and alphabet.
        reached: Position in the alphabet of the last label before it.
    """
    before = caption[max(0, marker.start - 40) : marker.start]
    behind = caption[marker.end : marker.end + 40]
    word = _WORD_BEFORE.search(before)
    is_single = len(marker.labels) == 1
    found = [marker.family]
    if marker.starts:
        found.append("starts a sentence")
    elif marker.opens:
        found.append("opens a clause")
    if marker.bold:
        found.append("bold")
    if not is_single:
        found.append("list")
    if word and is_single and word[1][0].casefold() == marker.labels[0].name[0].casefold():
        found.append("initial of the word before")
    if word and _NAMED.search(word[1]):
        found.append("names a group")
    if COMPARING.search(before):
        found.append("reference")
    if POST_BEHIND.match(behind):
        found.append("clause ends behind")
    elif PREDICATE.match(behind):
        found.append("predicate behind")
    elif behind[1:2].isupper():
        found.append("capital behind")
    if marker.labels[0].index > reached + 1:
        found.append("skips a letter")
    if marker.labels[-1].index <= reached:
        found.append("repeated")
    others = [other for other in group if other is not marker]
    if others and not marker.opens:
        share = sum(other.opens for other in others) / len(others)
        if share >= 0.5:
            found.append("others open a clause")
    if others and marker.opens and not any(other.opens for other in others):
        found.append("others are within a clause")
    if not marker.opens and _is_among_foreign(caption, marker, group):
        found.append("foreign letters in the sentence")
    return found


def _is_among_foreign(caption: str, marker: Marker, group: Sequence[Marker]) -> bool:
    """Return whether the sentence has other letters in brackets, which are no labels."""
    start = max(caption.rfind(". ", max(0, marker.start - 200), marker.start), marker.start - 200, 0)
    end = _END.search(caption, marker.end, marker.end + 200)
    stop = end.start() if end else marker.end + 200
    own = {other.start for other in group}
    return any(
        match.start() not in own and match.start() != marker.start
        for match in _FOREIGN.finditer(caption, start, stop)
    )


def log_odds(found: Sequence[str]) -> float:
    """Return the log-odds that a marker with some features is a label."""
    return WEIGHTS["bias"] + sum(WEIGHTS.get(name, 0.0) for name in found)


def likely(
    caption: str, markers: Sequence[Marker], hints: Collection[str]
) -> tuple[list[Marker], float]:
    """Return the markers whose labels are likely, and the log-odds that they are labels.

    The labels are the beginning of the alphabet that is likeliest; later ones are other letters in
    brackets. ``hints`` are labels that the figure has.
    """
    odds: dict[int, float] = {}
    weights = []
    reached = markers[0].labels[0].index - 1
    folded = {hint.casefold() for hint in hints}
    for marker in markers:
        weight = log_odds(features(caption, marker, markers, reached))
        weight += _NEXT * (marker.labels[0].index == reached + 1)
        weight += 4.0 * (marker.labels[0].name.casefold() in folded)
        weights.append(weight)
        indices = [label.index for label in marker.labels]
        if indices[0] <= reached + 1:
            reached = max(reached, *indices)
        for index in indices:
            odds[index] = max(odds.get(index, weight), weight)
    totals = list(itertools.accumulate(odds[index] for index in sorted(odds)))
    best = max(range(len(totals)), key=totals.__getitem__)
    last = sorted(odds)[best]
    kept = [
        marker
        for marker, weight in zip(markers, weights, strict=True)
        if all(label.index <= last for label in marker.labels)
        and (weight > -1 or any(odds[label.index] - weight < 2 for label in marker.labels))
    ]
    return kept, totals[best]
