"""Order of the pairs in training: a pure function of the index, the seed and the epoch.

It is independent of the number of workers, which only determines the share of each worker in a
batch. So a run resumes from two numbers, epoch and step, also with more or fewer workers.

Each corpus has its own endless sequence of shuffled passes, and an epoch takes the next part of
each sequence, so a pair may occur in it several times. An epoch is a list of draws. A draw is the
number row + (number of all pairs) * (index of the corpus's pass within the epoch): it identifies
the pair, and lets its repetitions be cropped differently.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location

INDEX = "index.parquet"

_COLUMNS = ("pair_id", "shard", "offset", "size", "text_tokens")

PHASES, RUNS, PAIR, REPLACEMENT, PASSES = range(5)
"""Purposes of random numbers; each has a stream of its own."""


@dataclass(frozen=True)
class PairLocations:
    """Locations of a split's pairs, by corpus, shard and offset. 24 million take about 1 GB."""

    shards: tuple[str, ...]
    """Names of the shards, sorted within each corpus: ``train/00000.tar`` …"""

    corpora: tuple[str, ...]
    """The corpus of each shard, local or ``s3://``; shards of a corpus are consecutive."""

    shard: np.ndarray
    """Index of each pair's shard in ``shards``. Shape [n], int32."""

    offset: np.ndarray
    """Byte offset of each pair in its shard. Shape [n], int64."""

    size: np.ndarray
    """Size of each pair in bytes. Shape [n], int64."""

    text_tokens: np.ndarray
    """Number of CLIP tokens of each text, without start and end. Shape [n], int32."""

    pair_id: pa.Array
    """Id of each pair, ``large_string``. Shape [n]."""

    draws: tuple[int, ...] = ()
    """Pairs that an epoch draws from each corpus; empty: every pair once."""

    def __len__(self) -> int:
        return len(self.offset)


def open_index(corpus: str, *columns: str) -> pads.Dataset:
    """Open the index of a corpus, which must have the columns given, as an Arrow dataset.

    Raises:
        ArtifactError: If the corpus has no index, or the index lacks a column.
    """
    filesystem, path = open_location(corpus)
    try:
        # Dictionary-encoded: 24 million shard names would take 500 MB as text.
        reader = pads.ParquetFileFormat(dictionary_columns={"shard"})
        index = pads.dataset(f"{path}/{INDEX}", filesystem=filesystem, format=reader)
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(corpus, error) from error
    missing = sorted({*columns, "split"} - set(index.schema.names))
    if missing:
        raise ArtifactError(f"{corpus}/{INDEX} has no column {', '.join(missing)}")
    return index


def _unreadable(corpus: str, error: Exception) -> ArtifactError:
    return ArtifactError(
        f"{corpus}/{INDEX} cannot be read ({error}); give a folder published by assemble.py"
    )


def read_places(corpus: str, split: str, where: pc.Expression | None = None) -> PairLocations:
    """Return the locations of the pairs of a split, in the order of its shards.

    Args:
        corpus: A published corpus, local or ``s3://``.
        split: ``train``, ``val`` or ``test``.
        where: Condition on the columns of the index; None: all pairs of the split.

    Raises:
        ArtifactError: If the corpus has no index, or the index lacks a column.
    """
    index = open_index(corpus, *_COLUMNS)
    wanted = pc.field("split") == split
    try:
        table = index.to_table(
            columns=list(_COLUMNS), filter=wanted if where is None else wanted & where
        )
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(corpus, error) from error
    unplaced = sum(table[name].null_count for name in ("shard", "offset", "size"))
    if unplaced:
        raise ArtifactError(f"{corpus}/{INDEX} has {unplaced} rows of {split} without a shard")
    named = table["shard"].unify_dictionaries().combine_chunks()
    if isinstance(named, pa.ChunkedArray):  # Arrow does not combine zero chunks
        named = pa.array([], pa.dictionary(pa.int32(), pa.string()))
    names = np.array(named.dictionary.to_pylist(), str)
    shards, number_of = np.unique(names, return_inverse=True)
    shard = number_of.astype(np.int32)[named.indices.to_numpy()]
    offset = table["offset"].to_numpy().astype(np.int64, copy=False)
    order = np.lexsort((offset, shard))
    used = np.unique(shard)
    return PairLocations(
        shards=tuple(shards[used].tolist()),
        corpora=(corpus,) * len(used),
        shard=np.searchsorted(used, shard[order]).astype(np.int32),
        offset=offset[order],
        size=table["size"].to_numpy().astype(np.int64, copy=False)[order],
        text_tokens=pc.fill_null(table["text_tokens"], 0).to_numpy()[order].astype(np.int32),
        pair_id=table["pair_id"].cast(pa.large_string()).combine_chunks().take(pa.array(order)),
    )


