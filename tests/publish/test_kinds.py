"""Which files go, and which stay whatever they are called."""

from pathlib import Path

import pytest

from biovl.core.errors import ArtifactError
from biovl.publish.kinds import KINDS, contents, has_credentials, matches


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"1")


def test_files_that_the_job_does_not_write_stay(tmp_path: Path) -> None:
    goes = ["figures/part-000000-000.parquet", "articles/part-000000-000.parquet", "manifest.json"]
    stays = [
        "catalogue/part-000000-000.parquet",
        "columns/ocr/part-000000-000.parquet",
        "id_rsa",
        "figures/notes.txt",
    ]
    touch(tmp_path, *goes, *stays, ".env", ".draft/begun.json", ".cache/huggingface/token")
    found = contents(str(tmp_path), KINDS["figures"])
    assert found.files == dict.fromkeys(goes, 1)
    assert found.left_out == sorted(stays)


def test_columns_of_concepts_and_the_selection_of_a_pool_go_with_them(tmp_path: Path) -> None:
    touch(tmp_path, "columns/manifest.json", "selection/proxy.parquet")
    assert contents(str(tmp_path), KINDS["concepts"]).left_out == ["selection/proxy.parquet"]
    assert contents(str(tmp_path), KINDS["report"]).left_out == ["columns/manifest.json"]


def test_the_card_of_the_training_goes_with_a_fine_tuned_model(tmp_path: Path) -> None:
    goes = ["README.md", "open_clip_model.safetensors", "tuned/README.md", "tuned/plots/loss.png"]
    stays = ["base/open_clip_model.safetensors", "tuned/open_clip_model.safetensors"]
    touch(tmp_path, *goes, *stays, "tuned/checkpoints/000000100.pt")
    assert sorted(contents(str(tmp_path), KINDS["model"]).files) == goes


def test_a_link_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", "secret")
    folder = tmp_path / "model"
    touch(folder, "manifest.json")
    (folder / "config.json").symlink_to(tmp_path / "elsewhere/secret")
    with pytest.raises(ArtifactError, match=r"config\.json"):
        contents(str(folder), KINDS["model"])


def test_a_star_stands_for_no_slash() -> None:
    assert matches("train/00000.tar", ["train/*.tar"])
    assert not matches("train/old/00000.tar", ["train/*.tar"])
    assert not matches("x/train/00000.tar", ["train/*.tar"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("s3://bucket/prefix", False),
        ("s3://anonymous@bucket/prefix", False),
        ("s3://key:secret@bucket/prefix", True),
        ("s3://bucket/x?access_key=A&secret_key=B", True),
        ("http://127.0.0.1:8000/v1", False),
    ],
)
def test_credentials_are_found_in_locations(value: str, expected: bool) -> None:
    assert has_credentials({"a": [{"b": value}]}) is expected
