"""The tables of the papers: complete, true to the papers' arithmetic, and steps for every row."""

import math
from pathlib import Path

import pytest

from biovl.assemble.config import AS_PUBLISHED
from biovl.benchmark import benchmarks
from biovl.chain.checks import check_assemble
from biovl.chain.reproduce import command, hours, report
from biovl.chain.reproduce.graph import Graph, build, read_settings, reject_unused
from biovl.chain.reproduce.job import foresee
from biovl.chain.reproduce.papers import choose, read_papers
from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.overrides import join_items
from biovl.sweep.spaces import SPACES

PAPERS = read_papers()


def graph_of(name: str, **settings: str) -> Graph:
    values = {"folder": "none", **{key.replace("__", "."): v for key, v in settings.items()}}
    return build(PAPERS, choose(PAPERS, name).values(), read_settings(values, PAPERS))


@pytest.mark.parametrize("name", PAPERS.tables)
def test_every_table_has_steps_in_both_sizes(name: str) -> None:
    for size in ("paper", "small"):
        graph = graph_of(name, size=size)
        known = set(graph.given)
        for step in graph.steps:
            assert set(step.sources) <= known, step.name
            known.add(step.name)
        # Settings that a recipe refuses are found here.
        configured = {found.step.name for found in graph.links()}
        if size == "small":
            assert not graph.missing
            assert configured == known


@pytest.mark.parametrize("name", PAPERS.tables)
def test_every_row_says_where_our_number_comes_from(name: str) -> None:
    table = PAPERS.tables[name]
    for row in table.rows:
        assert row.model or row.step or row.note, row.name


def test_every_average_is_one_that_benchmark_computes() -> None:
    for table in PAPERS.tables.values():
        for column in table.columns:
            if column.average:
                suite = column.average.partition(":")[0]
                values = dict.fromkeys(benchmarks.SUITES[suite], 0.5)
                names = [row["name"] for row in benchmarks.averages(values)]
                assert column.average in names


@pytest.mark.parametrize("name", PAPERS.tables)
def test_averages_of_the_papers_add_up_or_a_note_says_that_they_do_not(name: str) -> None:
    table = PAPERS.tables[name]
    if not table.columns[-1].average or len(table.columns) < 3:
        return
    for row in table.rows:
        if row.paper:
            *parts, average = [value for value in row.paper if value is not None]
            adds_up = math.isclose(sum(parts) / len(parts), average, abs_tol=0.016)
            assert adds_up != ("average" in row.note), row.name


def test_the_scores_of_sweeps_are_those_of_the_tables() -> None:
    spaces = {
        **{"text_encoder": "s1", "vit_size": "s2", "initialisation": "s3", "image_size": "s4"},
        **{"batch_size": "s6", "batch_schedule": "s7"},
    }
    for space, table in spaces.items():
        swept = [tuple(row.paper.values()) for row in SPACES[space]().settings]
        assert swept == [row.paper for row in PAPERS.tables[f"biomedclip_{table}"].rows]
    swept = [tuple(row.paper.values()) for row in SPACES["base_model"]().settings]
    assert swept == [row.paper for row in PAPERS.tables["biomedclip_s8"].rows][2:]


def test_tables_are_chosen_by_name_and_by_paper() -> None:
    assert list(choose(PAPERS, "biomedclip_s1,biomedica_3")) == ["biomedclip_s1", "biomedica_3"]
    assert len(choose(PAPERS, "all")) == len(PAPERS.tables)
    with pytest.raises(ConfigError, match="biomedclip_s1"):
        choose(PAPERS, "biomedclip_s11")


def test_steps_are_shared_by_tables() -> None:
    both = graph_of("biomedclip_s1,biomedclip_s2")
    names = [step.name for step in both.steps]
    assert len(names) == len(set(names))
    assert "biomedclip_8_epochs" in names
    one, two = (len(graph_of(f"biomedclip_{name}").steps) for name in ("s1", "s2"))
    # figures, corpus, and the model of the last row with its report.
    assert len(names) == one + two - 4


