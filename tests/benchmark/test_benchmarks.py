"""The table of benchmarks against the paper's, names and what becomes of them, averages."""

import io
from pathlib import Path

import pytest
from PIL import Image

from biovl.benchmark import benchmarks, report
from biovl.benchmark import config as benchmark_config
from biovl.benchmark.benchmark_table import BENCHMARKS, SUITES
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets.medmnist import CLASSES
from biovl.benchmark.prompts import PROMPTS
from biovl.benchmark.report import TaskResult
from biovl.core import config as configs
from biovl.core.errors import ConfigError


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
    table_12 = [BENCHMARKS[name] for name in SUITES["biomedica"]]
    groups = [item.group for item in table_12]
    assert [groups.count(group) for group in dict.fromkeys(groups)] == [
        *(6, 3, 3, 4, 4, 1, 1, 1, 1, 2, 1, 1, 1, 10, 1),
    ]
    assert len(table_12) == 40
    assert sum(item.task != "retrieval" for item in table_12) == 39
    assert len(SUITES["biomedica_general"]) == 35
    classes = {item.name: item.classes for item in table_12}
    assert (classes["fluorescence_cells"], classes["chexpert"], classes["ham10000"]) == (13, 5, 7)


# BIOMEDICA, table 12: tasks in its order with their classes; of the surgical ones table 3 has ten.
TABLE_12 = {
    **{"bbbc048_bf": 7, "bbbc048_df": 7, "bbbc048_ef": 5},
    **{"pcst_contour": 3, "pcst_texture": 3, "pcst_eccentricity": 3},
    **{"fluorescence_cells": 13, "empiar_sbfsem": 5, "icpr2020_pollen": 4},
    **{"acevedo_2020": 8, "jung_2022": 5, "pap_smear_2019": 4},
    **{"kather_2016": 8, "lc25000_lung": 3, "pcam": 2, "lc25000_colon": 2},
    **{"tang_2019": 4, "wong_2022": 4, "nirschl_2018": 2, "wu_2023": 2},
    **{"microbench_submodality": 6, "microbench_stain": 6, "microbench_domain": 6},
    **{"microbench_modality": 3, "chexpert": 5, "rsna": 2, "breastmnist": 2, "ham10000": 7},
    "deepdrid": 4,
}
# The classes that µ-Bench's authors count in the code of their evaluation, by its column dataset.
MICRO_BENCH = {
    **{"eulenberg_et_al_2017_brightfield": 7, "eulenberg_et_al_2017_darkfield": 7},
    **{"eulenberg_et_al_2017_epifluorescence": 5, "burgess_et_al_2024_contour": 3},
    **{"burgess_et_al_2024_texture": 3, "burgess_et_al_2024_eccentricity": 3},
    **{"nirschl_unpub_fluorescence": 13, "empiar_sbfsem": 5, "icpr2020_pollen": 4},
    **{"acevedo_et_al_2020": 8, "jung_et_al_2022": 5, "hussain_et_al_2019": 4},
    **{"kather_et_al_2016": 8, "tang_et_al_2019": 4, "wong_et_al_2022": 4},
    **{"nirschl_et_al_2018": 2, "wu_et_al_2023": 2},
}


def test_each_task_has_the_classes_of_table_12_and_of_its_source() -> None:
    tasks = [BENCHMARKS[name] for name in SUITES["biomedica"] if BENCHMARKS[name].classes]
    dresden = [item.classes for item in tasks if item.name.startswith("dresden")]
    assert dresden == [2] * 10
    assert {item.name: item.classes for item in tasks if item.domain != "Surgery"} == TABLE_12
    micro = {
        item.settings["where"]["dataset"]: item.classes
        for item in tasks
        if "where" in item.settings
    }
    assert micro == MICRO_BENCH
    medmnist = {"breastmnist": "breastmnist", "ham10000": "dermamnist"}
    for name, file in medmnist.items():
        assert BENCHMARKS[name].path == f"medmnist/{file}_224.npz"
        assert len(CLASSES[file]) == TABLE_12[name]
    for name in SUITES["biomedclip"]:
        assert len(PROMPTS[BENCHMARKS[name].prompts].classes) == BENCHMARKS[name].classes


# BiomedCLIP, supplementary table 10.
TABLE_10 = {
    "pcam": (("normal lymph node", "lymph node metastasis"), "this is an image of {}"),
    "lc25000_lung": (
        ("lung adenocarcinomas", "normal lung tissue", "lung squamous cell carcinomas"),
        "this is an image of {}",
    ),
    "lc25000_colon": (("colon adenocarcinomas", "normal colonic tissue"), "a photo of {}"),
    "tcga_til": (("none", "tumor infiltrating lymphocytes"), "a photo of {}"),
    "rsna": (("normal lung", "pneumonia"), "a photo of {}"),
}


