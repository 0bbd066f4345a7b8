"""Fit the weights of labels among letters, and of the confidence: some minutes on one CPU.

    python benchmarks/train_splitter.py --shared ../shared/data    # writes the package's weights
    python benchmarks/train_splitter.py --figures 5 --labels other.json --confidence another.json

The evidence for every letter that could be a label is taken from drawn figures and, with
``--shared``, from published ones with panels drawn by hand. A logistic regression weighs it, once
for figures whose caption names the labels (``told``) and once for others (``untold``). Another one
weighs how far labels and panels agree, for the probability that both are right.
"""

import argparse
import functools
import json
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from compound_cases import Articles, Case, case_of, read, read_shared
from compound_methods import FoundPanel, Prediction
from compound_scores import scored
from torch.nn.functional import binary_cross_entropy_with_logits

from biovl.images.boxes import Box
from biovl.images.labels.choice import (
    EVIDENCE,
    LabelReading,
    consecutive_from_first,
    evidence_for,
    readings,
    selections,
)
from biovl.images.labels.network import builtin_network
from biovl.images.labels.reading import LEAST_FIT as LEAST
from biovl.images.labels.reading import WEIGHTS, find_words, readable_copy
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.strata import STRATA
from biovl.split import confidence
from biovl.split.detector.detector import Detector
from biovl.split.rows import Propose, match_figure

SEED = 80_000
"""First seed of the drawn figures: none of those that are scored."""

_LEAST = {"told": 0.4, "untold": 0.6}
_FEWEST = {"told": 1, "untold": 2}
_REAL = 3.0
"""Weight of a published figure relative to a drawn one, for labels."""

_REAL_WHOLE = 10.0
"""Weight of a published figure relative to a drawn one, for the confidence."""

_UNUSUAL = frozenset(
    {"insets", "labels_some", "labels_none", "labels_doubled", "single", "headings"}
)
"""Drawn figures that are too hard and too frequent to tell how often real ones are right."""


@dataclass(frozen=True)
class Example:
    """Evidence for the labels of one selection, and which of them are right."""

    evidence: np.ndarray
    """Shape [labels, EVIDENCE]."""
    is_right: np.ndarray
    """Shape [labels], bool."""
    weight: float


def figures(shared: Path | None, drawn: int) -> Iterator[tuple[Case, bool]]:
    """Yield published figures and drawn ones of every stratum, and whether they are drawn."""
    if shared:
        articles = Articles(shared)
        for case in (*read_shared(shared), *read(Path(__file__).parent / "gold", articles)):
            yield case, False
    for stratum in STRATA:
        for seed in range(SEED, SEED + drawn):
            yield case_of(make_compound(seed, stratum)), True


def examples(case: Case, weight: float) -> dict[str, list[Example]]:
    """Return the examples of one figure, with its labels told and untold."""
    grey, scale = readable_copy(case.pixels)
    words = find_words(grey, builtin_network())
    printed = [
        (panel.label.casefold(), panel.label_box.scaled(scale))
        for panel in case.panels
        if panel.label and panel.label_box
    ]

    def of(names: Sequence[str], *, follow: bool) -> list[Example]:
        found = readings(words, names, least=LEAST)
        rank = {name: at for at, name in enumerate(names)}
        keep = functools.partial(consecutive_from_first, names=names) if follow else list
        chosen = selections(found, rank, LEAST, keep)
        return [
            Example(
                evidence_for(selection, found, rank, grey.size),
                np.array([_is_right(reading, printed) for reading in selection]),
                weight / (len(chosen) * len(selection)) ** 0.5,
            )
            for selection in chosen
        ]

    both = (str, str.swapcase) if len(case.labels) > 1 else ()
    told = (of(list(dict.fromkeys(map(c, case.labels))), follow=False) for c in both)
    letters = (string.ascii_uppercase, string.ascii_lowercase)
    untold = (of(list(names), follow=True) for names in letters)
    return {"told": list(chain(*told)), "untold": list(chain(*untold))}


