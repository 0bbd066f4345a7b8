"""Order of the pairs in training: a pure function of the index, the seed and the epoch.

It is independent of the number of workers, which only determines the share of each worker in a
batch. So a run resumes from two numbers, epoch and step, also with more or fewer workers.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location
from biovl.runtime.workers import share

INDEX = "index.parquet"

_COLUMNS = ("pair_id", "shard", "offset", "size", "text_tokens")

PHASES, RUNS, PAIR, REPLACEMENT = range(4)
"""Purposes of random numbers; each has a stream of its own."""


@dataclass(frozen=True)
class PairLocations:
    """Locations of the pairs of a split, by shard and offset. 24 million take about 1 GB."""

    shards: tuple[str, ...]
    """Sorted names of the shards: ``train/00000.tar`` …"""

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

    def __len__(self) -> int:
        return len(self.offset)


def read_places(corpus: str, split: str) -> PairLocations:
    """Return the locations of the pairs of a split, in the order of its shards.

    Args:
        corpus: A published corpus, local or ``s3://``.
        split: ``train``, ``val`` or ``test``.

    Raises:
        ArtifactError: If the corpus has no index, or the index lacks a column.
    """
    filesystem, path = open_location(corpus)
    try:
        # Dictionary-encoded: 24 million shard names would take 500 MB as text.
        reader = pads.ParquetFileFormat(dictionary_columns={"shard"})
        index = pads.dataset(f"{path}/{INDEX}", filesystem=filesystem, format=reader)
        missing = sorted({*_COLUMNS, "split"} - set(index.schema.names))
        if missing:
            raise ArtifactError(f"{corpus}/{INDEX} has no column {', '.join(missing)}")
        table = index.to_table(columns=list(_COLUMNS), filter=pc.field("split") == split)
    except (OSError, pa.ArrowInvalid) as error:
        raise ArtifactError(
            f"{corpus}/{INDEX} cannot be read ({error}); give a folder published by assemble.py"
        ) from error
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
        shard=np.searchsorted(used, shard[order]).astype(np.int32),
        offset=offset[order],
        size=table["size"].to_numpy().astype(np.int64, copy=False)[order],
        text_tokens=pc.fill_null(table["text_tokens"], 0).to_numpy()[order].astype(np.int32),
        pair_id=table["pair_id"].cast(pa.large_string()).combine_chunks().take(pa.array(order)),
    )


def epoch_order(places: PairLocations, *, seed: int, epoch: int, run_pairs: int) -> np.ndarray:
    """Return the order of an epoch: a permutation of the pairs. Shape [n], int64.

    Runs of ``run_pairs`` consecutive pairs of a shard stay together, so that one request reads
    them. Run boundaries are drawn for each shard and epoch: groupings differ between epochs, and
    the first and last run of a shard are shorter.
    """
    pairs = len(places)
    if run_pairs == 1:
        return np.argsort(_draws(pairs, RUNS, seed, epoch), kind="stable")
    first = np.searchsorted(places.shard, np.arange(len(places.shards)))
    phase = (_draws(len(places.shards), PHASES, seed, epoch) % run_pairs).astype(np.int64)
    in_shard = np.arange(pairs) - first[places.shard]
    begins = (in_shard == 0) | ((in_shard - phase[places.shard]) % run_pairs == 0)
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=pairs)
    moved = np.argsort(_draws(len(starts), RUNS, seed, epoch), kind="stable")
    lengths = lengths[moved]
    # A run that starts at `to` in the new order started at `starts` before.
    to = np.cumsum(lengths) - lengths
    order: np.ndarray = np.arange(pairs) + np.repeat(starts[moved] - to, lengths)
    return order


def batch_of(order: np.ndarray, step: int, batch_pairs: int) -> np.ndarray:
    """Return the rows of a batch, over all workers, for a step of an epoch. Shape [N], int64."""
    return order[step * batch_pairs : (step + 1) * batch_pairs]


def rows_of(order: np.ndarray, step: int, batch_pairs: int, rank: int, workers: int) -> np.ndarray:
    """Return the rows of one worker in a step of an epoch: its share of the batch, in order."""
    own = share(batch_pairs, rank, workers)
    return batch_of(order, step, batch_pairs)[own.start : own.stop]


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
