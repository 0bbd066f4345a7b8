"""Mergeable counts of pairs: counts of pieces of an index, in any order, add up to the whole.

Counts are exact. A ``PairTally`` holds a count per distinct length and a row per article, so its
size grows with the articles and not with the pairs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PIXEL_BINS_PER_OCTAVE = 4
PIXEL_BINS = 17 * PIXEL_BINS_PER_OCTAVE
"""Bins of width and height up to 2^17 px, in steps of a quarter of an octave."""

LENGTHS = (
    "caption_tokens caption_chars text_tokens text_chars mention_chars width_px height_px"
).split()
FACTS = ("published", "language", "article_type", "journal")
_TEXT = (
    *("article_id", "split", "license", "license_group", "kind", "image_format", "cut_out"),
    *FACTS,
)
_NUMBERS = ("mention_count", "full_text_chars", "full_text_tokens", "size", *LENGTHS)
_REFERENCES = {
    "reference_tokens": "mention_token_counts",
    "reference_chars": "mention_char_counts",
}
"""Lengths of single paragraphs that cite an image, and their columns: a list for each pair."""
_COLUMNS = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in _TEXT),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        *(pa.field(name, pa.list_(pa.int64())) for name in _REFERENCES.values()),
        pa.field("mesh_terms", pa.list_(pa.string())),
    ]
)
READS = tuple(_COLUMNS.names)
"""Columns of ``index.parquet`` that a tally reads; those that an older corpus lacks are null."""

SEPARATOR = "\x1f"
_ARTICLE_KEYS = ("article_id", "split", "license", "license_group")
ARTICLE_FACTS = (*FACTS, "mesh", "full_text_chars", "full_text_tokens")
_PAIR_KEYS = ("split", "kind", "image_format", "cut_out")


@dataclass(frozen=True)
class ValueCounts:
    """Counts of distinct integers, which can be merged."""

    values: np.ndarray
    """Distinct values, ascending. int64, shape [V]."""

    counts: np.ndarray
    """Count of each value. int64, shape [V]."""

    @classmethod
    def of(cls, numbers: np.ndarray) -> "ValueCounts":
        """Count the distinct values of an array."""
        values, counts = np.unique(numbers.astype(np.int64), return_counts=True)
        return cls(values, counts.astype(np.int64))

    @classmethod
    def merge(cls, pieces: Sequence["ValueCounts"]) -> "ValueCounts":
        """Return the merged counts of several pieces."""
        values, place = np.unique(
            np.concatenate([piece.values for piece in pieces]), return_inverse=True
        )
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, place, np.concatenate([piece.counts for piece in pieces]))
        return cls(values, counts)

    def quantile(self, share: float) -> float:
        """Return a quantile of the values, as ``numpy.quantile``; at least one is required."""
        position = share * (int(self.counts.sum()) - 1)
        below = int(position)
        ends = np.cumsum(self.counts)
        last = int(ends[-1]) - 1
        at = np.searchsorted(ends, [below, min(below + 1, last)], side="right")
        low, high = self.values[at]
        return float(low + (high - low) * (position - below))

    def above(self, limit: int) -> int:
        """Return the number of values greater than a limit."""
        return int(self.counts[np.searchsorted(self.values, limit, side="right") :].sum())

    def total(self) -> int:
        """Return the sum of all values, with repetitions."""
        # Python integers: the areas of 24 million images come close to 2^63.
        return sum(int(v) * int(n) for v, n in zip(self.values, self.counts, strict=True))

    def summary(self) -> dict[str, int | float | None]:
        """Return count, range, mean, quantiles and total; None without values.

        ``std`` is that of the population: the squares are divided by the count.
        """
        count = int(self.counts.sum())
        if count == 0:
            names = "min max mean std median first_quartile third_quartile iqr".split()
            return {"count": 0, **dict.fromkeys(names), "total": 0}
        first, third = self.quantile(0.25), self.quantile(0.75)
        mean = self.total() / count
        variance = float((self.counts * (self.values - mean) ** 2).sum()) / count
        return {
            "count": count,
            "min": int(self.values[0]),
            "max": int(self.values[-1]),
            "mean": mean,
            "std": math.sqrt(variance),
            "median": self.quantile(0.5),
            "first_quartile": first,
            "third_quartile": third,
            "iqr": third - first,
            "total": self.total(),
        }


@dataclass(frozen=True)
class PairTally:
    """Counts of some pairs; add tallies with ``merge``."""

    lengths: Mapping[str, ValueCounts]
    """Distinct values by column; also ``area_px`` and ``pixel_bins``, bins of image sizes."""

    pairs: pa.Table
    """A row per split, kind, format and ``cut_out``: ``pairs``, ``mentions``, ``size_bytes``."""

    articles: pa.Table
    """One row per article, split, licence and licence group: its pairs, and article metadata."""


def tally(pairs: pa.Table | pa.RecordBatch) -> PairTally:
    """Return the counts of some rows of the index; only the columns ``READS`` are used."""
    existing = set(pairs.schema.names)
    table = pa.table(
        {name: pairs[name] if name in existing else pa.nulls(len(pairs)) for name in READS}
    ).cast(_COLUMNS)
    lengths = {name: ValueCounts.of(numbers(table, name)) for name in LENGTHS}
    cited = table.filter(pc.greater(table["mention_count"], 0))
    lengths["mention_chars"] = ValueCounts.of(numbers(cited, "mention_chars"))
    for name, column in _REFERENCES.items():
        lengths[name] = ValueCounts.of(pc.list_flatten(table[column]).to_numpy())
    sized = table.select(["width_px", "height_px"]).drop_null()
    width, height = numbers(sized, "width_px"), numbers(sized, "height_px")
    lengths["area_px"] = ValueCounts.of(width * height)
    lengths["short_side_px"] = ValueCounts.of(np.minimum(width, height))
    lengths["pixel_bins"] = ValueCounts.of(_pixel_bin(width) * PIXEL_BINS + _pixel_bin(height))
    table = (
        table.append_column("pairs", pa.array(np.ones(len(table), np.int64)))
        .append_column("mentions", table["mention_count"])
        .append_column("size_bytes", table["size"])
        .append_column("mesh", pc.binary_join(table["mesh_terms"], SEPARATOR))
    )
    return PairTally(lengths, _grouped_pairs(table), _grouped_articles(table))


def merge(tallies: Iterable[PairTally]) -> PairTally:
    """Return the sum of tallies, with few of them in memory at a time.

    Tallies are merged in pairs of similar size, as in merge sort: each row is copied a logarithmic
    number of times.
    """
    waiting: list[tuple[int, PairTally]] = []
    for piece in tallies:
        rank = 0
        while waiting and waiting[-1][0] == rank:
            piece = _merge([waiting.pop()[1], piece])
            rank += 1
        waiting.append((rank, piece))
    return _merge([piece for _, piece in waiting] or [tally(_COLUMNS.empty_table())])


def numbers(table: pa.Table, name: str) -> np.ndarray:
    """Return the non-null values of a column, as int64."""
    return np.asarray(table[name].drop_null().to_numpy()).astype(np.int64)


def _pixel_bin(side_px: np.ndarray) -> np.ndarray:
    octaves: np.ndarray = np.log2(np.maximum(side_px, 1))
    bins = (octaves * PIXEL_BINS_PER_OCTAVE).astype(np.int64)
    return np.asarray(np.minimum(bins, PIXEL_BINS - 1))


def _grouped_pairs(table: pa.Table) -> pa.Table:
    return grouped(table, _PAIR_KEYS, sums=("pairs", "mentions", "size_bytes"))


def _grouped_articles(table: pa.Table) -> pa.Table:
    return grouped(table, _ARTICLE_KEYS, sums=("pairs",), minima=ARTICLE_FACTS)


def grouped(
    table: pa.Table, keys: Sequence[str], sums: Sequence[str], minima: Sequence[str] = ()
) -> pa.Table:
    """Return a table grouped by keys, with sums of some columns and minima of others."""
    aggregations = [*((name, "sum") for name in sums), *((name, "min") for name in minima)]
    rows = table.group_by(list(keys), use_threads=False).aggregate(aggregations)
    return rows.rename_columns([*keys, *sums, *minima])


def _merge(pieces: Sequence[PairTally]) -> PairTally:
    return PairTally(
        {
            name: ValueCounts.merge([piece.lengths[name] for piece in pieces])
            for name in pieces[0].lengths
        },
        _grouped_pairs(pa.concat_tables([piece.pairs for piece in pieces])),
        _grouped_articles(pa.concat_tables([piece.articles for piece in pieces])),
    )