def _is_right(reading: LabelReading, printed: Sequence[tuple[str, Box]]) -> bool:
    x, y = reading.box.centre
    for name, box in printed:
        room = box.height / 2 + 2
        within = box.x0 - room <= x <= box.x1 + room and box.y0 - room <= y <= box.y1 + room
        if within and reading.text.casefold() == name:
            return True
    return False


def fit(found: Sequence[Example], decay: float = 1e-4) -> tuple[float, np.ndarray]:
    """Return constant and coefficients of a logistic regression. Shape [EVIDENCE]."""
    inputs = np.concatenate([one.evidence for one in found])
    right = torch.tensor(np.concatenate([one.is_right for one in found]).astype(float))
    weights = np.concatenate([np.full(len(one.is_right), one.weight) for one in found])
    mean, spread = np.average(inputs, axis=0, weights=weights), inputs.std(0) + 1e-6
    scaled, share = torch.tensor((inputs - mean) / spread), torch.tensor(weights / weights.sum())
    values = torch.zeros(scaled.shape[1] + 1, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([values], max_iter=300)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        odds = scaled @ values[1:] + values[0]
        each = binary_cross_entropy_with_logits(odds, right, reduction="none")
        total = (share * each).sum() + decay * (values[1:] ** 2).sum()
        total.backward()
        return total

    optimizer.step(loss)
    solved = values.detach().numpy()
    coefficients = solved[1:] / spread
    return float(solved[0] - coefficients @ mean), coefficients


def agreement(case: Case, weight: float, propose: Propose) -> Example | None:
    """Return the evidence that boxes and labels are right, and whether they are.

    None: the figure stays whole. ``train_captions.py`` learns whether the words are right.
    """
    found = match_figure(case.row, propose)
    if isinstance(found, tuple):
        return None
    values = confidence.evidence(found.caption, found.matched)
    panels = [FoundPanel(p.label, p.panel.box, p.confidence) for p in found.matched.panels]
    texts = {p.label: found.caption.text_of(p.label) for p in panels if p.label}
    is_right = scored(case, Prediction(panels, texts)).wrong in ("", "words")
    evidence = np.array([[values[name] for name in confidence.EVIDENCE]])
    return Example(evidence, np.array([is_right]), weight)


def weights_of(found: dict[str, list[Example]]) -> dict[str, object]:
    """Return what the file of weights stores."""
    stored: dict[str, object] = {}
    for kind, of_kind in found.items():
        constant, coefficients = fit(of_kind)
        stored[kind] = {
            "least": _LEAST[kind],
            "fewest": _FEWEST[kind],
            "constant": round(constant, 3),
            "evidence": dict(zip(EVIDENCE, np.round(coefficients, 3).tolist(), strict=True)),
        }
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, help="folder with cases/ and packages/")
    parser.add_argument("--figures", type=int, default=16, help="drawn for each stratum")
    parser.add_argument("--labels", type=Path, default=WEIGHTS)
    parser.add_argument("--confidence", type=Path, default=confidence.WEIGHTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[Example]] = {"told": [], "untold": []}
    agreeing: list[Example] = []
    propose = Detector.builtin().propose
    for case, is_drawn in figures(options.shared, options.figures):
        for kind, more in examples(case, 1.0 if is_drawn else _REAL).items():
            found[kind] += more
        if case.set not in _UNUSUAL:
            one = agreement(case, 1.0 if is_drawn else _REAL_WHOLE, propose)
            agreeing += [one] if one else []
    _write(options.labels, weights_of(found))
    constant, coefficients = fit(agreeing, 1e-2)
    names = ("constant", *confidence.EVIDENCE)
    values = np.round((constant, *coefficients), 3).tolist()
    _write(options.confidence, dict(zip(names, values, strict=True)))


def _write(path: Path, weights: dict[str, object]) -> None:
    path.write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
