"""Split as a whole: every figure is there, cut or not; killed and run again."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.articles.content import ArticleContent
from biovl.articles.rights import NO_DERIVATIVES, reason_to_withhold
from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.core import config as configs
from biovl.core import tombstones
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.parts import PartWriter
from biovl.core.records import Article, Figure, Panel, schema
from biovl.core.tables import open_table
from biovl.harvest.rows import rows as harvested_rows
from biovl.harvest.sources import Package
from biovl.images.labels import network
from biovl.index import metadata
from biovl.publish import rights as publishing
from biovl.split import config as split_config
from biovl.split import job
from biovl.split.config import SplitConfig
from biovl.split.job import split_figures
from tests.compound_rows import drawn, figure_row, mention
from tests.runtime.folders import content
from tests.runtime.interrupting import counted, interrupted

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def article(number: int) -> Article:
    """Return the row of an article, as harvest makes it."""
    told = ArticleContent(pmcid=f"PMC{number}", title="On genes", published="2020")
    package = Package(uri=f"packages/PMC{number}", name=f"PMC{number}", content=told)
    return next(row for row in harvested_rows(package) if isinstance(row, Article))


def figure(number: int, **columns: Any) -> Figure:
    own = {"article_id": f"PMC{number}", "source_uri": f"packages/PMC{number}"}
    own |= {"redistributable": True}
    return figure_row(**{"figure_id": f"PMC{number}_f1", **own, **columns})


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three units, the first in two parts: two compound figures, one single, one without image."""
    out = tmp_path_factory.mktemp("split") / "figures"
    draft, folder = Draft.begin(str(out), "figures", {}), Folder(str(out))
    cited = [mention("Scores rose (Fig. 2A).", "Fig. 2A")]
    units = {
        (0, 0): [figure(1, mentions=cited), figure(2, caption="One image.")],
        (0, 1): [figure(3, image=None, width_px=None, defect="image missing")],
        (1, 0): [figure(4, pixels=255 - drawn(), derivatives_allowed=False)],
        (2, 0): [],
    }
    files: dict[str, Any] = {}
    for (unit, first), rows in units.items():
        with PartWriter(folder, "figures", unit, Figure, 10**9, first=first) as part:
            for row in rows:
                part.add(row)
        files |= part.files
    for unit, numbers in enumerate([(1, 2, 3), (4,), (5,)]):
        with PartWriter(folder, "articles", unit, Article, 10**9) as articles:
            for number in numbers:
                articles.add(article(number))
        files |= articles.files
    articles_seen = {"seen": 5, "usable": 5, "defective": 0, "defects": {}}
    counts = {"articles": articles_seen, "figures": {"seen": 4}}
    draft.publish(Manifest(kind="figures", config={}, counts=counts, files=files))
    return out


def settings(figures: Path, out: Path, **others: Any) -> dict[str, Any]:
    return {
        **configs.recipe_settings(split_config.RECIPES["default"]()),
        "figures": str(figures),
        "out": str(out),
        **others,
    }


def run(figures: Path, out: Path, **others: Any) -> Manifest:
    config = configs.build(SplitConfig, settings(figures, out, **others))
    return split_figures(config, progress=io.StringIO())


def corpus_of(panels: Path, out: Path) -> dict[str, Any]:
    """Return settings of a corpus of the panels that may be changed."""
    default = map(configs.to_plain, assemble_config.DEFAULT_RULES)
    return {
        **configs.recipe_settings(assemble_config.small()),
        "figures": str(panels),
        "out": str(out),
        "text": "caption+mentions",
        "duplicates.near": False,
        "rules": [*default, {"name": "derivatives_allowed"}],
    }


