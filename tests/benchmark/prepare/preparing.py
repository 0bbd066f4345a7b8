"""Small raw files in the formats of the distributions, and the job that prepares them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from biovl.benchmark.prepare.config import RECIPES, PrepareConfig
from biovl.benchmark.prepare.job import prepare
from biovl.core import config as configs
from biovl.core.artifacts import Manifest


def config(name: str, raw: Path | str, out: Path | str, **changes: Any) -> PrepareConfig:
    settings = {"raw": str(raw), "out": str(out), **changes}
    return configs.override(RECIPES[name](), settings)


def run(name: str, raw: Path | str, out: Path | str, **changes: Any) -> Manifest:
    return prepare(config(name, raw, out, **changes), progress=io.StringIO())


def table(out: Path, split: str = "test") -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted(out.glob(f"{split}-*.parquet")))


def picture(number: int, *, side: int = 16) -> np.ndarray:
    """Return an image that is told from others by its first pixel: red is the number."""
    pixels = np.full((side, side, 3), 128, np.uint8)
    pixels[:8, :8] = (number % 256, number // 256, 77)
    return pixels


def encoded(number: int, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(picture(number)).save(stream, kind, **options)
    return stream.getvalue()


def number_of(data: bytes) -> int:
    """Return the number that an image was made from; JPEG may be off by some."""
    red, green, _ = Image.open(io.BytesIO(data)).convert("RGB").getpixel((2, 2))
    return red + 256 * green


def numbers(rows: pa.Table) -> list[int]:
    return [number_of(image["bytes"]) for image in rows["image"].to_pylist()]
