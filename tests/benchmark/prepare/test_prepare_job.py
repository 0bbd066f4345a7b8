"""What the job promises of every data set: atomic, resumable, readable, said once more."""

import io
import json
from pathlib import Path

import datasets
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from biovl.benchmark import benchmarks, data, selection
from biovl.benchmark.benchmark_table import BENCHMARKS
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.prepare import config as prepare_config
from biovl.benchmark.prepare import job as prepare_job
from biovl.benchmark.prepare.sets import known_sets
from biovl.core import config as configs
from biovl.core.artifacts import read_manifest
from biovl.core.errors import ArtifactError, SourceError
from biovl.core.folders import Folder
from tests.benchmark.prepare.preparing import config, number_of, run, table
from tests.benchmark.prepare.test_pcam import NAMES, write
from tests.runtime.folders import content


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write(tmp_path / "raw", "test", [1, 0, 0, 1] * 3, zipped=False)
    write(tmp_path / "raw", "valid", [0, 1], zipped=False, first=50)
    write(tmp_path / "raw", "train", [1, 0, 1], zipped=False, first=90)
    return tmp_path / "raw"


def test_benchmark_reads_what_is_prepared(raw: Path, tmp_path: Path) -> None:
    run("pcam", raw, tmp_path / "prepared/pcam")
    settings = {"out": "o", "model": "m", "benchmarks": ["pcam", "lc25000_lung"]}
    settings |= {"data_root": str(tmp_path / "prepared"), "benchmarks_as": "zero_shot"}
    tasks, skipped = benchmarks.resolve_tasks(configs.build(BenchmarkConfig, settings))
    assert tasks["pcam"].settings["data"]["name"] == "prepared"
    assert [name for name, _ in skipped] == ["lc25000_lung"]
    found = selection.only(data.open_labelled(str(tmp_path / "prepared/pcam")), "test")
    assert found.classes == NAMES
    assert found.labels.tolist() == [1, 0, 0, 1] * 3
    assert [number_of(image) for image in found.images.read(0, 12)] == list(range(12))


def test_a_prepared_folder_is_found_by_the_benchmarks_name(raw: Path, tmp_path: Path) -> None:
    # Raw LC25000 is at lc25000/lung_image_sets; what is prepared has the name of the benchmark.
    run("pcam", raw, tmp_path / "lc25000_lung")
    item = benchmarks.BENCHMARKS["lc25000_lung"]
    assert benchmarks.data_uri(item, str(tmp_path)) == f"{tmp_path}/lc25000_lung"
    assert benchmarks.data_exists(item, str(tmp_path))


def test_hugging_face_reads_images_and_splits(raw: Path, tmp_path: Path) -> None:
    run("pcam", raw, tmp_path / "out")
    found = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in found.items()} == {
        "train": 3,
        "validation": 2,
        "test": 12,
    }
    assert found["test"][2]["image"].size == (96, 96)
    assert found["test"][1]["label"] == NAMES[0]


def test_a_second_run_returns_at_once_also_without_the_raw_files(raw: Path, tmp_path: Path) -> None:
    first = run("pcam", raw, tmp_path / "out")
    before = content(tmp_path / "out")
    assert run("pcam", raw, tmp_path / "out") == first
    raw.rename(tmp_path / "moved")
    assert run("pcam", raw, tmp_path / "out") == first
    assert content(tmp_path / "out") == before


def test_other_raw_files_are_not_taken_for_the_published_ones(raw: Path, tmp_path: Path) -> None:
    run("pcam", raw, tmp_path / "out")
    write(raw, "train", [1, 0, 1, 1, 1, 1], zipped=False)
    with pytest.raises(ArtifactError, match="was published by another configuration"):
        run("pcam", raw, tmp_path / "out")


def test_labels_corrected_in_files_of_the_same_size_are_noticed(raw: Path, tmp_path: Path) -> None:
    run("pcam", raw, tmp_path / "out")
    path = raw / "camelyonpatch_level_2_split_train_y.h5"
    before = path.stat().st_size
    with h5py.File(path, "r+") as file:
        file["y"][...] = 1 - file["y"][...]
    assert path.stat().st_size == before
    with pytest.raises(ArtifactError, match="was published by another configuration"):
        run("pcam", raw, tmp_path / "out")


