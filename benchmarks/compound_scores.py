"""Scores of predictions, with intervals from resampling articles."""

import functools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from compound_cases import CaptionCase, Case, TruePanel
from compound_methods import Prediction

from biovl.benchmark.bootstrap import estimate
from biovl.images.boxes import Box, iou, overlap
from biovl.images.labels.reading import Label
from biovl.sample.compound.metrics import match_boxes

# Shapes: F figures, R resamples, A articles, P predicted panels.

IOUS = tuple(0.5 + 0.05 * step for step in range(10))
_WORD = re.compile(r"\w+")
_WRONG_WORDS = 0.1
"""Share of a panel's own words that may be missing, or be a neighbour's, in a right text."""

_SENTENCE = 8
"""Most words of a panel's whole text that may be missing: more are a sentence about all panels."""

KINDS = ("cut single", "stays whole", "too few", "too many", "boxes", "labels", "words")
"""What can be wrong with a figure, in the order in which it is looked for."""


@dataclass(frozen=True)
class Scored:
    """The scores of one figure; sums of several figures are scores again."""

    article: str
    values: Mapping[str, float]
    ranked: Sequence[tuple[float, Sequence[bool]]]
    """Confidence of each predicted panel, and whether it is right at each of ``IOUS``."""
    is_compound: bool
    confidence: float
    wrong: str
    """The first of ``KINDS`` that applies; empty: all right."""


def scored(case: Case, found: Prediction) -> Scored:
    """Compare a prediction with the truth."""
    true = case.panels if len(case.panels) > 1 else ()
    panels = found.panels if len(found.panels) > 1 else []
    boxes, true_boxes = [one.box for one in panels], [one.box for one in true]
    pairs = match_boxes(boxes, true_boxes)
    given = found.texts or {}
    texts = [given.get(one.label or "", "") for one in panels]
    # Where a caption says "left" and "right", methods name panels as they like: words decide.
    named = {
        i: j
        for i, j in pairs.items()
        if panels[i].label == true[j].label
        or (true[j].label is None and _words_are_right(true[j], case, given, texts[i]))
    }
    is_right = len(pairs) == len(panels) == len(true)
    words = [_words_are_right(true[j], case, given, texts[i]) for i, j in named.items()]
    f1 = [token_f1(given.get(p.label or "", ""), p.text, p.label or "") for p in true if p.label]
    wrong = ""
    if not true:
        wrong = "cut single" if panels and found.confidence > 0 else ""
    elif not panels or found.confidence == 0:
        wrong = "stays whole"
    elif len(panels) != len(true):
        wrong = "too few" if len(panels) < len(true) else "too many"
    elif not is_right:
        wrong = "boxes"
    elif len(named) < len(true):
        wrong = "labels"
    elif found.texts is not None and not all(words):
        wrong = "words"
    values = {
        "compound": bool(true),
        "hits": len(pairs),
        "found": len(panels) if true else 0,
        "true": len(true),
        "clef": imageclef_accuracy(boxes, true_boxes) if true else 0,
        "exact": bool(true) and len(panels) == len(true),
        "right": bool(true) and is_right,
        "aligned": len(named),
        "f1": sum(f1),
        "texts": len(f1) if found.texts is not None else 0,
        "as_is": bool(true) == bool(panels),
        "cpu_ms": found.cpu_ms if true else 0,
    }
    ranked = _ranked(found, true_boxes) if true else []
    return Scored(case.article, values, ranked, bool(true), found.confidence, wrong)


def imageclef_accuracy(found: Sequence[Box], true: Sequence[Box]) -> float:
    """Return the score of one figure in the figure separation task of ImageCLEF.

    Each true panel matches the unmatched predicted box with the largest share of its own area
    inside the panel, if that is at least two thirds. The score is the number of matches divided by
    the larger number of boxes, predicted or true. The task's score is the mean over its figures.
    It must not be reported alone: a figure of tiny boxes, one within each true panel, scores 1.

    Source:
        García Seco de Herrera et al., ImageCLEF 2013 and 2016, as its official scorer computes it.
    """
    if not found or not true:
        return 0.0
    taken: set[int] = set()
    matches = 0
    for box in true:
        shares = [
            (overlap(other, box) / other.area, -at)
            for at, other in enumerate(found)
            if at not in taken and other.area > 0
        ]
        share, at = max(shares, default=(0.0, 0))
        if share >= 2 / 3:
            taken.add(-at)
            matches += 1
    return matches / max(len(found), len(true))


