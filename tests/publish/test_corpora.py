"""Selection of the rows of a corpus, without Ray and without a hub."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.publish import corpora
from biovl.publish.rights import RequestedRows


def test_a_corpus_without_val_and_test_can_be_selected_from(tmp_path: Path) -> None:
    rows = [
        {
            "split": "train",
            "shard": "train/00000.tar",
            "offset": 512 * number,
            "size": 512,
            "license_group": group,
            "redistributable": True,
            "third_party": False,
        }
        for number, group in enumerate(["commercial", "noncommercial", "commercial"])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "index.parquet")
    shards = corpora.plan(
        str(tmp_path),
        str(tmp_path / "out"),
        RequestedRows(groups=("commercial",)),
        max_bytes=10_000,
        max_pairs=1,
    )
    assert shards == {"train": 2, "val": 0, "test": 0}
