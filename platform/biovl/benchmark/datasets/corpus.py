"""Pairs of a published corpus, by default those of its test split; or its images with labels."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import selection
from biovl.benchmark.datasets import LabelledImages, Pairs
from biovl.benchmark.stored_images import Ranges, hash_of
from biovl.core.artifacts import fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import base_name
from biovl.core.folders import Folder
from biovl.core.shards import parse_pair
from biovl.core.tables import open_part

_ABOUT = ("caption_tokens", "license_group", "global_concepts", "journal", "published")
NO_LABEL = "no label"


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
    label: str = ""
    """Column of the corpus with classes, such as one that harvest kept of a table; if set, the
    dataset is the labelled images of all splits, instead of pairs."""
    classes: tuple[str, ...] = ()
    """Values of ``label`` to use, in the order of the classes; empty: all, sorted."""


def build(config: Config) -> Pairs | LabelledImages:
    """Return the pairs of the split, or labelled images, in the order of the shards.

    Raises:
        ArtifactError: If the corpus or the column does not exist, or the split has no pairs.
    """
    read_manifest(config.path, "corpus")
    folder = Folder(config.path)
    with open_part(folder, "index.parquet") as file:
        names = file.schema_arrow.names
        if config.label and config.label not in names:
            raise ArtifactError(
                f"{config.path} has no column {config.label}; it has {', '.join(sorted(names))}"
            )
        read = ["pair_id", "split", "shard", "offset", "size", "caption", *_ABOUT, config.label]
        pairs = file.read(columns=[name for name in dict.fromkeys(read) if name in names])
    if config.label:
        return _labelled(config, pairs)
    by_split = Counter(pairs["split"].to_pylist())
    pairs = pairs.filter(pc.equal(pairs["split"], config.split))
    if not len(pairs):
        existing = ", ".join(f"{count:,} in {name}" for name, count in sorted(by_split.items()))
        raise ArtifactError(
            f"{config.path} has no pairs in the split {config.split!r}, only {existing or 'none'}"
        )
    pairs = _in_order(pairs)
    images = _images(config, pairs, config.split)
    # The index has captions as published, with 106 for a superscript; shards have 10^6.
    texts = pairs["caption"].to_pylist() if config.text == "caption" else _texts(images)
    return selection.pairs(
        name=f"{base_name(config.path)}-{config.split}",
        images=images,
        texts=texts,
        ids=pairs["pair_id"].to_pylist(),
        about=pairs.select([name for name in _ABOUT if name in pairs.column_names]),
    )


def _labelled(config: Config, pairs: pa.Table) -> LabelledImages:
    """Return the images of all splits that have one of the classes."""
    column = pairs[config.label]
    if pa.types.is_list(column.type):
        raise ArtifactError(f"{config.path}: {config.label} has lists, expected one class each")
    names = column.cast(pa.string()).to_pylist()
    label_N, classes = selection.labels_of_names(config.path, config.label, names, config.classes)
    pairs, has_class = pairs.append_column("_label", pa.array(label_N)), pa.array(label_N >= 0)
    kept, others = _in_order(pairs.filter(has_class)), pairs.filter(pc.invert(has_class))
    return selection.labelled(
        name=f"{base_name(config.path)}-{config.label}",
        images=_images(config, kept, config.label, *classes),
        labels=kept["_label"].to_numpy(),
        classes=classes,
        splits=kept["split"].to_pylist(),
        ids=kept["pair_id"].to_pylist(),
        left_out_of=selection.count_left_out(NO_LABEL, others["split"].to_pylist()),
    )


def _in_order(pairs: pa.Table) -> pa.Table:
    return pairs.sort_by([("shard", "ascending"), ("offset", "ascending")])


def _images(config: Config, pairs: pa.Table, *what: str) -> Ranges:
    """Return the images of rows of the corpus' index, which ``what`` identifies."""
    shards = pairs["shard"].cast(pa.string()).combine_chunks().dictionary_encode()
    return Ranges(
        uri=config.path,
        names=tuple(shards.dictionary.to_pylist()),
        file_N=shards.indices.to_numpy().astype(np.int64),
        offset_N=pairs["offset"].to_numpy().astype(np.int64),
        size_N=pairs["size"].to_numpy().astype(np.int64),
        fingerprint=hash_of(fingerprint(config.path), *what),
        is_pair=True,
    )


def _texts(images: Ranges) -> list[str]:
    files = (parse_pair(stored, images.uri) for stored in images.stored(0, len(images)))
    return [own.get("txt", b"").decode("utf-8", "replace") for own in files]
