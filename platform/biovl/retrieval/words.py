"""Figures whose captions hold given words, ranked by BM25 (bm25s), mapped into memory.

    words.json               documents, and parameters
    values.arrow             the words, sorted
    scores/                  bm25s: for each word the captions that hold it and what it adds there

A caption's words are in lower case, without a few of English grammar, and not stemmed: stems of
gene names and abbreviations are other names. A compound counts whole, closed up and in parts, so
that ``IL-6`` is found by ``IL-6``, ``IL6`` and ``6``.
"""

import json
import os
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa

from biovl.errors import ArtifactError
from biovl.retrieval.filters import Selection
from biovl.retrieval.mapped import DAMAGED, mapped_texts
from biovl.retrieval.ranking import largest

STOP_WORDS = frozenset(
    "a an and are as at be been but by for from had has have in into is it its of on or our that "
    "the their then there these they this to was we were which while who will with".split()
)

# Letters and digits; what joins them in names: IL-6, 18F-FDG, α/β, 3.5, 5′-UTR, CD4+.
_COMPOUND = re.compile(r"[^\W_]+(?:[-./'+][^\W_]+)*")
_PARTS = re.compile(r"[-./'+]")
_DASHES = str.maketrans("\u2010\u2011\u2019\u2032", "--''")


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: ``IL-6 levels`` gives il-6, il6, il, 6, levels."""
    plain = unicodedata.normalize("NFKC", text.translate(_DASHES)).translate(_DASHES).lower()
    found = []
    for compound in _COMPOUND.findall(plain):
        parts = _PARTS.split(compound)
        if len(parts) > 1:
            found += [compound, "".join(parts)]
        found += parts
    return [word for word in found if word not in STOP_WORDS]


class Words:
    """An index of words. Threads may share one."""

    def __init__(self, count: int, words: pa.Array, scores: "bm25s.BM25 | None") -> None:
        self.count = count
        """Captions."""
        self._words = words
        self._scores = scores

    @classmethod
    def build(cls, captions: Iterable[str | None], folder: str | os.PathLike[str]) -> None:
        """Write the index of captions, in the order of rows, into a folder.

        Holds every caption's words as numbers in memory: some 2 kB a caption.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        numbers: dict[str, int] = {}
        documents = [
            np.fromiter(
                (numbers.setdefault(word, len(numbers)) for word in words_of(caption or "")),
                np.int32,
            )
            for caption in captions
        ]
        # Sorted, so that a word is found without loading them all.
        ordered = sorted(numbers)
        place = np.empty(len(numbers), np.int32)
        place[[numbers[word] for word in ordered]] = np.arange(len(ordered))
        batch = pa.record_batch([pa.array(ordered, pa.string())], names=["word"])
        with pa.ipc.new_file(str(target / "values.arrow"), batch.schema) as file:
            file.write_batch(batch)
        if ordered:
            scores = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
            ids = [place[document].tolist() for document in documents]
            vocabulary = {word: number for number, word in enumerate(ordered)}
            scores.index((ids, vocabulary), create_empty_token=False, show_progress=False)
            stored = target / "scores"
            scores.save(stored, show_progress=False)
            (stored / "vocab.index.json").unlink()
        about = {"documents": len(documents), "words": len(ordered)}
        (target / "words.json").write_text(json.dumps(about) + "\n")

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Words":
        """Map what ``build`` wrote into memory.

        Raises:
            ArtifactError: If a file is missing, damaged or does not belong to the others.
        """
        source = Path(folder)
        try:
            about = json.loads((source / "words.json").read_bytes())
            words = mapped_texts(source / "values.arrow")
            scores = None
            if about["words"]:
                scores = bm25s.BM25.load(
                    source / "scores", mmap=True, load_vocab=False, show_progress=False
                )
            return cls(about["documents"], words, scores)
        except (*DAMAGED, LookupError, AttributeError) as error:
            raise ArtifactError(f"{folder}: the words cannot be read: {error}") from error

    def search(self, text: str, k: int, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        """Return the captions that hold words of a text, best first; of equal ones the first.

        Args:
            text: In any form; words that no caption holds count for nothing.
            k: At most so many.
            selection: Only these rows.

        Returns:
            Scores of BM25, float32, all above zero, and rows, int64.
        """
        known = [
            number for word in dict.fromkeys(words_of(text)) if (number := self._at(word)) >= 0
        ]
        if self._scores is None or not known:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        try:
            scores_N = self._scores.get_scores_from_ids(known)
        except (IndexError, ValueError) as error:
            raise ArtifactError(f"the scores of words are damaged: {error}") from error
        if selection.bitmap is not None:
            scores_N *= np.unpackbits(selection.bitmap, count=self.count, bitorder="little")
        rows = np.flatnonzero(scores_N > 0)
        best = largest(scores_N[rows], k)
        return scores_N[rows[best]], rows[best]

    def _at(self, word: str) -> int:
        place = bisect_left(self._words, word, key=lambda scalar: scalar.as_py())
        is_there = place < len(self._words) and self._words[place].as_py() == word
        return place if is_there else -1
