"""Captions and citing sentences of synthetic figures, with their true split by panel label."""

from collections.abc import Sequence
from dataclasses import dataclass

from biovl.sample.words import TOPICS, Rng, pick, upper_first

_BEFORE = ("({}) {}.", "{}, {}.", "{}) {}.", "[{}] {}.", "Panel {}: {}.")
_PREAMBLES = ("Effects of {drug} in {disease}.", "{gene} and {marker} in {disease}.", "")
_TRAILING = (
    "",
    "",
    "Scale bars, 50 μm.",
    "Data are means ± s.e.m.; n = 6.",
    "NS, not significant.",
)
_CITING = (
    "As shown in Fig. {figure}{label}, this was seen in all samples.",
    "Treatment lowered the values (Fig. {figure}{label}).",
    "{drug} had no such effect (Figure {figure}{label}), whereas the controls did not change.",
)


@dataclass(frozen=True)
class SyntheticCitance:
    """A sentence that cites the figure, and the panel labels in it; empty: the whole figure."""

    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class SyntheticCaption:
    """A caption and its parts: the preamble, one part per label, and the trailing text."""

    text: str
    preamble: str
    parts: dict[str, str]
    """The text of each label, without its marker."""
    trailing: str
    citances: tuple[SyntheticCitance, ...]


def write_caption(
    rng: Rng, labels: Sequence[str | None], subjects: Sequence[str]
) -> SyntheticCaption:
    """Return a caption that names each label once and describes its panels.

    Args:
        rng: Selects style and words.
        labels: Panel labels in reading order; None for a panel without one.
        subjects: Content of each panel, without a full stop.
    """
    topic, figure = pick(rng, TOPICS), int(rng.integers(1, 9))
    words = {"drug": upper_first(topic.drug), "disease": topic.disease}
    words |= {"gene": topic.gene, "marker": topic.marker}
    named = list(dict.fromkeys(label for label in labels if label))
    described = {
        name: "; ".join(
            dict.fromkeys(s for label, s in zip(labels, subjects, strict=True) if label == name)
        ).rstrip(".")
        for name in named
    }
    if not named:
        text = ". ".join(dict.fromkeys(s.rstrip(".") for s in subjects)) + "."
        return SyntheticCaption(text, text, {}, "", ())
    # A number after a comma would be read as a number, and "i," as a list.
    style = pick(rng, _BEFORE if all(name.isalpha() for name in named) else _BEFORE[:1])
    preamble = pick(rng, _PREAMBLES).format(**words)
    trailing = pick(rng, _TRAILING)
    body = " ".join(style.format(name, part) for name, part in described.items())
    parts = {name: f"{part}." for name, part in described.items()}
    text = " ".join(part for part in (preamble, body, trailing) if part)
    cited = [named[i] for i in sorted(rng.permutation(len(named))[:3])]
    citances = [
        SyntheticCitance(pick(rng, _CITING).format(figure=figure, label=name, **words), (name,))
        for name in cited
    ]
    return SyntheticCaption(text, preamble, parts, trailing, tuple(citances))
