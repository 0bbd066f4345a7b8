"""Published folders: complete or not there, local and in a bucket."""

from pathlib import Path

import pytest

from biovl.errors import ArtifactError
from biovl.storage import (
    Draft,
    Folder,
    Input,
    Manifest,
    find_manifest,
    fingerprint,
    published,
    read_manifest,
)


@pytest.fixture(params=["local", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "out")
    return f"{request.getfixturevalue('bucket_uri')}/{tmp_path.name}"


def manifest(**changes: object) -> Manifest:
    return Manifest(**{"kind": "figures", "config": {"a": 1}, "counts": {"seen": 2}, **changes})  # type: ignore[arg-type]


def test_a_folder_is_there_when_its_manifest_is(uri: str) -> None:
    assert find_manifest(uri) is None
    draft = Draft.begin(uri, "figures", {"a": 1})
    draft.folder.write("figures/part.parquet", b"rows")
    draft.note("units/000001", {"seen": 2})
    assert find_manifest(uri) is None
    with pytest.raises(ArtifactError, match="has not finished"):
        read_manifest(uri, "figures")
    with pytest.raises(ArtifactError, match="has not finished"):
        fingerprint(uri)
    draft.publish(manifest())
    assert read_manifest(uri, "figures").counts == {"seen": 2}
    assert Folder(uri).names("figures") == ["part.parquet"]
    assert Folder(uri).names(".draft/units") == []
    with pytest.raises(ArtifactError, match="holds figures, expected corpus"):
        read_manifest(uri, "corpus")


def test_a_draft_is_taken_up_where_it_was(uri: str) -> None:
    first = Draft.begin(uri, "figures", {"a": 1})
    first.note("units/000003", {"seen": 3})
    again = Draft.begin(uri, "figures", {"a": 1})
    assert again.names_noted("units") == ["units/000003"]
    assert again.noted("units/000003") == {"seen": 3}
    assert again.noted("units/000004") is None
    made = []
    assert again.once("plan", lambda: made.append(1) or {"b": 2, "a": 1}) == {"a": 1, "b": 2}
    assert again.once("plan", lambda: made.append(1)) == {"a": 1, "b": 2}
    assert made == [1]


def test_another_configuration_or_input_is_refused_by_name(uri: str) -> None:
    read = Input(name="figures", uri="x", fingerprint="1")
    draft = Draft.begin(uri, "figures", {"a": 1, "source": {"path": "p"}}, [read])
    with pytest.raises(ArtifactError, match=r"source\.path: 'p' -> 'q'"):
        Draft.begin(uri, "figures", {"a": 1, "source": {"path": "q"}}, [read])
    draft.publish(manifest(config={"a": 1, "source": {"path": "p"}}, inputs=[read]))
    same = {"a": 1, "source": {"path": "p"}}
    assert published(uri, "figures", same, [read]) is not None
    with pytest.raises(ArtifactError, match="'1' -> '2'"):
        published(uri, "figures", same, [Input(name="figures", uri="x", fingerprint="2")])
    with pytest.raises(ArtifactError, match="kind: 'figures' -> 'corpus'"):
        published(uri, "corpus", same, [read])


def test_a_file_is_whole_or_not_there(uri: str) -> None:
    folder = Folder(uri)
    with pytest.raises(RuntimeError, match="half way"), folder.writer("part") as stream:
        stream.write(b"half")
        raise RuntimeError("half way")
    assert not folder.exists("part")
    folder.write("part", b"old")
    with pytest.raises(RuntimeError, match="half way"), folder.writer("part") as stream:
        stream.write(b"new")
        raise RuntimeError("half way")
    assert folder.read("part") == b"old"
    folder.write("part", b"new")
    assert folder.read("part") == b"new"


def test_what_an_earlier_run_left_half_written_is_cleared(tmp_path: Path) -> None:
    draft = Draft.begin(str(tmp_path), "figures", {})
    left = tmp_path / ".draft" / "unfinished" / "x"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    Draft.begin(str(tmp_path), "figures", {})
    assert not left.exists()
    draft.publish(manifest(config={}))
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ArtifactError, match=r"not empty \(thesis\.tex"):
        Draft.begin(str(tmp_path), "figures", {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_manifest_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(ArtifactError, match="is not a manifest of biovl"):
        find_manifest(str(tmp_path))


def test_equal_manifests_have_equal_bytes(tmp_path: Path) -> None:
    for name, counts in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        Draft.begin(str(tmp_path / name), "figures", {"a": 1}).publish(manifest(counts=counts))
    assert fingerprint(str(tmp_path / "a")) == fingerprint(str(tmp_path / "b"))
