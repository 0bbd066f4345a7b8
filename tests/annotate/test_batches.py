"""Rows of a table in batches, and what is computed of them in parts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.annotate import batches, pieces
from biovl.annotate.batches import Unit
from biovl.core.errors import ArtifactError
from biovl.core.tables import open_table
from tests.annotate.small_models import write_table


class Lengths:
    """An annotator by hand: how long an image's bytes are, as a vector."""

    name = "length"
    reads = ("image",)
    writes = pa.schema([("length", pa.list_(pa.float16(), 2)), ("kind", pa.string())])
    counted = ("kind",)
    notes: Mapping[str, Any] = {}

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | str:
        if row["image"] is None:
            return "no image"
        return np.array([len(row["image"]), 1], np.float32)

    def load(self, device: str, precision: str) -> "Lengths":
        return self

    def __call__(self, prepared: np.ndarray) -> dict[str, np.ndarray]:
        kinds = np.where(prepared[:, 0] > 2, "long", "short").astype(object)
        return {"length": prepared, "kind": kinds}


@pytest.mark.parametrize(
    ("group_rows", "least", "groups"),
    [
        ([5, 5, 5], 5, [(0,), (1,), (2,)]),
        ([5, 5, 5], 8, [(0, 1), (2,)]),
        ([50], 8, [(0,)]),
        ([], 8, []),
        ([0], 8, []),
    ],
)
def test_units_are_whole_row_groups(
    group_rows: list[int], least: int, groups: list[tuple[int, ...]]
) -> None:
    units = list(batches._units(0, group_rows, least))
    assert [unit.groups for unit in units] == groups
    assert sum(unit.rows for unit in units) == sum(group_rows)


def test_batches_are_of_one_size_but_for_the_last_of_a_unit() -> None:
    unit = Unit(part=0, first=10, rows=7, groups=(1,))
    assert list(unit.batches(3)) == [(10, 3), (13, 3), (16, 1)]


def read(table_uri: Path, size: int, skip: set[int] = frozenset()) -> list[batches.RowBatch]:
    table = open_table(str(table_uri))
    return [
        batches.batch_of(row, 0)
        for unit in batches.plan(table, 10)
        for row in batches.prepare(Lengths(), table, unit, size, set(skip))
    ]


def test_rows_reach_the_model_in_order_and_defects_keep_their_places(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t", [[b"a", None, b"abc", b"ab", b"abcd"], [], [None]])
    found = read(tmp_path / "t", 3)
    assert [(batch.part, batch.first) for batch in found] == [(0, 0), (0, 3), (2, 0)]
    assert found[0].prepared.tolist() == [[1, 1], [3, 1]]
    assert found[0].defects == [None, "no image", None]
    assert found[2].prepared.shape == (0,)
    assert [batch.first for batch in read(table, 3, {0})] == [3]


def test_images_in_structs_as_hugging_face_has_them(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    cells = [{"bytes": b"ab", "path": "a.png"}, {"bytes": None, "path": "b.png"}, None]
    pq.write_table(pa.table({"image": cells}), tmp_path / "t" / "train.parquet")
    table = open_table(str(tmp_path / "t"))
    (unit,) = batches.plan(table, 10)
    found = [row["image"].as_py() for row in batches.rows_of(table, unit, ["image"], 8)]
    assert found == cells


def test_parts_hold_the_results_row_for_row(tmp_path: Path) -> None:
    images = [b"a", None, b"abc", b"a" * 70_000, b"abcd"]
    table = open_table(str(write_table(tmp_path / "t", [images])))
    out, own = str(tmp_path / "out"), Lengths()
    units = batches.plan(table, 10)
    for batch in read(tmp_path / "t", 2):
        pieces.write(out, own, own, batch)
    receipt = pieces.join(out, own, table.parts[0], units, 2)
    part = pq.read_table(tmp_path / "out" / "part-000000-000.parquet")
    assert part["length"].to_pylist() == [[1, 1], None, [3, 1], None, [4, 1]]
    # 70,000 is more than float16 holds.
    defects = [None, "no image", None, "embedding is not finite", None]
    assert part["length_defect"].to_pylist() == defects
    assert part["kind"].to_pylist() == ["short", None, "long", None, "long"]
    assert part.schema == pieces.schema_of(own)
    assert pieces.totals([receipt]) == {
        "rows": 5,
        "annotated": 3,
        "defective": 2,
        "defects": {"embedding is not finite": 1, "no image": 1},
        "kind": {"long": 2, "short": 1},
    }


def test_only_the_columns_an_annotator_reads_are_read(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t", [[b"image" * 10_000] * 20])
    path = folder / "part-000000-000.parquet"
    table = open_table(str(folder))
    # Where the column of images stands, nothing is left to be read.
    chunks = [pq.read_metadata(path).row_group(group).column(0) for group in range(4)]
    data = bytearray(path.read_bytes())
    for chunk in chunks:
        assert chunk.path_in_schema == "image"
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(data)
    unit = batches.plan(table, 100)[0]
    rows = list(batches.rows_of(table, unit, ["caption"], 8))
    assert [row["caption"].as_py() for row in rows] == [f"caption 0 {n}" for n in range(20)]
    with pytest.raises(ArtifactError, match=r"part-000000-000\.parquet"):
        list(batches.rows_of(table, unit, ["image"], 8))
