"""Section with example searches, sent to a service or made from vectors of the index."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from biovl.chain.page.figures import card
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.index.query import Query, QueryPart
from biovl.index.search import Index

TITLE = "Searches"

_EXAMPLES = 2
_HITS = 4
_MOST_CHARS = 240
_OF_SPLIT = {
    "test": "With a caption of an article it has not seen",
    "val": "With a caption of an article it was judged by",
    "train": "With a caption it has been trained on",
}


def body(story: Story) -> Markup | None:
    """Return a section with each example query and its results."""
    of_index = story.of("index")
    # Opening an index in a bucket would copy it.
    if of_index is None or "://" in of_index.uri:
        return None
    index = Index.open(of_index.uri)
    searches = story.notes.searches or _by_own_vectors(index, Path(of_index.uri))
    blocks = [block for search in searches if (block := _block(index, search)) is not None]
    return parts.group(blocks, "searches") if blocks else None


def _by_own_vectors(index: Index, folder: Path) -> list[dict[str, Any]]:
    """Search with captions, and with an image, of articles that were not trained on."""
    if not {"images", "captions"} <= set(index.manifest.notes["factories"]):
        return []
    searches: list[dict[str, Any]] = []
    vectors_ND = np.load(folder / "captions.f16.npy", mmap_mode="r")
    for row, figure in _held_out(folder):
        part = QueryPart(vector_D=vectors_ND[row].astype(np.float32), kind="text")
        answer = index.search(Query(parts=[part], k=_HITS))
        ids = [hit.figure_id for hit in answer.hits]
        own = f"number {ids.index(figure['figure_id']) + 1}" if figure["figure_id"] in ids else ""
        searches.append(
            {
                "asked": _OF_SPLIT[str(figure["split"])],
                "text": figure["caption"],
                "matching": answer.matching,
                "said": f"its own image is {own or f'not among the first {_HITS}'}",
                "results": [{"figure_id": h.figure_id, "score": h.score} for h in answer.hits],
            }
        )
    return searches


def _held_out(folder: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return some figures with their rows, of a held-out split if there is one."""
    with pa.memory_map(str(folder / "table.arrow")) as file:
        reader = pa.ipc.open_file(file)
        if not reader.num_record_batches:
            return []
        first = reader.get_batch(0).select(["figure_id", "caption", "split"])
        splits = first["split"].to_pylist()
        split = next((name for name in ("test", "val", "train") if name in splits), None)
        rows = [row for row, of in enumerate(splits) if of == split]
        some = [rows[len(rows) * (2 * n + 1) // (2 * _EXAMPLES)] for n in range(_EXAMPLES) if rows]
        return [(row, first.slice(row, 1).to_pylist()[0]) for row in dict.fromkeys(some)]


def _block(index: Index, search: Mapping[str, Any]) -> Markup | None:
    ids = [result["figure_id"] for result in search["results"][:_HITS]]
    known = index.figures(ids)
    hits = [
        card(about, index.thumbnail(result["figure_id"]), corner=f"{result['score']:.2f}")
        for result, about in zip(search["results"], known, strict=False)
        if about is not None
    ]
    if not hits:
        return None
    took = f" in {search['took_ms']:.0f} ms" if search.get("took_ms") is not None else ""
    said = f"; {search['said']}" if search.get("said") else ""
    text = search.get("text")
    if text and len(text) > _MOST_CHARS:
        text = f"{text[:_MOST_CHARS]}…"
    figure_id = search.get("figure_id")
    image = index.thumbnail(figure_id) if figure_id and not text else None
    matching = f"Among {search['matching']:,} figures{took}{said}."
    return parts.search(search["asked"], text, image, matching, hits)
