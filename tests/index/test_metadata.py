import io
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from biovl.assemble.balance import LABELS
from biovl.assemble.pairs import CANDIDATE_SCHEMA
from biovl.core.errors import ArtifactError
from biovl.index import metadata
from biovl.index.metadata import MetadataTable, from_index_rows
from tests.index.small_index import figure, table_of

ROWS = [figure(row) for row in range(50)]


def opened(rows: list[dict[str, Any]], folder: Path, *pieces: int) -> MetadataTable:
    with (folder / "table.arrow").open("wb") as stream:
        cuts = [0, *pieces, len(rows)]
        tables = [table_of(rows[a:b]) for a, b in itertools.pairwise(cuts)]
        assert metadata.write_table(tables, stream) == len(rows)
    metadata.write_lookup([row["figure_id"] for row in rows], folder / "lookup")
    return MetadataTable.open(folder)


@pytest.mark.parametrize("pieces", [(), (1, 20, 20, 47)])
def test_rows_are_read_by_their_number(
    pieces: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "BATCH", 8)
    table = opened(ROWS, tmp_path, *pieces)
    assert len(table) == 50
    assert table.rows([49, 0, 7, 8, 8]) == [ROWS[49], ROWS[0], ROWS[7], ROWS[8], ROWS[8]]
    assert table.rows([3], ["caption"]) == [{"caption": ROWS[3]["caption"]}]
    assert table.column("figure_id").to_pylist() == [row["figure_id"] for row in ROWS]


def test_how_rows_arrive_does_not_change_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BATCH", 8)
    whole, pieces = io.BytesIO(), io.BytesIO()
    metadata.write_table([table_of(ROWS)], whole)
    metadata.write_table((table_of([row]) for row in ROWS), pieces)
    assert whole.getvalue() == pieces.getvalue()


def test_a_figure_is_found_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(ROWS, tmp_path)
    assert [table.row_of(row["figure_id"]) for row in ROWS] == list(range(50))
    for absent in ("", "PMC0_f1 ", "../../etc/passwd", "\ud800", "x" * 10_000):
        assert table.row_of(absent) is None


def test_ids_of_equal_hashes_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_hash", lambda figure_id: len(figure_id))
    table = opened(ROWS, tmp_path)
    assert [table.row_of(row["figure_id"]) for row in ROWS] == list(range(50))
    assert table.row_of("PMC0_f7") is None


@pytest.mark.parametrize("count", [0, 1])
def test_hardly_any_rows(count: int, tmp_path: Path) -> None:
    table = opened(ROWS[:count], tmp_path)
    assert len(table) == count
    assert table.row_of(ROWS[0]["figure_id"]) == (0 if count else None)
    assert table.row_of("nobody") is None


def test_a_table_and_a_lookup_of_different_length_are_refused(tmp_path: Path) -> None:
    opened(ROWS, tmp_path)
    metadata.write_lookup(["one"], tmp_path / "lookup")
    with pytest.raises(ArtifactError, match=r"\b50 .*\b1 .*lookup"):
        MetadataTable.open(tmp_path)


def test_an_id_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="1 and 3 "):
        metadata.write_lookup(["a", "b", "c", "b"], tmp_path)


def test_a_table_cut_short_is_refused(tmp_path: Path) -> None:
    opened(ROWS, tmp_path)
    data = (tmp_path / "table.arrow").read_bytes()
    (tmp_path / "table.arrow").write_bytes(data[:-100])
    with pytest.raises(ArtifactError, match=rf"{tmp_path}: .*table"):
        MetadataTable.open(tmp_path)


def corpus_row(**given: Any) -> pa.Table:
    row = {
        "pair_id": "a-1",
        "article_id": "PMC12",
        "caption": "CT",
        "kind": "figure",
        "license_group": "commercial",
        "split": "val",
        "shard": "val/00000.tar",
        "offset": 1024,
        "size": 2048,
        **given,
    }
    return pa.Table.from_pylist([row])


def test_a_row_of_a_corpus_becomes_a_row_of_an_index() -> None:
    (row,) = from_index_rows(
        corpus_row(published="2011-07", concepts=["lung", None], image_type="x-ray", doi="10.1/x")
    ).to_pylist()
    assert (row["figure_id"], row["year"], row["published"]) == ("a-1", 2011, "2011-07")
    assert (row["concepts"], row["image_type"], row["mesh_terms"]) == (["lung"], "x-ray", [])
    assert (row["shard"], row["offset"], row["size"]) == ("val/00000.tar", 1024, 2048)
    assert (row["title"], row["thumbnail_offset"]) == (None, None)


