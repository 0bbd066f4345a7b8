"""What an article says of a figure: its caption, the sentences that cite it, and of the abstract.

In this order, each once. The abstract's sentence is the one that shares most of its words with the
others, rare words of the article counting more. What is doubtful is left out: sentences without
beginning or end, where a paragraph was broken by a formula, and abstracts that are not clearly of
the figure. Nothing is drawn: the same article gives the same.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biovl.annotate.longcap.references import Own, says_nothing, without_references
from biovl.articles.acronyms import Acronym, acronyms_of
from biovl.articles.captions import readable
from biovl.articles.sentences import sentences
from biovl.core.records import Span

CAPTION, ABSTRACT = "caption", "abstract"
_CONTAINERS = frozenset({"body", "abstract", "box"})
"""Captions and tables that cite a figure describe something else."""

LEAST_SHARE = 0.3
"""Of the abstract's sentence, by rarity of its words, that caption or citing sentences must say."""
LEAST_OF_CAPTION = 0.2
"""Of the abstract's sentence, by rarity of its words, that the caption alone must say."""
_LEAST_WORDS, _RARE = 3, 1.4
"""Words that the abstract's sentence must share with the caption, of those that stand in fewer
than a quarter of the article's sentences (the logarithm of four)."""
_LEAST_RARITY = 2.0
"""Of these words together, where 1 is a word that is in one sentence only."""
_DOUBLE = 0.8
"""Of the words of a sentence; one that shares so many with another says nothing new."""
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# What a sentence may begin with in lower case: mRNA, p53, unc-13, c-Myc, α-actin; not "where".
_NO_START = re.compile(r"[a-z]{2,}(?=[\s,])")
_NO_END = re.compile(
    r"(?:[,;]|\b(?:by|as|is|are|was|were|be|have|has|equals?|reads|where|with|for|and|or|to|that|"
    r"of|the|a|an|in|from|namely|i\.e\.),?:?)$"
)


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
    """Return the sentences of a paragraph that cite the figure, those that are whole."""
    superscripts = _spans(mention["superscripts"])
    references = [Span(ref["start"], ref["end"]) for ref in mention["refs"]]
    split = sentences(mention["text"], protected=references)
    # A sentence may run through a formula, which is a line of its own.
    text = mention["text"].replace("\n", " ")
    found = []
    for sentence in _told(mention, text, split):
        own = [
            Own(ref["start"] - sentence.start, tuple(ref["panels"]))
            for ref in mention["refs"]
            if sentence.start <= ref["start"] < sentence.end
        ]
        if not own and not mention.get("statement"):
            continue
        raised = _within(superscripts, sentence)
        published = text[sentence.start : sentence.end]
        if not mention.get("statement") and not _is_whole(published):
            continue
        clean = without_references(published, own, raised)
        found.append(Piece(mention["container"], clean, readable(published, raised)))
    return found


def _is_whole(sentence: str) -> bool:
    """Return whether a sentence has its beginning and its end: not ``where m is the mass``."""
    return _NO_START.match(sentence) is None and _NO_END.search(sentence) is None


def _told(mention: Mapping[str, Any], text: str, split: Sequence[Span]) -> Sequence[Span]:
    """Return the sentences of a paragraph; of a panel's, the part that is about the panel."""
    statement = str(mention.get("statement") or "").replace("\n", " ")
    start = text.find(statement) if statement else -1
    return split if start < 0 else [Span(start, start + len(statement))]


def _of_abstract(
    captioned: frozenset[str], told: frozenset[str], abstract: str | None, full_text: str | None
) -> str | None:
    """Return the abstract's sentence that says most of the same, if one does.

    Args:
        captioned: Words of the caption: the sentence must be about these, whatever else is told.
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
        if len(_rare(words & told, rarity)) < _LEAST_WORDS:
            continue
        share = _sum(words & told, rarity) / _sum(words, rarity)
        if share > best:
            best, found = share, text
    if found is None or best < LEAST_SHARE:
        return None
    # Where the nearest sentence is not clearly of the caption, a farther one is less so.
    words = words_of(found)
    own = words & captioned
    rare = _rare(own, rarity)
    is_clear = (
        _sum(own, rarity) >= LEAST_OF_CAPTION * _sum(words, rarity)
        and len(rare) >= _LEAST_WORDS
        and _sum(rare, rarity) >= _LEAST_RARITY * max(rarity.values())
    )
    return found if is_clear else None


def _rare(words: Iterable[str], rarity: Mapping[str, float]) -> list[str]:
    """Return the rare ones; not numbers, which are shared by chance."""
    return [word for word in words if not word.isdigit() and rarity[word] > _RARE]


def _sum(words: Iterable[str], rarity: Mapping[str, float]) -> float:
    # fsum is exact: sets have another order in every process.
    return math.fsum(rarity[word] for word in words)


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
