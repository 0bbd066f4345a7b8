"""Reading rows of a table and its embedding by block."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.concepts.blocks import NO_EMBEDDING, block_count, open_source, read_vectors
from biovl.core.errors import ArtifactError
from tests.concepts.folders import write_embedding, write_table


def numbered(rows: int) -> np.ndarray:
    return np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)


def read(table: Path, first: int, stop: int) -> tuple[list[bool], np.ndarray, Counter[str]]:
    found = list(read_vectors(open_source(str(table), None), first, stop))
    return (
        np.concatenate([part.is_usable_N for part in found]).tolist(),
        np.concatenate([part.vectors_UD for part in found]),
        sum((part.reasons for part in found), Counter[str]()),
    )


def test_rows_are_those_of_the_table_across_parts_and_row_groups(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [70, 0, 130])
    write_embedding(table, numbered(200))
    assert block_count(open_source(str(table), None).table, 64) == 4
    _, vectors, _ = read(table, 64, 128)
    assert np.array_equal(vectors, numbered(200)[64:128])


def test_what_has_no_usable_embedding_is_told_with_its_reason(tmp_path: Path) -> None:
    vectors = numbered(10)
    vectors[2] = np.nan
    vectors[5, 1], vectors[6, 2] = np.inf, np.nan
    table = write_table(tmp_path / "table", [4, 6])
    write_embedding(table, vectors)
    is_usable, found, reasons = read(table, 0, 10)
    assert is_usable == [row not in (2, 5, 6) for row in range(10)]
    assert np.array_equal(found, numbered(10)[is_usable])
    assert reasons == {"image does not decode": 1, "embedding is not finite": 2}


def test_an_embedding_without_reasons_is_just_not_there(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [3])
    out = write_embedding(table, numbered(3))
    columns = {"dinov2": pa.array([[1, 2, 3], None, [4, None, 5]], pa.list_(pa.float32(), 3))}
    pq.write_table(pa.table(columns), out / "part-000.parquet")
    is_usable, found, reasons = read(table, 0, 3)
    assert is_usable == [True, False, False]
    assert found.tolist() == [[1, 2, 3]]
    assert reasons == {NO_EMBEDDING: 1, "embedding is not finite": 1}


def test_an_embedding_of_another_table_is_refused(tmp_path: Path) -> None:
    one, other = write_table(tmp_path / "one", [5]), write_table(tmp_path / "other", [6])
    columns = write_embedding(one, numbered(5))
    with pytest.raises(ArtifactError, match=str(other)):
        open_source(str(other), str(columns))


def test_columns_that_are_no_embedding_are_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [5])
    columns = write_embedding(table, numbered(5), notes={"columns": ["sharpness"]})
    with pytest.raises(ArtifactError, match="sharpness"):
        open_source(str(table), str(columns))


def test_a_column_that_holds_no_vectors_is_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [2])
    out = write_embedding(table, numbered(2))
    pq.write_table(pa.table({"dinov2": ["a", "b"]}), out / "part-000.parquet")
    with pytest.raises(ArtifactError, match=r"string.* dinov2"):
        open_source(str(table), None)


def test_columns_shorter_than_their_part_are_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [5])
    out = write_embedding(table, numbered(5))
    kind = pa.list_(pa.float16(), 3)
    pq.write_table(
        pa.table({"dinov2": pa.array([np.ones(3, np.float16)], kind)}), out / "part-000.parquet"
    )
    with pytest.raises(ArtifactError, match=r"part-000.parquet .*1 .* 5"):
        read(table, 0, 5)