def concatenate_corpora(places: Sequence[PairLocations], draws: Sequence[int]) -> PairLocations:
    """Concatenate the pairs of several corpora, in the order given.

    Args:
        places: The pairs of each corpus.
        draws: Pairs that an epoch draws from each corpus.
    """
    before = np.cumsum([0, *(len(each.shards) for each in places)])
    return PairLocations(
        shards=tuple(name for each in places for name in each.shards),
        corpora=tuple(uri for each in places for uri in each.corpora),
        shard=np.concatenate(
            [each.shard + first for each, first in zip(places, before, strict=False)]
        ).astype(np.int32),
        offset=np.concatenate([each.offset for each in places]),
        size=np.concatenate([each.size for each in places]),
        text_tokens=np.concatenate([each.text_tokens for each in places]),
        pair_id=pa.concat_arrays([each.pair_id for each in places]),
        draws=tuple(draws),
    )


@dataclass(frozen=True)
class EpochRuns:
    """Order of an epoch, stored as runs of consecutive draws; see ``epoch_order``.

    24 million pairs in runs of 8 take 26 MB; an array of all draws would take 192 MB.
    """

    starts: np.ndarray
    """First draw of each run, in order. Shape [runs], unsigned."""

    ends: np.ndarray
    """Number of draws up to the end of each run. Shape [runs], unsigned."""

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def draws(self, first: int, stop: int) -> np.ndarray:
        """Return the draws (see ``epoch_order``) from ``first`` up to but not including ``stop``.

        Shape [stop - first], int64; shorter at the end of the epoch.
        """
        stop = min(stop, len(self))
        if stop <= first:
            return np.empty(0, np.int64)
        low = int(np.searchsorted(self.ends, self.ends.dtype.type(first), "right"))
        high = int(np.searchsorted(self.ends, self.ends.dtype.type(stop), "left")) + 1
        ends = self.ends[low:high].astype(np.int64)
        begins = np.concatenate([[int(self.ends[low - 1]) if low else 0], ends[:-1]])
        shifts = self.starts[low:high].astype(np.int64) - begins
        lengths = np.minimum(ends, stop) - np.maximum(begins, first)
        draws: np.ndarray = np.arange(first, stop) + np.repeat(shifts, lengths)
        return draws


def epoch_order(places: PairLocations, *, seed: int, epoch: int, run_pairs: int) -> np.ndarray:
    """Return the draws of an epoch, in order; for a single corpus, a permutation of its rows.

    Runs of ``run_pairs`` consecutive pairs of a shard stay together, so that one request reads
    them. Run boundaries are drawn for each shard and pass: groupings differ between epochs, and
    the first and last run of a shard are shorter.

    With ``places.draws``, epoch e takes the draws e * k to (e + 1) * k of each corpus's sequence of
    passes, so that over all epochs every pair of a corpus is drawn equally often, or once more.

    Returns:
        Shape [draws]: row + (number of pairs) * (index of the corpus's pass within the epoch).
    """
    runs = epoch_runs(places, seed=seed, epoch=epoch, run_pairs=run_pairs)
    return runs.draws(0, len(runs))


