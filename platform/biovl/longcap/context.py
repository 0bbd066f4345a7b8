"""What an article says of a figure: its caption, the sentences that cite it, and of the abstract.

In this order, each once. The abstract's sentence is the one that shares most of its words with the
others, rare words of the article counting more. Nothing is drawn: the same article gives the same.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biovl.articles.acronyms import Acronym, acronyms_of
from biovl.articles.captions import readable
from biovl.articles.sentences import sentences
from biovl.longcap.references import Own, says_nothing, without_references
from biovl.records import Span

CAPTION, ABSTRACT = "caption", "abstract"
_CONTAINERS = frozenset({"body", "abstract", "box"})
"""Captions and tables that cite a figure describe something else."""

LEAST_SHARE = 0.3
"""Of the abstract's sentence, by rarity of its words, that caption or citing sentences must say."""
_LEAST_WORDS, _LEAST_OF_CAPTION, _RARE = 3, 2, 1.4
"""Words that the abstract's sentence must share, in all and with the caption, that stand in fewer
than a quarter of the sentences (the logarithm of four)."""
_DOUBLE = 0.8
"""Of the words of a sentence; one that shares so many with another says nothing new."""
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence of the context, or the caption."""

    source: str
    """caption, abstract, or where the citing paragraph stands: body, box."""
    text: str
    """As it stands in the context caption."""
    published: str
    """As it stands in the article, references to figures and works included."""


def context_of(
    caption: str,
    caption_superscripts: Sequence[Mapping[str, int]],
    mentions: Sequence[Mapping[str, Any]],
    abstract: str | None,
    full_text: str | None,
) -> list[Piece]:
    """Return what an article says of a figure, in a fixed order and without doubles.

    Args:
        caption: As stored.
        caption_superscripts: Its raised stretches.
        mentions: Paragraphs that cite the figure, as stored (``records.Mention``).
        abstract: Of the article.
        full_text: Of the article; says how rare words are.
    """
    pieces = []
    read = readable(caption, _spans(caption_superscripts)).strip()
    if read:
        pieces.append(Piece(CAPTION, read, caption))
    seen = [words_of(text) for text in _split(read)]
    for mention in mentions:
        if mention["container"] in _CONTAINERS:
            for piece in _citing(mention):
                _add(pieces, seen, piece)
    told = words_of(" ".join(piece.text for piece in pieces))
    matched = _of_abstract(words_of(read), told, abstract, full_text)
    if matched is not None:
        _add(pieces, seen, Piece(ABSTRACT, without_references(matched), matched))
    return pieces


def joined(pieces: Sequence[Piece]) -> str:
    """Return the context caption: a line for the caption, the citing sentences, the abstract's."""
    lines: list[str] = []
    last = None
    for piece in pieces:
        if piece.source == last and last != CAPTION:
            lines[-1] += f" {piece.text}"
        else:
            lines.append(piece.text)
        last = piece.source
    return "\n".join(lines)


@lru_cache(maxsize=64)
def acronyms_in(
    abstract: str | None, full_text: str | None, caption: str, listed: str | None = None
) -> tuple[Acronym, ...]:
    """Return the acronyms that an article defines; for its next figure they are known.

    Args:
        abstract: Of the article.
        full_text: Of the article.
        caption: Of the figure.
        listed: The article's list of abbreviations, as harvested.
    """
    return tuple(acronyms_of((abstract or "", full_text or "", caption), listed or ""))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, lower case and without a plural's s."""
    return frozenset(
        word[0].lower().removesuffix("s") for word in _WORD.finditer(text) if len(word[0]) > 1
    )


def _add(pieces: list[Piece], seen: list[frozenset[str]], piece: Piece) -> None:
    if says_nothing(piece.text):
        return
    words = words_of(piece.text)
    for known in seen:
        if len(words & known) >= _DOUBLE * len(words | known):
            return
    seen.append(words)
    pieces.append(piece)


def _citing(mention: Mapping[str, Any]) -> list[Piece]:
    """Return the sentences of a paragraph that cite the figure."""
    text, superscripts = mention["text"], _spans(mention["superscripts"])
    references = [Span(ref["start"], ref["end"]) for ref in mention["refs"]]
    found = []
    for sentence in _told(mention, sentences(text, protected=references)):
        own = [
            Own(ref["start"] - sentence.start, tuple(ref["panels"]))
            for ref in mention["refs"]
            if sentence.start <= ref["start"] < sentence.end
        ]
        if not own and not mention.get("statement"):
            continue
        raised = _within(superscripts, sentence)
        published = text[sentence.start : sentence.end]
        clean = without_references(published, own, raised)
        found.append(Piece(mention["container"], clean, readable(published, raised)))
    return found


def _told(mention: Mapping[str, Any], split: Sequence[Span]) -> Sequence[Span]:
    """Return the sentences of a paragraph; of a panel's, the part that is about the panel."""
    statement = str(mention.get("statement") or "")
    start = mention["text"].find(statement) if statement else -1
    return split if start < 0 else [Span(start, start + len(statement))]


def _of_abstract(
    captioned: frozenset[str], told: frozenset[str], abstract: str | None, full_text: str | None
) -> str | None:
    """Return the abstract's sentence that says most of the same, if one does.

    Args:
        captioned: Words of the caption, of which the sentence must have some that are rare.
        told: Words of the caption and of all sentences that cite the figure.
        abstract: Of the article.
        full_text: Of the article.
    """
    if not abstract or not told:
        return None
    rarity = _rarity(f"{abstract}\n{full_text or ''}")
    best, found = 0.0, None
    for text in _split(abstract):
        words = words_of(text)
        shared = words & told
        # Numbers are shared by chance.
        rare = {word for word in shared if not word.isdigit() and rarity[word] > _RARE}
        if len(rare) < _LEAST_WORDS or len(rare & captioned) < _LEAST_OF_CAPTION:
            continue
        # Summed in order: sets have another in every process.
        mass = math.fsum(sorted(rarity[word] for word in words))
        share = math.fsum(sorted(rarity[word] for word in shared)) / mass if mass else 0
        if share >= LEAST_SHARE and share > best:
            best, found = share, text
    return found


@lru_cache(maxsize=16)
def _rarity(text: str) -> Mapping[str, float]:
    """Return how rare words are among the sentences of a text, from 0 for those in each."""
    split = _split(text)
    counts = Counter(word for sentence in split for word in words_of(sentence))
    return {word: math.log(len(split) / count) for word, count in counts.items()}


def _split(text: str) -> list[str]:
    return [text[span.start : span.end] for span in sentences(text)]


def _within(spans: Sequence[Span], sentence: Span) -> list[Span]:
    return [
        Span(span.start - sentence.start, min(span.end, sentence.end) - sentence.start)
        for span in spans
        if sentence.start <= span.start < sentence.end
    ]


def _spans(spans: Sequence[Mapping[str, int]]) -> list[Span]:
    return [Span(span["start"], span["end"]) for span in spans]
