"""µ-Bench and Biomedica2025EvalSet: the questions of prepared files are those of the raw ones."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.benchmark import benchmarks
from biovl.benchmark import data as opening
from biovl.benchmark.choices import Choices
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import choices
from biovl.benchmark.tasks.zero_shot import Config as ZeroShotConfig
from biovl.benchmark.tasks.zero_shot import ZeroShot
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.errors import SourceError
from biovl.core.plugins import Plugin
from tests.benchmark.encoded import embedded, random_rows
from tests.benchmark.prepare.preparing import encoded, run, table

SETS = {
    "jung_et_al_2022": ("basophil", "monocyte", "eosinophil"),
    "acevedo_et_al_2020": ("neutrophil", "basophil"),
    None: ("mitosis", "interphase"),
}
KINDS = ("domain", "subdomain", "modality", "submodality", "stain", "classification")


def asked(kind: str, options: tuple[str, ...], answer: str) -> dict[str, Any]:
    every = [*options, "none of the above"]
    return {
        "answer": answer,
        "answer_idx": every.index(answer),
        "id": f"{kind}-{answer}",
        "options": every,
        "question": f"What {kind} is it?",
    }


def captioned(options: tuple[str, ...], answer: str, wording: str) -> dict[str, Any]:
    return {
        "answer": wording.format(answer),
        "answer_idx": options.index(answer),
        "options": [wording.format(option) for option in options],
    }


def micro_rows(each: int = 4) -> list[dict[str, Any]]:
    """Return rows with the columns of µ-Bench."""
    rows = []
    for dataset, names in SETS.items():
        for number in range(each):
            name = names[number % len(names)]
            questions: dict[str, Any] = {
                kind: asked(kind, ("pathology", "biology"), "pathology") for kind in KINDS[:-1]
            }
            if dataset is None:
                questions["stain"] = None
            captions = {
                "classification_0": captioned(names, name, "an image of a {}"),
                "classification_1": captioned(names, name, "{} in a smear"),
            }
            rows.append(
                {
                    "image_id": f"{dataset}-{number:04}",
                    "image": {"bytes": encoded(len(rows)), "path": f"{number}.png"},
                    "label": names.index(name),
                    "label_name": name,
                    "dataset": dataset,
                    "domain": "pathology" if number % 2 else "biology",
                    "institution": ["hospital"],
                    "license": "CC-BY-4.0",
                    "microns_per_pixel": 0.25,
                    "modality": "light microscopy",
                    "ncbitaxon_id": ["NCBITaxon:9606"],
                    "pmid": None,
                    "split": "test",
                    "stain": "giemsa" if number % 2 else "h&e",
                    "submodality": "brightfield",
                    "synthetic": False,
                    "captions": captions,
                    "questions": {**questions, "classification": asked(KINDS[-1], names, name)},
                    "bbox": None,
                }
            )
    return rows


def write(folder: Path, rows: list[dict[str, Any]], parts: int = 2, split: str = "test") -> Path:
    """Write Parquet files as of the hub."""
    folder.mkdir(parents=True)
    whole = pa.Table.from_pylist(rows)
    for number in range(parts):
        some = whole.slice(number * len(rows) // parts, len(rows) // parts)
        pq.write_table(some, folder / f"{split}-{number:05}-of-{parts:05}.parquet")
    return folder


def same(one: Choices, other: Choices) -> None:
    assert (one.texts, one.ids, one.groups, one.questions, one.left_out) == (
        *(other.texts, other.ids, other.groups, other.questions, other.left_out),
    )
    assert np.array_equal(one.option_VEO, other.option_VEO)
    assert np.array_equal(one.answer_VE, other.answer_VE)
    assert one.images.read(0, len(one.images)) == other.images.read(0, len(other.images))


def test_closed_questions_of_micro_bench_are_the_same_from_raw_and_prepared_files(
    tmp_path: Path,
) -> None:
    write(tmp_path / "raw/data", micro_rows())
    manifest = run("ubench", tmp_path / "raw", tmp_path / "ubench")
    assert manifest.counts == {"rows": 12, "test": 12, "left_out": {}}
    for settings in ({}, {"about": "stain"}, {"where": {"dataset": "jung_et_al_2022"}}):
        one, other = (
            choices.build(choices.Config(path=str(tmp_path / at), **settings))
            for at in ("raw", "ubench")
        )
        same(one, other)
    assert opening.dataset_plugin(str(tmp_path / "ubench")).name == "choices"
    assert any("test 12 instead of 17,315" in text for text in manifest.warnings)
    assert "4 rows have no dataset: they are in no task of one" in manifest.warnings


def test_classes_of_micro_bench_are_the_same_from_raw_and_prepared_files(tmp_path: Path) -> None:
    write(tmp_path / "raw/ubench", micro_rows())
    run("ubench", tmp_path / "raw/ubench", tmp_path / "prepared/ubench")
    names = ["jung_2022", "acevedo_2020", "microbench_stain"]
    opened = {}
    for root in ("raw", "prepared"):
        settings = {"out": "o", "model": "m", "benchmarks": names, "benchmarks_as": "zero_shot"}
        settings["data_root"] = str(tmp_path / root)
        tasks, skipped = benchmarks.resolve_tasks(configs.build(BenchmarkConfig, settings))
        assert not skipped
        opened[root] = [plugins.make("benchmark.tasks", tasks[name]).data() for name in names]
    for one, other in zip(opened["raw"], opened["prepared"], strict=True):
        assert (one.classes, one.ids) == (other.classes, other.ids)
        assert one.labels.tolist() == other.labels.tolist()
        assert one.images.read(0, len(one.ids)) == other.images.read(0, len(other.ids))
    assert opened["prepared"][0].classes == ("basophil", "eosinophil", "monocyte")


def test_classes_are_names_and_a_perfect_model_scores_one(tmp_path: Path) -> None:
    write(tmp_path / "raw", micro_rows())
    run("ubench", tmp_path / "raw", tmp_path / "out")
    rows = table(tmp_path / "out")
    assert rows["label"].to_pylist() == rows["label_name"].to_pylist()
    assert rows["label_number"].to_pylist()[:4] == [0, 1, 2, 0]
    # The column label of the raw data is numbers, of several data sets.
    where = {"dataset": "jung_et_al_2022"}
    data = Plugin("table", {"path": str(tmp_path / "out"), "where": where})
    task = ZeroShot(ZeroShotConfig(data=data, templates=("{}",), resamples=50))
    labelled = task.data()
    vectors = dict(zip(labelled.classes, random_rows(3), strict=True))
    image_ND = np.stack([vectors[labelled.classes[label]] for label in labelled.labels])
    scores = task.evaluate(labelled, embedded(image_ND, vectors)).scores
    assert scores[0].value == 1


def test_hugging_face_reads_structs_and_lists(tmp_path: Path) -> None:
    rows = micro_rows()
    write(tmp_path / "raw", rows)
    run("ubench", tmp_path / "raw", tmp_path / "out")
    found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))["test"]
    assert found[3]["captions"] == rows[3]["captions"]
    assert found[3]["questions"]["classification"] == rows[3]["questions"]["classification"]
    assert found[3]["image"].size == (16, 16)


def eval_rows(suite: str, each: int = 4) -> list[dict[str, Any]]:
    """Return rows with the columns of Biomedica2025EvalSet."""
    names = ("a normal scan", "a tumour")
    return [
        {
            "image": {"bytes": encoded(number + 10 * len(suite)), "path": None},
            "image_id": str(number // 2),
            "task": f"{suite}-{number % 2}",
            "options": list(names) if number % 3 else list(names[::-1]),
            "answer_idx": number % 2,
            "label": names[number % 2 if number % 3 else 1 - number % 2],
            "provenance_license": "CC BY 4.0",
        }
        for number in range(each)
    ]


def test_questions_of_all_suites_are_one_set_and_the_same_as_raw(tmp_path: Path) -> None:
    suites = ("medmnist", "lc25000")
    for suite in suites:
        write(tmp_path / "raw/data" / suite, eval_rows(suite), parts=1)
    manifest = run("biomedica_evalset", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["test"] == 8
    assert table(tmp_path / "out")["suite"].to_pylist() == ["lc25000"] * 4 + ["medmnist"] * 4
    data = choices.build(choices.Config(path=str(tmp_path / "out")))
    assert sorted(set(data.groups)) == [f"{suite}-{n}" for suite in suites[::-1] for n in (0, 1)]
    for suite in suites:
        one = choices.build(choices.Config(path=str(tmp_path / "raw/data" / suite)))
        where = {"suite": suite}
        other = choices.build(choices.Config(path=str(tmp_path / "out"), where=where))
        assert [one.texts[row[0]] for row in one.option_VEO[0]] == [
            other.texts[row[0]] for row in other.option_VEO[0]
        ]
        assert one.answer_VE.tolist() == other.answer_VE.tolist()
        assert one.groups == other.groups


def test_rows_without_an_id_are_numbered_through_all_files(tmp_path: Path) -> None:
    rows = [{**row, "image_id": None} for row in eval_rows("medmnist", 140)]
    write(tmp_path / "raw" / "medmnist", rows, parts=2)
    run("biomedica_evalset", tmp_path / "raw", tmp_path / "out")
    ids = table(tmp_path / "out")["id"].to_pylist()
    assert ids == [f"medmnist/medmnist/row {number}" for number in range(140)]


def test_one_suite_can_be_prepared(tmp_path: Path) -> None:
    for suite in ("medmnist", "lc25000"):
        write(tmp_path / "raw" / suite, eval_rows(suite), parts=1)
    settings = {"reader.suites": ["medmnist"]}
    manifest = run("biomedica_evalset", tmp_path / "raw", tmp_path / "out", **settings)
    assert manifest.counts["rows"] == 4


def test_a_row_without_an_image_is_left_out_and_missing_files_are_named(tmp_path: Path) -> None:
    rows = micro_rows()
    rows[1]["image"] = {"bytes": None, "path": "1.png"}
    rows[2]["image"] = {"bytes": encoded(2)[:60], "path": "2.png"}
    write(tmp_path / "raw", rows, parts=3)
    (tmp_path / "raw/test-00002-of-00003.parquet").unlink()
    manifest = run("ubench", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["rows"] == 6
    assert sum(manifest.counts["left_out"].values()) == 2
    said = "\n".join(manifest.warnings)
    assert "test-*-of-00003: 2 of 3 files were found" in said
    assert "no image in the row" in said


def test_a_file_that_names_no_split_is_read_as_test(tmp_path: Path) -> None:
    write(tmp_path / "raw", micro_rows(), parts=1, split="perception")
    manifest = run("ubench", tmp_path / "raw", tmp_path / "out")
    assert manifest.counts["test"] == 12
    name = "perception-00000-of-00001.parquet"
    assert f"{name} is not named after a split: read as test" in manifest.warnings


def truncated(raw: Path) -> None:
    path = raw / "test-00001-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-50])


def pointer(raw: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 400000000\n"
    (raw / "test-00000-of-00002.parquet").write_text(text)


def without_options(raw: Path) -> None:
    name = "test-00000-of-00002.parquet"
    whole = pq.read_table(raw / name)
    pq.write_table(whole.drop_columns(["captions", "questions"]), raw / name)


def of_another_type(raw: Path) -> None:
    name = "test-00000-of-00002.parquet"
    whole = pq.read_table(raw / name)
    place = whole.schema.get_field_index("microns_per_pixel")
    texts = pa.array(["0.25"] * len(whole))
    pq.write_table(whole.set_column(place, "microns_per_pixel", texts), raw / name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, r"test-00001-of-00002.parquet is truncated or damaged.*jnirschl/uBench"),
        (pointer, r"test-00000-of-00002.parquet is truncated or damaged"),
        (without_options, r"has no options with answers; found .*dataset"),
        (of_another_type, r"the column microns_per_pixel is string in one file and double"),
        (lambda raw: [path.unlink() for path in raw.iterdir()], r"a .parquet file was not found"),
    ],
)
def test_wrong_and_partial_downloads_are_named(tmp_path: Path, damage: Any, message: str) -> None:
    raw = write(tmp_path / "raw", micro_rows())
    damage(raw)
    with pytest.raises(SourceError, match=message):
        run("ubench", raw, tmp_path / "out")
    assert not (tmp_path / "out").exists()