def test_prompts_are_those_of_supplementary_table_10() -> None:
    assert set(TABLE_10) == set(SUITES["biomedclip"])
    for name, (classes, template) in TABLE_10.items():
        prompts = PROMPTS[BENCHMARKS[name].prompts]
        assert (prompts.classes, prompts.templates) == (
            classes,
            (template, "{} presented in image"),
        )
        assert BENCHMARKS[name].metric == ("auroc" if name == "tcga_til" else "")


def test_slake_is_trained_as_by_its_recipe_in_the_suite(tmp_path: Path) -> None:
    (tmp_path / "slake").mkdir()
    run = config(benchmarks=["medical_questions"], data_root=str(tmp_path))
    settings = benchmarks.resolve_tasks(run)[0]["slake"].settings
    own = benchmark_config.RECIPES["vqa_slake"]().tasks["vqa"].settings
    assert settings["learning"] == own["learning"] == {"epochs": 15, "batch": 32}


def test_every_benchmark_says_what_it_takes() -> None:
    for item in BENCHMARKS.values():
        assert item.origin
        assert item.licence
        assert item.access in ("download", "sign", "harvest")
        assert not item.prompts or item.prompts in PROMPTS
        assert item.classes is None or item.classes >= 2
    assert {name for names in SUITES.values() for name in names} <= BENCHMARKS.keys()


def test_benchmarks_without_a_folder_of_data_say_which_setting_is_missing(tmp_path: Path) -> None:
    asked = {"benchmarks": ["dresden_liver"]}
    with pytest.raises(ConfigError, match="data_root is required for dresden_liver"):
        benchmarks.check_data_root(config(**asked))
    with pytest.raises(ConfigError, match=r"data_root: .*nowhere is not a folder"):
        benchmarks.check_data_root(config(**asked, data_root=str(tmp_path / "nowhere")))
    benchmarks.check_data_root(config(**asked, data_root=str(tmp_path)))
    benchmarks.check_data_root(config(tasks={"t": "retrieval"}))


def test_the_list_tells_what_is_there(tmp_path: Path) -> None:
    class_folders(tmp_path / "dresden/liver")
    text = benchmarks.listing_for(["--list", "--set", f"data_root={tmp_path}"])
    assert f"; found: {tmp_path}/dresden/liver" in text
    assert f"not found: {tmp_path}/dresden/colon" in text
    assert "sign; not found" in text
    for name in (*BENCHMARKS, *SUITES):
        assert name in text


def test_a_missing_benchmark_is_skipped_with_what_to_do(tmp_path: Path) -> None:
    class_folders(tmp_path / "dresden/liver")
    found, skipped = benchmarks.resolve_tasks(
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
    settings = benchmarks.resolve_tasks(run)[0]["pcam"].settings
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
    found, _ = benchmarks.resolve_tasks(run)
    assert found["retrieval"].settings == {"corpus": "corpus", "resamples": 1000, "seed": 0}
    assert found["other"].settings["data"] == "folder"
    assert found["other"].settings["seed"] == 7
    assert found["zero_shot"].settings["data"] == "folder"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["pkam"]}, "'pkam'.*biomedica"),
        ({"tasks": {"x": {"name": "retrieve"}}}, "'retrieve'.*zero_shot"),
        (
            {"tasks": {"pcam": {"name": "zero_shot"}}, "benchmarks": ["biomedica"]},
            "both contain pcam",
        ),
    ],
)
def test_unknown_names_list_the_known_ones_and_no_two_are_equal(
    changes: dict, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        benchmarks.resolve_tasks(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["pcam"], "models": {"a": "b"}}, "model, models.*wise_ft"),
        ({}, "tasks.*benchmarks"),
        ({"tasks": {"a/b": {"name": "retrieval"}}}, "a/b"),
        ({"benchmarks": ["pcam"], "resamples": 0}, "resamples: .*greater than 0"),
    ],
)
def test_a_run_that_asks_nothing_sensible_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_names_may_be_joined_and_benchmarks_are_recipes_of_their_own() -> None:
    known = benchmarks.with_benchmarks(benchmark_config.RECIPES)
    names = "retrieval, zero_shot,pcam,biomedica"
    assert names in known
    assert list(known[names]().tasks) == ["retrieval", "zero_shot"]
    assert known[names]().benchmarks == ("pcam", "biomedica")
    assert known["biomedclip,retrieval"]().benchmarks_as == "zero_shot"
    # Of which one would be evaluated as the other.
    for names in ("biomedica,biomedclip", "biomedclip,pcam"):
        with pytest.raises(ConfigError, match=r"biomedclip by zero_shot"):
            known[names]()
    with pytest.raises(ConfigError, match="vqa with different settings"):
        known["vqa,vqa_frozen"]()
    assert list(known["vqa,vqa"]().tasks) == ["vqa"]
    assert configs.recipe_settings(known["rsna"]()) == {"benchmarks": ["rsna"]}
    assert "retrieval,nothing" not in known


