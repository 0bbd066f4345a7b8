"""Pairs of a published corpus, by default those of its test split."""

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
    """Settings of the dataset: a split of a corpus."""

    path: str
    """A corpus published by assemble, local or ``s3://``."""
    split: str = "test"
    """Split to read: ``train``, ``val`` or ``test``."""
    text: Literal["stored", "caption"] = "stored"
    """Text of a pair: ``stored``, the one that models are trained on, or ``caption``, the caption
    alone."""


def build(config: Config) -> Pairs:
    """Return the pairs of the split, in the order of the shards.

    Raises:
        ArtifactError: If the corpus does not exist, or the split has no pairs.
    """
    read_manifest(config.path, "corpus")
    folder = Folder(config.path)
    with folder.filesystem.open_input_file(folder.at("index.parquet")) as stream:
        file = pq.ParquetFile(stream)
        names = file.schema_arrow.names
        read = ["pair_id", "split", "shard", "offset", "size", "caption", *_ABOUT]
        pairs = file.read(columns=[name for name in read if name in names])
    by_split = Counter(pairs["split"].to_pylist())
    pairs = pairs.filter(pc.equal(pairs["split"], config.split))
    if not len(pairs):
        existing = ", ".join(f"{count:,} in {name}" for name, count in sorted(by_split.items()))
        raise ArtifactError(
            f"{config.path} has no pairs in the split {config.split!r}, only {existing or 'none'}"
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
    # The index has captions as published, with 106 for a superscript; shards have 10^6.
    texts = pairs["caption"].to_pylist() if config.text == "caption" else _texts(images)
    return selection.pairs(
        name=f"{config.path.rstrip('/').rpartition('/')[2]}-{config.split}",
        images=images,
        texts=texts,
        ids=pairs["pair_id"].to_pylist(),
        about=pairs.select([name for name in _ABOUT if name in pairs.column_names]),
    )


def _texts(images: Ranges) -> list[str]:
    texts = []
    for start in range(0, len(images), _AT_ONCE):
        for stored in images.stored(start, min(start + _AT_ONCE, len(images))):
            files = parse_pair(stored, images.uri)
            texts.append(files.get("txt", b"").decode("utf-8", "replace"))
    return texts
