"""A whole published chain, made in a moment: what a page about it must show is known."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from biovl.assemble import plots as assemble_plots
from biovl.assemble.statistics import statistics
from biovl.assemble.tally import tally
from biovl.chain.page.reading import Notes, Story, read_story
from biovl.core.artifacts import Draft, Manifest, to_json
from biovl.core.shards import ShardWriter
from tests.assemble.corpora import HARVESTED, pair, pairs
from tests.index import small_index

FIGURES = 12
CHANCE = {"chance_recall_at_1": 0.05, "chance_recall_at_5": 0.25, "chance_recall_at_10": 0.5}


def publish(folder: Path, *, caption: str = "a cell", index: bool = True) -> Story:
    """Publish figures, a corpus, a model and an index; return their story."""
    Draft(str(folder / "figures")).publish(Manifest(kind="figures", config={}, counts=HARVESTED))
    rows = _corpus(folder / "corpus", caption)
    _model(folder / "model")
    published = {"harvest": "figures", "assemble": "corpus", "pretrain": "model"}
    if index:
        _index(folder / "index", rows)
        published["index"] = "index"
    notes = Notes(recipe="demo", seconds={"harvest": 75.0})
    uris = {step: str(folder / name) for step, name in published.items()}
    return read_story(str(folder), uris, notes)


def _corpus(folder: Path, caption: str) -> list[dict[str, Any]]:
    rows = []
    draft = Draft(str(folder))
    with draft.folder.writer("train/00000.tar") as stream:
        writer = ShardWriter(stream)
        for number in range(FIGURES):
            pair_id = f"PMC{number // 2}_f{number}"
            place = writer.add(pair_id, {"png": a_picture(number), "txt": b"", "json": b"{}"})
            about = {"pair_id": pair_id, "figure_label": caption, "caption": caption}
            about |= {"shard": "train/00000.tar", "offset": place.offset, "size": place.size}
            rows.append({**pair(f"PMC{number // 2}", journal=caption, license=caption), **about})
        writer.finish()
    with draft.folder.writer("index.parquet") as stream:
        pq.write_table(pa.Table.from_pylist(rows), stream)
    dropped = {"image missing": 7, caption: 31}
    told = [{k: v for k, v in row.items() if k in pair("")} for row in rows]
    stats = statistics(tally(pairs(told)), harvested=HARVESTED, dropped=dropped)
    draft.folder.write("stats.json", to_json(stats))
    for name, plot in assemble_plots.plots(stats).items():
        draft.folder.write(f"plots/{name}", plot)
    counts = {
        "figures": {"seen": 50, "kept": FIGURES},
        "dropped": dropped,
        "pairs": {"train": FIGURES, "val": 0, "test": 0},
    }
    draft.publish(Manifest(kind="corpus", config={}, counts=counts))
    return rows


def _model(folder: Path) -> None:
    draft = Draft(str(folder))
    recalls = {
        f"{direction}_recall_at_{k}": k / 20
        for direction in ("image_to_text", "text_to_image")
        for k in (1, 5, 10)
    }
    scores = {**CHANCE, **recalls, "pairs": 20}
    for name in ("loss.png", "recall.png"):
        draft.folder.write(f"plots/{name}", a_picture(0))
    pairs_of = {"train": FIGURES, "val": 20, "seen": 64}
    counts = {"epochs": 2, "steps": 8, "pairs": pairs_of}
    draft.publish(Manifest(kind="model", config={}, counts=counts, notes={"validation": scores}))


def _index(folder: Path, rows: list[dict[str, Any]]) -> None:
    rng = np.random.default_rng(0)
    small = [a_picture(number, "JPEG") for number in range(FIGURES)]
    at = np.cumsum([0, *map(len, small)]).tolist()
    figures = [
        small_index.figure(
            number,
            figure_id=row["pair_id"],
            caption=f"{row['caption']} number {number}",
            thumbnail_offset=at[number],
            thumbnail_size=len(small[number]),
        )
        for number, row in enumerate(rows)
    ]
    vectors_ND = small_index.unit(rng, FIGURES, 8)
    small_index.publish(
        folder, vectors_ND, captions_ND=vectors_ND, rows=figures, thumbnails=b"".join(small)
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["counts"] = {"pairs": FIGURES, "rows": FIGURES, "left_out": {}, "reused": 0}
    (folder / "manifest.json").write_bytes(to_json(manifest))


def a_picture(seed: int, kind: str = "PNG") -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, kind)
    return stream.getvalue()
