"""A published index of random vectors, made without a model: what tests open."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa

from biovl.core.artifacts import Draft, Input, Manifest
from biovl.index import metadata, vectors
from biovl.index.copies import with_checksum
from biovl.index.filters import FilterTable
from biovl.index.words import Words

WORDS = "lung heart bone brain ultrasound MRI p53 IL-6 tumour cells".split()


def unit(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    x = rng.standard_normal((count, dim)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def figure(row: int, **given: Any) -> dict[str, Any]:
    about: dict[str, Any] = dict.fromkeys(metadata.SCHEMA.names)
    rng = np.random.default_rng(row)
    return {
        **about,
        "figure_id": f"PMC{row // 3}_f{row}",
        "article_id": f"PMC{row // 3}",
        "caption": " ".join(rng.choice(WORDS, 5)),
        "license_group": ["commercial", "noncommercial", "other"][row % 3],
        "license": ["CC-BY-4.0", None][row % 2],
        "redistributable": [True, None][row % 2],
        "kind": "figure",
        "year": None if row % 7 == 0 else 2000 + row % 20,
        "image_type": ["x-ray", "microscopy", None, "plot"][row % 4],
        "journal": f"Journal {row % 5}",
        "concepts": [c for c in ("lung", "heart", "bone") if rng.random() < 0.3],
        "mesh_terms": [m for m in ("Lung", "Lung", "Mice") if rng.random() < 0.3],
        "split": "train",
        "shard": "train/00000.tar",
        "offset": 0,
        "size": 512,
        **given,
    }


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), metadata.SCHEMA)


def publish(
    folder: Path,
    vectors_ND: np.ndarray,
    *,
    factory: str = "SQfp16",
    captions_ND: np.ndarray | None = None,
    rows: Sequence[dict[str, Any]] | None = None,
    settings: dict[str, int] | None = None,
    notes: dict[str, Any] | None = None,
    inputs: Sequence[Input] | None = None,
    thumbnails: bytes = b"onetwo!",
    checksums: bool = False,
) -> str:
    """Publish an index of vectors, float32, shape [N, D], and of captions', if given.

    Without checksums it is as earlier versions built it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {"images": vectors_ND} | ({} if captions_ND is None else {"captions": captions_ND})
    for over, kept_ND in given.items():
        np.save(folder / f"{over}.f16.npy", kept_ND.astype(np.float16))
        trained = vectors.to_bytes(vectors.train(factory, kept_ND))
        index = vectors.merge_parts(trained, [vectors.fill(trained, kept_ND.astype(np.float16), 0)])
        faiss.write_index(index, str(folder / f"{over}.faiss"))
    rows = [figure(row) for row in range(len(vectors_ND))] if rows is None else rows
    with (folder / "table.arrow").open("wb") as stream:
        metadata.write_table([table_of(rows)], stream)
    metadata.write_lookup([row["figure_id"] for row in rows], folder / "lookup")
    table = metadata.MetadataTable.open(folder)
    FilterTable.build(table, folder / "filters")
    Words.build(table.column("caption").to_pylist(), folder / "words")
    (folder / "thumbnails.bin").write_bytes(thumbnails)
    files: dict[str, dict[str, Any]] = {
        path.relative_to(folder).as_posix(): {"size_bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    if checksums:
        for name, about in files.items():
            about["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    found = {
        "rows": len(vectors_ND),
        "dim": vectors_ND.shape[1],
        "factories": dict.fromkeys(given, factory),
        "settings": {over: {"image": settings or {}, "text": settings or {}} for over in given},
        "recall": {over: {"image": 0.99} for over in given},
    }
    inputs = inputs or [
        Input(name="model", uri="model", fingerprint="m" * 64),
        Input(name="corpus", uri=str(folder.parent / "corpus"), fingerprint="c" * 64),
    ]
    manifest = Manifest(
        kind="index",
        config={},
        counts={},
        inputs=inputs,
        files=files,
        notes={**found, **(notes or {})},
    )
    Draft(str(folder)).publish(with_checksum(manifest) if checksums else manifest)
    return str(folder)
