"""The pairs of a published corpus: those of its test split, unless another is wanted."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.stored_images import Ranges, hash_of
from biovl.core.artifacts import Folder, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.shards import parse_pair

_ABOUT = ("caption_tokens", "license_group", "global_concepts", "journal", "published")
_AT_ONCE = 1_024


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a corpus."""

    path: str
    """The folder that assemble published, local or s3://."""
    split: str = "test"
    """train, val or test."""
    text: Literal["stored", "caption"] = "stored"
    """What is searched: the text that models are trained on, or the caption alone."""


def build(config: Config) -> Pairs:
    """Return the pairs of the split, in the order of their shards.

    Raises:
        ArtifactError: If there is no corpus, or the split has no pairs.
    """
    read_manifest(config.path, "corpus")
    folder = Folder(config.path)
    with folder.filesystem.open_input_file(folder.at("index.parquet")) as stream:
        file = pq.ParquetFile(stream)
        names = file.schema_arrow.names
        read = ["pair_id", "split", "shard", "offset", "size", "caption", *_ABOUT]
        pairs = file.read(columns=[name for name in read if name in names])
    found = Counter(pairs["split"].to_pylist())
    pairs = pairs.filter(pc.equal(pairs["split"], config.split))
    if not len(pairs):
        told = ", ".join(f"{count:,} in {name}" for name, count in sorted(found.items()))
        raise ArtifactError(
            f"{config.path} has no pairs in the split {config.split!r}, only {told or 'none'}"
        )
    pairs = pairs.sort_by([("shard", "ascending"), ("offset", "ascending")])
    shards = pairs["shard"].cast(pa.string()).combine_chunks().dictionary_encode()
    images = Ranges(
        uri=config.path,
        names=tuple(shards.dictionary.to_pylist()),
        file_N=shards.indices.to_numpy().astype(np.int64),
        offset_N=pairs["offset"].to_numpy().astype(np.int64),
        size_N=pairs["size"].to_numpy().astype(np.int64),
        fingerprint=hash_of(fingerprint(config.path), config.split),
        is_pair=True,
    )
    # The caption of the index is as published, 106; that of the shard can be read, 10^6.
    texts = pairs["caption"].to_pylist() if config.text == "caption" else _texts(images)
    return selection.pairs(
        name=f"{config.path.rstrip('/').rpartition('/')[2]}-{config.split}",
        images=images,
        texts=texts,
        ids=pairs["pair_id"].to_pylist(),
        about=pairs.select([name for name in _ABOUT if name in pairs.column_names]),
    )


def _texts(images: Ranges) -> list[str]:
    found = []
    for start in range(0, len(images), _AT_ONCE):
        for stored in images.stored(start, min(start + _AT_ONCE, len(images))):
            files = parse_pair(stored, images.uri)
            found.append(files.get("txt", b"").decode("utf-8", "replace"))
    return found
