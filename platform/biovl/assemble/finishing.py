"""Files of a corpus besides its shards: the index, dropped figures, statistics, plots and card."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.assemble import balance, card, plots
from biovl.assemble import pairs as pairing
from biovl.assemble.config import TextChoice
from biovl.assemble.tally import PairTally, merge, tally
from biovl.core.artifacts import Manifest, to_json
from biovl.core.folders import Folder

INDEX, DROPPED = "index.parquet", "dropped.parquet"


@dataclass(frozen=True, kw_only=True)
class IndexedPairs:
    """Counts of the pairs of an index."""

    pairs: PairTally
    labels: Mapping[str, Counter[tuple[str, str]]]
    """Pairs with each label and licence group, by column."""
    texts: Counter[str]
    """Pairs with a generated text, and those with their caption by reason; see ``count_texts``."""


def write_index(
    folder: Folder, tables: Iterable[pa.Table], labels: Iterable[str], text: TextChoice
) -> IndexedPairs:
    """Write the index of a corpus, and count its pairs.

    Args:
        folder: The corpus.
        tables: The rows of the index.
        labels: Names of the columns of labels.
        text: The text of the pairs.
    """
    labelled: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in labels}
    texts: Counter[str] = Counter()

    def tallies() -> Iterator[PairTally]:
        for table in _write_and_yield(folder, INDEX, tables):
            for name, counter in labelled.items():
                counter.update(balance.counts_by_group(table[name], table["license_group"]))
            pairing.count_texts(table, text, texts)
            yield tally(table)

    return IndexedPairs(pairs=merge(tallies()), labels=labelled, texts=texts)


def write_dropped(folder: Folder, tables: Iterable[pa.Table]) -> Counter[str]:
    """Write the figures that are not in a corpus; return their number by reason."""
    reasons: Counter[str] = Counter()
    for table in _write_and_yield(folder, DROPPED, tables):
        reasons.update(table["dropped_by"].to_pylist())
    return reasons


def write_description(
    folder: Folder, manifest: Manifest, stats: Mapping[str, Any], record: pa.Schema
) -> None:
    """Write the statistics, the plots and the dataset card."""
    drawn = plots.plots(stats)
    for name, png in drawn.items():
        folder.write(f"{card.PLOTS}/{name}", png)
    folder.write("stats.json", to_json(stats))
    text = card.dataset_card(dataclasses.asdict(manifest), stats, record=record, plots=list(drawn))
    folder.write("README.md", text.encode())


def _write_and_yield(folder: Folder, name: str, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Write tables to one Parquet file, and yield each once it is written."""
    with folder.writer(name) as stream, contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in tables:
            if writer is None:
                writer = pq.ParquetWriter(stream, table.schema, compression="zstd")
                stack.enter_context(writer)
            writer.write_table(table)
            yield table
