"""Context of a figure in its article: caption, citing sentences, a sentence of the abstract.

In this order, each once. The abstract's sentence is the one with the largest overlap of words, with
rare words of the article weighted more. Doubtful text is left out: sentence fragments, where a
formula splits a paragraph, and abstract sentences that are not clearly about the figure. The result
is deterministic.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from biovl.annotate.longcap.references import OwnReference, is_only_references, without_references
from biovl.articles.acronyms import Acronym, acronyms_of
from biovl.articles.captions import readable
from biovl.articles.sentences import sentences
from biovl.core.records import Span

CAPTION, ABSTRACT = "caption", "abstract"
_CONTAINERS = frozenset({"body", "abstract", "box"})
"""Captions and tables that cite a figure describe something else."""

LEAST_SHARE = 0.3
"""Minimum rarity-weighted share of the abstract's sentence found in caption or citing sentences."""
LEAST_OF_CAPTION = 0.2
"""Minimum rarity-weighted share of the abstract's sentence found in the caption alone."""
_LEAST_WORDS, _RARE = 3, 1.4
"""Minimum rare words that the abstract's sentence shares with the caption; rare words are in fewer
than a quarter of the article's sentences (the logarithm of four)."""
_LEAST_RARITY = 2.0
"""Minimum sum of these words, where 1 is a word of a single sentence."""
_DOUBLE = 0.8
"""Share of a sentence's words in another sentence, above which it is redundant."""
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Lower-case starts of valid sentences: mRNA, p53, unc-13, c-Myc, α-actin; not "where".
_NO_START = re.compile(r"[a-z]{2,}(?=[\s,])")
_NO_END = re.compile(
    r"(?:[,;]|\b(?:by|as|is|are|was|were|be|have|has|equals?|reads|where|with|for|and|or|to|that|"
    r"of|the|a|an|in|from|namely|i\.e\.),?:?)$"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence of the context, or the caption, with its source."""

    source: str
    """Where the text is from: ``caption``, ``abstract``, or the section of the citing paragraph:
    ``body``, ``box``."""
    text: str
    """Text as used in the context caption, without references."""
    published: str
    """Text as published in the article, with references to figures and works."""


def context_of(
    caption: str,
    caption_superscripts: Sequence[Mapping[str, int]],
    mentions: Sequence[Mapping[str, Any]],
    abstract: str | None,
    full_text: str | None,
) -> list[Piece]:
    """Return the context of a figure, in a fixed order and without duplicates.

    Args:
        caption: Caption of the figure, as stored.
        caption_superscripts: Superscript spans of the caption.
        mentions: Paragraphs that cite the figure, as stored (``records.Mention``).
        abstract: Abstract of the article.
        full_text: Body of the article; used with the abstract to find rare words.
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
    matched = _abstract_sentence(words_of(read), told, abstract, full_text)
    if matched is not None:
        _add(pieces, seen, Piece(ABSTRACT, without_references(matched), matched))
    return pieces


def context_caption(pieces: Sequence[Piece]) -> str:
    """Return the context caption: one line each for caption, citing sentences and abstract."""
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
    """Return the acronyms that an article and the caption of a figure define; cached.

    Args:
        abstract: Abstract of the article.
        full_text: Body of the article.
        caption: Caption of the figure.
        listed: The article's list of abbreviations, as harvested.
    """
    return tuple(acronyms_of((abstract or "", full_text or "", caption), listed or ""))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, in lower case and without plural s."""
    return frozenset(
        word[0].lower().removesuffix("s") for word in _WORD.finditer(text) if len(word[0]) > 1
    )


def _add(pieces: list[Piece], seen: list[frozenset[str]], piece: Piece) -> None:
    if is_only_references(piece.text):
        return
    words = words_of(piece.text)
    for known in seen:
        if len(words & known) >= _DOUBLE * len(words | known):
            return
    seen.append(words)
    pieces.append(piece)


def _citing(mention: Mapping[str, Any]) -> list[Piece]:
    """Return the complete sentences of a paragraph that cite the figure."""
    superscripts = _spans(mention["superscripts"])
    references = [Span(ref["start"], ref["end"]) for ref in mention["refs"]]
    split = sentences(mention["text"], protected=references)
    # A sentence may contain a formula, which is a separate line.
    text = mention["text"].replace("\n", " ")
    pieces = []
    for sentence in _relevant_sentences(mention, text, split):
        own = [
            OwnReference(ref["start"] - sentence.start, tuple(ref["panels"]))
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
        pieces.append(Piece(mention["container"], clean, readable(published, raised)))
    return pieces


def _is_whole(sentence: str) -> bool:
    """Return whether a sentence is complete, unlike ``where m is the mass``."""
    return _NO_START.match(sentence) is None and _NO_END.search(sentence) is None


def _relevant_sentences(
    mention: Mapping[str, Any], text: str, split: Sequence[Span]
) -> Sequence[Span]:
    """Return the sentences of a paragraph; for a panel, the statement about the panel."""
    statement = str(mention.get("statement") or "").replace("\n", " ")
    start = text.find(statement) if statement else -1
    return split if start < 0 else [Span(start, start + len(statement))]


def _abstract_sentence(
    captioned: frozenset[str], told: frozenset[str], abstract: str | None, full_text: str | None
) -> str | None:
    """Return the abstract's sentence closest to the figure, if one is close enough.

    Args:
        captioned: Words of the caption: the sentence must be about these in any case.
        told: Words of the caption and of all sentences that cite the figure.
        abstract: Abstract of the article.
        full_text: Body of the article.
    """
    if not abstract or not told:
        return None
    rarity = _rarity(f"{abstract}\n{full_text or ''}")
    best, sentence = 0.0, None
    for text in _split(abstract):
        words = words_of(text)
        if len(_rare(words & told, rarity)) < _LEAST_WORDS:
            continue
        share = _sum(words & told, rarity) / _sum(words, rarity)
        if share > best:
            best, sentence = share, text
    if sentence is None or best < LEAST_SHARE:
        return None
    # If the closest sentence is not clearly about the caption, others are even less so.
    words = words_of(sentence)
    own = words & captioned
    rare = _rare(own, rarity)
    is_clear = (
        _sum(own, rarity) >= LEAST_OF_CAPTION * _sum(words, rarity)
        and len(rare) >= _LEAST_WORDS
        and _sum(rare, rarity) >= _LEAST_RARITY * max(rarity.values())
    )
    return sentence if is_clear else None


def _rare(words: Iterable[str], rarity: Mapping[str, float]) -> list[str]:
    """Return the rare words; not numbers, which coincide by chance."""
    return [word for word in words if not word.isdigit() and rarity[word] > _RARE]


def _sum(words: Iterable[str], rarity: Mapping[str, float]) -> float:
    # fsum is exact: sets are ordered differently in every process.
    return math.fsum(rarity[word] for word in words)


@lru_cache(maxsize=16)
def _rarity(text: str) -> Mapping[str, float]:
    """Return the rarity of words among the sentences of a text: 0 for a word in all of them."""
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
