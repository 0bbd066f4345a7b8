"""Reuse of an index of an earlier version of a corpus: unchanged pairs are copied from it."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.fs as pafs

from biovl.core.artifacts import Manifest
from biovl.core.folders import Folder
from biovl.index.config import IndexConfig
from biovl.index.metadata import MetadataTable
from biovl.index.vectors import subtracts_mean, to_bytes

CONTENTS = "contents.npy"
"""For each row a 16-byte hash of its id, image and text. Shape [N, 16]."""
THUMBNAILS = "thumbnails.bin"
PREPARED = 3
"""Version of image preprocessing, tokenization and thumbnails. Increase it whenever they change, so
that an index never mixes vectors of two versions."""


def reason_not_to_reuse(config: IndexConfig, model: str, manifest: Manifest) -> str | None:
    """Return the reason why a previous index cannot be reused; None if it can.

    Args:
        config: Settings of the new index.
        model: Fingerprint of the model of the new index.
        manifest: Manifest of the previous index.
    """
    made_by = {item.fingerprint for item in manifest.inputs if item.name == "model"}
    if made_by != {model}:
        return "it was made with another model"
    if manifest.notes.get("prepared") != PREPARED:
        return "its images were prepared by another version"
    if manifest.config["thumbnail_px"] != config.thumbnail_px:
        return f"its thumbnail_px was {manifest.config['thumbnail_px']!r}"
    if not set(config.over) <= set(manifest.config["over"]):
        return f"it has vectors of {', '.join(manifest.config['over'])} only"
    return None


def other_precision(precision: str, manifest: Manifest) -> str | None:
    """Return the reason not to reuse vectors if they were computed in another precision.

    Args:
        precision: That of the new index: float32 or bfloat16.
        manifest: Manifest of the previous index. Earlier versions have only its setting.
    """
    before = manifest.notes.get("precision", manifest.config["precision"])
    if before == "auto":
        return "it does not say whether its vectors were computed in bfloat16"
    return None if before == precision else f"its vectors were computed in {before}"


class Previous:
    """A published index to copy unchanged pairs from.

    From a bucket, all files except thumbnails are downloaded.
    """

    def __init__(self, uri: str, over: tuple[str, ...]) -> None:
        self._folder = Folder(uri)
        local = Path(self._folder.path)
        if not isinstance(self._folder.filesystem, pafs.LocalFileSystem):
            kept = tempfile.TemporaryDirectory(prefix="biovl-index-")
            weakref.finalize(self, kept.cleanup)
            local = Path(kept.name)
            names = ["table.arrow", "lookup/hashes.npy", "lookup/rows.npy", CONTENTS]
            for name in [*names, *(f"{name}.f16.npy" for name in over)]:
                (local / name).parent.mkdir(exist_ok=True)
                with self._folder.reader(name) as source, (local / name).open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 24)
        self._table = MetadataTable.open(local)
        self._contents_N16 = np.load(local / CONTENTS, mmap_mode="r")
        self._vectors = {name: np.load(local / f"{name}.f16.npy", mmap_mode="r") for name in over}

    def find(self, pair_id: str, content: bytes) -> tuple[int | None, bool]:
        """Return the row of a pair, None if it is new, and whether its content is unchanged."""
        row = self._table.row_of(pair_id)
        return row, row is not None and self._contents_N16[row].tobytes() == content

    def vector(self, name: str, row: int) -> np.ndarray:
        """Return the image or caption vector of a row: float16, shape [D]."""
        return np.asarray(self._vectors[name][row])

    def thumbnail(self, row: int) -> bytes:
        """Return the thumbnail of a row; empty if there is none."""
        (place,) = self._table.rows([row], ["thumbnail_offset", "thumbnail_size"])
        if not place["thumbnail_size"]:
            return b""
        with self._folder.filesystem.open_input_file(self._folder.at(THUMBNAILS)) as file:
            data: bytes = file.read_at(place["thumbnail_size"], place["thumbnail_offset"])
        return data


def reusable_index(config: IndexConfig, name: str, manifest: Manifest, rows: int) -> Any | None:
    """Return the factory and the trained empty index of a previous index; None if unsuitable.

    Cells trained on half or twice as many vectors are good enough: the loss of recall costs less
    than new training.
    """
    factory = manifest.notes["factories"].get(name)
    same_choice = config.factory == manifest.config["factory"] and (
        config.profile == manifest.config["profile"]
    )
    if not factory or not same_choice or not 0.5 <= rows / manifest.notes["rows"] <= 2:
        return None
    folder = Folder(config.previous or "")
    index = faiss.deserialize_index(np.frombuffer(folder.read(f"{name}.faiss"), np.uint8))
    if subtracts_mean(index):
        return None
    index.reset()
    return factory, to_bytes(index)