def _ranked(found: Prediction, true: Sequence[Box]) -> list[tuple[float, list[bool]]]:
    taken: list[set[int]] = [set() for _ in IOUS]
    ranked = []
    panels = found.panels if len(found.panels) > 1 else []
    for panel in sorted(panels, key=lambda one: -one.confidence):
        value, best = max((iou(panel.box, box), -j) for j, box in enumerate(true))
        hits = [value >= at and -best not in gone for at, gone in zip(IOUS, taken, strict=True)]
        for hit, gone in zip(hits, taken, strict=True):
            if hit:
                gone.add(-best)
        ranked.append((panel.confidence, hits))
    return ranked


def _words_are_right(panel: TruePanel, case: Case, texts: Mapping[str, str], text: str) -> bool:
    """Return whether a panel's text has its own words, and none of its neighbours'."""
    if not panel.own:
        return panel.label is not None or not text
    extra = _neighbours_words(panel.own, panel.text, text, [other.own for other in case.panels])
    if not case.has_trailing:
        # What follows the last part may be that of all, or its own.
        of_last = functools.reduce(operator.and_, map(_bag, texts.values()), extra)
        extra -= of_last & _bag(case.panels[-1].own)
    return _has_its_words(panel.own, panel.label or "", text, extra)


def words_are_right(case: CaptionCase, texts: Mapping[str, str]) -> bool:
    """Return whether a caption's labels are right, and each has its own words, no neighbour's.

    A sentence that is about all panels may not be missing either.
    """
    own, found = ({k.lower(): v for k, v in side.items()} for side in (case.own or {}, texts))
    if own.keys() != found.keys():
        return False
    for label, true in case.texts.items():
        name = label.lower()
        given = found[name]
        extra = _neighbours_words(own[name], true, given, own.values())
        missing = _bag(true) - _bag(given)
        if missing.total() > _SENTENCE or not _has_its_words(own[name], name, given, extra):
            return False
    return True


def _neighbours_words(own: str, true: str, given: str, every: Iterable[str]) -> Counter[str]:
    """Return the words of a given text that are only other panels' own."""
    others = Counter[str]()
    for other in every:
        if other != own:
            others |= _bag(other)
    return (_bag(given) - _bag(true)) & others


def _has_its_words(own: str, label: str, given: str, extra: Counter[str]) -> bool:
    """Return whether few of a panel's own words are missing, and few others are there.

    What is in front of and behind all parts is no neighbour's and may be missing.
    """
    own_words = _bag(own) - Counter([label.lower()])
    allowed = max(1.0, _WRONG_WORDS * own_words.total())
    return (own_words - _bag(given)).total() <= allowed and extra.total() <= allowed


def token_f1(found: str, true: str, label: str) -> float:
    """Return the F1 of two bags of words; a panel's own label is no word of its text."""
    a, b = _bag(found), _bag(true)
    del a[label.lower()], b[label.lower()]
    both = (a & b).total()
    return 2 * both / (a.total() + b.total()) if both else float(a == b)


