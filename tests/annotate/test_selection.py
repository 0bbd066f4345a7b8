"""Which rows are annotated: rules, labels, a sample that grows, and what the others say."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.annotate import batches, pieces, selection
from biovl.annotate.annotators import NOT_SELECTED
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.estimate import dry_run_text
from biovl.annotate.job import annotate
from biovl.assemble.config import AssembleConfig, small
from biovl.assemble.job import assemble
from biovl.assemble.pairs import caption_instead
from biovl.concepts import blocks
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError, ConfigError, NothingUsable
from biovl.core.tables import open_table
from tests.annotate.small_models import save_clip
from tests.annotate.test_batches import Lengths

ROWS = 60


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two parts of rows of different widths, every fourth in French."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number, first in enumerate((0, 40)):
        rows = range(first, min(first + 40, ROWS))
        columns = {
            "id": [f"row-{row}" for row in rows],
            "image": [b"x" * (row % 5) for row in rows],
            "caption": [f"caption {row}" for row in rows],
            "language": ["fr" if row % 4 == 0 else "en" for row in rows],
            "width_px": [100 * row for row in rows],
            "height_px": [3_000] * len(rows),
        }
        path = folder / f"part-{number:06d}-000.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=10)
    return folder


def labels(table: Path, folder: Path) -> str:
    """Publish labels of a table, as resolve does."""
    opened = open_table(str(table))
    draft = Draft.begin(str(folder), "columns", {})
    for part in opened.parts:
        kinds = [["Microscopy"] if row % 3 == 0 else ["Plots", "Maps"] for row in range(part.rows)]
        pq.write_table(pa.table({"global_concepts": kinds}), folder / part.name)
    draft.publish(Manifest(kind="columns", config={}, counts={}, inputs=[opened.as_input()]))
    return str(folder)


def config(table: Path, **changes: Any) -> AnnotateConfig:
    values = {"table": str(table), "annotator.name": "context", "out": str(table.parent / "out")}
    return configs.build(AnnotateConfig, {**values, **changes})


def chosen(config: AnnotateConfig) -> tuple[list[str | None], dict[str, Any]]:
    """Return the reason of every row, and the counts."""
    opened = open_table(config.table)
    selection.check(config, opened)
    looked = [selection.look(config, opened, part) for part in range(len(opened.parts))]
    reasons = selection.choose(looked, config.select.rows)
    assert [len(reason) for reason in reasons] == [part.rows for part in opened.parts]
    return [r for part in reasons for r in part.to_pylist()], selection.counts_of(reasons)


def test_rules_of_a_corpus_select_rows_and_count_the_others_by_the_first_that_rejects(
    table: Path,
) -> None:
    reasons, counts = chosen(config(table, **{"select.rules": ["languages(en)", "min_side(1000)"]}))
    assert reasons[0] == reasons[4] == "language not en"
    assert reasons[5] == "shorter side under 1000 px"
    assert [row for row, reason in enumerate(reasons) if reason is None] == [
        row for row in range(ROWS) if row % 4 and row >= 10
    ]
    assert counts == {
        "selected": 38,
        "not_selected": {"language not en": 15, "shorter side under 1000 px": 7},
    }
    assert selection.described(counts) == (
        "38 rows selected, 22 not (15: language not en, 7: shorter side under 1000 px)"
    )


def test_labels_beside_the_table_select_rows(table: Path, tmp_path: Path) -> None:
    rule = 'any_of(column="global_concepts", allowed=[Microscopy])'
    beside = {"select.columns": [labels(table, tmp_path / "labels")]}
    reasons, counts = chosen(config(table, **beside, **{"select.rules": [rule]}))
    assert [reason is None for reason in reasons[:7]] == [True, False, False] * 2 + [True]
    assert counts["selected"] == 14 + 7
    with pytest.raises(ConfigError, match="global_concepts"):
        chosen(config(table, **{"select.rules": [rule]}))
    other = tmp_path / "other"
    shutil.copytree(table, other)
    (other / "part-000001-000.parquet").unlink()
    with pytest.raises(ArtifactError, match="made from another table"):
        chosen(config(other, **beside, **{"select.rules": [rule]}))


def test_a_larger_sample_has_the_rows_of_a_smaller_one(table: Path) -> None:
    def sample(rows: int, **more: Any) -> set[int]:
        reasons, counts = chosen(config(table, **{"select.rows": rows, **more}))
        found = {row for row, reason in enumerate(reasons) if reason is None}
        assert counts["selected"] == len(found)
        return found

    few, more, all_rows = sample(10), sample(25), sample(1_000)
    assert (len(few), len(more), len(all_rows)) == (10, 25, ROWS)
    assert few < more
    assert sample(10, **{"select.seed": 1}) != few
    # Of the rows that the rules keep, and those of them that were drawn before.
    french = sample(10, **{"select.rules": ["languages(fr)"]})
    assert len(french) == 10
    assert {row % 4 for row in french} == {0}
    assert {row for row in few if row % 4 == 0} <= french
    reasons, _ = chosen(config(table, **{"select.rows": 10}))
    assert set(reasons) == {None, "not among the 10 rows drawn"}


def test_a_table_without_ids_is_sampled_by_place(table: Path) -> None:
    for path in table.glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns("id"), path)
    reasons, _ = chosen(config(table, **{"select.rows": 7}))
    assert reasons.count(None) == 7
    assert chosen(config(table, **{"select.rows": 7}))[0] == reasons


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"select.rows": 0}, r"select\.rows: .* greater than 0"),
        ({"select.rules": ["min_sides(3)"]}, "min_sides"),
    ],
)
def test_wrong_selections_are_refused(table: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(table, **changes)


def test_rows_that_are_not_selected_say_so_and_are_no_defects(table: Path) -> None:
    opened, annotator = open_table(str(table)), Lengths()
    unit = batches.plan(opened, 10)[0]
    selected = np.arange(10) % 3 == 1
    (row,) = batches.prepare(annotator, opened, unit, 10, set(), selected)
    found = pieces.compute(annotator, annotator, batches.batch_of(row, 0))
    assert found["length_defect"].to_pylist() == [None if n else NOT_SELECTED for n in selected]
    assert [value is not None for value in found["length"].to_pylist()] == selected.tolist()
    receipt = {"rows": 10, "defects": {NOT_SELECTED: 7, "no image": 1}, "values": {}}
    assert pieces.totals([receipt]) == {
        "rows": 10,
        "annotated": 2,
        "defective": 1,
        "defects": {"no image": 1},
    }


def test_a_unit_without_selected_rows_is_not_read(table: Path) -> None:
    opened = open_table(str(table))
    unit = batches.plan(opened, 10)[1]
    (table / "part-000000-000.parquet").unlink()
    made = list(batches.prepare(Lengths(), opened, unit, 4, set(), np.zeros(10, bool)))
    assert [len(row["defects"][0].as_py()) for row in made] == [4, 4, 2]


class WithStatus(Lengths):
    """Lengths with a status of each row."""

    writes = Lengths.writes.append(pa.field("length_status", pa.string()))

    def __call__(self, prepared: np.ndarray) -> dict[str, np.ndarray]:
        return {**super().__call__(prepared), "length_status": np.full(len(prepared), "ok", "O")}


def test_the_status_of_rows_that_are_not_selected_is_no_null(table: Path) -> None:
    annotator = WithStatus()
    batch = batches.RowBatch(
        part=0,
        first=0,
        prepared=np.ones((1, 2), np.float32),
        defects=[NOT_SELECTED, None, "no image"],
    )
    found = pieces.compute(annotator, annotator, batch)
    assert found["length_status"].to_pylist() == [NOT_SELECTED, "ok", None]


def test_a_corpus_knows_why_a_pair_has_its_caption() -> None:
    rows = pa.table(
        {
            "long_caption_status": ["ok", "malformed: assess", NOT_SELECTED, None],
            "long_caption_defect": [None, None, NOT_SELECTED, "no text"],
            "context_caption_defect": [None, NOT_SELECTED, None, None],
        }
    )
    told = caption_instead(rows, "long_caption")
    assert told is not None
    assert told.to_pylist() == [None, "malformed: assess", NOT_SELECTED, "no text"]
    for text in ("context_caption", "expanded_caption"):
        told = caption_instead(rows, text)
        assert told is not None
        assert told.to_pylist() == [None, NOT_SELECTED, None, None]
    assert caption_instead(rows, "caption") is None
    assert caption_instead(rows.select([]), "long_caption") is None


@pytest.mark.ray
def test_a_selection_is_counted_from_the_dry_run_to_the_corpus(
    sample_corpus: Path, tmp_path: Path
) -> None:
    figures = sample_corpus.parent / "figures"
    values = {
        "table": str(figures),
        "annotator.name": "context",
        "out": str(tmp_path / "context"),
        # Of the article, of its texts, and of the figure.
        "select.rules": ["languages(en)", "caption_chars(10)", "usable_image"],
        "select.rows": 30,
        "batch": 16,
    }
    wanted = configs.build(AnnotateConfig, values)
    told = dry_run_text(wanted)
    log = io.StringIO()
    counts = annotate(wanted, progress=log).counts
    assert counts["selected"] == 30 == counts["annotated"] + counts["defective"]
    left = counts["not_selected"]
    assert counts["rows"] == 30 + sum(left.values())
    assert {"figure has a defect", "not among the 30 rows drawn"} <= left.keys()
    assert selection.described(counts) in told
    assert selection.described(counts) in log.getvalue()
    made = {
        **configs.recipe_settings(small()),
        "figures": str(figures),
        "columns": [str(tmp_path / "context")],
        "text": "context_caption",
        "out": str(tmp_path / "corpus"),
    }
    found = assemble(configs.build(AssembleConfig, made))
    texts = found.counts["texts"]
    assert set(texts) == {"context_caption", f"caption: {NOT_SELECTED}"}
    assert sum(texts.values()) == found.counts["figures"]["kept"]
    assert 0 < texts["context_caption"] <= 30


@pytest.mark.ray
def test_clusters_leave_out_what_was_not_selected(sample_corpus: Path, tmp_path: Path) -> None:
    figures = sample_corpus.parent / "figures"
    values = {
        "table": str(figures),
        "annotator.name": "clip",
        "weights": str(save_clip(tmp_path / "clip")),
        "out": str(tmp_path / "clip_image"),
        "select.rules": ["usable_image"],
        "select.rows": 20,
        "workers.count": 1,
    }
    counts = annotate(configs.build(AnnotateConfig, values), progress=io.StringIO()).counts
    source = blocks.open_source(str(figures), str(tmp_path / "clip_image"))
    read = list(blocks.read_vectors(source, 0, counts["rows"]))
    assert sum(len(part.vectors_UD) for part in read) == counts["annotated"]
    assert sum(part.reasons[NOT_SELECTED] for part in read) == counts["rows"] - 20
    nothing = {**values, "select.rules": ["years(2999)"], "out": str(tmp_path / "none")}
    with pytest.raises(NothingUsable):
        annotate(configs.build(AnnotateConfig, nothing), progress=io.StringIO())
    assert not (tmp_path / "none").exists()
