"""A corpus of which there is nothing but the index: enough to plan trials."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.artifacts import Draft, Manifest


def index_only(
    folder: Path, tokens: list[int], *, val: int = 20, config: dict[str, Any] | None = None
) -> str:
    """Write a corpus whose train pairs have so many tokens of text, and return where.

    Args:
        folder: Of the corpus.
        tokens: Of each train pair.
        val: Pairs of val.
        config: Of the assemble that made it, as its manifest has it.
    """
    pairs = {"train": len(tokens), "val": val, "test": 0}
    lengths = [*tokens, *[10] * val]
    table = pa.table(
        {
            "pair_id": [f"pair-{n}" for n in range(len(lengths))],
            "split": ["train"] * len(tokens) + ["val"] * val,
            "shard": [f"{s}/00000.tar" for s in ["train"] * len(tokens) + ["val"] * val],
            "offset": [512 * n for n in range(len(lengths))],
            "size": [512] * len(lengths),
            "article_id": [f"{folder.name}-{n}" for n in range(len(lengths))],
            "image_sha256": [f"{folder.name}-{n}" for n in range(len(lengths))],
            "text_tokens": pa.array(lengths, pa.int32()),
        }
    )
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "index.parquet")
    (folder / "stats.json").write_text(json.dumps({}))
    Draft(str(folder)).publish(
        Manifest(kind="corpus", config=config or {}, counts={"pairs": pairs})
    )
    return str(folder)
