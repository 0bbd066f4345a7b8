"""Confidence of a split: the probability of the caption's split, times that of the panels.

Labels and panels are detected independently of each other, so their agreement is evidence.
"""

import functools
import json
import math
from pathlib import Path

from biovl.articles.subcaptions.splitting import SplitCaption
from biovl.images.matching import Matched

WEIGHTS = Path(__file__).with_name("confidence.json")
"""Coefficients of a logistic regression; ``benchmarks/train_splitter.py`` fits them."""

EVIDENCE = ("boxes", "printed", "missing", "panels")
"""Confidence of the boxes, as log-odds; panels whose label was read, and labels without a panel, as
fractions; logarithm of the number of panels."""

_PRINTED = frozenset({"exact", "written alike", "in either case"})


def probability(caption: SplitCaption, matched: Matched) -> float:
    """Return the probability that boxes, labels and captions of all panels are right."""
    weights = _weights()
    values = evidence(caption, matched)
    odds = weights["constant"] + sum(weights[name] * values[name] for name in EVIDENCE)
    return caption.confidence / (1 + math.exp(-min(max(odds, -30.0), 30.0)))


def evidence(caption: SplitCaption, matched: Matched) -> dict[str, float]:
    """Return the inputs of the logistic regression, by their names in ``EVIDENCE``."""
    count = len(matched.panels)
    values = (
        sum(_log_odds(one.panel.confidence) for one in matched.panels) / count,
        sum(one.how in _PRINTED for one in matched.panels) / count,
        len(matched.missing) / len(caption.labels()),
        math.log(count),
    )
    return dict(zip(EVIDENCE, values, strict=True))


@functools.cache
def _weights() -> dict[str, float]:
    stored: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return stored


def _log_odds(chance: float) -> float:
    chance = min(max(chance, 0.01), 0.995)
    return math.log(chance / (1 - chance))
