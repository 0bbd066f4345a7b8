"""Probabilities that a marker is a panel label, and that a caption is split correctly.

Two logistic models over features written by hand. ``benchmarks/train_captions.py`` fits their
weights, which are in ``evidence.json``.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files

from biovl.articles.subcaptions.labels import DASH
from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.sentences import sentences
from biovl.articles.subcaptions.words import COMPARING, POST_BEHIND, PREDICATE
from biovl.core.records import Span

WEIGHTS: dict[str, dict[str, float]] = json.loads(
    files("biovl.articles.subcaptions").joinpath("evidence.json").read_text()
)

_NEXT = 2.7
"""Log-odds of a letter that continues the alphabet: one in fifteen other letters would."""

_HEADLESS = 4.0
"""Log-odds against a caption in which only the first label is missing."""

_WORD_BEFORE = re.compile(r"([^\W\d_][\w'’-]*)[\s(]*\Z")
_WORD_BEHIND = re.compile(r"\s([^\W\d_][\w'’-]+)")
_NAMED = re.compile(
    r"(?:group|type|factor|vitamins?|hepatitis|class|strain|site|stage|grade|phase|"
    r"case|curve|line|lane|model|region|zone|step|sample|compound|point|"
    r"protein|residue|subunit|chain|genome|mutation)\Z",
    re.IGNORECASE,
)
_FOREIGN = re.compile(r"\(([A-Za-z]{1,4})\)")
_END = re.compile(r"[.!?]\s|\n|\Z")
_MENTION = re.compile(
    r"(?:\b(?:[Ii]n|[Oo]f|[Ff]rom|[Pp]anels?|[Ss]ee|[Ff]or)\s(?!a\s)\(?|\()(?:[A-Za-z]|[ivx]{1,4})['′\d]?"
    rf"(?:\s?[{DASH},&]\s?(?:and\s)?[A-Za-z]['′\d]?){{0,6}}[)\s,.;:]"
)
"""A reference to panels, ``in (A)``, or a letter that looks like one."""


class Group:
    """Shared properties of the markers of one alphabet."""

    def __init__(self, markers: Sequence[Marker]) -> None:
        self.starts = {marker.start for marker in markers}
        self.openings = sum(marker.opens for marker in markers)


def features(caption: str, marker: Marker, group: Group, expected: int) -> list[str]:
    """Return the names of the binary features that are true of a candidate label.

    Args:
        caption: The whole caption.
        marker: The candidate.
        group: The candidates of the same alphabet.
        expected: Position in the alphabet of the next expected label.
    """
    before = caption[max(0, marker.start - 40) : marker.start]
    behind = caption[marker.end : marker.end + 40]
    word = _WORD_BEFORE.search(before)
    is_single = len(marker.labels) == 1
    found: list[str] = [marker.family]
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
    after = _WORD_BEHIND.match(behind)
    if after and is_single and after[1][0].casefold() == marker.labels[0].name[0].casefold():
        found.append("initial of the word behind")
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
    if is_single and marker.labels[0].index > expected:
        found.append("skips a letter")
    others = group.openings - marker.opens
    if not marker.opens and 0 < len(group.starts) - 1 <= 2 * others:
        found.append("others open a clause")
    if marker.opens and not others and len(group.starts) > 1:
        found.append("others are within a clause")
    if not marker.opens and _is_among_foreign(caption, marker, group):
        found.append("foreign letters in the sentence")
    return found


def _is_among_foreign(caption: str, marker: Marker, group: Group) -> bool:
    """Return whether a marker's sentence has bracketed letters that are no markers of its group."""
    start = max(
        caption.rfind(". ", max(0, marker.start - 200), marker.start), marker.start - 200, 0
    )
    end = _END.search(caption, marker.end, marker.end + 200)
    stop = end.start() if end else marker.end + 200
    found = _FOREIGN.finditer(caption, start, stop)
    return any(match.start() not in group.starts for match in found)


def log_odds(found: Sequence[str]) -> float:
    """Return the log-odds that a marker with some features is a label."""
    weights = WEIGHTS["label"]
    return weights["bias"] + sum(weights.get(name, 0.0) for name in found)


