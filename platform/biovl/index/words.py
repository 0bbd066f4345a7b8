"""Word search in captions: a memory-mapped BM25 index (bm25s).

    words.json               number of documents, and parameters
    values.arrow             sorted words
    scores/                  bm25s: for each word its captions, and what it adds to their scores

Words are in lower case, without some stop words, and not stemmed, because the stem of a gene name
or abbreviation may be another name. A compound is indexed as a whole, without its hyphen, and by
its parts, so that ``IL-6`` is found by ``IL-6``, ``IL6`` and ``6``.
"""

import itertools
import json
import math
import os
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pyarrow as pa

from biovl.core.errors import ArtifactError
from biovl.index.filters import Selection
from biovl.index.mapped import DAMAGED, map_texts, places_of
from biovl.index.postings import ArrayFile, Runs, Stretch, write_texts
from biovl.index.ranking import largest
from biovl.index.spelling import plain

STOP_WORDS = frozenset(
    "a an and are as at be been but by for from had has have in into is it its of on or our that "
    "the their then there these they this to was we were which while who will with".split()
)

# Letters and digits, and characters that join them in names: IL-6, 18F-FDG, α/β, 5′-UTR, CD4+.
_COMPOUND = re.compile(r"[^\W_]+(?:[-./'+][^\W_]+)*")
_PARTS = re.compile(r"[-./'+]")
_K1, _B = 1.5, 0.75
_BLOCK = 32_768
"""Captions per batch when words are counted: about 30 bytes of memory per word."""
_SCORED = 1_000_000
_MOST_READ = 8
_READ_AT_LEAST = 4_000_000
"""Maximum number of list entries read per query: a multiple of the number of captions, or the
second number if it is larger; the rarest words come first. A long text of frequent words would
otherwise take seconds."""


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: ``IL-6 levels`` gives il-6, il6, il, 6, levels."""
    words = []
    for compound in _COMPOUND.findall(plain(text).lower()):
        parts = _PARTS.split(compound)
        if len(parts) > 1:
            words += [compound, "".join(parts)]
        words += parts
    return [word for word in words if word not in STOP_WORDS]


class Words:
    """A memory-mapped BM25 index of captions. Thread-safe."""

    def __init__(self, count: int, words: pa.Array, scores: "bm25s.BM25 | None") -> None:
        self.count = count
        """Captions."""
        self._words = words
        self._scores = scores

    @classmethod
    def build(cls, captions: Iterable[str | None], folder: str | os.PathLike[str]) -> None:
        """Build the index of captions, in the order of rows, in a folder.

        Memory holds four bytes per caption, every word once, and the words of one batch of
        captions.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with Runs(target / "runs") as runs:
            lengths = [np.empty(0, np.int32)]
            for block in _blocks(captions):
                lengths.append(_add(runs, block, sum(map(len, lengths))))
            length_N = np.concatenate(lengths)
            words, counts_V, stretches = runs.joined()
            write_texts(words, target / "values.arrow", name="word")
            if len(words):
                _write_scores(target / "scores", length_N, counts_V, stretches)
        about = {"documents": len(length_N), "words": len(words)}
        (target / "words.json").write_text(json.dumps(about) + "\n")

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Words":
        """Memory-map the files written by ``build``.

        Raises:
            ArtifactError: If a file is missing, corrupt or inconsistent with the others.
        """
        source = Path(folder)
        try:
            about = json.loads((source / "words.json").read_bytes())
            words = map_texts(source / "values.arrow")
            scores = None
            if about["words"]:
                scores = bm25s.BM25.load(
                    source / "scores", mmap=True, load_vocab=False, show_progress=False
                )
            return cls(about["documents"], words, scores)
        except (*DAMAGED, LookupError, AttributeError) as error:
            raise ArtifactError(f"{folder}: the words cannot be read: {error}") from error

    def search(self, text: str, k: int, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        """Return the captions that contain words of a text, by descending score, then by row.

        Args:
            text: The query; words that occur in no caption are ignored.
            k: Maximum number of results.
            selection: The matching rows.

        Returns:
            BM25 scores, float32, all positive, and rows, int64.

        Raises:
            ArtifactError: If the stored scores are damaged.
        """
        known = places_of(self._words, dict.fromkeys(words_of(text)))
        if self._scores is None or not known:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        try:
            scores_N = self._scores.get_scores_from_ids(self._affordable(self._scores, known))
        except (IndexError, ValueError) as error:
            raise ArtifactError(f"the scores of words are damaged: {error}") from error
        if selection.bitmap is not None:
            scores_N *= np.unpackbits(selection.bitmap, count=self.count, bitorder="little")
        rows = np.flatnonzero(scores_N > 0)
        best = largest(scores_N[rows], k)
        return scores_N[rows[best]], rows[best]

    def _affordable(self, scores: Any, known: list[int]) -> list[int]:
        """Return the words in order, without the most frequent ones if all would take too long."""
        starts = scores.scores["indptr"]
        captions_W = np.array([int(starts[word + 1] - starts[word]) for word in known])
        order = np.argsort(captions_W, kind="stable")
        is_within = np.cumsum(captions_W[order]) <= max(_MOST_READ * self.count, _READ_AT_LEAST)
        is_within[0] = True
        return [known[place] for place in np.sort(order[is_within])]


def _blocks(captions: Iterable[str | None]) -> Iterator[list[str | None]]:
    waiting = iter(captions)
    while block := list(itertools.islice(waiting, _BLOCK)):
        yield block


def _add(runs: Runs, captions: list[str | None], first: int) -> np.ndarray:
    """Add captions, the first of which has row ``first``; return their lengths in words."""
    numbers: dict[str, int] = {}
    lengths = array("i")
    length_B = np.empty(len(captions), np.int32)
    for place, caption in enumerate(captions):
        before = len(lengths)
        lengths.extend(numbers.setdefault(word, len(numbers)) for word in words_of(caption or ""))
        length_B[place] = len(lengths) - before
    row_M = np.repeat(np.arange(first, first + len(captions)), length_B)
    runs.add(list(numbers), np.frombuffer(lengths, np.int32), row_M)
    return length_B


def _write_scores(
    folder: Path, length_N: np.ndarray, counts_V: np.ndarray, stretches: Iterable[Stretch]
) -> None:
    """Write the same scores as bm25s, bit for bit, for a range of words at a time.

    bm25s itself holds every word of every caption as a Python number.
    """
    count = len(length_N)
    scores = bm25s.BM25(k1=_K1, b=_B, method="lucene")
    nothing = np.empty(0, np.int32)
    scores.scores = {"data": nothing, "indices": nothing, "indptr": nothing, "num_docs": count}
    scores.vocab_dict, scores.nonoccurrence_array = {}, None
    scores.save(folder, show_progress=False)
    (folder / "vocab.index.json").unlink()
    starts = np.concatenate([[0], np.cumsum(counts_V)])
    np.save(folder / "indptr.csc.index.npy", starts)
    different, which_V = np.unique(counts_V, return_inverse=True)
    # IDF of Lucene: ln(1 + (N - n + 0.5) / (n + 0.5)).
    idf = [math.log(1 + (count - n + 0.5) / (n + 0.5)) for n in different.tolist()]
    idf_V = np.array(idf, np.float32)[which_V]
    mean = length_N.mean()
    total = int(starts[-1])
    with (
        ArrayFile(folder / "data.csc.index.npy", np.dtype(np.float32), (total,)) as data,
        ArrayFile(folder / "indices.csc.index.npy", np.dtype(np.int32), (total,)) as indices,
    ):
        for some in stretches:
            idf_W = idf_V[some.first : some.first + len(some.counts_W)]
            ends_W = np.cumsum(some.counts_W)
            for at, rows_B in _in_blocks(some.rows_M):
                times_B = some.times_M[at].astype(np.float32)
                damped_B = times_B / (_K1 * ((1 - _B) + _B * length_N[rows_B] / mean) + times_B)
                word_B = np.searchsorted(ends_W, np.arange(at.start, at.stop), "right")
                data.write(idf_W[word_B] * damped_B)
                indices.write(rows_B)


def _in_blocks(rows_M: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    for start in range(0, len(rows_M), _SCORED):
        at = slice(start, min(start + _SCORED, len(rows_M)))
        yield at, rows_M[at]
