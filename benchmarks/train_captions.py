"""Fit the weights of the caption splitter, in a minute.

    python benchmarks/train_captions.py ../shared/data --without frontiers wiley

What a label looks like is learned without annotation. Letters that sentences of an article cite
are labels. Letters in brackets that are beyond the alphabet of their caption are not; neither are
abbreviations and cross-references that are inserted into captions. Which of them happens to
continue the alphabet is chance, so each is given a place in it.

What the items of a list share is learned from ``benchmarks/gold/lists.jsonl``: where the words of
the first item begin, and where those of the last one end.

How likely a split is right is learned from the captions of ``benchmarks/gold`` and of the shared
cases. It is right if its labels are, and each panel has its own words and none of its neighbours'.
The table shows probabilities for articles that were left out of the fit.
"""

import argparse
import itertools
import json
import math
import random
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from compound_cases import Articles, fold_of, read_captions
from compound_scores import words_are_right
from scipy.optimize import minimize
from scipy.special import softmax

from biovl.articles.citances.extraction import citances
from biovl.articles.jats import read_article
from biovl.articles.subcaptions import evidence
from biovl.articles.subcaptions.clauses import segments
from biovl.articles.subcaptions.evidence import Group, features, qualities
from biovl.articles.subcaptions.label_selection import System, choose, proposed
from biovl.articles.subcaptions.labels import ALPHABETS, LabelValue
from biovl.articles.subcaptions.markers import Marker, markers
from biovl.articles.subcaptions.shared import Features, chances, heads, tails
from biovl.articles.subcaptions.splitting import split_caption
from biovl.core.records import Span

GOLD = Path(__file__).parent / "gold"
WEIGHTS = Path(__file__).parents[1] / "platform/biovl/articles/subcaptions/evidence.json"
_PUBLISHER = re.compile(rb"<publisher-name>([^<]*)")
_NAMED = ("group", "type", "stage", "class", "strain", "site", "vitamin", "factor", "case", "model")
# Two cuts are one if only articles and marks are between them.
_OWN_WORDS = re.compile(r"\b(?!(?:the|a|an)\b)\w")
_REFERENCES = (" (see {})", " as shown in ({})", " as in ({})", ", see ({}),")


@dataclass(frozen=True)
class Caption:
    """A caption, its bold ranges, and the first letters of the panels that sentences cite."""

    text: str
    bold: tuple[Span, ...]
    cited: frozenset[str]


Example = tuple[Mapping[str, float], int]
"""Features, and whether the marker is a label or the split is right."""


def captions(shared: Path, without: Sequence[str]) -> Iterator[Caption]:
    """Yield the captions of the articles, except those of some publishers."""
    with tarfile.open(shared / "nxml.tar.gz") as archive:
        for member in archive:
            stream = archive.extractfile(member)
            xml = stream.read() if stream and member.name.endswith(".xml") else b""
            publishers = b" ".join(_PUBLISHER.findall(xml[:40_000])).lower()
            if not xml or any(name.lower().encode() in publishers for name in without):
                continue
            content = read_article(xml).content
            for figure in content.figures if content else ():
                panels = {p for c in citances(figure.mentions, figure.label) for p in c.panels}
                cited = frozenset(panel[0].casefold() for panel in panels if panel)
                yield Caption(figure.caption, tuple(figure.caption_bold), cited)


def examples(caption: Caption, rng: random.Random) -> Iterator[tuple[list[str], int]]:
    """Yield the markers of a caption of which it is clear what they are."""
    found = markers(caption.text, caption.bold)
    system = next(proposed(caption.text, found, caption.cited), None)
    if system is None and not caption.cited:
        for marker in found:
            if marker.family in ("bracket", "half") and _is_letter(marker):
                yield _read(caption.text, _placed(marker, 1), [], 0), 0
    if system and caption.cited and system.kind in ("upper", "lower"):
        yield from _labels(caption, system)
        yield from _strangers(caption, system, found, rng)
        if system.family == "bracket" and len(system.markers) > 1:
            yield from _inserted(caption.text, system, rng)


def _is_letter(marker: Marker) -> bool:
    return len(marker.labels) == 1 and marker.kind in ("upper", "lower")


def _placed(marker: Marker, index: int) -> Marker:
    """Return a marker as if its letter were at another place of the alphabet."""
    name = marker.labels[0].name
    return replace(marker, labels=(LabelValue(name, marker.kind, index),))


def _reached(group: Sequence[Marker]) -> int:
    return max((label.index for marker in group for label in marker.labels), default=0)


def _read(text: str, marker: Marker, group: Sequence[Marker], reached: int) -> list[str]:
    return features(text, marker, Group([*group, marker]), reached + 1)


