"""Scores of a detector on unseen figures."""

from collections.abc import Sequence
from typing import Any

from biovl.images.boxes import Box
from biovl.sample.compound.metrics import Counts, Scored, average_precision, box_counts
from biovl.split.detector.boxes import LEAST
from biovl.split.detector.detector import Detector
from biovl.split.detector.fitting import Fitted

THRESHOLDS = tuple(number / 20 for number in range(2, 17))

_OVERLAPS = tuple(number / 20 for number in range(10, 20))

_NONE = Counts(0, 0, 0)
_Found = list[tuple[list[Scored], list[Box]]]


def score(detector: Detector, figures: Sequence[Fitted], strata: Sequence[str]) -> dict[str, Any]:
    """Return the threshold of highest F1, F1 at it and average precision, overall and by stratum.

    The threshold is chosen on the same figures: on others F1 is a little lower.

    Args:
        detector: The detector to evaluate.
        figures: Synthetic figures.
        strata: Stratum of each figure.
    """
    detections: _Found = []
    right = 0
    for figure in figures:
        found = detector.detect(figure.pixels_HWC, least=LEAST)
        true = [Box(*corners) for corners in figure.boxes_N4.tolist()]
        detections.append(([Scored(one.box, one.score) for one in found.proposals], true))
        right += (found.compound >= 0.5) == (len(true) > 1)
    threshold = max(THRESHOLDS, key=lambda least: (_counts(detections, least).f1, -least))
    names = sorted(set(strata))
    return {
        "threshold": threshold,
        "compound_accuracy": round(right / max(len(figures), 1), 4),
        **_measured(detections, threshold),
        "strata": {
            name: _measured(
                [one for one, other in zip(detections, strata, strict=True) if other == name],
                threshold,
            )
            for name in names
        },
    }


def _measured(found: _Found, threshold: float) -> dict[str, float]:
    counts = _counts(found, threshold)
    return {
        "figures": len(found),
        "f1": round(counts.f1, 4),
        "precision": round(counts.precision, 4),
        "recall": round(counts.recall, 4),
        "map": round(average_precision(found), 4),
        "map_50_95": round(sum(average_precision(found, at) for at in _OVERLAPS) / 10, 4),
    }


def _counts(found: _Found, least: float) -> Counts:
    return sum(
        (
            box_counts([s.box for s in boxes if s.confidence >= least], true)
            for boxes, true in found
        ),
        _NONE,
    )
