"""Body text of synthetic articles, with the various ways of citing figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from biovl.sample.figures import CaptionText
from biovl.sample.flavours import Flavour, Slot
from biovl.sample.words import Topic, upper_first


@dataclass(frozen=True)
class PlacedFigure:
    """A figure with its label and position in an article."""

    slot: Slot
    number: int
    xml_id: str | None
    label: str | None
    hrefs: tuple[str, ...]
    caption: CaptionText
    letters: str
    subject: str


@dataclass(frozen=True)
class Manuscript:
    """Content of a synthetic article, before it is rendered as JATS."""

    serial: int
    """Number from which all ids of the article are made."""
    pmcid: str
    flavour: Flavour
    turn: int
    """Number of earlier articles of this publisher, which selects among variants."""
    topic: Topic
    figures: tuple[PlacedFigure, ...]
    extras: dict[str, str]
    """Graphics that are not figures: ``equation``, ``table``, ``portrait``, ``supplement``."""


SENTENCES = {
    "en": (
        "The burden of {disease} has grown in most countries over the last two decades.",
        "In the {organ}, {gene} is expressed by several types of cell, and its role is debated.",
        "We therefore treated {cells} with {drug} at clinically relevant concentrations (2 × "
        "10<sup>−6</sup> M).",
        "Patients who received {drug} had lower concentrations of {marker} after 12 weeks.",
        "Loss of <italic>{gene}</italic> made {cells} less sensitive to {drug} in all replicates.",
        "These observations held after adjustment for age, sex and body mass index.",
        "Whether {marker} drives {disease} or merely accompanies it cannot be decided from these "
        "data.",
        "No participant was lost to follow-up because of adverse effects of {drug}.",
    ),
    "es": (
        "La carga de {disease_es} ha crecido en la mayoría de los países en las últimas décadas.",
        "En el tejido de {organ_es}, {gene} se expresa en varios tipos de células.",
        "Los pacientes tratados con {drug} presentaron concentraciones menores de {marker}.",
        "Los resultados se mantuvieron después de ajustar por edad, sexo e índice de masa "
        "corporal.",
        "No se puede decidir con estos datos si {marker} es causa o consecuencia de {disease_es}.",
    ),
}

SECTIONS = {
    "en": ("Introduction", "Materials and methods", "Results", "Discussion"),
    "es": ("Introducción", "Material y métodos", "Resultados", "Discusión"),
}


def sentence(topic: Topic, language: str, number: int) -> str:
    """Return a sentence about a topic in a language, selected by number."""
    choices = SENTENCES[language]
    return choices[number % len(choices)].format(**vars(topic))


def xref(text: str, *figures: PlacedFigure, attributes: str = 'ref-type="fig" ') -> str:
    """Return a reference to figures of the article."""
    rid = " ".join(str(figure.xml_id) for figure in figures)
    return f'<xref {attributes}rid="{rid}">{text}</xref>'


def ways_to_cite(
    figure: PlacedFigure, figures: Sequence[PlacedFigure], flavour: Flavour
) -> tuple[str, ...]:
    """Return citations of a figure, in forms that are hard to parse.

    Args:
        figure: The figure to cite.
        figures: All numbered figures of the article, at least two, in order.
        flavour: Conventions of the publisher: ``Fig.`` or ``Figure``.
    """
    word, words, n = flavour.word, flavour.words, figure.number
    first, last = figures[0], figures[-1]
    other = first if figure is last else last
    a, z = figure.letters[:1], figure.letters[-1:]
    named = f"{word} {n}"
    both = f"{a}, {z}" if a else ""
    whole = f"{first.number}–{last.number}"
    return (
        f"({xref(named, figure)}{both})",  # panel letters outside the reference
        f"({xref(f'{named}{a}–{z}' if a else named, figure)})",
        f"({words} {xref(str(n), figure)} and {xref(str(other.number), other)})",  # bare numbers
        f"({xref(f'{words} {first.number}', first)}–{xref(str(last.number), last)})",
        f"({xref(f'{words} {whole}', *figures)})",  # one reference, several ids
        f"({xref(f'{words} {whole}', first)})",  # a range in the text, the id of its first
        f"<italic>(see {xref(named, figure)}{a} for details)</italic>",
        f"<bold>({xref(f'<bold>{named}</bold>', figure)}{a})</bold>",
        f"<sup>{xref(named, figure)}</sup>",
        f"({xref(named + a, figure)}{', ' + xref(z, figure) if a else ''})",  # letter of its own
        f"({xref('', figure)})",
        f"({xref(named, figure, attributes='')})",  # no ref-type, only an id of a figure
        f'(compare their Fig. 3b in <xref ref-type="bibr" rid="B2">2</xref>, and {word}&#xA0;'
        f"{xref(str(n), figure)}{a})",
    )


def citing_paragraphs(
    figure: PlacedFigure, figures: Sequence[PlacedFigure], flavour: Flavour, topic: Topic, turn: int
) -> list[str]:
    """Return three paragraphs of inline JATS that cite a figure; ``turn`` selects the form."""
    ways = ways_to_cite(figure, figures, flavour)
    subject = upper_first(figure.subject)
    paragraphs = []
    for i in range(turn, turn + 3):
        cited = ways[i % len(ways)]
        if flavour.language == "es":
            said = f"{subject} {cited.replace(' and ', ' y ')}."
        elif i % 3 == 0:
            said = f"We next examined the {figure.subject} {cited}."
        else:
            said = f"{subject} confirmed this {cited}."
        paragraphs.append(
            f"{sentence(topic, flavour.language, i)} {said} "
            f"{sentence(topic, flavour.language, i + 3)}"
        )
    if figure.letters:  # the most frequent form: one in six published references
        paragraphs[0] = f"{paragraphs[0].removesuffix('.')} {ways[0]}."
    if len(figure.letters) > 1 and flavour.language == "en":
        paragraphs[-1] += f" Panel {figure.letters[1]} shows the same for a second cohort."
    return paragraphs