@pytest.mark.parametrize(
    ("named", "allowed"), [("CC-BY-4.0", True), ("CC-BY-ND-4.0", False), (None, None)]
)
def test_the_licence_tells_of_derivatives_where_a_corpus_does_not(
    named: str | None, allowed: bool | None
) -> None:
    (row,) = from_index_rows(corpus_row(license=named)).to_pylist()
    assert row["derivatives_allowed"] is allowed


def test_what_resolve_publishes_are_the_concepts_by_default() -> None:
    (row,) = from_index_rows(
        corpus_row(
            global_concepts=["Microscopy"], local_concepts=["light microscopy"], panel_type="single"
        )
    ).to_pylist()
    assert row["concepts"] == ["Microscopy", "light microscopy"]
    assert (row["panel_type"], row["panel_subtype"]) == ("single", None)


def test_a_number_that_is_missing_is_no_label() -> None:
    rows = corpus_row().append_column("grade", pa.array([float("nan")]))
    assert from_index_rows(rows, labels=["grade"]).to_pylist()[0]["labels"] == []
    rows = corpus_row().append_column("grades", pa.array([[2.5, float("nan")]]))
    assert from_index_rows(rows, labels=["grades"]).to_pylist()[0]["labels"] == ["grades=2.5"]


def test_a_concept_that_a_row_repeats_is_listed_once() -> None:
    (row,) = from_index_rows(
        corpus_row(concepts=["lung", "ct", "lung"], global_concepts=["ct"], mesh_terms=["CT", "CT"])
    ).to_pylist()
    assert row["concepts"] == ["ct", "lung"]
    assert row["mesh_terms"] == ["CT"]


def test_every_column_of_labels_and_rights_of_a_corpus_is_in_the_table_of_an_index() -> None:
    labels = {*metadata.CONCEPTS, metadata.IMAGE_TYPE, *metadata.SCHEMA.names}
    assert set(LABELS) <= labels
    about_rights = {name for name in CANDIDATE_SCHEMA.names if name.startswith("license")}
    about_rights |= {"credit", "retracted", "third_party"}
    about_rights |= {"redistributable", "derivatives_allowed"}
    assert about_rights <= set(metadata.SCHEMA.names)
    (row,) = from_index_rows(
        corpus_row(credit="With permission", retracted=True, redistributable=False)
    ).to_pylist()
    assert (row["credit"], row["retracted"], row["redistributable"]) == (
        "With permission",
        True,
        False,
    )


@pytest.mark.parametrize("lacking", [metadata.LATER, {"panel_type"}])
def test_a_table_of_an_earlier_version_is_read_without_its_later_columns(
    lacking: set[str], tmp_path: Path
) -> None:
    opened(ROWS, tmp_path)
    with pa.memory_map(str(tmp_path / "table.arrow")) as file:
        old = pa.ipc.open_file(file).read_all().drop_columns(sorted(lacking))
        (tmp_path / "old").write_bytes(b"")
        with pa.ipc.new_file(str(tmp_path / "old"), old.schema) as writer:
            writer.write_table(old)
    (tmp_path / "old").replace(tmp_path / "table.arrow")
    table = MetadataTable.open(tmp_path)
    assert table.rows([3, 1]) == [
        {name: value for name, value in ROWS[row].items() if name not in lacking} for row in (3, 1)
    ]
    assert table.rows([3], ["panel_type", "caption"]) == [{"caption": ROWS[3]["caption"]}]
    assert table.column("panel_type").to_pylist() == [None] * 50


@pytest.mark.parametrize(
    ("article_id", "doi", "url"),
    [
        ("PMC12", "10.1/x", "https://pmc.ncbi.nlm.nih.gov/articles/PMC12/"),
        ("10.1/x", "10.1/x", "https://doi.org/10.1/x"),
        ("own-7", None, None),
    ],
)
def test_the_article_is_linked_at_pmc_else_by_its_doi(
    article_id: str, doi: str | None, url: str | None
) -> None:
    rows = from_index_rows(corpus_row(article_id=article_id, doi=doi))
    assert rows["url"].to_pylist() == [url]


def test_concepts_may_be_in_another_column_and_single() -> None:
    rows = from_index_rows(
        corpus_row(topic="lung", modality=["ct", None, "mri"]),
        concepts=["modality", "absent", "topic"],
        image_type="modality",
    )
    assert rows["concepts"].to_pylist() == [["ct", "mri", "lung"]]
    assert rows["image_type"].to_pylist() == ["ct"]


@pytest.mark.parametrize(
    ("published", "year"),
    [("2011", 2011), ("2011-07-18", 2011), (None, None), ("spring", None), ("20110", None)],
)
def test_the_year_is_that_of_publication(published: str | None, year: int | None) -> None:
    rows = from_index_rows(corpus_row(published=published))
    assert rows["year"].to_pylist() == [year]
