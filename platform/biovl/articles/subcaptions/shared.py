"""Words shared by all items of a list of panels: those before its first item or after its last.

In "Sections of liver (A) and lung (B)", ``Sections of`` applies to both items. In "(A) Mass and
(B) height of mice", ``of mice`` does. The cut between shared and own words can be at any word
boundary. A conditional logit chooses the one that makes the items most alike;
``benchmarks/train_captions.py`` fits its weights, which are in ``evidence.json``, to annotated
lists of real captions.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from biovl.articles.subcaptions.evidence import WEIGHTS
from biovl.articles.subcaptions.words import ANY_VERB, JOINT_BEFORE, VIEW

Features = Mapping[str, float]


class Cut(NamedTuple):
    """A boundary between words that all items of a list share and the words of one item."""

    at: int
    """In characters of the text."""
    chance: float
    """Its probability among all places of the text."""


_MOST_WORDS = 60
"""Places that are compared: no item of an annotated list has more words."""
_MOST_CHARS = 800
"""Characters that are read of an item, and of what is shared: time is linear in the caption's."""
_MOST_ALIGNED = 14

_WORD = re.compile(r"\S+")
_JOINT_END = re.compile(r"(?:[,;]?\s(?:and|or|&)|[,;])?\s*\Z")
_PREPOSITIONS = frozenset(
    "of in on at for from with without by under during after before between to using through "
    "against among into via within across along over showing per versus as than".split()
)
_VERBS = frozenset(
    "is are was were has have had shows show showed showing indicates indicate represents "
    "represent reveals depicts".split()
)
# Words that end no item: "number of cells", "genes that are expressed".
_INCOMPLETE = _PREPOSITIONS | frozenset(
    "and or number numbers percentage percentages proportion proportions fraction fractions list "
    "lists sequence sequences characteristics that which who where they".split()
)
_RELATIVE = frozenset(("that", "which", "who", "where", "whose"))
_ARTICLES = frozenset(("the", "a", "an"))
_NUMBER = re.compile(r"[<>≤≥~±−+-]?[\d.,×%/°–-]+\w{0,3}")
_ADJECTIVE = re.compile(r"(?:al|ic|ous|ive|ar|ary|ent|ant|less|ful|ile|ble)\Z")
_AROUND = "(),;:[]“”\"'"


def end_of_head(text: str, others: Sequence[str]) -> Cut:
    """Return where the words of the first item begin: what precedes is shared.

    Args:
        text: From the start of the sentence to the label behind the first item.
        others: The texts between the labels behind it, each an item and its conjunction.
    """
    cut = _best(heads(text, others), WEIGHTS["head"], 0)
    return cut if _words(text[: cut.at].strip(_AROUND + " \n")) else cut._replace(at=0)


def start_of_tail(text: str, others: Sequence[str]) -> Cut:
    """Return where the last item of a list of panels ends: the words after it apply to all items.

    In "(A) Mass and (B) height of mice" the last item is ``height``, and ``of mice`` is shared.

    Args:
        text: From the label in front of the last item to the end of the sentence.
        others: The texts between the labels before it, each an item and its conjunction.
    """
    return _best(tails(text, others), WEIGHTS["tail"], len(text))


def heads(text: str, others: Sequence[str]) -> list[tuple[int, Features]]:
    """Return the places where the first item may begin, and the features of each."""
    other = others[0][:_MOST_CHARS]
    second = _words(_plain(other))
    if not second:
        return []
    starts = [match.start() for match in _outside(text)]
    starts = starts[:1] + starts[1:][-_MOST_WORDS:]
    # "Photograph of the lesion (A), dermoscopy (B)": each is an image of its own kind.
    views = VIEW.finditer(text) if VIEW.search(other) else ()
    last_view = max((match.start() for match in views), default=-1)
    return [
        (
            start,
            _head(
                text[max(0, start - _MOST_CHARS) : start],
                text[start : start + _MOST_CHARS],
                second,
                other,
                len(others),
            ),
        )
        for start in starts
        if _words(text[start:].strip(" ,;:")) and not 0 <= last_view < start
    ]


