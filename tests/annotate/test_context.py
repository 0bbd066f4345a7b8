"""Context captions as columns: what is read of the article, and where it is looked for."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.annotate import articles, batches, pieces
from biovl.annotate.annotators import NO_TEXT
from biovl.annotate.annotators.context import READS, Config, build
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.job import annotate
from biovl.core.artifacts import read_manifest
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.core.tables import open_table
from tests.annotate.longcap.figures import mention, write_figures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {
            "caption": "An MRI of a knee.",
            "source_uri": "b",
            "mentions": [mention("It was cut in half (Fig. 1A).", "Fig. 1A")],
        },
        {"caption": "CT.", "source_uri": "a"},
        {"caption": "", "source_uri": "a"},
        {"caption": "MRI.", "source_uri": "lost"},
    ]
    texts = {"a": "computed tomography (CT)", "b": "magnetic resonance imaging (MRI)"}
    return write_figures(tmp_path / "figures", rows, texts)


def columns(folder: Path, size: int, **settings: Any) -> pa.Table:
    annotator, table = build(Config(**settings)), open_table(str(folder))
    found = [
        pieces.compute(annotator, annotator.load("cpu", "float32"), batches.batch_of(row, 0))
        for unit in batches.plan(table, 1)
        for row in batches.prepare(annotator, table, unit, size, set())
    ]
    return pa.concat_tables(found)


def test_each_row_reads_its_own_article(folder: Path) -> None:
    found = columns(folder, 10)
    assert found["expanded_caption"].to_pylist() == [
        "A magnetic resonance imaging (MRI) of a knee.",
        "Computed tomography (CT).",
        None,
        "MRI.",
    ]
    assert found["context_caption"][0].as_py() == "An MRI of a knee.\nIt was cut in half."
    assert found["acronyms"][0].as_py() == [{"short": "MRI", "long": "magnetic resonance imaging"}]
    assert found["context_caption_defect"].to_pylist() == [None, None, NO_TEXT, None]


def test_a_glossary_of_the_article_defines_acronyms(folder: Path) -> None:
    articles_file = folder / "articles" / "part-000000-000.parquet"
    found = pq.read_table(articles_file)
    listed = ["CT: computer tomography", "MRI: nothing of the kind"]
    pq.write_table(found.append_column("abbreviations", pa.array(listed)), articles_file)
    assert columns(folder, 10)["expanded_caption"].to_pylist()[:2] == [
        "A magnetic resonance imaging (MRI) of a knee.",
        "Computer tomography (CT).",
    ]


def test_sources_say_where_each_sentence_is_from_and_how_it_was_published(folder: Path) -> None:
    assert columns(folder, 1)["context_sources"][0].as_py() == [
        {"source": "caption", "text": "An MRI of a knee.", "published": "An MRI of a knee."},
        {
            "source": "body",
            "text": "It was cut in half.",
            "published": "It was cut in half (Fig. 1A).",
        },
    ]


def test_how_many_rows_a_batch_has_does_not_matter(folder: Path) -> None:
    assert columns(folder, 1).equals(columns(folder, 3))


def test_context_captions_may_have_their_acronyms_spelled_out(folder: Path) -> None:
    found = columns(folder, 10, acronyms="spelled out")["context_caption"][0].as_py()
    assert found == "A magnetic resonance imaging (MRI) of a knee.\nIt was cut in half."


def test_a_table_without_articles_is_refused(folder: Path, tmp_path: Path) -> None:
    articles.check(open_table(str(folder)), READS)
    (folder / "articles" / "part-000000-000.parquet").rename(tmp_path / "away.parquet")
    with pytest.raises(ConfigError, match=r"articles/.*article\.abstract"):
        articles.check(open_table(str(folder)), READS)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_the_job_needs_neither_weights_nor_a_model(folder: Path) -> None:
    config = AnnotateConfig(table=str(folder), annotator=Plugin("context"), batch=1)
    counts = annotate(config).counts
    assert (counts["rows"], counts["annotated"], counts["defects"]) == (4, 3, {NO_TEXT: 1})
    (part,) = (folder / "columns" / "context_caption").glob("*.parquet")
    assert pq.read_table(part).equals(columns(folder, 10))
    manifest = read_manifest(str(part.parent), "columns")
    assert [item.name for item in manifest.inputs] == ["table"]