def test_models_without_a_name_get_one() -> None:
    run = config(benchmarks=["pcam"], model=["/a/model", "/b/model/", "ViT-B-32/openai"])
    assert run.named_models() == {
        "model": "/a/model",
        "model-2": "/b/model/",
        "ViT-B-32-openai": "ViT-B-32/openai",
    }
    away = config(
        benchmarks=["pcam"],
        model="s3://key:secret@b/m?scheme=http",
        out="s3://b/run/out?scheme=http",
    )
    assert list(away.named_models()) == ["m"]
    assert away.cache_uri() == "s3://b/run/.benchmark-cache?scheme=http"


def test_averages_are_those_of_groups_as_in_table_3_and_of_tasks() -> None:
    values = {"rsna": 0.5, "chexpert": 0.7, "ham10000": 0.3}
    found = {row["name"]: row["value"] for row in benchmarks.averages(values)}
    assert found["biomedica_general: Chest X-ray"] == pytest.approx(0.6)
    assert found["biomedica_general: of groups"] == pytest.approx(0.45)
    assert found["biomedica_general: of tasks"] == pytest.approx(0.5)


# The papers' rows and the mean they print beside each.
TABLE_3 = """
Random 20.00 14.28 16.66 20.00 33.33 33.33 50.00 25.00 28.00 50.00 29.06
OpenCLIP 24.63 44.84 20.24 43.88 36.81 60.88 68.27 23.75 20.37 67.51 41.18
CoCa 23.58 32.92 36.27 36.50 38.33 24.69 30.45 43.50 10.15 36.78 31.12
PMC-CLIP 6.01 11.23 12.48 29.86 7.82 28.47 58.97 20.12 12.59 42.96 23.05
BioMedCLIP 26.54 49.14 17.03 48.83 42.39 56.04 56.09 26.12 36.01 53.40 41.16
CF 24.36 53.51 19.48 55.81 38.60 56.68 64.10 43.62 65.81 55.27 47.72
CB 23.54 50.35 16.39 52.33 33.62 50.34 66.35 43.50 56.01 56.51 44.89
BMCA 23.56 48.66 16.61 51.97 34.55 53.06 56.41 43.00 23.07 62.64 41.35
CF/WiSE-FT 26.27 51.68 16.67 49.08 39.07 71.50 67.31 37.88 28.45 62.18 45.01
CB/WiSE-FT 24.66 50.44 17.19 49.09 38.50 64.59 70.19 36.75 24.06 62.39 43.79
BMCA/WiSE-FT 27.70 47.67 16.82 44.19 38.62 66.32 68.27 27.62 15.84 67.68 42.07
"""
COLUMNS_3 = (
    *("Cell profiling", "Structure profiling", "Cytology", "Neo-histopathology"),
    *("Non-neo-histopathology", "Chest X-ray", "Breast ultrasound", "Fundus camera"),
    *("Skin diagnosis", "M.I. surgery"),
)
TABLE_5 = """
OpenCLIP 49.67 85.66 46.77 29.23 53.03
CoCa 47.29 71.89 39.27 48.00 47.29
PMC-CLIP 5.56 14.68 10.92 12.49 10.91
BioMedCLIP 41.54 74.72 49.74 32.89 49.72
CF 49.07 78.71 59.17 14.54 50.37
CB 40.07 83.4 57.28 25.48 51.55
BMCA 44.56 85.70 58.40 26.72 53.84
CF/WiSE-FT 58.78 86.88 60.84 27.65 58.53
CB/WiSE-FT 52.12 87.21 61.84 25.04 56.55
BMCA/WiSE-FT 56.26 83.97 54.81 27.89 55.73
"""
COLUMNS_5 = ("Domain", "Modality", "Stain", "Submodality")
LONGCLIP_2 = """
BMC-LongCLIP-77 40.82 40.69 46.04 59.80 42.28 59.42 48.18
BMC-LongCLIP-154 37.21 51.34 55.76 49.88 47.32 59.47 50.16
BMC-LongCLIP 34.95 55.16 53.37 55.41 42.87 63.20 50.16
PMC-CLIP 7.75 12.59 10.91 23.26 19.11 38.64 18.71
MedSigLIP 33.98 20.13 34.56 38.23 39.74 53.03 36.61
BiomedCLIP 34.07 36.01 49.71 37.36 38.40 56.05 41.93
BMC-CLIP 34.08 65.81 50.09 36.74 41.21 59.15 47.85
BMC-LongCLIP-16K 34.98 38.80 23.16 48.79 46.25 52.79 40.79
BMC-LongCLIP+ 34.34 55.54 37.30 53.05 47.65 66.99 49.48
"""
COLUMNS_LONGCLIP = (
    *("Biology", "Dermatology", "General microscopy", "Ophthalmology", "Pathology", "Radiology"),
)
MISPRINTS = {
    ("biomedica_general", "OpenCLIP"): 41.12,
    ("biomedica_general", "CoCa"): 31.32,
    ("microscopy_composition", "OpenCLIP"): 52.83,
    ("microscopy_composition", "CoCa"): 51.61,
    ("bmc_longclip_classification", "BMC-LongCLIP"): 50.83,
    ("bmc_longclip_classification", "BMC-LongCLIP+"): 49.15,
}
"""Means of the columns that a paper prints, where it prints another mean beside them."""