def _bag(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def label_values(
    prefix: str, read: Sequence[Label], panels: Sequence[TruePanel]
) -> dict[str, float]:
    """Return the counts of printed labels, with their text and place right."""
    printed = [(p.label, p.label_box) for p in panels if p.label and p.label_box]
    free = list(printed)
    for label in read:
        hit = next((p for p in free if p[0] == label.text and _is_near(label.box, p[1])), None)
        if hit:
            free.remove(hit)
    hits = len(printed) - len(free)
    counts = {"hits": hits, "found": len(read), "true": len(printed)}
    return {f"{prefix} {name}": value for name, value in counts.items()}


def _is_near(found: Box, true: Box) -> bool:
    # Hands draw the boxes of labels some pixels larger or smaller.
    x, y = found.centre
    room = true.height / 2 + 2
    return true.x0 - room <= x <= true.x1 + room and true.y0 - room <= y <= true.y1 + room


def caption_values(
    case: CaptionCase, texts: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, float]:
    """Return whether the labels are right, and the mean F1 of the texts; case does not count."""
    values: dict[str, float] = {"captions": 1}
    for name, found, true in (("f1", texts, case.texts), ("own f1", own, case.own)):
        if true is None:
            continue
        a, b = ({label.lower(): text for label, text in side.items()} for side in (found, true))
        names = a.keys() | b.keys()
        # A label that only one side has scores nothing.
        both = sum(token_f1(a[label], b[label], label) for label in a.keys() & b.keys())
        values[name] = both / len(names) if names else 1.0
        values["exact"] = a.keys() == b.keys()
        values["owned"] = name == "own f1"
    values["whole"] = float(case.own is not None and words_are_right(case, texts))
    return values


# Metrics of many figures: a function of how often each is drawn.

Metric = Callable[[Sequence[Scored], np.ndarray], np.ndarray]


def share(of: str, by: str) -> Metric:
    """Return a metric: the sum of a value over that of another."""

    def measure(figures: Sequence[Scored], weights_RF: np.ndarray) -> np.ndarray:
        top, bottom = (np.array([f.values.get(n, 0) for f in figures], float) for n in (of, by))
        total_R = weights_RF @ bottom
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total_R > 0, (weights_RF @ top) / total_R, np.nan)

    return measure


def f1(prefix: str = "", hits: str = "hits") -> Metric:
    """Return a metric: F1 of counts."""

    def measure(figures: Sequence[Scored], weights_RF: np.ndarray) -> np.ndarray:
        names = (prefix + hits, f"{prefix}found", f"{prefix}true")
        one, found, true = (np.array([f.values.get(n, 0) for f in figures], float) for n in names)
        total_R = weights_RF @ (found + true)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(total_R > 0, 2 * (weights_RF @ one) / total_R, np.nan)

    return measure


def average_precision(ious: Sequence[float]) -> Metric:
    """Return a metric: mean average precision over thresholds (``sample.compound.metrics``)."""

    def measure(figures: Sequence[Scored], weights_RF: np.ndarray) -> np.ndarray:
        panels = [(c, hits, at) for at, f in enumerate(figures) for c, hits in f.ranked]
        panels.sort(key=lambda one: -one[0])
        total_R = weights_RF @ np.array([f.values["true"] for f in figures], float)
        if not panels:
            return np.where(total_R > 0, 0.0, np.nan)
        weights_RP = weights_RF[:, [at for _, _, at in panels]]
        found_RP = weights_RP.cumsum(1)
        areas = []
        for iou_at in ious:
            hit_P = np.array([hits[IOUS.index(iou_at)] for _, hits, _ in panels], float)
            hits_RP = (weights_RP * hit_P).cumsum(1)
            with np.errstate(invalid="ignore", divide="ignore"):
                precision_RP = np.nan_to_num(hits_RP / found_RP)
                recall_RP = hits_RP / total_R[:, None]
            best_RP = np.maximum.accumulate(precision_RP[:, ::-1], axis=1)[:, ::-1]
            areas.append((np.diff(recall_RP, axis=1, prepend=0) * best_RP).sum(1))
        return np.mean(areas, axis=0)

    return measure


