import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biovl.core.errors import ArtifactError
from biovl.index import filters, postings
from biovl.index.filters import FilterTable
from biovl.index.query import Filter, Years
from tests.index.small_index import figure, table_of

ROWS = [figure(row) for row in range(500)]


def fits(row: dict[str, Any], wanted: Filter) -> bool:
    """The definition in ``Filter``, word by word."""
    for field in dataclasses.fields(Filter):
        asked = getattr(wanted, field.name)
        if field.name == "year":
            if asked is None or (asked.gte is None and asked.lte is None):
                continue
            year = row["year"]
            if year is None or year < (asked.gte or 0) or year > (asked.lte or 9999):
                return False
        elif asked:
            value = row[filters.COLUMNS.get(field.name, field.name)]
            values = value if isinstance(value, list) else [value]
            if not set(values) & set(asked):
                return False
    return True


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> FilterTable:
    folder = tmp_path_factory.mktemp("filters")
    FilterTable.build(table_of(ROWS), folder)
    return FilterTable.open(folder)


def some_filter(rng: np.random.Generator) -> Filter:
    offered = {
        "license_group": ["commercial", "other", "unheard of"],
        "license": ["CC-BY-4.0", "CC0-1.0"],
        "concept": ["lung", "heart", "bone", "toe"],
        "image_type": ["x-ray", "microscopy", "plot"],
        "journal": ["Journal 1", "Journal 2", "Journal 9"],
        "article_id": ["PMC1", "PMC2", "PMC99"],
        "mesh_term": ["Lung", "Mice", "Rats"],
        "kind": ["figure", "scheme"],
        "split": ["train", "test"],
    }
    given: dict[str, Any] = {}
    for name in rng.choice(list(offered), rng.integers(0, 4), replace=False):
        given[name] = tuple(rng.choice(offered[name], rng.integers(1, 3), replace=False).tolist())
    if rng.random() < 0.4:
        given["year"] = Years(gte=int(rng.integers(1998, 2020)), lte=None)
    elif rng.random() < 0.4:
        given["year"] = Years(gte=2003, lte=int(rng.integers(2001, 2025)))
    return Filter(**given)


@pytest.mark.parametrize(("most_codes", "piece"), [(65_535, 65_536), (2, 65_536), (2, 64)])
def test_filters_admit_what_their_definition_says(
    most_codes: int, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "_MOST_CODES", most_codes)
    monkeypatch.setattr(filters, "_PIECE", piece)
    monkeypatch.setattr(postings, "_HELD", piece)
    FilterTable.build(table_of(ROWS), tmp_path)
    table = FilterTable.open(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(300):
        wanted = some_filter(rng)
        expected = [row for row, about in enumerate(ROWS) if fits(about, wanted)]
        selection = table.select(wanted)
        rows = selection.rows()
        assert selection.count == len(expected)
        assert (list(range(500)) if rows is None else rows.tolist()) == expected


def test_no_condition_admits_every_row(table: FilterTable) -> None:
    assert table.select(Filter()).bitmap is None
    assert table.select(Filter(year=Years())).count == 500


def test_a_value_that_no_figure_has_admits_nothing(table: FilterTable) -> None:
    assert table.select(Filter(journal=("\x00'; DROP", ""))).count == 0


def test_a_figure_without_a_year_fits_no_range_of_years(table: FilterTable) -> None:
    known = sum(row["year"] is not None for row in ROWS)
    assert table.select(Filter(year=Years(gte=-40_000))).count == known
    assert table.select(Filter(year=Years(lte=10**9))).count == known


def test_facets_count_figures_once_and_offer_the_most_frequent(table: FilterTable) -> None:
    facets = table.facets()
    assert facets["mesh_term"]["Lung"] == sum("Lung" in row["mesh_terms"] for row in ROWS)
    assert facets["license_group"] == {"commercial": 167, "noncommercial": 167, "other": 166}
    assert len(facets["article_id"]) == 50
    assert facets["year"]["2001"] == sum(row["year"] == 2001 for row in ROWS)
    assert list(facets["year"]) == sorted(facets["year"])


def test_the_same_filter_is_computed_once(table: FilterTable) -> None:
    wanted = Filter(journal=("Journal 1",))
    assert table.select(wanted) is table.select(Filter(journal=("Journal 1",)))


def test_how_rows_are_parted_does_not_change_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FilterTable.build(table_of(ROWS), tmp_path / "whole")
    monkeypatch.setattr(filters, "_PIECE", 33)
    monkeypatch.setattr(postings, "_HELD", 50)
    FilterTable.build(table_of(ROWS), tmp_path / "parts")
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "parts" / path.name).read_bytes()
    assert not (tmp_path / "parts" / "runs").exists()


@pytest.mark.parametrize("count", [0, 1])
def test_filters_of_hardly_any_rows(count: int, tmp_path: Path) -> None:
    FilterTable.build(table_of(ROWS[:count]), tmp_path)
    table = FilterTable.open(tmp_path)
    assert table.select(Filter()).count == count
    assert table.select(Filter(license_group=("commercial",))).count == count
    assert table.select(Filter(concept=("toe",), year=Years(gte=1))).count == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    FilterTable.build(table_of(ROWS), tmp_path)
    (tmp_path / "journal.codes.npy").unlink()
    with pytest.raises(ArtifactError, match=r"journal\.codes\.npy"):
        FilterTable.open(tmp_path)


def test_filters_of_an_earlier_version_open_and_know_no_later_field(tmp_path: Path) -> None:
    FilterTable.build(table_of(ROWS), tmp_path)
    for name in ("fields.json", "facets.json"):
        about = json.loads((tmp_path / name).read_text())
        for later in filters.LATER:
            del (about["fields"] if name == "fields.json" else about)[later]
        (tmp_path / name).write_text(json.dumps(about))
    table = FilterTable.open(tmp_path)
    assert table.facets()["panel_type"] == {}
    assert table.select(Filter(panel_type=("single",))).count == 0
    assert table.select(Filter(license_group=("commercial",))).count == 167
