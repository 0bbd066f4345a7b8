"""A model with random weights and an index of made-up figures, published for services to open."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import torch
from index_vectors import made

from biovl.core import artifacts
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Input, Manifest
from biovl.index import metadata, vectors
from biovl.index.filters import FilterTable
from biovl.index.words import Words
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.pretrain.config import biomedclip

SETTINGS = {"nprobe": 32}
WORDS = [
    a + b
    for a in "chest liver renal spinal axial coronal lateral stained diffuse focal".split()
    for b in ("", "ology", "oma", "itis", "osis", "gram", "scan", "view", "cell", "tissue")
]
"""Of captions and queries; the tokenizer of the large model knows each."""


def publish_model(folder: Path, size: str) -> Path:
    """Publish ``large`` (ViT-B/16 and BERT-base, context 256) or ``tiny`` with random weights."""
    if (folder / "manifest.json").exists():
        return folder
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder.with_name(f"{folder.name}-words")
    if size == "large":
        _write_words(tokenizer)
        settings: dict[str, Any] = {
            name: value
            for name, value in biomedclip().model.settings.items()
            if "weights" not in name
        }
        settings["tokenizer"] = str(tokenizer)
    else:
        settings = {
            "embed_dim": 512,
            "vision_cfg": {"layers": 1, "width": 64, "head_width": 32, "patch_size": 16}
            | {"image_size": 64},
            "text_cfg": {"width": 128, "heads": 4, "layers": 2, "context_length": 77},
        }
    built = open_clip.build(configs.build(open_clip.Config, settings))
    encoder.save(folder, built, built.model.state_dict())
    Draft(str(folder)).publish(Manifest(kind="model", config={"size": size}, counts={}))
    return folder


def publish_index(folder: Path, model: Path, count: int, cache: Path) -> Path:
    """Publish an index of made-up vectors that says it is of this model."""
    if (folder / "manifest.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    vectors_ND = made(cache / f"vectors-{count}", count).vectors_ND
    np.save(folder / "images.f16.npy", vectors_ND)
    factory = vectors.choose_factory(count, vectors_ND.shape[1])
    trained = cache / f"index-{count}" / factory / "index.faiss"
    if trained.exists():
        whole = faiss.read_index(str(trained))
    else:
        sample = vectors_ND[:: max(1, count // vectors.sample_rows(factory, count))]
        empty = vectors.to_bytes(vectors.train(factory, sample))
        whole = vectors.merge_parts(empty, [vectors.fill(empty, vectors_ND, 0)])
    faiss.write_index(whole, str(folder / "images.faiss"))
    tables = [_figures(first, min(10_000, count - first)) for first in range(0, count, 10_000)]
    with (folder / "table.arrow").open("wb") as stream:
        metadata.write_table(tables, stream)
    whole_table = pa.concat_tables(tables)
    metadata.write_lookup(whole_table["figure_id"].to_pylist(), folder / "lookup")
    FilterTable.build(whole_table, folder / "filters")
    Words.build(whole_table["caption"].to_pylist(), folder / "words")
    (folder / "thumbnails.bin").write_bytes(b"")
    uri = str(model)
    files: dict[str, Mapping[str, Any]] = {
        path.relative_to(folder).as_posix(): {"size_bytes": path.stat().st_size}
        for path in folder.rglob("*")
        if path.is_file()
    }
    Draft(str(folder)).publish(
        Manifest(
            kind="index",
            config={},
            counts={"pairs": count},
            inputs=(Input(name="model", uri=uri, fingerprint=artifacts.fingerprint(uri)),),
            files=files,
            notes={
                "rows": count,
                "dim": vectors_ND.shape[1],
                "factories": {"images": factory},
                "settings": {"images": {"image": SETTINGS, "text": SETTINGS}},
                "recall": {"images": {"image": 0.98, "text": 0.95}},
            },
        )
    )
    return folder


def _figures(first: int, count: int) -> pa.Table:
    rng = np.random.default_rng(first)
    rows = []
    for number in range(first, first + count):
        words = rng.choice(WORDS, 52)
        rows.append(
            {
                "pair_id": f"PMC{number // 3}_fig{number}",
                "article_id": f"PMC{number // 3}",
                "caption": " ".join(words[:40]),
                "title": " ".join(words[40:]),
                "figure_label": f"Figure {number % 3 + 1}",
                "journal": f"Journal {number % 97}",
                "published": str(2_000 + number % 25),
                "license": "CC-BY-4.0",
                "license_group": "commercial",
                "license_url": "https://creativecommons.org/licenses/by/4.0/",
                "kind": "figure",
                "image_type": f"type {number % 12}",
                "split": "train",
                "shard": "shards/00000.tar",
                "offset": 0,
                "size": 1,
            }
        )
    return metadata.from_index_rows(pa.Table.from_pylist(rows))


def _write_words(folder: Path) -> None:
    """Write a BERT tokenizer whose vocabulary is our words, letters and digits."""
    folder.mkdir(parents=True, exist_ok=True)
    signs = [chr(code) for code in range(33, 127)]
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *(f"##{s}" for s in signs)]
    (folder / "vocab.txt").write_text("\n".join([*known, *WORDS]) + "\n")
    (folder / "config.json").write_text('{"model_type": "bert"}')
