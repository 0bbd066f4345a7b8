"""What public figures say of an image that is like them: a vote of their labels.

Labels are the figures' concepts, or classes found as words in their captions. A caption counts
for a class if it holds one of the class's words or phrases whole, in any case, and does not deny
it: none of ``NEGATIONS`` stands before it within ``MAX_REACH_CHARS``, unless the clause ended in
between. So "no effusion, nodule or pneumonia" denies three, "no nodule but pneumonia" one. This is
no reader of reports: "pneumonia was ruled out" counts for pneumonia.

Source:
    The privacy-preserving analysis of BiomedCLIP (Zhang et al. 2023, arXiv:2303.00915), which
    labels the caption of the nearest public figure by CheXbert; here all neighbours vote. NegEx
    (Chapman et al. 2001, J Biomed Inform 34:301) for denials and what ends them.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NEGATIONS = (
    "no",
    "not",
    "without",
    "absence of",
    "absent",
    "free of",
    "negative for",
    "rule out",
    "excluding",
)
_NEGATION = re.compile(rf"\b(?:{'|'.join(NEGATIONS)})\b", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[.;:!?()]|\b(?:but|however|yet|although|though|except|with|show(?:s|ing)?"
    r"|reveal(?:s|ing)?|demonstrat(?:es|ing))\b",
    re.IGNORECASE,
)

MAX_REACH_CHARS = 60
"""How far before a word a denial is looked for."""


@dataclass
class LabelTally:
    """What speaks for a label."""

    weight: float = 0.0
    figures: list[str] = field(default_factory=list)


def holds(caption: str, phrases: Iterable[str]) -> bool:
    """Say whether a caption states one of some words or phrases, and does not deny it."""
    return any(
        not _is_denied(caption, found.start())
        for phrase in phrases
        for found in _whole(phrase).finditer(caption)
    )


def votes(
    neighbours: Sequence[tuple[str, float, Iterable[str]]], names: Iterable[str] = ()
) -> list[tuple[str, float, list[str]]]:
    """Return (label, share, figures that carry it), the largest share first.

    A figure's vote weighs its similarity, but nothing where that is below zero. Shares are of the
    weight of all figures: a label of all of them has 1. Several labels may have high shares, and
    where no figure carries one none has any.

    Args:
        neighbours: (figure id, cosine, labels) of each.
        names: Labels to be in the answer even without a vote.
    """
    tallies = {name: LabelTally() for name in names}
    whole = 0.0
    for figure_id, similarity, labels in neighbours:
        weight = max(similarity, 0.0)
        whole += weight
        for label in dict.fromkeys(labels):
            tally = tallies.setdefault(label, LabelTally())
            tally.weight += weight
            tally.figures.append(figure_id)
    found = [
        (name, tally.weight / whole if whole else 0.0, tally.figures)
        for name, tally in tallies.items()
    ]
    return sorted(found, key=lambda vote: (-vote[1], vote[0]))


def labels_of(about: Mapping[str, Any], classes: Mapping[str, Sequence[str]] | None) -> list[str]:
    """Return a figure's labels: its concepts, or those classes that its caption holds."""
    if classes is None:
        return list(about.get("concepts") or ())
    caption = about.get("caption") or ""
    return [name for name, phrases in classes.items() if holds(caption, phrases)]


@functools.lru_cache(maxsize=4_096)
def _whole(phrase: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def _is_denied(caption: str, start: int) -> bool:
    before = caption[max(0, start - MAX_REACH_CHARS) : start]
    ends = [found.end() for found in _CLAUSE_END.finditer(before)]
    clause = before[ends[-1] :] if ends else before
    return _NEGATION.search(clause) is not None
