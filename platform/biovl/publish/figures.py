"""Redistributable rows of figures or panels, part by part, with their articles."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.core.artifacts import Draft
from biovl.core.counts import counts_below, usable_and_defective
from biovl.core.folders import Folder
from biovl.core.tables import open_part
from biovl.publish.rights import (
    RequestedRows,
    article_reasons,
    figure_reasons,
    groups_of,
    part_names,
    reasons,
)

TOMBSTONES = "tombstones.parquet"


def part_paths(uri: str) -> list[str]:
    """Return the paths of all parts of figures and of articles."""
    folder = Folder(uri)
    return part_names(folder, "articles") + part_names(folder, "figures")


def select(
    uri: str, out: str, requested: RequestedRows, names: Sequence[str], number: int
) -> dict[str, Any]:
    """Write the redistributable rows of one part, one row group at a time.

    Returns:
        ``file``: rows and size; ``seen``: rows by table and defect, and mentions; ``left_out``:
        rows by reason.
    """
    name = names[number]
    table = name.partition("/")[0]
    source, folder = Folder(uri), Draft(out).folder
    of_articles = article_reasons(source, name, requested) if table == "figures" else None
    seen, left_out, written = Counter[str](), Counter[str](), 0
    with open_part(source, name) as parquet:
        schema = parquet.schema_arrow
    # Images are already compressed and unique: a dictionary or statistics would not help.
    plain = [column for column in schema.names if column != "image"]
    with (
        folder.writer(name) as target,
        pq.ParquetWriter(
            target, schema, compression="zstd", use_dictionary=plain, write_statistics=plain
        ) as writer,
    ):
        for rows in groups_of(source, name):
            if of_articles is None:
                why = reasons(rows, requested)
            else:
                why = figure_reasons(rows, of_articles, requested)
            left_out.update(pc.drop_null(why).to_pylist())
            rows = rows.filter(pc.is_null(why))
            seen.update(f"{table}/{defect or ''}" for defect in rows["defect"].to_pylist())
            if of_articles is not None:
                seen["mentions"] += pc.sum(pc.list_value_length(rows["mentions"])).as_py() or 0
            written += len(rows)
            writer.write_table(rows)
    size = folder.filesystem.get_file_info(folder.at(name)).size
    return {
        "file": {"rows": written, "size_bytes": size},
        "seen": dict(seen),
        "left_out": {f"{table}/{reason}": count for reason, count in left_out.items()},
    }


def copy_tombstones(uri: str, out: str) -> None:
    """Copy the tombstones of an incremental harvest, if there are any."""
    source = Folder(uri)
    if source.exists(TOMBSTONES):
        Draft(out).folder.write(TOMBSTONES, source.read(TOMBSTONES))


def counts(receipts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts in the format of harvest, and the rows left out by table and reason."""
    seen = sum((Counter(receipt["seen"]) for receipt in receipts), Counter[str]())
    left_out = sum((Counter(receipt["left_out"]) for receipt in receipts), Counter[str]())
    return {
        **{table: usable_and_defective(seen, f"{table}/") for table in ("articles", "figures")},
        "mentions": seen["mentions"],
        "left_out": {
            table: counts_below(left_out, f"{table}/") for table in ("articles", "figures")
        },
    }


def card(kind: str, name: str, licenses: Sequence[str]) -> bytes:
    """Return a dataset card that assigns files to tables: ``datasets`` would otherwise mix them.

    Args:
        kind: ``figures`` or ``panels``.
        name: Title of the card.
        licenses: Licence identifiers of the Hub.
    """
    # Quoted: a repository may be called 2024.
    lines = ["---", f"pretty_name: {json.dumps(name)}"]
    lines += ["license:", *(f"- {item}" for item in licenses), "configs:"]
    for table in ("figures", "articles"):
        lines += [f"- config_name: {table}"]
        lines += ["  default: true"] if table == "figures" else []
        lines += ["  data_files:", "  - split: train", f"    path: {table}/*.parquet"]
    row = "figure" if kind == "figures" else "panel, or figure that is not cut"
    lines += ["---", "", f"# {name}", ""]
    lines += [f"`figures/`: a row for each {row}, with its image, caption, licence and what cites"]
    lines += [
        "it. `articles/`: a row for each article. `manifest.json`: how it was made, and counts."
    ]
    lines += ["Every row is under the licence of its own: `license`, `license_group`."]
    return ("\n".join(lines) + "\n").encode()