def test_a_folder_is_used_in_place_of_a_step_and_what_made_it() -> None:
    graph = graph_of("biomedclip_s1", use__pmc_15m="corpus")
    assert "figures" not in [step.name for step in graph.steps]
    assert {found.out for found in graph.links() if found.step.name == "pmc_15m"} == {"corpus"}


def test_settings_of_a_job_are_those_of_all_its_steps_and_those_of_a_step_its_own() -> None:
    graph = graph_of("biomedclip_s1", pretrain__workers__count=4, biomedclip_gpt__workers__count=2)
    counts = {
        found.step.name: found.config.workers.count
        for found in graph.links()
        if found.step.name in graph.entries and graph.entries[found.step.name].job == "pretrain"
    }
    assert counts == {"biomedclip_gpt": 2, "biomedclip_context_77": 4, "biomedclip_8_epochs": 4}


@pytest.mark.parametrize("setting", ["folders", "use.nothing", "biomedclip", "pretrain"])
def test_unknown_settings_are_rejected(setting: str) -> None:
    with pytest.raises(ConfigError, match="there is nothing called"):
        read_settings({"folder": "none", setting: "1"}, PAPERS)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("merge.alpha", r"merge\.alpha is set, but no step"),
        ("biomedclip_384.epochs", r"biomedclip_384\.epochs is set"),
        # An evaluation of other tables.
        ("zero_shot.resamples", r"zero_shot\.resamples is set"),
        ("use.labels", r"use\.labels is set, but no step"),
        # A folder is used in place of what reads it.
        ("use.figures", r"use\.figures is set"),
        ("figures.workers.count", r"figures\.workers\.count is set.*in its place"),
    ],
)
def test_settings_that_reach_no_step_are_rejected(setting: str, says: str) -> None:
    given = {"folder": "none", "use.pmc_15m": "corpus", setting: "1"}
    settings = read_settings(given, PAPERS)
    graph = build(PAPERS, choose(PAPERS, "biomedclip_s1").values(), settings)
    with pytest.raises(ConfigError, match=says):
        reject_unused([graph], settings)


def test_settings_that_one_of_several_tables_has_are_not_rejected() -> None:
    values = {
        "folder": "none",
        "use.biomedclip_released": "biomedclip",
        "merge.alpha": 0.5,
        "harvest.workers.count": 4,
        "biomedclip_gpt.workers.count": 2,
        "pmc_15m_val.resamples": 10,
        "general.resamples": 10,
    }
    settings = read_settings(values, PAPERS)
    tables = choose(PAPERS, "biomedclip_s1,biomedica_3")
    reject_unused([build(PAPERS, tables.values(), settings)], settings)
    reject_unused([build(PAPERS, [table], settings) for table in tables.values()], settings)
    small = read_settings({**values, "size": "small", "stand_ins.articles": 9}, PAPERS)
    reject_unused([build(PAPERS, tables.values(), small)], small)


def test_the_command_rejects_them_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["biomedclip_s1", "--dry-run"], ["biomedclip_s1"]):
        with pytest.raises(SystemExit) as end:
            command.main([*arguments, "--set", f"folder={tmp_path}", "--set", "merge.alpha=0.3"])
        assert end.value.code == 2
        assert "merge.alpha is set" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_folder_is_used_in_place_of_an_evaluation() -> None:
    with pytest.raises(ConfigError, match=r"use\.zero_shot: zero_shot is an evaluation"):
        read_settings({"folder": "none", "use.zero_shot": "reports"}, PAPERS)


def test_the_articles_of_a_harvest_are_not_compared_with_those_of_the_paper() -> None:
    table = PAPERS.tables["biomedica_6"]
    (articles,) = (row for row in table.rows if row.at.startswith("harvested."))
    assert articles.equal == "no"
    assert "before our rules" in articles.note


def test_what_has_to_be_provided_is_said_with_its_command() -> None:
    missing = set(graph_of("biomedica_3").missing.values())
    assert any("biovl prepare ubench" in reason for reason in missing)
    assert any("accept its terms, then biovl prepare chexpert" in reason for reason in missing)
    assert any("labels.votes=votes.csv" in reason for reason in missing)