def _labels(caption: Caption, system: System) -> Iterator[tuple[list[str], int]]:
    reached, met = 0, set[str]()
    for marker in system.markers:
        names = {name[0].casefold() for name in marker.names()}
        if not names <= met and max(names) <= max(caption.cited):
            yield features(caption.text, marker, Group(system.markers), reached + 1), 1
        met |= names
        if marker.labels[0].index <= reached + 1:
            reached = max(reached, marker.labels[-1].index)


def _strangers(
    caption: Caption, system: System, found: Sequence[Marker], rng: random.Random
) -> Iterator[tuple[list[str], int]]:
    """Yield letters beyond the caption's alphabet, as if they continued it."""
    last = max(*(name[0].casefold() for m in system.markers for name in m.names()), *caption.cited)
    for marker in found:
        is_bare = marker.family in ("bare", "loose", "panel", "inner", "word")
        if is_bare or not _is_letter(marker):
            continue
        is_beyond = ord(marker.labels[0].name[0].casefold()) > ord(last) + 1
        if is_beyond and not any(
            m.start < marker.end and marker.start < m.end for m in system.markers
        ):
            reached = _reached([m for m in system.markers if m.start < marker.start])
            stranger = _placed(marker, reached + rng.choice((1, 1, 2)) if reached else 1)
            if rng.random() < 0.5:
                stranger = replace(stranger, family=system.family)
            yield _read(caption.text, stranger, system.markers, reached), 0


def _inserted(text: str, system: System, rng: random.Random) -> Iterator[tuple[list[str], int]]:
    """Yield an abbreviation or a reference that is inserted after a word of the caption."""
    at = rng.randrange(len(system.markers))
    stop = system.markers[at + 1].start if at + 1 < len(system.markers) else len(text)
    words = list(
        re.compile(r"\b[A-Za-z]{4,}\b(?= [a-z])").finditer(text, system.markers[at].end, stop)
    )
    reached = _reached(system.markers[: at + 1])
    index = reached + rng.choice((1, 1, 2))
    letters = ALPHABETS[system.kind]
    if not words or index > len(letters):
        return
    word, kind, letter = rng.choice(words), rng.random(), letters[index - 1]
    if kind < 0.48:
        initial = word[0][0]
        letter = initial.upper() if system.kind == "upper" else initial.lower()
    form = " ({})"
    if kind > 0.75:
        form = rng.choice(_REFERENCES)
    elif kind > 0.6:
        form = f" {rng.choice(('in', 'of', 'for'))} {rng.choice(_NAMED)} ({{}})"
    piece = form.format(letter)
    start = word.end() + piece.index("(")
    shifted = [
        m if m.start < word.end() else replace(m, start=m.start + len(piece))
        for m in system.markers
    ]
    stranger = Marker(
        *(start, start + len(letter) + 2, "bracket", system.kind),
        labels=(LabelValue(letter, system.kind, index),),
        tail_start=start + len(letter) + 2,
        opens=False,
        starts=False,
        bold=False,
    )
    changed = text[: word.end()] + piece + text[word.end() :]
    yield _read(changed, stranger, shifted, reached), 0


def splits(shared: Path) -> Iterator[tuple[int, Example]]:
    """Yield the fold of each caption that is split, the features of its split, whether it is right.

    With and without what the article tells about its labels.
    """
    articles = Articles(shared)
    folders = (GOLD, GOLD / "random", shared / "cases")
    for case in (case for folder in folders for case in read_captions(folder, articles)):
        cited = {panel.split(".")[0] for panel in case.cited}
        for bold, hints in dict.fromkeys([(case.bold, frozenset(cited)), ((), frozenset[str]())]):
            system = choose(case.caption, markers(case.caption, bold), hints, ())
            split = split_caption(case.caption, bold=bold, cited=hints)
            if system is None or not split.parts:
                continue
            parts = [(part.labels, part.spans[0]) for part in split.parts]
            texts = {label: split.text_of(label) for label in split.labels()}
            _, certainty = segments(case.caption, system)
            found = qualities(case.caption, system.markers, parts, split.trailing, certainty)
            yield fold_of(case.article), (found, int(words_are_right(case, texts)))


@dataclass(frozen=True)
class Cuts:
    """The places where what a list shares may end or begin, and which of them are right."""

    fold: int
    found: list[tuple[int, Features]]
    right: list[bool]


def cuts(shared: Path, which: str) -> Iterator[Cuts]:
    """Yield the annotated lists that share a ``head`` or a ``tail``, or could share one."""
    articles = Articles(shared)
    for text in (GOLD / "lists.jsonl").read_text().splitlines():
        line = json.loads(text)
        named = articles.figure(line) if line["shared"] == which else None
        if named is None:
            continue
        caption, labels = named[1].caption, line["labels"]
        others = [caption[a[1] : b[0]] for a, b in itertools.pairwise(labels)]
        start, stop = line["span"]
        if which == "head":
            found = heads(caption[start : labels[0][0]], others)
        else:
            start = labels[-1][1]
            found = tails(caption[start:stop], others)
        between = (sorted((line["cut"], start + at)) for at, _ in found)
        right = [not _OWN_WORDS.search(caption[low:high]) for low, high in between]
        if any(right):
            yield Cuts(fold_of(line["article"]), found, right)


