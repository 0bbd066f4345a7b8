"""Published folders: complete or not there, local and in a bucket."""

import os
from pathlib import Path
from typing import Any

import pytest

from biovl.core.artifacts import (
    Draft,
    Input,
    Manifest,
    find_manifest,
    find_published,
    fingerprint,
    read_manifest,
    refuse_overlap,
)
from biovl.core.errors import ArtifactError, FilesLost
from biovl.core.folders import Folder


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
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        read_manifest(uri, "figures")
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        fingerprint(uri)
    draft.publish(manifest())
    assert read_manifest(uri, "figures").counts == {"seen": 2}
    assert Folder(uri).names("figures") == ["part.parquet"]
    assert Folder(uri).names(".draft/units") == []
    with pytest.raises(ArtifactError, match="figures, expected corpus"):
        read_manifest(uri, "corpus")


def test_a_draft_is_taken_up_where_it_was(uri: str) -> None:
    first = Draft.begin(uri, "figures", {"a": 1})
    first.note("units/000003", {"seen": 3})
    again = Draft.begin(uri, "figures", {"a": 1})
    assert again.note_names("units") == ["units/000003"]
    assert again.read_note("units/000003") == {"seen": 3}
    assert again.read_note("units/000004") is None
    made = []
    assert again.once("plan", lambda: made.append(1) or {"b": 2, "a": 1}) == {"a": 1, "b": 2}
    assert again.once("plan", lambda: made.append(1)) == {"a": 1, "b": 2}
    assert made == [1]


def test_another_spelling_of_a_path_is_no_other_configuration(uri: str) -> None:
    read = Input(name="figures", uri="x/figures", fingerprint="1")
    draft = Draft.begin(uri, "figures", {"source": {"path": "packages"}}, [read])
    draft.note("units/000000", {"seen": 2})
    draft.publish(manifest(config={"source": {"path": "packages"}}, inputs=[read]))
    again = Input(name="figures", uri="x/./figures/", fingerprint="1")
    for path in ("./packages", "packages/"):
        assert find_published(uri, "figures", {"source": {"path": path}}, [again]) is not None
    with pytest.raises(ArtifactError, match="'packages' -> '/packages'"):
        find_published(uri, "figures", {"source": {"path": "/packages"}}, [again])


@pytest.mark.parametrize(("name", "advice"), [("begun", "this folder"), ("units/0", "this file")])
def test_a_damaged_note_is_named(tmp_path: Path, name: str, advice: str) -> None:
    draft = Draft.begin(str(tmp_path), "figures", {})
    draft.note("units/0", {"seen": 2})
    (tmp_path / f".draft/{name}.json").write_bytes(b"")
    with pytest.raises(ArtifactError, match=rf"{name}\.json is damaged .*delete {advice}"):
        Draft.begin(str(tmp_path), "figures", {}).read_note(name)


@pytest.mark.parametrize("left", [b"", None])
def test_a_file_that_the_disk_lost_is_not_published(tmp_path: Path, left: bytes | None) -> None:
    draft = Draft.begin(str(tmp_path), "figures", {})
    draft.folder.write("part.parquet", b"12345")
    if left is None:
        (tmp_path / "part.parquet").unlink()
    else:
        (tmp_path / "part.parquet").write_bytes(left)
    made = manifest(files={"part.parquet": {"rows": 1, "size_bytes": 5}})
    with pytest.raises(FilesLost, match=r"part\.parquet"):
        draft.publish(made)
    assert find_manifest(str(tmp_path)) is None


@pytest.mark.parametrize("lost", ["part.parquet", "train/00000.tar"])
@pytest.mark.parametrize("left", [b"123", None])
def test_a_folder_that_lost_a_file_does_not_count_as_published(
    uri: str, lost: str, left: bytes | None
) -> None:
    draft, files = Draft.begin(uri, "figures", {"a": 1}), {}
    for name in ("part.parquet", "train/00000.tar", "train/00001.tar"):
        draft.folder.write(name, b"12345")
        files[name] = {"size_bytes": 5}
    draft.publish(manifest(files=files))
    # Files that the manifest does not list may change.
    draft.folder.write("README.md", b"edited")
    assert find_published(uri, "figures", {"a": 1}) is not None
    draft.folder.filesystem.delete_file(draft.folder.at(lost))
    if left is not None:
        draft.folder.write(lost, left)
    with pytest.raises(FilesLost, match=lost):
        find_published(uri, "figures", {"a": 1})
    draft.folder.write(lost, b"12345")
    assert find_published(uri, "figures", {"a": 1}) is not None