def tails(text: str, others: Sequence[str]) -> list[tuple[int, Features]]:
    """Return candidate positions for the end of the last item, with features to score each.

    Args:
        text: See ``start_of_tail``.
        others: See ``start_of_tail``.
    """
    others = [other[-_MOST_CHARS:] for other in others]
    items = [_words(_JOINT_END.sub("", other).strip(" ,;:.")) for other in others]
    if not all(items):
        return []
    starts = [
        match.start()
        for before, match in itertools.pairwise(_outside(text)[: _MOST_WORDS + 1])
        if not _needs_more(before[0]) and _core(match[0]) not in _RELATIVE
    ]
    return [
        (at, _tail(text[:at][-_MOST_CHARS:], text[at : at + _MOST_CHARS], items, others))
        for at in (*starts, len(text))
    ]


def chances(cuts: Sequence[tuple[int, Features]], weights: Mapping[str, float]) -> list[float]:
    """Return the probability of each cut."""
    totals = [
        sum(weights.get(name, 0.0) * value for name, value in found.items()) for _, found in cuts
    ]
    highest = max(totals, default=0.0)
    odds = [math.exp(total - highest) for total in totals]
    return [odd / sum(odds) for odd in odds]


def _best(cuts: Sequence[tuple[int, Features]], weights: Mapping[str, float], default: int) -> Cut:
    likely = zip(chances(cuts, weights), (at for at, _ in cuts), strict=True)
    chance, at = max(likely, key=lambda found: found[0], default=(1.0, default))
    return Cut(at, chance)


def _head(head: str, item: str, second: list[str], raw: str, count: int) -> dict[str, float]:
    before = _words(head)
    words = _words(item.strip(" ,;:"))
    is_start = not _words(head.strip(_AROUND + " \n"))
    ours, theirs = (_kind(words[0].lower() if is_start else words[0]), _kind(second[0]))
    first, other = _core(words[0]), _core(second[0])
    found = {
        f"behind {'nothing' if is_start else _last_kind(before)}": 1.0,
        f"{ours} and {theirs}": 1.0,
        "same first word": float(first == other),
        "first words rhyme": float(min(len(first), len(other)) > 3 and first[-3:] == other[-3:]),
        "nothing shared": float(is_start),
        "nothing shared by three": float(is_start and count > 1),
        "words of the head": 0.0 if is_start else math.log1p(len(before)),
        "head repeated": float(min(2, len(_long(before) & _long(second)))),
        "words in common": float(min(2, len(_long(words) & _long(second)))),
        "commas": float("," in item.strip(" ,")) - float("," in _plain(raw)),
    }
    if not is_start and _core(before[-1]) in ("either", "both", "only"):
        found["behind either"] = 1.0
    ours_with, theirs_with = _prepositions(words), _prepositions(second)
    found["prepositions differ"] = float(abs(len(ours_with) - len(theirs_with)))
    found["same prepositions"] = float(ours_with == theirs_with)
    found[f"{min(3, len(ours_with))} prepositions"] = 1.0
    has, other_has = ANY_VERB.search(item) is not None, ANY_VERB.search(raw) is not None
    found[f"verb: {has:d}, {other_has:d}"] = 1.0
    return found | _alike(words, second)


def _tail(item: str, tail: str, items: list[list[str]], others: Sequence[str]) -> dict[str, float]:
    words = _words(item.strip(" ,;:."))
    lengths = [len(other) for other in items]
    if not words:
        return {"an empty item": 1.0}
    found = {
        "longer than all": max(0.0, _ratio(len(words), max(lengths))),
        "nothing new": float(any(set(map(_core, words)) <= set(map(_core, i)) for i in items)),
        "a length of theirs": float(len(words) in lengths),
        "a last kind of theirs": float(any(_kind(i[-1]) == _kind(words[-1]) for i in items)),
        "a first kind of theirs": float(any(_kind(i[0]) == _kind(words[0]) for i in items)),
        "a last word of theirs": float(any(_core(i[-1]) == _core(words[-1]) for i in items)),
    }
    ratio = _ratio(len(words), sum(lengths) / len(lengths))
    found |= {"longer": max(0.0, ratio), "shorter": max(0.0, -ratio)}
    have = [_prepositions(other) for other in items]
    found["prepositions differ"] = abs(len(_prepositions(words)) - sum(map(len, have)) / len(have))
    found["alignment"] = sum(
        _aligned(list(map(_kind, words)), list(map(_kind, i))) / max(len(words), len(i))
        for i in items
    ) / len(items)
    behind = _words(tail)
    if not _words(tail.strip(" .,;")):
        is_joined = re.search(r"\b(?:and|or|&)\s*\Z", others[-1]) is not None
        return found | {
            "nothing shared": 1.0,
            "semicolon": float(any(";" in other[-6:] for other in others)),
            "no conjunction": float(not is_joined),
            "verb in others": float(any(map(ANY_VERB.search, others))),
            "preposition in others": float(any(have)),
            "preposition in all others": float(all(have)),
            "nothing shared by three": float(len(items) > 1),
        }
    word, kind = _core(behind[0]), _kind(behind[0])
    found[f"next {word if word in _PREPOSITIONS | _VERBS else kind}"] = 1.0
    found["next in others"] = float(any(word in i for i in have))
    found["behind a comma"] = float(item.rstrip()[-1:] in ",;:")
    found["words of the tail"] = math.log1p(len(behind))
    found["plural only behind"] = float(
        kind == "plural" and not any(_kind(i[-1]) == "plural" for i in items)
    )
    clause = _words(re.split(r"[.,]", tail)[0])
    found["short"] = float(len(clause) < 3 and all(length < 3 for length in lengths))
    return found