@pytest.mark.parametrize("recipe", AS_PUBLISHED)
def test_corpora_as_published_pass_the_checks_before_the_harvest(recipe: str) -> None:
    columns = ["labels"] if recipe in ("biomedica_6m", "biomedica_8m") else []
    given = {"figures": "figures", "out": "out", "columns": columns}
    config = configs.override(AS_PUBLISHED[recipe](), given)
    check_assemble(config, {"figures": None, "labels": None})


def test_a_step_that_would_fail_is_known_before_anything_runs(tmp_path: Path) -> None:
    rule = "value_one_of(column='nothing', allowed=['x'])"
    values = {"folder": str(tmp_path), "size": "small", "pmc_15m.rules+": rule}
    tables = choose(PAPERS, "biomedclip_s6,biomedica_6").values()
    graph = build(PAPERS, tables, read_settings(values, PAPERS))
    # Neither what reads its corpus, nor other corpora.
    (failing,) = foresee(graph).items()
    assert failing[0] == "pmc_15m"
    assert "nothing" in failing[1]
    assert "pmc_15m: pmc_15m  [would fail]" in report.plan(
        graph, graph.links(), {}, dict([failing])
    )
    assert not list(tmp_path.iterdir())
    # A folder that is given is read, not what would have made it.
    graph = graph_of("biomedclip_s6", use__pmc_15m=str(tmp_path))
    assert set(foresee(graph)) == {"biomedclip_2k", "biomedclip"}


def test_rules_of_a_job_and_of_its_step_are_added_to_those_of_the_paper(tmp_path: Path) -> None:
    added = {
        "assemble.rules+": "min_side(300)",
        "biomedica_6m.rules+": "max_duplicates(3)",
    }
    settings = read_settings({"folder": str(tmp_path), **added}, PAPERS)
    graph = build(PAPERS, choose(PAPERS, "longclip_1_pmc").values(), settings)
    paper = graph_of("longclip_1_pmc").chain.settings
    for step, own in (("biomedica_6m", [*added.values()]), ("longcap", ["min_side(300)"])):
        before = join_items(paper[step]["rules+"])
        assert before
        assert graph.chain.settings[step]["rules+"] == [*before, *own]


def test_no_corpus_of_the_tested_models_has_articles_of_the_tests_year() -> None:
    graph = graph_of("longclip_1_pmc", labels__votes="votes.csv")
    corpora = [name for name, entry in graph.entries.items() if entry.job == "assemble"]
    assert set(corpora) == {"biomedica_6m", "longcap"}
    configured = {found.step.name: found.config for found in graph.links()}
    assert "years(maximum=2024)" in graph.chain.settings["longcap"]["rules+"]
    (limit,) = [rule for rule in configured["biomedica_6m"].rules if rule.name == "years"]
    assert limit.settings == {"maximum": 2024}


def test_steps_whose_hours_are_not_estimated_are_named() -> None:
    graph = graph_of("longclip_1_cxr", labels__votes="votes.csv")
    told = report.plan(graph, graph.links(), hours.costs(graph, PAPERS), {})
    (line,) = (line for line in told.splitlines() if line.startswith("about "))
    assert line.endswith("by biovl plan; without: reports, concepts, labels, long_captions")
    # What is published is not to do.
    given = graph_of("biomedclip_s1", use__figures="figures")
    of_given = hours.costs(given, PAPERS)
    told = report.plan(given, given.links(), of_given, {})
    assert "by biovl plan; without: reports\n" in told


def test_long_captions_are_written_for_pairs_of_the_corpus() -> None:
    values = {"labels__votes": "v", "long_captions__annotator.endpoint.url": "http://localhost"}
    graph = graph_of("longclip_1_pmc", **values, long_captions__annotator__cache="cache")
    configured = {found.step.name: found.config for found in graph.links()}
    chosen = configured["long_captions"].select.rules
    kept = configured["biomedica_6m"].rules
    names = {"any_of", "none_of", "value_one_of", "years"}
    assert {rule.name for rule in chosen} == names
    by_name = {rule.name: rule.settings for rule in kept}
    assert {rule.name: rule.settings for rule in chosen} == {name: by_name[name] for name in names}
