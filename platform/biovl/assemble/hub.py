"""YAML front matter of a dataset card, as read by the Hugging Face Hub and ``datasets``.

It declares the splits and the type of each field. Types must be declared: ``datasets`` would infer
them from the first few pairs, which fails for a corpus with both JPEG and PNG, or for a field whose
first values are null.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from biovl.core.shards import embedding_kind

HUB_LICENSES = frozenset(
    "cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 "
    "cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 "
    "cc-by-nc-sa-3.0 cc-by-nc-sa-4.0".split()
)
"""Licence ids of the Hub (hf.co/docs/hub/repositories-licenses)."""

HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Split names in ``datasets``, by our folders."""

_SIZES = {
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
}
_LARGEST = "100M<n<1B"
_DTYPES = {pa.string(): "string", pa.bool_(): "bool", pa.float64(): "float64"}


def front_matter(
    stats: Mapping[str, Any],
    *,
    record: pa.Schema,
    image_kinds: Sequence[str],
    name: str,
    embeddings: Sequence[str] = (),
) -> str:
    """Return the YAML front matter of a card, without its delimiters.

    Args:
        stats: Result of ``statistics``. A split without pairs has no shard and is left out:
            ``datasets`` rejects patterns without a match.
        record: The fields of a pair's ``.json``: strings, integers, booleans, floats and lists of
            these.
        image_kinds: Extensions of images, ``jpg`` and ``png``; a pair has one of them.
        name: Title of the card.
        embeddings: Columns of embeddings that a pair stores.

    Raises:
        ValueError: If a field of ``record`` has another type.
    """
    licenses = {hub_license(row["license"]) for row in stats["licenses"]}
    languages = {(row["language"] or "").partition("-")[0].lower() for row in stats["languages"]}
    images = stats["corpus"]["images"]
    values = {
        "pretty_name": name,
        "license": sorted(licenses) or ["other"],
        "language": sorted(code for code in languages if len(code) == 2 and code.isalpha()),
        "task_categories": ["image-to-text", "zero-shot-image-classification"],
        "tags": ["biology", "medical", "image-text", "webdataset"],
        "size_categories": [next((s for n, s in _SIZES.items() if images < n), _LARGEST)],
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": HUB_SPLITS[split], "path": f"{split}/*.tar"}
                    for split in stats["splits"]
                ],
            }
        ],
        "dataset_info": {
            "config_name": "default",
            "features": _features(record, image_kinds, embeddings),
        },
    }
    # Without shards there are no files to list.
    if not stats["splits"]:
        del values["configs"], values["dataset_info"]
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return f"---\n{text}---"


def hub_license(spdx: str | None) -> str:
    """Return the Hub's id of a licence: ``cc-by-4.0`` for ``CC-BY-4.0``, else ``other``."""
    name = (spdx or "").lower()
    return name if name in HUB_LICENSES else "other"


def _features(
    record: pa.Schema, image_kinds: Sequence[str], embeddings: Sequence[str]
) -> list[dict[str, Any]]:
    return [
        *({"name": kind, "dtype": "image"} for kind in image_kinds),
        {"name": "txt", "dtype": "string"},
        {"name": "json", "struct": [_feature(field) for field in record]},
        *({"name": embedding_kind(column), "list": "float32"} for column in embeddings),
        {"name": "__key__", "dtype": "string"},
        {"name": "__url__", "dtype": "string"},
    ]


def _feature(field: pa.Field) -> dict[str, Any]:
    if pa.types.is_list(field.type):
        return {"name": field.name, "list": _dtype(field.type.value_type)}
    return {"name": field.name, "dtype": _dtype(field.type)}


def _dtype(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return str(kind)
    if kind not in _DTYPES:
        raise ValueError(f"datasets has no simple type for {kind}")
    return _DTYPES[kind]