def fit_cuts(lists: Sequence[Cuts], *, ridge: float = 1.0) -> dict[str, float]:
    """Return the weights of a conditional logit over the cuts of each list."""
    names = sorted({name for one in lists for _, found in one.found for name in found})
    x_CF = [
        np.array([[found.get(name, 0.0) for name in names] for _, found in one.found])
        for one in lists
    ]
    right_C = [np.array(one.right) for one in lists]

    def loss(w_F: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient_F = ridge / 2 * float(w_F @ w_F), ridge * w_F
        for x, right in zip(x_CF, right_C, strict=True):
            p = softmax(x @ w_F)
            total -= math.log(p[right].sum())
            gradient_F = gradient_F + (p - p * right / p[right].sum()) @ x
        return total, gradient_F

    w_F = minimize(loss, np.zeros(len(names)), jac=True, method="L-BFGS-B").x
    return {name: round(float(w), 2) for name, w in zip(names, w_F, strict=True) if abs(w) >= 0.01}


def share_right(lists: Sequence[Cuts]) -> float:
    """Return the share of lists that are cut right by weights of other articles' lists."""
    right = []
    for fold in sorted({one.fold for one in lists}):
        weights = fit_cuts([one for one in lists if one.fold != fold])
        for one in (one for one in lists if one.fold == fold):
            likely = chances(one.found, weights)
            right.append(one.right[likely.index(max(likely))])
    return float(np.mean(right))


def fit(examples: Sequence[Example], *, ridge: float = 1.0) -> dict[str, float]:
    """Return the weights of a logistic model; Newton's method."""
    names = sorted({name for found, _ in examples for name in found})
    x_NF = np.array([[1.0, *(found.get(name, 0.0) for name in names)] for found, _ in examples])
    y_N = np.array([label for _, label in examples])
    w_F = np.zeros(len(names) + 1)
    penalty_F = np.full(len(w_F), ridge)
    penalty_F[0] = 1e-6
    for _ in range(30):
        p_N = 1 / (1 + np.exp(-x_NF @ w_F))
        hessian_FF = (x_NF * (p_N * (1 - p_N))[:, None]).T @ x_NF + np.diag(penalty_F)
        w_F -= np.linalg.solve(hessian_FF, x_NF.T @ (p_N - y_N) + penalty_F * w_F)
    return {name: round(float(w), 2) for name, w in zip(["bias", *names], w_F, strict=True)}


def reliability(folded: Sequence[tuple[int, Example]]) -> Iterator[str]:
    """Yield a table of probabilities for captions of left-out articles."""
    said, right = [], []
    for fold in sorted({fold for fold, _ in folded}):
        weights = fit([example for other, example in folded if other != fold])
        for other, (found, is_right) in folded:
            if other == fold:
                total = sum(weights[name] * value for name, value in found.items())
                said.append(1 / (1 + np.exp(-weights["bias"] - total)))
                right.append(is_right)
    said_N, right_N = np.array(said), np.array(right)
    edges = (0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.01)
    for low, high in itertools.pairwise(edges):
        chosen_N = (said_N >= low) & (said_N < high)
        if chosen_N.any():
            mean, share = said_N[chosen_N].mean(), right_N[chosen_N].mean()
            yield f"  {low:.2f}: {chosen_N.sum():4} captions, {mean:.2f} said, {share:.2f} right"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path, help="the folder with nxml.tar.gz and cases")
    parser.add_argument("--without", nargs="*", default=[], help="publishers to leave out")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    rng = random.Random(0)
    met = [e for c in captions(options.shared, options.without) for e in examples(c, rng)]
    # Most publishers print no bold labels; those that do must not hide the other features.
    met += [([n for n in found if n != "bold"], y) for found, y in met if "bold" in found]
    evidence.WEIGHTS["label"] = fit([(dict.fromkeys(found, 1.0), y) for found, y in met])
    for which in ("head", "tail"):
        lists = list(cuts(options.shared, which))
        evidence.WEIGHTS[which] = fit_cuts(lists)
        print(
            f"{len(lists)} lists with a {which}, {share_right(lists):.3f} cut right when left out"
        )
    folded = list(splits(options.shared))
    evidence.WEIGHTS["split"] = fit([example for _, example in folded])
    options.out.write_text(json.dumps(evidence.WEIGHTS, indent=1) + "\n")
    print(len(met), "markers,", sum(label for _, label in met), "of them labels")
    print(len(folded), "split captions")
    print(*reliability(folded), sep="\n")
