"""Scores of a report in the hub's and MTEB's forms: values, intervals, and what is not exported."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from mteb.results import TaskResult
from sklearn.metrics import accuracy_score, average_precision_score

from biovl.benchmark import public_scores
from biovl.benchmark.public_scores import NO_NAME, OWN_DRAW
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint
from biovl.core.errors import ArtifactError, ConfigError
from biovl.publish import mteb_results
from biovl.publish.config import HubData, PublishConfig
from biovl.publish.job import dry_run_text, publish
from biovl.publish.scores import HEADING, score_files
from tests.publish.hub_server import TOKEN, Hub, running

SECRET = "oncology-ward-7"
CARD = "---\nlicense: cc-by-4.0\nmodel_name: small\n---\n\n# small\n\nAbout it.\n"
METASTASIS, NORMAL = "lymph node containing metastatic tumor tissue", "lymph node"
MTEB_NOTES = {
    "classes": [METASTASIS, NORMAL],
    "words": {
        "metastasis": METASTASIS,
        "normal": NORMAL,
    },
    "templates": ["histopathology image of {}"],
}


def publish_folder(folder: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Path:
    draft = Draft.begin(str(folder), manifest.kind, manifest.config, manifest.inputs, defaults={})
    for name, content in files.items():
        draft.folder.write(name, content)
    draft.publish(manifest)
    return folder


def make_model(folder: Path, card: str = CARD) -> Path:
    manifest = Manifest(kind="model", config={"name": folder.name}, counts={})
    return publish_folder(folder, manifest, {"README.md": card.encode()})


def score(name: str, value: float, count: int = 200, note: str = "") -> dict[str, Any]:
    ends = {"low": value - 0.031, "high": value + 0.029}
    return {"name": name, "value": value, **ends, "count": count, "note": note}


def make_report(
    folder: Path,
    model: Path,
    scores: Mapping[str, list[dict[str, Any]]],
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    tasks: Mapping[str, Any] | None = None,
) -> Path:
    config = {
        "tasks": tasks or {},
        "benchmarks_as": "zero_shot",
        "data_root": f"/home/ann/{SECRET}",
        **{"seed": 0, "resamples": 1_000, "precision": "float32"},
    }
    inputs = [
        Input(name="model other", uri="other", fingerprint="0" * 32),
        Input(name="model small", uri=f"/{SECRET}/model", fingerprint=fingerprint(str(model))),
        *(Input(name=f"data {task}", uri=SECRET, fingerprint=f"{task}-data") for task in scores),
    ]
    rows = [
        {"model": name, "task": task, **row, "value": row["value"] / (1 + (name == "other"))}
        for task, own in scores.items()
        for name in ("other", "small")
        for row in own
    ]
    content = {
        "scores": rows,
        "notes": [{"model": "small", "task": task, **row} for task, row in (notes or {}).items()],
    }
    manifest = Manifest(kind="report", config=config, counts={}, inputs=inputs)
    return publish_folder(folder, manifest, {"scores.json": json.dumps(content).encode()})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


@pytest.fixture
def report(tmp_path: Path, model: Path) -> Path:
    """Return a report with two published benchmarks, a harvest and a table of the user's own."""
    return make_report(
        tmp_path / "report",
        model,
        {
            "tcga_til": [
                score("accuracy", 0.5),
                score("auroc", 0.8125),
                score("accuracy", 0.4, note="without near duplicates of the corpus"),
                score("accuracy/tokens 1-16", 0.1),
            ],
            "biomed_flickr": [score("text_to_image_recall_at_1", 0.25), score("x_median_rank", 12)],
            "pmc_long": [score("text_to_image_recall_at_1", 0.75)],
            SECRET: [score("accuracy", 0.99)],
        },
        notes={
            "tcga_til": {
                "unreadable": 3,
                "leaks": {"leaked": {"any": 7}},
                "templates": ["a photo of {}"],
            }
        },
        tasks={SECRET: {"name": "zero_shot"}},
    )


def entries_of(files: Mapping[str, bytes]) -> list[Any]:
    return [
        entry
        for name, content in files.items()
        if name.startswith(".eval_results/")
        for entry in parse_eval_result_entries(yaml.safe_load(content))
    ]


def test_the_card_has_scores_of_public_benchmarks_per_cent_with_intervals(
    model: Path, report: Path
) -> None:
    made = score_files(str(model), [str(report)], {}, "ann/small")
    assert made.withheld == {NO_NAME: 1, OWN_DRAW: 1}
    assert entries_of(made.files) == []
    card = ModelCard(made.files["README.md"].decode())
    assert card.data.license == "cc-by-4.0"
    assert card.data.model_name == "small"
    by_metric = {(one.dataset_type, one.metric_type): one for one in card.data.eval_results}
    assert by_metric["tcga_til", "accuracy"].metric_value == 50
    assert by_metric["tcga_til", "roc_auc"].metric_value == 81.25
    assert (
        "(%), 95 % interval 78.15 to 84.15, 200 examples"
        in by_metric["tcga_til", "roc_auc"].metric_name
    )
    assert by_metric["biomed_flickr", "x_median_rank"].metric_value == 12
    assert len(by_metric) == len(card.data.eval_results) == 4
    text = card.text
    assert "About it." in text
    assert "auroc | 81.25 | 78.15–84.15 | 200 | zero_shot" in text
    # The paper's metric of TCGA-TIL is AUROC.
    assert text.index("81.25") < text.index("50.00")
    assert "3 images unreadable; 7 images are near duplicates of training images" in text
    assert "prompts a photo of {}" in text
    assert "data tcga_til-data; biovl " in text