def rows(table: str) -> dict[str, list[float]]:
    found = (line.split() for line in table.strip().splitlines())
    return {model: [float(value) for value in values] for model, *values in found}


@pytest.mark.parametrize(
    ("suite", "level", "columns", "table", "average"),
    [
        ("biomedica_general", "group", COLUMNS_3, TABLE_3, "of groups"),
        ("microscopy_composition", "group", COLUMNS_5, TABLE_5, "of tasks"),
        ("bmc_longclip_classification", "domain", COLUMNS_LONGCLIP, LONGCLIP_2, "of domains"),
    ],
)
def test_the_papers_own_rows_give_the_papers_own_means(
    suite: str, level: str, columns: tuple[str, ...], table: str, average: str
) -> None:
    part = {name: getattr(BENCHMARKS[name], level) for name in SUITES[suite]}
    assert set(part.values()) == set(columns)
    for model, (*values, printed) in rows(table).items():
        by_part = dict(zip(columns, values, strict=True))
        scores = {name: by_part[part[name]] for name in SUITES[suite]}
        found = {row["name"]: row["value"] for row in benchmarks.averages(scores)}
        mean = MISPRINTS.get((suite, model), printed)
        # The papers round columns and means, some down.
        assert found[f"{suite}: {average}"] == pytest.approx(mean, abs=0.0101), model


def judged(scores: dict[str, dict[str, float]]) -> list[TaskResult]:
    return [
        TaskResult(
            model="ours",
            task=task,
            scores=[{"name": name, "value": value, "count": 9} for name, value in own.items()],
        )
        for task, own in scores.items()
    ]


@pytest.mark.parametrize(
    ("row", "printed"),
    [((73.41, 65.23, 92.98, 67.04, 78.95), 75.52), ((67.15, 61.80, 87.42, 57.00, 78.49), 70.37)],
)
def test_tcga_til_counts_with_its_auroc(row: tuple[float, ...], printed: float) -> None:
    # Supplementary table 5 of BiomedCLIP: AUROC for TCGA-TIL, accuracy for others.
    scores = {
        name: {"accuracy": value, "auroc": 11.0}
        for name, value in zip(SUITES["biomedclip"], row, strict=True)
    }
    scores["tcga_til"] = {"accuracy": 11.0, "auroc": row[3]}
    found = {item["name"]: item for item in report.averages(judged(scores), scores)}
    assert found["biomedclip: of tasks"]["value"] == pytest.approx(printed, abs=0.005)
    assert "biomedclip: of groups" not in found
    # A user's own tasks, whatever they are called.
    assert report.averages(judged(scores), ()) == []
    scores["tcga_til"] = {"accuracy": 50.0}
    without = {item["name"]: item for item in report.averages(judged(scores), scores)}
    assert without["biomedclip: of tasks"]["of"] == "4 of 5"
    assert without["biomedclip: of tasks"]["value"] == pytest.approx(
        sum(value for number, value in enumerate(row) if number != 3) / 4
    )


def test_a_domain_is_the_mean_of_its_tasks_as_the_second_paper_counts_the_first() -> None:
    # Biology and radiology of BMC-LongCLIP's table 2 follow from BIOMEDICA's table 3.
    for ours, theirs in (
        ("PMC-CLIP", "PMC-CLIP"),
        ("BioMedCLIP", "BiomedCLIP"),
        ("CF", "BMC-CLIP"),
    ):
        by_group = dict(zip(COLUMNS_3, rows(TABLE_3)[ours], strict=False))
        scores = {
            name: by_group[BENCHMARKS[name].group]
            for name in SUITES["bmc_longclip_classification"]
            if BENCHMARKS[name].group in by_group
        }
        found = {row["name"]: row["value"] for row in benchmarks.averages(scores)}
        printed = dict(zip(COLUMNS_LONGCLIP, rows(LONGCLIP_2)[theirs], strict=False))
        for domain in ("Biology", "Dermatology", "Radiology"):
            name = f"bmc_longclip_classification: {domain}"
            assert found[name] == pytest.approx(printed[domain], abs=0.011), (ours, domain)
