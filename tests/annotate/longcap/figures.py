"""Small tables of figures with their articles beside them, as harvest publishes them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.records import Mention, Span
from biovl.core.records import schema as schema_of

MENTION = schema_of(Mention)


def mention(text: str, reference: str) -> dict[str, Any]:
    """Return a stored paragraph with one reference."""
    start = text.index(reference)
    ref = {"start": start, "end": start + len(reference), "panels": [], "implied": False}
    return {"text": text, "refs": [ref], "superscripts": [], "container": "body"}


def write_figures(folder: Path, rows: list[dict[str, Any]], texts: dict[str, str]) -> Path:
    """Write a table of figures in two row groups, and their articles beside it."""
    figures = pa.schema(
        [
            pa.field("image", pa.binary()),
            pa.field("figure_label", pa.string()),
            pa.field("caption", pa.string()),
            pa.field("source_uri", pa.string()),
            pa.field("caption_superscripts", pa.list_(pa.struct(list(schema_of(Span))))),
            pa.field("mentions", pa.list_(pa.struct(list(MENTION)))),
        ]
    )
    folder.mkdir(parents=True)
    whole = [{"caption_superscripts": [], "mentions": [], **row} for row in rows]
    name = "part-000000-000.parquet"
    pq.write_table(pa.Table.from_pylist(whole, figures), folder / name, row_group_size=2)
    (folder / "articles").mkdir()
    listed = [
        {"source_uri": uri, "abstract": None, "full_text": text} for uri, text in texts.items()
    ]
    kinds = pa.schema([(key, pa.string()) for key in ("source_uri", "abstract", "full_text")])
    beside = pa.Table.from_pylist(listed, kinds)
    pq.write_table(beside, folder / "articles" / name, row_group_size=1)
    return folder