def _alike(words: list[str], second: list[str]) -> dict[str, float]:
    ratio = _ratio(len(words), len(second))
    last, other = _core(words[-1]), _core(second[-1])
    most = max(len(words), len(second))
    return {
        "longer": max(0.0, ratio),
        "shorter": max(0.0, -ratio),
        "same last word": float(last == other),
        "last words rhyme": float(len(last) > 2 and last[-2:] == other[-2:]),
        "alignment": _aligned(list(map(_kind, words)), list(map(_kind, second))) / most,
        "alignment of words": _aligned(list(map(_core, words)), list(map(_core, second))) / most,
    }


def _needs_more(word: str) -> bool:
    return _core(word) in _INCOMPLETE or _kind(word) == "article"


def _outside(text: str) -> list[re.Match[str]]:
    """Return the words that start in no bracket."""
    found, depth = [], 0
    for match in _WORD.finditer(text):
        if depth <= 0:
            found.append(match)
        depth += match[0].count("(") - match[0].count(")")
    return found


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _plain(item: str) -> str:
    """Return an item without what joins it to the one before it, and to the next one."""
    joint = JOINT_BEFORE.match(item)
    return item[joint.end() if joint else 0 :].strip(" ,;:.\n")


def _core(word: str) -> str:
    return word.strip(_AROUND + ".").lower()


def _long(words: Sequence[str]) -> set[str]:
    return {core for word in words if len(core := _core(word)) > 3}


def _prepositions(words: Sequence[str]) -> list[str]:
    return [core for word in words if (core := _core(word)) in _PREPOSITIONS]


def _last_kind(words: Sequence[str]) -> str:
    """Return the kind of the last word of a head; a preposition or a mark is its own kind."""
    last = words[-1]
    if last[-1] in ",;:.":
        return last[-1]
    return _core(last) if _core(last) in _PREPOSITIONS else _kind(last)


def _kind(word: str) -> str:
    """Return a rough part of speech, from the form of a word alone."""
    plain = word.strip(_AROUND)
    low = plain.lower()
    kinds = {
        "preposition": _PREPOSITIONS,
        "article": _ARTICLES,
        "and": ("and", "or"),
        "verb": _VERBS,
    }
    for kind, members in kinds.items():
        if low in members:
            return kind
    if _NUMBER.fullmatch(low):
        return "number"
    if any(letter.isupper() or letter.isdigit() for letter in plain[1:]):
        return "symbol"
    if plain[:1].isupper():
        return "capital"
    for ending, kind in (("ing", "-ing"), ("ed", "-ed"), ("ly", "adverb")):
        if low.endswith(ending):
            return kind
    if _ADJECTIVE.search(low):
        return "adjective"
    return "plural" if low.endswith("s") else "other"


def _ratio(length: float, other: float) -> float:
    return math.log((length + 0.5) / (other + 0.5))


def _aligned(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of two beginnings."""
    theirs = theirs[:_MOST_ALIGNED]
    row = [0] * (len(theirs) + 1)
    for one in ours[:_MOST_ALIGNED]:
        diagonal = 0
        for at, other in enumerate(theirs, 1):
            above = row[at]
            row[at] = diagonal + 1 if one == other else max(above, row[at - 1])
            diagonal = above
    return row[-1]
