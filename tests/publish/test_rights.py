"""Who may go, row by row, and with which words the others stay."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.core.errors import DamagedTable
from biovl.core.folders import Folder
from biovl.publish.rights import RequestedRows, figure_reasons, groups_of, reasons, rights_of

FREE: dict[str, Any] = {
    "license": "CC-BY-4.0",
    "license_group": "commercial",
    "redistributable": True,
    "derivatives_allowed": True,
    "retracted": False,
    "third_party": False,
}
RESERVED = "LicenseRef-All-Rights-Reserved"
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("source_uri", "license", "license_group")),
        *(
            pa.field(name, pa.bool_())
            for name in ("redistributable", "derivatives_allowed", "retracted", "third_party")
        ),
    ]
)


def row(**changes: Any) -> pa.Table:
    return pa.Table.from_pylist([{**FREE, **changes}], SCHEMA)


def reason(table: pa.Table, *groups: str, third_party: bool = False) -> str | None:
    (found,) = reasons(table, RequestedRows(groups, third_party)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"retracted": None}, None),
        ({"retracted": True}, "retracted"),
        ({"redistributable": False}, "licence does not allow redistribution"),
        ({"redistributable": None}, "nothing says that it may be given on"),
        ({"third_party": True}, "credits a third party"),
        ({"derivatives_allowed": False}, None),
    ],
)
def test_a_row_goes_unless_something_speaks_against_it(
    changes: dict[str, Any], expected: str | None
) -> None:
    assert reason(row(**changes)) == expected


@pytest.mark.parametrize(
    ("spdx", "expected"),
    [
        ("CC-BY-NC-ND-4.0", None),
        ("LicenseRef-Public-Domain", None),
        (RESERVED, "licence does not allow redistribution"),
        (None, "nothing says that it may be given on"),
    ],
)
def test_where_no_column_says_so_the_licence_does(spdx: str | None, expected: str | None) -> None:
    old = row(license=spdx).drop_columns(["redistributable", "retracted", "third_party"])
    assert reason(old) == expected


def test_only_the_groups_asked_for_go() -> None:
    noncommercial = row(license="CC-BY-NC-4.0", license_group="noncommercial")
    assert reason(noncommercial, "commercial") == "licence group not commercial"
    assert reason(noncommercial, "commercial", "noncommercial") is None
    assert reason(noncommercial) is None


def test_what_others_are_credited_for_goes_when_it_is_asked_for() -> None:
    assert reason(row(third_party=True), third_party=True) is None
    assert reason(row(third_party=True, redistributable=False), third_party=True) is not None


def test_a_cut_panel_needs_a_licence_that_allows_changes() -> None:
    boxes = pa.array([{"x0": 0}, None, {"x0": 0}], pa.struct([("x0", pa.int64())]))
    panels = pa.concat_tables(
        [row(derivatives_allowed=False), row(derivatives_allowed=False), row()]
    ).append_column("box_px", boxes)
    assert reasons(panels, RequestedRows()).to_pylist() == [
        "panel cut out, and licence does not allow derivatives",
        None,
        None,
    ]


def test_a_figure_stays_with_its_article_whose_text_it_carries() -> None:
    articles = pa.table({"source_uri": ["held"], "reason": ["retracted"]})
    figures = pa.concat_tables(
        [row(source_uri="held"), row(source_uri="free"), row(source_uri="held", third_party=True)]
    )
    assert figure_reasons(figures, articles, RequestedRows()).to_pylist() == [
        "its article: retracted",
        None,
        "credits a third party",
    ]


def test_full_texts_of_articles_without_figures_are_counted(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    articles = [
        row(source_uri="a"),
        row(source_uri="b", redistributable=False),
        row(source_uri="c", retracted=True),
    ]
    for table, rows in (("figures", [row(source_uri="a")]), ("articles", articles)):
        with folder.writer(f"{table}/part-000000-000.parquet") as stream:
            pq.write_table(pa.concat_tables(rows), stream)
    assert rights_of(str(tmp_path), "figures", RequestedRows()).refused == 0
    found = rights_of(str(tmp_path), "figures", RequestedRows(), with_articles=True)
    assert (found.refused, found.groups.total()) == (2, 4)


def test_a_damaged_image_is_not_published(tmp_path: Path) -> None:
    image, path = np.random.default_rng(0).bytes(20_000), tmp_path / "part.parquet"
    pq.write_table(row().append_column("image", [[image]]), path, write_page_checksum=True)
    stored = path.read_bytes()
    assert [rows["image"][0].as_py() for rows in groups_of(Folder(str(tmp_path)), path.name)] == [
        image
    ]
    path.write_bytes(stored.replace(image[:8], image[7::-1]))
    with pytest.raises(DamagedTable, match=r"part\.parquet is damaged"):
        list(groups_of(Folder(str(tmp_path)), path.name))