def test_another_configuration_or_input_is_refused_by_name(uri: str) -> None:
    read = Input(name="figures", uri="x", fingerprint="1")
    draft = Draft.begin(uri, "figures", {"a": 1, "source": {"path": "p"}}, [read])
    draft.note("units/000000", {"seen": 2})
    with pytest.raises(ArtifactError, match=r"source\.path: 'p' -> 'q'"):
        Draft.begin(uri, "figures", {"a": 1, "source": {"path": "q"}}, [read])
    draft.publish(manifest(config={"a": 1, "source": {"path": "p"}}, inputs=[read]))
    same = {"a": 1, "source": {"path": "p"}}
    assert find_published(uri, "figures", same, [read]) is not None
    with pytest.raises(ArtifactError, match="'1' -> '2'"):
        find_published(uri, "figures", same, [Input(name="figures", uri="x", fingerprint="2")])
    with pytest.raises(ArtifactError, match="published as figures, and this job publishes corpus"):
        find_published(uri, "corpus", same, [read])


def test_a_folder_without_a_manifest_says_what_is_there_instead(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    Draft.begin(str(tmp_path / "draft"), "corpus", {})
    for name, reason in (
        ("nowhere", "it does not exist. Expected a published folder of kind corpus"),
        ("file", "it is a file"),
        ("folder", "it is a folder that biovl did not publish"),
        ("draft", "the job that writes it has not finished; run it again"),
    ):
        with pytest.raises(ArtifactError, match=f"{name} has no manifest.json: {reason}"):
            read_manifest(str(tmp_path / name), "corpus")


def test_files_of_a_plan_do_not_block_the_corrected_command(uri: str) -> None:
    wrong = Draft.begin(uri, "index", {"model": "wrong"}, plans=["dim", "plans/"])
    wrong.note("dim", 64)
    wrong.folder.write(".draft/plans/000000.parquet", b"pairs of a unit")
    right = Draft.begin(uri, "index", {"model": "right"}, plans=["dim", "plans/"])
    assert right.read_note("dim") is None
    assert right.folder.names(".draft/plans") == []
    right.folder.write(".draft/units/rows/000000.bin", b"embedded")
    with pytest.raises(ArtifactError, match="'right' -> 'wrong'"):
        Draft.begin(uri, "index", {"model": "wrong"}, plans=["dim", "plans/"])


def begun_by_an_earlier_version(uri: str, plain: dict[str, object]) -> Draft:
    """Begin a draft as biovl 0.1.0 did, and do some work in it."""
    draft = Draft(uri)
    begun = {"kind": "figures", "config": plain, "inputs": {}, "code": "biovl 0.1.0"}
    draft.note("begun", begun)
    draft.note("units/000000", {"seen": 2})
    return draft


def test_a_draft_of_an_earlier_version_is_resumed(uri: str) -> None:
    begun_by_an_earlier_version(uri, {"a": 1, "b": {"c": 2}})
    assert Draft.begin(uri, "figures", {"a": 1, "b": {"c": 2}}).read_note("units/000000")
    # Settings that it did not have are what they are by default, also those of a new section.
    now = {"a": 1, "b": {"c": 2, "new": 5}, "section": {"x": None}}
    defaults = {("a",): 1, ("b", "new"): 5, ("section", "x"): None, ("out",): "never compared"}
    assert Draft.begin(uri, "figures", now, defaults=defaults).read_note("units/000000")
    for name, changed in (
        (r"config\.b\.new: 5 -> 6", {**now, "b": {"c": 2, "new": 6}}),
        (r"config\.section\.x: None -> 1", {**now, "section": {"x": 1}}),
        (r"config\.a: 1 -> 2", {**now, "a": 2}),
        (r"config\.required: '\(absent\)' -> 3", {**now, "required": 3}),
    ):
        with pytest.raises(ArtifactError, match=name):
            Draft.begin(uri, "figures", changed, defaults=defaults)
    with pytest.raises(ArtifactError, match="output_format: 1 -> 2"):
        Draft.begin(uri, "figures", now, defaults=defaults, output_format=2)


def test_a_draft_of_this_version_is_not_that_of_another_version(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Draft.begin(uri, "figures", {"a": 1}, output_format=2).note("units/000000", {})
    monkeypatch.setattr(Manifest, "code", "biovl 9.9.9")
    assert Draft.begin(uri, "figures", {"a": 1}, output_format=2).read_note("units/000000") == {}
    with pytest.raises(ArtifactError, match="output_format: 2 -> 3"):
        Draft.begin(uri, "figures", {"a": 1}, output_format=3)


def test_what_an_earlier_version_published_counts_as_published(uri: str) -> None:
    Draft.begin(uri, "figures", {"a": 1}).publish(manifest(code="biovl 0.0.1"))
    now, defaults = {"a": 1, "new": 5}, {("new",): 5}
    assert find_published(uri, "figures", now, defaults=defaults) is not None
    with pytest.raises(ArtifactError, match=r"config\.new: 5 -> 6"):
        find_published(uri, "figures", {"a": 1, "new": 6}, defaults=defaults)


def test_a_draft_in_which_nothing_was_done_is_begun_again_by_the_corrected_command(
    uri: str,
) -> None:
    wrong = Draft.begin(uri, "model", {"weights": "nowhere"})
    wrong.note("lease", {})
    wrong.note("reserved", "0123")
    wrong.note("planned", {"pairs": 3})
    wrong.folder.write(".draft/ray/state.json", b"{}")
    with pytest.raises(ArtifactError, match="'nowhere' -> 'here'"):
        Draft.begin(uri, "model", {"weights": "here"})
    right = Draft.begin(uri, "model", {"weights": "here"}, plans=["planned"])
    assert right.read_note("begun")["config"] == {"weights": "here"}
    assert right.read_note("planned") is None
    right.folder.write("metrics.jsonl", b"")
    with pytest.raises(ArtifactError, match="'here' -> 'elsewhere'"):
        Draft.begin(uri, "model", {"weights": "elsewhere"}, plans=["planned"])


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


def test_a_draft_that_is_written_to_while_it_is_cleared_goes_all_the_same(tmp_path: Path) -> None:
    draft = Draft.begin(str(tmp_path), "figures", {})
    filesystem = draft.folder.filesystem
    tried: list[str] = []

    class Busy:
        """Writes a file between what is listed and what is deleted, as another thread may."""

        def __getattr__(self, name: str) -> Any:
            return getattr(filesystem, name)

        def delete_dir(self, path: str) -> None:
            tried.append(path)
            if len(tried) == 1:
                os.rmdir(path)
            filesystem.delete_dir(path)

    draft.folder.filesystem = Busy()
    draft.publish(Manifest(kind="figures", config={}, counts={}))
    assert len(tried) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ArtifactError, match=r"thesis\.tex"):
        Draft.begin(str(tmp_path), "figures", {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_manifest_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        find_manifest(str(tmp_path))


def test_equal_manifests_have_equal_bytes(tmp_path: Path) -> None:
    for name, counts in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        Draft.begin(str(tmp_path / name), "figures", {"a": 1}).publish(manifest(counts=counts))
    assert fingerprint(str(tmp_path / "a")) == fingerprint(str(tmp_path / "b"))


@pytest.mark.parametrize(
    "place",
    [
        "file",
        "file/below",
        "dangling",
        "loop",
        "n" * 300,
        "/proc/biovl",
        "/dev/null",
        "/dev/null/x",
    ],
)
def test_a_place_that_takes_no_folder_is_refused_by_name(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a README of somebody")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ArtifactError, match=place[:5]):
        Draft.begin(str(tmp_path / place), "figures", {})
    assert (tmp_path / "file").read_text() == "a README of somebody"


@pytest.mark.parametrize("uri", ["", " ", "a\0b", "s3:/bucket/x", "s3:bucket", "file:/x"])
def test_a_location_that_is_mistyped_is_refused(uri: str) -> None:
    with pytest.raises(ArtifactError):
        Folder(uri)


@pytest.mark.parametrize(
    ("out", "read", "overlaps"),
    [
        ("a/b", "a", True),
        ("a", "a", True),
        ("a", "a/b", True),
        ("a/../b/c", "b", True),
        ("a/b/", "a/b//", True),
        ("link/b", "a", True),
        ("file://{here}/a/b", "a", True),
        ("ab", "a", False),
        ("a", "ab", False),
        ("a/b", "a/c", False),
        ("s3://k/a/b", "s3://k/a/", True),
        ("s3://anonymous@k/a/b", "s3://k/a?region=x", True),
        ("s3://k/a", "s3://l/a", False),
        ("s3://k/ab", "s3://k/a", False),
        ("k/a/b", "s3://k/a", False),
    ],
)
def test_nothing_is_published_within_what_is_read_or_above_it(
    out: str, read: str, overlaps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    out = out.format(here=tmp_path)
    if not overlaps:
        refuse_overlap(out, {"figures": read})
        return
    with pytest.raises(ArtifactError, match=r"^out: .*\(figures: "):
        refuse_overlap(out, {"figures": read})


def test_every_job_that_asks_whether_it_is_done_is_kept_out_of_its_inputs(tmp_path: Path) -> None:
    figures = Input(name="figures", uri=str(tmp_path / "figures"), fingerprint="f")
    for out in ("figures", "figures/corpus", "."):
        with pytest.raises(ArtifactError, match="out: "):
            find_published(str(tmp_path / out), "corpus", {}, [figures])
    assert find_published(str(tmp_path / "corpus"), "corpus", {}, [figures]) is None
    # Columns stand beside the rows that they are about, but not in place of them.
    assert find_published(str(tmp_path / "figures/columns/c"), "columns", {}, [figures]) is None
    with pytest.raises(ArtifactError, match="out: "):
        find_published(str(tmp_path / "figures"), "columns", {}, [figures])
    assert not list(tmp_path.iterdir())


def test_what_was_published_within_its_input_by_an_earlier_version_is_still_known(
    tmp_path: Path,
) -> None:
    figures = Input(name="figures", uri=str(tmp_path), fingerprint="f")
    out = str(tmp_path / "corpus")
    made = Draft(out).publish(manifest(kind="corpus", config={}, inputs=[figures]))
    found = find_published(out, "corpus", {}, [figures])
    assert found is not None
    assert found.kind == made.kind
