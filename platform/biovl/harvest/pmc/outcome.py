"""Tables published with a harvest: states of article versions, tombstones, failed downloads."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from biovl.core import tombstones
from biovl.core.folders import Folder
from biovl.harvest.pmc import catalogue, inventory, unfetched, version_selection
from biovl.harvest.pmc.articles import source_uri
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.steps import STATES, tally


def finish(
    place: AcquisitionContext,
    plan: Mapping[str, Any],
    chunks: Sequence[tuple[int, int, int]],
    number: int,
) -> dict[str, Any]:
    """Write a range of the catalogue, and the tombstones in it for the earlier harvest."""
    own = [chunk for chunk, (part, _, _) in enumerate(chunks) if part == number]
    states = pa.concat_tables(
        [STATES.empty_table(), *(place.table("states", chunk) for chunk in own)]
    ).sort_by([("number", "ascending"), ("version", "ascending")])
    # The same versions in the same order: chunks are runs of them.
    touched = place.table("versions", number).select(inventory.LISTED.names)
    table = pa.concat_tables(
        [
            touched.append_column(catalogue.SCHEMA.field("state"), states["state"]),
            place.table("rest", number),
        ]
    ).cast(catalogue.SCHEMA)
    order = [("number", "ascending"), ("version", "ascending")]
    name = f"catalogue/part-{number:06d}-000.parquet"
    ended = _tombstones(place, place.table("ended", number), states, plan["date"])
    place.write("tombstones", number, ended)
    return {
        "files": place.publish(name, table.sort_by(order)),
        "ended": tally(ended["reason"]),
    }


def _tombstones(
    place: AcquisitionContext, ended: pa.Table, states: pa.Table, date: str
) -> pa.Table:
    now: dict[int, list[dict[str, Any]]] = {}
    wanted = states.filter(pc.is_in(states["number"], ended["number"].unique()))
    for row in wanted.to_pylist():
        now.setdefault(row["number"], []).append(row)
    found = []
    for row in ended.to_pylist():
        rows = now.get(row["number"], [])
        if any(r["stands"] and r["version"] == row["version"] for r in rows):
            continue
        name = f"PMC{row['number']}.{row['version']}"
        found.append(
            {
                "article_id": f"PMC{row['number']}",
                "version": str(row["version"]),
                "source_uri": source_uri(name, place.config.bucket),
                "reason": _reason({r["state"] for r in rows}),
                "snapshot": date,
            }
        )
    return pa.Table.from_pylist(found, tombstones.SCHEMA)


def _reason(states: set[str]) -> tombstones.Reason:
    if catalogue.HARVESTED in states:
        return "replaced"
    if version_selection.RETRACTED in states:
        return "retracted"
    return "license" if version_selection.LICENSE in states else "gone"


def publish_tombstones(place: AcquisitionContext, parts: int) -> dict[str, dict[str, int]]:
    """Write ``tombstones.parquet``; return its row count and size in bytes, by file name."""
    tables = [place.table("tombstones", number) for number in range(parts)]
    whole = pa.concat_tables([tombstones.SCHEMA.empty_table(), *tables])
    return place.publish(tombstones.FILE, whole)


def write_unfetched(place: AcquisitionContext, unit: int, table: pa.Table) -> None:
    """Store the failed downloads of a unit, if any."""
    # An interrupted run may have stored more before the unit's receipt was written.
    if table.num_rows or Folder(place.out).exists(f".draft/acquired/unfetched/{unit:06d}.parquet"):
        place.write("unfetched", unit, table)


def publish_unfetched(place: AcquisitionContext) -> dict[str, dict[str, int]]:
    """Write ``unfetched.parquet`` for all units, if any; return its rows and size, by file name."""
    folder = Folder(place.out)
    names = folder.names(".draft/acquired/unfetched", ".parquet")
    numbers = [int(name.removesuffix(".parquet")) for name in names]
    tables = [place.table("unfetched", number, unfetched.SCHEMA) for number in numbers]
    whole = pa.concat_tables([unfetched.SCHEMA.empty_table(), *tables])
    if not whole.num_rows:
        return {}
    order = [("number", "ascending"), ("key", "ascending")]
    return place.publish(unfetched.FILE, whole.sort_by(order))