def test_a_score_with_a_note_is_exported(tmp_path: Path, model: Path) -> None:
    scores = [score("accuracy", 0.25, note="the same string"), score("token_f1", 0.5)]
    report = make_report(tmp_path / "vqa", model, {"vqa_rad": scores})
    card = ModelCard(
        score_files(str(model), [str(report)], {}, "ann/small").files["README.md"].decode()
    )
    assert [one.metric_value for one in card.data.eval_results] == [25, 50]


def test_names_of_private_data_and_folders_are_in_no_file(model: Path, report: Path) -> None:
    made = score_files(str(model), [str(report)], {})
    assert SECRET not in str((made.files, made.withheld, made.not_mteb.keys() - {"tcga_til"}))


def test_a_second_export_replaces_the_first(tmp_path: Path, report: Path, model: Path) -> None:
    first = score_files(str(model), [str(report)], {}).files["README.md"].decode()
    again = make_model(tmp_path / "again", first + "\n## Limits\n\nNone known.\n")
    other = make_report(tmp_path / "other", again, {"pcam": [score("accuracy", 0.625)]})
    card = score_files(str(again), [str(other)], {}).files["README.md"].decode()
    assert card.count(HEADING) == 1
    assert "81.25" not in card
    assert "None known." in card
    assert [one.metric_value for one in ModelCard(card).data.eval_results] == [62.5]


def test_own_data_are_exported_under_the_name_that_the_user_gives(
    model: Path, report: Path
) -> None:
    data = HubData(id="ann/figures-2026", revision="a" * 40, task_id="wards")
    made = score_files(str(model), [str(report)], {SECRET: data}, "ann/small")
    (entry,) = entries_of(made.files)
    assert (entry.dataset_id, entry.task_id, entry.value) == ("ann/figures-2026", "wards", 99)
    assert entry.dataset_revision == "a" * 40
    assert entry.source_url == "https://huggingface.co/ann/small"
    assert "95 % interval 95.90 to 101.90 (bootstrap, 1,000 resamples), 200 examples" in entry.notes
    assert len(entry.date) == len("2026-01-01")
    with pytest.raises(ConfigError, match="no 'auroc' in the report; accuracy"):
        score_files(
            str(model),
            [str(report)],
            {SECRET: HubData(id="ann/x", task_id="y", score="auroc")},
        )


def test_two_tasks_of_one_data_set_stay_apart_in_the_card(tmp_path: Path, model: Path) -> None:
    report = make_report(
        tmp_path / "both",
        model,
        {"bbbc048_bf": [score("accuracy", 0.25)], "bbbc048_df": [score("accuracy", 0.5)]},
    )
    data = dict.fromkeys(("bbbc048_bf", "bbbc048_df"), HubData(id="jnirschl/uBench"))
    made = score_files(str(model), [str(report)], data)
    metadata = yaml.safe_load(made.files["README.md"].decode().split("---\n")[1])
    results = metadata["model-index"][0]["results"]
    assert [row["dataset"]["config"] for row in results] == ["bbbc048_bf", "bbbc048_df"]
    assert [row["metrics"][0]["value"] for row in results] == [25, 50]


def test_a_report_of_other_weights_and_a_task_in_two_reports_are_errors(
    tmp_path: Path, model: Path, report: Path
) -> None:
    with pytest.raises(ArtifactError, match="trained further since"):
        score_files(str(make_model(tmp_path / "later")), [str(report)], {})
    with pytest.raises(ArtifactError, match="both have scores for"):
        score_files(str(model), [str(report), str(report)], {})
    with pytest.raises(ArtifactError, match="no report has a score of nothing"):
        public_scores.public_scores([str(report)], str(model), ["nothing"])


@pytest.fixture(params=[0, 1])
def as_in_mteb(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Path, np.ndarray, np.ndarray]:
    """Return a report of PatchCamelyon by MTEB's protocol, whose class 0 or 1 is metastasis."""
    classes = [METASTASIS, NORMAL] if request.param == 0 else [NORMAL, METASTASIS]
    rng = np.random.default_rng(0)
    monkeypatch.setattr(mteb_results, "IMAGES", 60)
    label_N = rng.integers(0, 2, 60)
    similarity_N2 = 0.1 * (rng.normal(size=(60, 2)) + np.eye(2)[label_N])
    right = float((similarity_N2.argmax(1) == label_N).mean())
    report = make_report(
        tmp_path / "mteb-report",
        model,
        {"pcam_mteb": [score("accuracy", right, 60)]},
        notes={"pcam_mteb": {**MTEB_NOTES, "classes": classes}},
    )
    table = pa.table({"label": label_N, "similarity": similarity_N2.tolist()})
    path = report / "predictions/small/pcam_mteb.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)
    # With the metastasis first.
    if request.param == 1:
        return report, 1 - label_N, similarity_N2[:, ::-1]
    return report, label_N, similarity_N2


