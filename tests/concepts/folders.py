"""Tables of small images with an embedding beside them, written by hand."""

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from biovl.core.artifacts import Manifest, to_json
from biovl.core.folders import Folder
from biovl.core.tables import open_table


def image_of(number: int) -> bytes:
    """Return a PNG whose colour says which it is."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 24), (number % 256, number // 256 % 256, 90)).save(stream, "PNG")
    return stream.getvalue()


def write_table(folder: Path, rows: Sequence[int], *, row_group: int = 64) -> Path:
    """Write a table with so many rows in each part."""
    folder.mkdir(parents=True)
    first = 0
    for number, count in enumerate(rows):
        numbers = range(first, first + count)
        table = pa.table(
            {
                "image_id": [f"image-{n}" for n in numbers],
                "image": pa.array([image_of(n) for n in numbers], pa.binary()),
                "caption": [f"Caption {n}" for n in numbers],
            }
        )
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=row_group)
        first += count
    return folder


def write_embedding(table: Path, vectors: np.ndarray, **changes: Any) -> Path:
    """Write columns with an embedding; rows of NaN in the first place are null."""
    opened = open_table(str(table))
    out = table / "columns" / "dinov2"
    out.mkdir(parents=True)
    kind = pa.list_(pa.float16(), vectors.shape[1])
    first = 0
    for part in opened.parts:
        own = vectors[first : first + part.rows]
        first += part.rows
        values = [None if np.isnan(row[0]) else row.astype(np.float16) for row in own]
        defects = [None if value is not None else "image does not decode" for value in values]
        columns = {
            "dinov2": pa.array(values, kind),
            "dinov2_defect": pa.array(defects, pa.string()),
        }
        pq.write_table(pa.table(columns), out / part.name, row_group_size=50)
    manifest = {
        "kind": "columns",
        "config": {},
        "counts": {},
        "inputs": [opened.as_input()],
        "notes": {"columns": ["dinov2", "dinov2_defect"], "embedding": "dinov2"},
        **changes,
    }
    Folder(str(out)).write("manifest.json", to_json(asdict(Manifest(**manifest))))
    return out


def blobs(rows: int, kinds: int, dim: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in well separated groups, float32, and the group of each."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(kinds, dim)) * 10
    kind_of = np.arange(rows) % kinds
    vectors = centres[kind_of] + rng.normal(size=(rows, dim)) * 0.3
    return vectors.astype(np.float32), kind_of