def rows_of(out: Path) -> list[dict[str, Any]]:
    parts = sorted((out / "figures").glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


@pytest.fixture(scope="module")
def panels(figures: Path, ray_session: None) -> Path:
    out = figures.parent / "panels"
    run(figures, out)
    return out


def test_every_figure_is_there_as_panels_or_whole(figures: Path, panels: Path) -> None:
    rows = rows_of(panels)
    assert [(row["figure_id"], row["panel_label"], row["whole_because"]) for row in rows] == [
        ("PMC1_f1_pA", "A", None),
        ("PMC1_f1_pB", "B", None),
        ("PMC2_f1", None, "caption names no panels"),
        ("PMC3_f1", None, "image is not usable"),
        ("PMC4_f1_pA", "A", None),
        ("PMC4_f1_pB", "B", None),
    ]
    assert [len(row["mentions"]) for row in rows] == [1, 0, 0, 0, 0, 0]
    manifest = json.loads((panels / "manifest.json").read_text())
    assert manifest["kind"] == "panels"
    assert manifest["counts"]["figures"] == {
        "seen": 6, "usable": 5, "defective": 1, "defects": {"image missing": 1},
    }  # fmt: skip
    assert manifest["counts"]["parents"] == {"seen": 4, "split": 2}
    assert manifest["counts"]["whole"] == {"caption names no panels": 1, "image is not usable": 1}
    for name, file in manifest["files"].items():
        found = pq.read_metadata(panels / name)
        assert (found.num_rows, (panels / name).stat().st_size) == (
            file["rows"],
            file["size_bytes"],
        )


def test_parts_have_the_names_of_figures_and_articles_go_along(figures: Path, panels: Path) -> None:
    assert sorted(content(panels)) == sorted(content(figures))
    assert content(panels / "articles") == content(figures / "articles")
    for part in (panels / "figures").glob("*.parquet"):
        assert pq.read_schema(part).equals(schema(Panel))


def test_what_reads_figures_reads_panels(panels: Path, tmp_path: Path) -> None:
    table = open_table(str(panels))
    assert (table.rows, table.id_column) == (6, "figure_id")
    asked = corpus_of(panels, tmp_path / "corpus")
    manifest = assemble(configs.build(AssembleConfig, asked), progress=io.StringIO())
    assert sum(manifest.counts["pairs"].values()) == 3
    index = pq.read_table(tmp_path / "corpus" / "index.parquet").to_pylist()
    assert {row["figure_id"] for row in index} == {"PMC1_f1_pA", "PMC1_f1_pB", "PMC2_f1"}


def test_panels_of_figures_that_may_not_be_changed_are_withheld_from_their_corpus_on(
    panels: Path, tmp_path: Path
) -> None:
    asked = {**corpus_of(panels, tmp_path / "corpus"), "rules": assemble_config.DEFAULT_RULES}
    assemble(configs.build(AssembleConfig, asked), progress=io.StringIO())
    pairs = pq.read_table(tmp_path / "corpus" / "index.parquet")
    expected = {
        "PMC1_f1_pA": None,
        "PMC1_f1_pB": None,
        "PMC2_f1": None,
        "PMC4_f1_pA": NO_DERIVATIVES,
        "PMC4_f1_pB": NO_DERIVATIVES,
    }
    # A corpus and an index of an earlier version do not state that a panel was cut out.
    for rows in (pairs, pairs.drop_columns("cut_out")):
        reasons = publishing.reasons(rows, publishing.RequestedRows()).to_pylist()
        assert dict(zip(rows["figure_id"].to_pylist(), reasons, strict=True)) == expected
        indexed = metadata.from_index_rows(rows)
        for table in (indexed, indexed.drop_columns("cut_out")):
            shown = {row["figure_id"]: reason_to_withhold(row) for row in table.to_pylist()}
            assert shown == expected


def test_near_duplicates_of_a_benchmark_take_their_panels_along(
    panels: Path, tmp_path: Path
) -> None:
    def kept(listed: str) -> set[str]:
        report = tmp_path / f"report-{listed}"
        (report / "leaks" / "m").mkdir(parents=True)
        row = {"id": "a", "corpus_id": listed, "by": "same file", "closeness": 1.0}
        pq.write_table(pa.Table.from_pylist([row]), report / "leaks" / "m" / "t.parquet")
        manifest = {"kind": "report", "config": {}, "counts": {}, "inputs": [], "code": "t"}
        manifest["files"] = {"leaks/m/t.parquet": {"rows": 1}}
        (report / "manifest.json").write_text(json.dumps(manifest))
        out = tmp_path / f"corpus-{listed}"
        assemble(
            configs.build(AssembleConfig, {**corpus_of(panels, out), "leaks": [str(report)]}),
            progress=io.StringIO(),
        )
        return {row["figure_id"] for row in pq.read_table(out / "index.parquet").to_pylist()}

    # The index of the model may be of figures, or of panels.
    assert kept("PMC1_f1") == {"PMC2_f1"}
    assert kept("PMC1_f1_pA") == {"PMC1_f1_pB", "PMC2_f1"}


def test_figures_that_may_not_be_changed_stay_whole_where_that_is_asked(
    figures: Path, ray_session: None, tmp_path: Path
) -> None:
    counts = run(figures, tmp_path / "out", derivatives="allowed").counts
    assert counts["parents"] == {"seen": 4, "split": 1}
    assert counts["whole"]["licence does not allow changes"] == 1


def test_a_finished_job_does_nothing_and_another_is_refused(figures: Path, panels: Path) -> None:
    before = content(panels)
    run(figures, panels)
    assert content(panels) == before
    with pytest.raises(ArtifactError, match=r"confidence: 0\.7 -> 0\.9"):
        run(figures, panels, confidence=0.9)
    with pytest.raises(ArtifactError, match="panels, expected figures"):
        run(panels, figures.parent / "again")


def test_interrupted_and_run_again_gives_the_same_bytes(
    figures: Path, panels: Path, tmp_path: Path
) -> None:
    out = tmp_path / "panels"
    with interrupted("splitting part"):
        run(figures, out)
    assert not (out / "manifest.json").exists()
    with counted() as stages:
        run(figures, out)
    done_before, total = stages["splitting part"]
    assert 1 <= done_before <= total
    assert content(out) == content(panels)


def test_a_label_reader_that_is_missing_ends_the_job_and_leaves_no_figure_whole(
    figures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "WEIGHTS", tmp_path / "reader.npz")
    network.builtin_network.cache_clear()
    config = configs.build(SplitConfig, settings(figures, tmp_path / "out"))
    try:
        with pytest.raises(FileNotFoundError, match=r"reader\.npz"):
            job._split_part(config, ["figures/part-000000-000.parquet"], "", 0)
    finally:
        network.builtin_network.cache_clear()


def test_what_later_harvests_end_is_still_told(
    figures: Path, ray_session: None, tmp_path: Path
) -> None:
    (figures / tombstones.FILE).write_bytes(b"as it is")
    try:
        run(figures, tmp_path / "out")
    finally:
        (figures / tombstones.FILE).unlink()
    assert (tmp_path / "out" / tombstones.FILE).read_bytes() == b"as it is"