def test_a_result_of_mteb_is_what_mteb_computes(
    tmp_path: Path, model: Path, as_in_mteb: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    report, label_N, similarity_N2 = as_in_mteb
    made = score_files(str(model), [str(report)], {})
    (tmp_path / "result.json").write_bytes(made.mteb["PatchCamelyonZeroShot.json"])
    result = TaskResult.from_disk(tmp_path / "result.json")
    (row,) = result.scores["test"]
    right = accuracy_score(label_N, similarity_N2.argmax(1))
    assert row["main_score"] == row["accuracy"] == pytest.approx(right, abs=1e-6)
    assert result.get_score() == pytest.approx(right, abs=1e-6)
    # In MTEB's labels 1 is a metastasis, whichever class of the data it is.
    # Images are ranked by the difference: MTEB computes a softmax first.
    area = average_precision_score(1 - label_N, similarity_N2[:, 0] - similarity_N2[:, 1])
    assert row["ap"] == pytest.approx(area, abs=1e-6)
    assert result.dataset_revision == "6544d35f2235ed00e2ac8494c09ff107f8af353c"
    (entry,) = entries_of(made.files)
    # The value and the task are those that MTEB itself writes for the hub.
    theirs = result._to_hf_benchmark_result().root[-1]
    assert entry.value == pytest.approx(theirs.value, abs=1e-3)
    assert entry.task_id == theirs.dataset.task_id
    assert (entry.dataset_id, entry.dataset_revision) == (
        theirs.dataset.id,
        theirs.dataset.revision,
    )


@pytest.mark.parametrize(
    ("notes", "count", "reason"),
    [
        ({**MTEB_NOTES, "templates": ["this is an image of {}"]}, 32_768, "prompts are not MTEB's"),
        ({**MTEB_NOTES, "words": {"a": NORMAL, "b": "tumor"}}, 32_768, "classes are not"),
        (MTEB_NOTES, 500, "it has 500 images"),
    ],
)
def test_another_protocol_is_not_written_as_mtebs(
    tmp_path: Path, model: Path, notes: Mapping[str, Any], count: int, reason: str
) -> None:
    report = make_report(
        tmp_path / "r", model, {"pcam_mteb": [score("accuracy", 0.5, count)]}, {"pcam_mteb": notes}
    )
    made = score_files(str(model), [str(report)], {})
    assert made.mteb == {}
    assert entries_of(made.files) == []
    assert reason in made.not_mteb["pcam_mteb"]


def test_scores_are_written_locally(
    tmp_path: Path, model: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"folder": str(model), "reports": [str(report)], "out": "out"}
    config = configs.build(PublishConfig, values)
    said = dry_run_text(config)
    assert "value: 81.25" in said
    assert "withheld    1 tasks: its data have no public name" in said
    assert not (tmp_path / "out").exists()
    manifest = publish(config)
    assert manifest.counts["files"] == 1
    assert "81.25" in (tmp_path / "out/README.md").read_text()
    assert (tmp_path / "model/README.md").read_text() == CARD
    assert publish(config) == manifest
    (tmp_path / "model/README.md").write_text(f"{CARD}Mind the hands.\n")
    with pytest.raises(ArtifactError, match="files"):
        publish(config)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield hub


def test_scores_go_to_the_models_repository_and_leave_it_with_their_reports(
    model: Path, report: Path, hub: Hub
) -> None:
    datasets = {SECRET: {"id": "ann/wards", "task_id": "wards"}}
    values = {"folder": str(model), "repo": "ann/small", "reports": [str(report)]}
    publish(configs.build(PublishConfig, {**values, "datasets": datasets}))
    files = hub.repo("models/ann/small").files
    assert set(files) == {
        "README.md",
        "manifest.json",
        f".eval_results/biovl-{SECRET}.yaml",
    }
    assert b"81.25" in files["README.md"]
    publish(configs.build(PublishConfig, {"folder": str(model), "repo": "ann/small"}))
    assert set(files) == {"README.md", "manifest.json"}
    assert b"81.25" not in files["README.md"]


def test_reports_are_of_models(tmp_path: Path, report: Path) -> None:
    folder = publish_folder(
        tmp_path / "concepts", Manifest(kind="concepts", config={}, counts={}), {}
    )
    values = {"folder": str(folder), "reports": [str(report)], "out": str(tmp_path / "out")}
    with pytest.raises(ArtifactError, match="holds concepts: reports are of models"):
        publish(configs.build(PublishConfig, values))
