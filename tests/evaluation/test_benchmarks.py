"""The table of benchmarks against the paper's, names and what becomes of them, averages."""

import io
from pathlib import Path

import pytest
from PIL import Image

from biovl import config as configs
from biovl import recipes
from biovl.errors import ConfigError
from biovl.evaluation import benchmarks
from biovl.evaluation.benchmark_table import BENCHMARKS, BIOMEDICA_TABLE_12, SUITES
from biovl.evaluation.config import BenchmarkConfig
from biovl.evaluation.prompts import PROMPTS


def config(**changes: object) -> BenchmarkConfig:
    return configs.build(BenchmarkConfig, {"out": "o", "model": "m", **changes})


def class_folders(folder: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (9, 9)).save(stream, "PNG")
    for name in ("no", "yes"):
        (folder / name).mkdir(parents=True)
        (folder / name / "x.png").write_bytes(stream.getvalue())


def test_the_table_counts_what_the_papers_tables_count() -> None:
    # Table 3: six, three, three, four, four, two, one, one, one and ten; table 5: four.
    groups = [item.group for item in BIOMEDICA_TABLE_12]
    assert [groups.count(group) for group in dict.fromkeys(groups)] == [
        *(6, 3, 3, 4, 4, 1, 1, 1, 1, 2, 1, 1, 1, 10, 1),
    ]
    assert len(BIOMEDICA_TABLE_12) == 40
    assert sum(item.task != "retrieval" for item in BIOMEDICA_TABLE_12) == 39
    assert len(SUITES["biomedica_general"]) == 35
    classes = {item.name: item.classes for item in BIOMEDICA_TABLE_12}
    assert (classes["fluorescence_cells"], classes["chexpert"], classes["ham10000"]) == (13, 5, 7)


def test_every_benchmark_says_what_it_takes() -> None:
    for item in BENCHMARKS.values():
        assert item.source
        assert item.licence
        assert item.access in ("download", "sign", "harvest")
        assert not item.prompts or item.prompts in PROMPTS
        assert item.classes is None or item.classes >= 2
    assert {name for names in SUITES.values() for name in names} <= BENCHMARKS.keys()


def test_the_list_tells_what_is_there(tmp_path: Path) -> None:
    class_folders(tmp_path / "dresden/liver")
    text = benchmarks.listed(["--list", "--set", f"data_root={tmp_path}"])
    assert f"there: {tmp_path}/dresden/liver" in text
    assert f"not there: {tmp_path}/dresden/colon" in text
    assert "sign; not there" in text
    for name in (*BENCHMARKS, *SUITES):
        assert name in text


def test_a_missing_benchmark_is_skipped_with_what_to_do(tmp_path: Path) -> None:
    class_folders(tmp_path / "dresden/liver")
    found, skipped = benchmarks.resolved(
        config(benchmarks=["dresden_liver", "rsna"], data_root=str(tmp_path))
    )
    path = str(tmp_path / "dresden/liver")
    assert found["dresden_liver"].name == "closed_vqa"
    assert found["dresden_liver"].settings["data"] == {"name": "folder", "path": path}
    ((name, why),) = skipped
    assert name == "rsna"
    assert why.startswith(f"not at {tmp_path}/rsna; sign it: Shih et al. 2019")


def test_the_papers_prompts_go_with_zero_shot(tmp_path: Path) -> None:
    class_folders(tmp_path / "pcam")
    run = config(benchmarks=["pcam"], benchmarks_as="zero_shot", data_root=str(tmp_path), seed=4)
    settings = benchmarks.resolved(run)[0]["pcam"].settings
    assert (settings["prompts"], settings["seed"]) == ("pcam", 4)


def test_tasks_take_what_the_run_says_for_all_unless_they_say_otherwise() -> None:
    run = config(
        tasks={
            "retrieval": {"name": "retrieval"},
            "other": {"name": "retrieval", "corpus": "", "seed": 7},
            "zero_shot": {"name": "zero_shot", "templates": ["{}"]},
        },
        corpus="corpus",
        data="folder",
    )
    found, _ = benchmarks.resolved(run)
    assert found["retrieval"].settings == {"corpus": "corpus", "resamples": 1000, "seed": 0}
    assert found["other"].settings["data"] == "folder"
    assert found["other"].settings["seed"] == 7
    assert found["zero_shot"].settings["data"] == "folder"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["pkam"]}, r"no benchmark called 'pkam'; choose from the suites biomedica"),
        ({"tasks": {"x": {"name": "retrieve"}}}, r"no task called 'retrieve'; choose from .*zero"),
    ],
)
def test_unknown_names_list_the_known_ones(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        benchmarks.resolved(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["pcam"], "models": {"a": "b"}}, "one of model, models and wise_ft"),
        ({}, "say what is asked"),
        ({"tasks": {"a/b": {"name": "retrieval"}}}, "names of models and tasks"),
        ({"benchmarks": ["pcam"], "resamples": 0}, "at least 1"),
    ],
)
def test_a_run_that_asks_nothing_sensible_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_names_may_be_joined_and_benchmarks_are_recipes_of_their_own() -> None:
    known = benchmarks.with_benchmarks(recipes.BENCHMARK)
    names = "retrieval, zero_shot,pcam,biomedica"
    assert names in known
    assert list(known[names]()["tasks"]) == ["retrieval", "zero_shot"]
    assert known[names]()["benchmarks"] == ["pcam", "biomedica"]
    assert known["rsna"]() == {"benchmarks": ["rsna"]}
    assert "retrieval,nothing" not in known


def test_models_without_a_name_get_one() -> None:
    run = config(benchmarks=["pcam"], model=["/a/model", "/b/model/", "ViT-B-32/openai"])
    assert run.named_models() == {
        "model": "/a/model",
        "model-2": "/b/model/",
        "ViT-B-32-openai": "ViT-B-32/openai",
    }
    assert config(benchmarks=["pcam"], out="s3://b/run/out").cache_uri() == (
        "s3://b/run/.benchmark-cache"
    )


def test_averages_are_those_of_groups_as_in_table_3_and_of_tasks() -> None:
    values = {"rsna": 0.5, "chexpert": 0.7, "ham10000": 0.3}
    found = {row["name"]: row["value"] for row in benchmarks.averages(values)}
    assert found["biomedica_general: Chest X-ray"] == pytest.approx(0.6)
    assert found["biomedica_general: of groups"] == pytest.approx(0.45)
    assert found["biomedica_general: of tasks"] == pytest.approx(0.5)


def test_the_papers_own_average_is_that_of_groups() -> None:
    # BMCA-CLIP_CF in table 3, whose ten columns give 47.72.
    columns = [24.36, 53.51, 19.48, 55.81, 38.60, 56.68, 64.10, 43.62, 65.81, 55.27]
    names = SUITES["biomedica_general"]
    groups = dict.fromkeys(BENCHMARKS[name].group for name in names)
    order = ["Cell profiling", "Structure profiling", "Cytology", "Neo-histopathology"]
    order += ["Non-neo-histopathology", "Chest X-ray", "Breast ultrasound", "Fundus camera"]
    order += ["Skin diagnosis", "M.I. surgery"]
    assert set(order) == set(groups)
    by_group = dict(zip(order, columns, strict=True))
    values = {name: by_group[BENCHMARKS[name].group] for name in names}
    found = {row["name"]: row["value"] for row in benchmarks.averages(values)}
    assert found["biomedica_general: of groups"] == pytest.approx(47.72, abs=0.01)
