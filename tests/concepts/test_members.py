"""What people are shown of a cluster, whatever the columns of a table are like."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.concepts import cluster_steps, members
from biovl.concepts.members import WANTED
from biovl.core.tables import open_table
from tests.concepts.folders import image_of


def shown(folder: Path, **columns: Any) -> list[dict[str, Any]]:
    """Return the members that are shown of a table of three rows."""
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part-000.parquet")
    wanted = np.zeros(3, WANTED)
    wanted["row"] = wanted["rank"] = np.arange(3)
    return list(members._read(open_table(str(folder)), wanted))


IMAGES = [image_of(number) for number in range(3)]


def test_images_in_structs_are_shown_as_others(tmp_path: Path) -> None:
    structs = [{"bytes": image, "path": None} for image in IMAGES]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    found = shown(tmp_path / "t", image=pa.array(structs, kind))
    assert [row["thumbnail"] is not None for row in found] == [True] * 3
    assert [(row["width_px"], row["height_px"]) for row in found] == [(40, 24)] * 3
    assert [row["row_id"] for row in found] == [f"part-000.parquet:{n}" for n in range(3)]


@pytest.mark.parametrize("captions", [[1.5, None, 2.0], [["a"], [], None]])
def test_a_caption_that_is_no_text_is_none(tmp_path: Path, captions: list[Any]) -> None:
    found = shown(tmp_path / "t", image=pa.array(IMAGES), caption=captions)
    assert [row["caption"] for row in found] == ["", "", ""]
    pa.Table.from_pylist(found, members.MEMBER_SCHEMA)


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ([7, 8, 9], ["7", "8", "9"]),
        (pa.array([b"\xff\x00", b"a", b""], pa.binary()), ["ff00", "61", ""]),
    ],
)
def test_members_are_named_as_their_rows_are(tmp_path: Path, ids: Any, names: list[str]) -> None:
    found = shown(tmp_path / "t", id=ids, image=pa.array(IMAGES))
    assert [row["row_id"] for row in found] == names
    table = open_table(str(tmp_path / "t"))
    assert [name for some in cluster_steps.row_ids(table, 0, 3) for name in some] == names
