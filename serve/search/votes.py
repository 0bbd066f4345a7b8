"""Labels of an image by a weighted vote of similar public figures.

Labels are the figures' concepts, or classes whose words occur in their captions. A caption counts
for a class if it contains one of the class's words or phrases, in any case and with any hyphen, en
dash or apostrophe, and does not negate it: none of ``NEGATIONS`` precedes it within
``MAX_REACH_CHARS`` in the same clause, and ``non`` not directly. So "no effusion, nodule or
pneumonia" negates all three, "no nodule but pneumonia" only the first, and "non-small cell
carcinoma" is no small cell carcinoma. This is not a full report labeller: "pneumonia was ruled out"
counts for pneumonia.

Source:
    The privacy-preserving analysis of BiomedCLIP (Zhang et al. 2023, arXiv:2303.00915), which
    labels the caption of the nearest public figure by CheXbert; here all neighbours vote. NegEx
    (Chapman et al. 2001, J Biomed Inform 34:301) for negations and their scope.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biovl.index.spelling import plain

NEGATIONS = (
    "no",
    "not",
    "without",
    "absence of",
    "absent",
    "lack of",
    "devoid of",
    "neither",
    "free of",
    "negative for",
    "rule out",
    "excluding",
)
_NITRIC_OXIDE = (
    # "NO production", "effects of NO"; "NO PNEUMONIA" and "There is NO pneumonia" deny it.
    r"(?-i:NO)(?:(?<=\bof\sNO)\b(?!\s+evidence\b)|(?<=haled\sNO)\b|\s*[,;.)+-]"
    r"|\s*(?-i:/(?![A-Z]{3}))|\s+(?-i:and|or|on|in|by|is|was|from)\b"
    r"|\s+(?:synth\w+|production|release|levels|donors?|signall?ing|bioavailability|radicals?"
    r"|concentrations?|generation|scavengers?)\b)"
)
_NEGATION = re.compile(
    # "CT without contrast" denies no finding; "without contrast enhancement"
    # denies enhancement. "No change in the effusion", "not only" and "no doubt" deny nothing.
    rf"\b(?!{_NITRIC_OXIDE})(?:{'|'.join(NEGATIONS)})\b"
    r"(?!\s+(?:(?:intravenous|iv|oral)\s+)?contrast\b(?!\s*$))"
    r"(?!\s+(?:only\b|(?:reasonable\s+)?doubt\b"
    r"|(?:(?:significant|definite|interval|appreciable)\s+)*change\b))",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    # "No lesion above 1.5 cm or pneumonia": a decimal point ends nothing. Titles and lines of a
    # report end without a point, but a line may also be wrapped within a clause: "no evidence of"
    # is followed by what it denies.
    r"\.(?!\d)|[;:!?()]"
    r"|(?<!,)(?<!\bno)(?<!\bor)(?<!\bof)(?<!\bnor)(?<!\bnot)(?<!\band)(?<!\bfor)(?<!\bthe)"
    r"(?<!\bwithout)\n(?=\s*(?-i:[A-Z]))"
    r"|\b(?:but|however|yet|although|though|except|with|who"
    # "Did not show pneumonia" denies it.
    r"|(?<!not )(?:show(?:s|ed|ing)?|reveal(?:s|ed|ing)?|demonstrat(?:e|es|ed|ing)))\b",
    re.IGNORECASE,
)

MAX_REACH_CHARS = 60
"""Maximum distance of a negation before a word, in characters."""


@dataclass
class LabelTally:
    """Support of a label by the neighbours."""

    weight: float = 0.0
    figures: list[str] = field(default_factory=list)


def holds(caption: str, phrases: Iterable[str]) -> bool:
    """Return whether a caption contains one of the phrases, and does not negate it."""
    caption = _spelled(caption)
    return any(
        not _is_denied(caption, match.start())
        for phrase in phrases
        for match in _whole(phrase).finditer(caption)
    )


def votes(
    neighbours: Sequence[tuple[str, float, Iterable[str]]], names: Iterable[str] = ()
) -> list[tuple[str, float, list[str]]]:
    """Return (label, share, ids of the figures with the label), the largest share first.

    Each figure's vote is weighted by its similarity; negative similarities have no weight. Shares
    are relative to the weight of all figures: a label of all figures has a share of 1. Shares of
    several labels may sum to more than 1.

    Args:
        neighbours: (figure id, cosine, labels) of each neighbour.
        names: Labels to include even without votes.
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
    shares = [
        (name, tally.weight / whole if whole else 0.0, tally.figures)
        for name, tally in tallies.items()
    ]
    return sorted(shares, key=lambda vote: (-vote[1], vote[0]))


def labels_of(about: Mapping[str, Any], classes: Mapping[str, Sequence[str]] | None) -> list[str]:
    """Return the labels of a figure: its concepts, or the classes found in its caption."""
    if classes is None:
        return list(about.get("concepts") or ())
    caption = about.get("caption") or ""
    return [name for name, phrases in classes.items() if holds(caption, phrases)]


@functools.lru_cache(maxsize=4_096)
def _whole(phrase: str) -> re.Pattern[str]:
    first, *others = map(re.escape, _spelled(phrase).split())
    # Looked behind after the first word: where a pattern begins with one, the search is 14 times
    # as fast.
    begins = rf"{first}(?<!\w{first})(?<!\bnon[-\s]{first})"
    return re.compile(r"\s+".join([begins, *others]) + r"(?!\w)", re.IGNORECASE)


def _spelled(text: str) -> str:
    # Journals join names with an en dash: Kaplan–Meier, non–small cell.
    return plain(text).replace("–", "-")


def _is_denied(caption: str, start: int) -> bool:
    # Positions, not slices: the "no" of "amino" is no word if the reach begins within it.
    reach = max(0, start - MAX_REACH_CHARS)
    # The first letter of the finding itself may show that a line begins.
    found = _CLAUSE_END.finditer(caption, reach, start + 1)
    ends = [match.end() for match in found if match.end() <= start]
    return _NEGATION.search(caption, ends[-1] if ends else reach, start) is not None