PANELS: dict[str, Metric] = {
    "F1@.5": f1(),
    "mAP@.5": average_precision(IOUS[:1]),
    "mAP@[.5:.95]": average_precision(IOUS),
    "ImageCLEF": share("clef", "compound"),
    "count exact": share("exact", "compound"),
    "boxes right": share("right", "compound"),
    "alignment F1": f1(hits="aligned"),
    "text F1": share("f1", "texts"),
    "compound or single": share("as_is", "figures"),
    "CPU ms": share("cpu_ms", "compound"),
}
LABELS: dict[str, Metric] = {
    f"{name} {how}": share(f"{how} hits", f"{how} {by}")
    for how in ("told", "untold")
    for name, by in (("recall", "true"), ("precision", "found"))
}
CAPTIONS: dict[str, Metric] = {
    "label sets exact": share("exact", "captions"),
    "token F1": share("f1", "captions"),
    "own part F1": share("own f1", "owned"),
    "wholly right": share("whole", "owned"),
    "CPU ms": share("cpu_ms", "captions"),
}
CITANCES: dict[str, Metric] = {
    "precision": share("hits", "found"),
    "recall": share("hits", "true"),
    "F1": f1(),
    "sentence exact": share("exact", "sentences"),
}


def cell(figures: Sequence[Scored], metric: Metric, *, resamples: int) -> str:
    """Return a value, with its 95 % interval over articles if there are resamples."""
    value = float(metric(figures, np.ones((1, len(figures))))[0])
    if np.isnan(value):
        return "–"
    digits = 0 if value > 2 else 3
    if not resamples:
        return f"{value:.{digits}f}"
    names = {name: at for at, name in enumerate(sorted({f.article for f in figures}))}
    article_F = [names[f.article] for f in figures]

    def of_articles(index_A: np.ndarray, weights_RA: np.ndarray) -> np.ndarray:
        every_RA = np.zeros((len(weights_RA), len(names)))
        every_RA[:, index_A.astype(int)] = weights_RA
        return metric(figures, every_RA[:, article_F])

    found = estimate(np.arange(len(names)), of_articles, resamples=resamples)
    return f"{value:.{digits}f} [{found.low:.{min(digits, 2)}f}, {found.high:.{min(digits, 2)}f}]"


THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)


def reliability(figures: Sequence[Scored]) -> list[list[str]]:
    """Return rows by threshold: share of compound figures cut, and share right among those cut.

    The last row is the threshold at which most are cut with 95 % of them wholly right: panels,
    labels and words. A single figure that is cut is wrong. 0: cut at any confidence above it.
    """
    compound = max(sum(f.is_compound for f in figures), 1)
    # What stays whole has the confidence 0 or no panels.
    cut = [f for f in figures if f.confidence > 0 and f.wrong != "stays whole"]
    cut = [f for f in cut if f.is_compound or f.wrong == "cut single"]

    def row(name: str, least: float) -> list[str]:
        above = [f for f in cut if f.confidence >= least]
        right = sum(not f.wrong for f in above)
        wrong = Counter(f.wrong for f in above if f.wrong)
        return [
            *(name, str(len(above)), f"{sum(f.is_compound for f in above) / compound:.3f}"),
            f"{right / len(above):.3f}" if above else "–",
            ", ".join(f"{kind} {count}" for kind, count in wrong.most_common()),
        ]

    table = [row(f"{least:.2f}", least) for least in THRESHOLDS]
    sure = [
        least
        for least in sorted({f.confidence for f in cut})
        if (above := [f for f in cut if f.confidence >= least])
        and sum(not f.wrong for f in above) >= 0.95 * len(above)
    ]
    best = f"95 % right: {sure[0]:.3f}" if sure else "95 % right: none"
    return [*table, row(best, sure[0] if sure else 2.0)]


def grouped(
    figures: Iterable[tuple[str, Scored]],
) -> dict[str, list[Scored]]:
    """Return scores by the name of their group, in order."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for name, one in figures:
        groups[name].append(one)
    return dict(groups)


def counts_of(found: frozenset, true: frozenset) -> dict[str, float]:
    """Return the counts of a sentence."""
    counts = {"hits": len(found & true), "found": len(found), "true": len(true)}
    return {**counts, "exact": found == true, "sentences": 1}


def plain(article: str, values: Mapping[str, float]) -> Scored:
    """Return scores that are sums alone."""
    return Scored(article, values, (), False, 0.0, "")