def test_an_interrupted_run_leaves_nothing_finished_and_resumes(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("pcam", raw, tmp_path / "whole")
    written, real = [], prepare_job._write

    def write_until_test(settings, draft, split, *rest):
        written.append(split)
        if split == "test" and written.count("test") == 1:
            raise KeyboardInterrupt
        return real(settings, draft, split, *rest)

    monkeypatch.setattr(prepare_job, "_write", write_until_test)
    with pytest.raises(KeyboardInterrupt):
        run("pcam", raw, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".draft"]
    with pytest.raises(ArtifactError, match="has not finished"):
        data.open_labelled(str(tmp_path / "out"))
    assert run("pcam", raw, tmp_path / "out") == whole
    assert written == ["train", "val", "test", "test"]
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_raw_files_that_change_before_publication_are_read_anew(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = prepare_job._publish
    monkeypatch.setattr(prepare_job, "_publish", lambda *rest: (_ for _ in ()).throw(OSError("x")))
    with pytest.raises(OSError, match="x"):
        run("pcam", raw, tmp_path / "out")
    write(raw, "train", [0, 0, 0, 0], zipped=False)
    monkeypatch.setattr(prepare_job, "_publish", real)
    manifest = run("pcam", raw, tmp_path / "out")
    assert manifest.notes["by_class"]["train"] == {NAMES[0]: 4, NAMES[1]: 0}


def test_a_bucket_holds_the_same(raw: Path, tmp_path: Path, bucket_uri: str) -> None:
    local = run("pcam", raw, tmp_path / "out")
    uri = f"{bucket_uri}/prepared/pcam"
    assert run("pcam", raw, uri) == local == run("pcam", raw, uri)
    assert Folder(uri).entries() == sorted(path.name for path in (tmp_path / "out").iterdir())
    found = selection.only(data.open_labelled(uri), "test")
    assert [number_of(image) for image in found.images.read(0, 12)] == list(range(12))


def test_large_splits_are_written_in_parts(raw: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("biovl.benchmark.prepare.writer._ROW_BYTES", 300_000)
    run("pcam", raw, tmp_path / "out", part_mb=1)
    names = sorted(path.name for path in (tmp_path / "out").glob("test-*"))
    assert names == [f"test-0000{n}-of-00003.parquet" for n in range(3)]
    rows = table(tmp_path / "out")
    assert [number_of(image["bytes"]) for image in rows["image"].to_pylist()] == list(range(12))
    found = data.open_labelled(str(tmp_path / "out"))
    assert np.array_equal(found.labels[found.splits == "test"], [1, 0, 0, 1] * 3)


def test_manifest_and_card_hold_licence_source_and_counts(raw: Path, tmp_path: Path) -> None:
    run("pcam", raw, tmp_path / "out")
    manifest = read_manifest(str(tmp_path / "out"), "benchmark_data")
    assert manifest.notes["licence"] == "CC0-1.0"
    assert manifest.notes["by_class"]["test"] == {NAMES[0]: 6, NAMES[1]: 6}
    assert manifest.notes["papers"]["BiomedCLIP, table 1"]["test"] == 32_768
    card = (tmp_path / "out/README.md").read_text()
    assert "| test | 12 | 32,768 |" in card
    assert "Veeling" in card
    for name in manifest.files:
        assert pq.read_metadata(tmp_path / "out" / name).num_rows == manifest.files[name]["rows"]


def test_out_within_raw_and_no_raw_are_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="lies within what is read"):
        run("pcam", raw, raw / "out")
    with pytest.raises(SourceError, match=r"there is no folder .*nowhere.* zenodo"):
        run("pcam", tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(SourceError, match="is not local"):
        run("pcam", "s3://b/raw", tmp_path / "out")


def test_the_list_says_of_each_set_what_to_download() -> None:
    text = prepare_config.listing()
    for name, (_, about) in known_sets().items():
        assert f"\n{name}: {about.title}" in text
        assert about.get in text
        assert about.licence in text
    assert json.dumps(sorted(prepare_config.RECIPES)) == json.dumps(sorted(known_sets()))


def test_the_last_line_of_the_command_is_json(raw: Path, tmp_path: Path, monkeypatch, capsys):
    from biovl import __main__ as program

    arguments = ["pcam", "--set", f"raw={raw}", "--set", f"out={tmp_path}/out"]
    monkeypatch.setattr("sys.argv", ["biovl"])
    program.run("prepare", arguments)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["kind"], last["test"], last["left_out"]) == ("benchmark_data", 12, {})
    assert "counts differ from BiomedCLIP, table 1" in last["warnings"][0]


def test_progress_goes_to_the_given_stream(raw: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    prepare_job.prepare(config("pcam", raw, tmp_path / "out"), progress=said)
    assert "pcam: 3 train, 2 val, 12 test" in said.getvalue()
    assert "prepare: test 12/12" in said.getvalue()


def test_the_page_names_every_set() -> None:
    page = (Path(__file__).parents[3] / "docs/prepare.md").read_text()
    assert [name for name in known_sets() if f"`{name}`" not in page] == []


def test_every_benchmark_can_be_prepared_but_what_harvest_makes() -> None:
    unknown = [name for name, item in BENCHMARKS.items() if benchmarks.prepared_name(item) is None]
    assert unknown == [name for name, item in BENCHMARKS.items() if item.access == "harvest"]
    assert benchmarks.prepared_name(BENCHMARKS["ham10000"]) == "ham10000"
