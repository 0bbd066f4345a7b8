"""A table of images is known by its fingerprint: of a plain one, the files and when they were made."""

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.core.errors import DamagedTable
from biovl.core.folders import Folder
from biovl.core.parts import PartFormat, RowWriter
from biovl.core.tables import open_part, open_table, read_table, write_table


def jpeg(seed: int) -> bytes:
    """Return a JPEG; what follows its end is not read, and makes all of them as long."""
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue().ljust(4_096, b"\0")


def write(path: Path, images: list[bytes], made_ns: int) -> None:
    table = pa.table({"image": images})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    os.utime(path, ns=(made_ns, made_ns))


def test_a_plain_table_written_again_with_its_rows_swapped_is_another(tmp_path: Path) -> None:
    path, images = tmp_path / "part-0.parquet", [jpeg(0), jpeg(1)]
    write(path, images, 10**18)
    before, footer = open_table(str(tmp_path)).fingerprint, pq.read_metadata(path).to_dict()
    write(path, images[::-1], 10**18 + 1)
    # Its length and the end of the file say nothing of it.
    assert pq.read_metadata(path).to_dict() == footer
    assert open_table(str(tmp_path)).fingerprint != before


def test_a_plain_table_that_nobody_writes_stays_the_same(tmp_path: Path) -> None:
    write(tmp_path / "part-0.parquet", [jpeg(0)], 10**18)
    before = open_table(str(tmp_path))
    (tmp_path / "columns").mkdir()
    (tmp_path / "notes.txt").write_text("seen")
    assert open_table(str(tmp_path)) == before


def plain_parts(folder: Path, images: list[bytes]) -> dict:
    form = PartFormat[bytes](
        name=lambda number: f"part-{number}.parquet",
        schema=pa.schema([("image", pa.binary())]),
        table=lambda rows: pa.table({"image": rows}),
        weight=len,
        part_bytes=1 << 20,
    )
    with RowWriter(Folder(str(folder)), form, at_least_one=True) as writer:
        for image in images:
            writer.add(image)
    return writer.files


def test_parts_are_known_by_their_content(tmp_path: Path) -> None:
    images = [b"cat", b"dog"]
    (first,) = plain_parts(tmp_path / "a", images).values()
    (second,) = plain_parts(tmp_path / "b", images[::-1]).values()
    assert first["rows"] == second["rows"]
    assert first["sha256"] != second["sha256"]
    stored = (tmp_path / "a" / "part-0.parquet").read_bytes()
    assert first["sha256"] == hashlib.sha256(stored).hexdigest()


@pytest.mark.parametrize("size", [0, 3, 200, -1])
def test_a_truncated_file_is_named(size: int, tmp_path: Path) -> None:
    plain_parts(tmp_path, [b"image"])
    path = tmp_path / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:size])
    with (
        pytest.raises(DamagedTable, match=rf"{path} is truncated or corrupt: .* Copy or publish"),
        open_part(Folder(str(tmp_path)), path.name),
    ):
        pass


def test_flipped_bits_of_an_image_are_noticed(tmp_path: Path) -> None:
    folder, image = Folder(str(tmp_path)), np.random.default_rng(0).bytes(20_000)
    plain_parts(tmp_path, [image])
    with open_part(folder, "part-0.parquet") as part:
        assert part.read()["image"].to_pylist() == [image]
    path = tmp_path / "part-0.parquet"
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.write_bytes(stored)
    with (
        pytest.raises(DamagedTable, match=r"part-0\.parquet"),
        open_part(folder, path.name) as part,
    ):
        part.read()


def test_a_table_is_read_as_written_or_in_the_order_of_the_columns_asked_for(
    tmp_path: Path,
) -> None:
    folder, table = Folder(str(tmp_path)), pa.table({"a": [1, 2], "b": ["x", None]})
    file = write_table(folder, "sub/some.parquet", table)
    assert file == {"rows": 2, "size_bytes": (tmp_path / "sub/some.parquet").stat().st_size}
    assert read_table(folder, "sub/some.parquet").equals(table)
    assert read_table(folder, "sub/some.parquet", ["b", "a"]).column_names == ["b", "a"]
    with pytest.raises(KeyError, match="c"):
        read_table(folder, "sub/some.parquet", ["a", "c"])