def epoch_runs(places: PairLocations, *, seed: int, epoch: int, run_pairs: int) -> EpochRuns:
    """Return the runs of an epoch, in order: see ``epoch_order``."""
    pieces = list(_pieces(places, seed=seed, epoch=epoch, run_pairs=run_pairs))
    starts, lengths = (np.concatenate(each) for each in zip(*pieces, strict=True))
    del pieces
    moved = np.argsort(_draws(len(starts), RUNS, seed, epoch), kind="stable")
    starts, ends = starts[moved], np.cumsum(lengths[moved])
    return EpochRuns(_narrow(starts), _narrow(ends))


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return values that are not negative in the smallest unsigned type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _pieces(
    places: PairLocations, *, seed: int, epoch: int, run_pairs: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield first draws and lengths of the runs of an epoch, by corpus and pass."""
    for number, (first, end) in enumerate(itertools.pairwise(corpus_bounds(places))):
        pairs = end - first
        draws = places.draws[number] if places.draws else pairs
        begin, last = epoch * draws, (epoch + 1) * draws
        for again, each in enumerate(range(begin // pairs, -(-last // pairs))):
            starts, lengths = _runs(places, first, end, run_pairs, seed, each)
            low, high = max(begin - each * pairs, 0), min(last - each * pairs, pairs)
            if high - low < pairs:
                moved = np.argsort(_draws(len(starts), PASSES, seed, number, each), kind="stable")
                starts, lengths = _within(starts[moved], lengths[moved], low, high)
            yield starts + again * len(places), lengths


def _runs(
    places: PairLocations, first: int, end: int, run_pairs: int, *key: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return first rows and lengths of the runs of a pass over the rows ``first`` to ``end``."""
    if run_pairs == 1:
        return np.arange(first, end), np.ones(end - first, np.int64)
    phase = (_draws(len(places.shards), PHASES, *key) % run_pairs).astype(np.int64)
    # By shard, not by pair: a run begins at the first pair, and where phase % run_pairs is.
    used = np.arange(places.shard[first], places.shard[end - 1] + 1)
    begin = np.searchsorted(places.shard, used)
    sizes = np.diff(begin, append=end)
    begin, phase, sizes = begin[sizes > 0], phase[used][sizes > 0], sizes[sizes > 0]
    # Where the phase is 0, the first pair itself is at a boundary.
    before = np.where(phase == 0, run_pairs, phase)
    counts = 1 + np.maximum(0, -(-(sizes - before) // run_pairs))
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    inside = np.where(number == 0, 0, np.repeat(before, counts) + (number - 1) * run_pairs)
    starts = np.repeat(begin, counts) + inside
    return starts, np.diff(starts, append=end)


def _within(
    starts: np.ndarray, lengths: np.ndarray, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of consecutive runs that are within a range of all their pairs."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    cut = np.maximum(low - begins, 0)
    left = np.minimum(ends, high) - np.maximum(begins, low)
    kept = left > 0
    return (starts + cut)[kept], left[kept]


def corpus_bounds(places: PairLocations) -> list[int]:
    """Return the first row of each corpus, and the number of all rows."""
    begins = [
        shard
        for shard, uri in enumerate(places.corpora)
        if shard == 0 or uri != places.corpora[shard - 1]
    ]
    return [*np.searchsorted(places.shard, begins).tolist(), len(places)]


def generator(*key: int) -> np.random.Generator:
    """Return the random number generator of a key: the same stream on every machine.

    Args:
        key: The purpose, the seed of the run, and further numbers; all at least 0.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def _draws(count: int, *key: int) -> np.ndarray:
    # The raw words of a generator and a stable sort are the same in every version of NumPy;
    # Generator.permutation need not be (NEP 19), and workers of one run must agree.
    return np.asarray(np.random.PCG64(np.random.SeedSequence(key)).random_raw(count))