def likely(caption: str, markers: Sequence[Marker], hints: Collection[str]) -> list[Marker]:
    """Return the markers that are probably panel labels; empty if the caption probably has none.

    The labels are the prefix of the alphabet with the highest total log-odds; markers of later
    letters are dropped. ``hints`` are labels that the figure has.
    """
    group = Group(markers)
    odds: dict[int, float] = {}
    weights: list[float] = []
    early: list[bool] = []
    present = sorted({label.index for marker in markers for label in marker.labels})
    expected = present[0]
    folded = {hint.casefold() for hint in hints}
    for marker in markers:
        found = features(caption, marker, group, expected)
        indices = [label.index for label in marker.labels]
        weight = log_odds(found) + _NEXT * (indices[0] == expected)
        weight += 4.0 * (marker.labels[0].name.casefold() in folded)
        weights.append(weight)
        early.append(indices[0] > expected)
        if indices[0] <= expected <= max(indices):
            expected = next((index for index in present if index > max(indices)), 99)
        for index in indices:
            odds[index] = max(odds.get(index, weight), weight)
    totals = list(itertools.accumulate(odds[index] for index in present))
    best = max(range(len(totals)), key=totals.__getitem__)
    kept = [
        marker
        for marker, weight, is_early in zip(markers, weights, early, strict=True)
        if all(label.index <= present[best] for label in marker.labels)
        and not (is_early and weight < 0 and all(odds[label.index] > 0 for label in marker.labels))
    ]
    first = {name.casefold() for marker in kept[:1] for name in marker.names()}
    if not kept or (best == 0 < len(present) - 1 and not folded & first):
        return []
    penalty = _HEADLESS if present[0] != 1 and not folded & first else 0.0
    if totals[best] <= penalty:
        return []
    return kept


def qualities(
    caption: str,
    markers: Sequence[Marker],
    parts: Sequence[tuple[tuple[str, ...], Span]],
    trailing: str,
    certainty: float,
) -> dict[str, float]:
    """Return the features of a split caption.

    Args:
        caption: The text.
        markers: The markers of its labels.
        parts: Labels and range of each part, in order; what precedes the first is the preamble.
        trailing: The text behind all parts.
        certainty: Lowest probability of a boundary between shared words and items of a list.
    """
    texts = [caption[span.start : span.end] for _, span in parts]
    words = [len(text.split()) for text in texts]
    mean = sum(words[:-1]) / max(len(words) - 1, 1)
    parts_of = Counter(label for labels, _ in parts for label in labels)
    markers_of = Counter(name for marker in markers for name in marker.names())
    indices = {label.index for marker in markers for label in marker.labels}
    is_each_once = max(parts_of.values()) == 1
    starts_all = all(marker.starts and len(marker.labels) == 1 for marker in markers)
    preamble = caption[: parts[0][1].start].strip()
    # The first characters of a part are its label.
    mentions = sum(len(_MENTION.findall(text, 4)) for text in texts)
    return {
        "doubtful cut of a list": -math.log(max(certainty, 0.01)),
        "a label has several parts": float(not is_each_once),
        "a label is named three times": float(max(markers_of.values()) > 2),
        "each label starts a sentence": float(is_each_once and starts_all),
        "labels in brackets": float(markers[0].family in ("bracket", "half")),
        "missing letters": float(max(indices) - min(indices) >= len(indices)),
        "mentions in parts": math.log1p(mentions),
        "sentences of a part": min(3.0, sum(len(sentences(t)) - 1 for t in texts) / len(texts)),
        "long last part": float(words[-1] > 3 * mean + 20),
        "spread of lengths": math.log((max(words) + 3) / (min(words) + 3)),
        "length": math.log(max(len(caption), 150) / 500),
        "no preamble": float(not preamble),
        "sentences of the preamble": min(4.0, len(sentences(preamble)) if preamble else 0.0),
        "mention in the preamble": float(_MENTION.search(preamble) is not None),
        "trailing sentences": min(4.0, len(sentences(trailing)) if trailing else 0.0),
    }


def confidence(found: Mapping[str, float]) -> float:
    """Return the probability that a caption is split correctly, given its features."""
    weights = WEIGHTS["split"]
    total = weights["bias"] + sum(weights.get(name, 0.0) * value for name, value in found.items())
    return 1 / (1 + math.exp(-total))
