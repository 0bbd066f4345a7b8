"""Uploads against a real server: what is sent once, what goes on after faults, what is said."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from biovl.core.errors import StorageError
from biovl.core.folders import Folder
from biovl.publish.hub import Repository
from biovl.publish.sending import upload
from tests.publish.hub_server import TOKEN, Hub, running

PATTERNS = ("train/*.tar", "stats.json")
REPO = "datasets/ann/figures"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        # Read when the client is imported, which other tests may have done.
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "train").mkdir()
    for number in range(3):
        (tmp_path / f"train/{number}.tar").write_bytes(bytes([number]) * 5_000)
    (tmp_path / "stats.json").write_text("{}")
    (tmp_path / "README.md").write_text("# Card\n")
    (tmp_path / "manifest.json").write_text("{}")
    return Folder(str(tmp_path))


def files(folder: Folder) -> dict[str, int]:
    root = Path(folder.path)
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.stat().st_size for path in paths}


def send(folder: Folder) -> dict[str, int]:
    repository = Repository("ann/figures", "dataset", wait_s=0.01)
    repository.create(private=True)
    return upload(repository, folder, files(folder), {}, PATTERNS, sent=lambda *_: None)


def test_an_upload_by_xet_that_the_hub_does_not_serve_is_explained(
    hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This hub has no Xet and answers 500: the client raises Python's ConnectionError.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setenv("HF_XET_CLIENT_RETRY_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("HF_XET_CLIENT_RETRY_BASE_DELAY", "10ms")
    with pytest.raises(StorageError, match="the same command resumes"):
        send(folder)


def test_every_file_arrives_and_the_manifest_in_the_last_commit(hub: Hub, folder: Folder) -> None:
    counts = send(folder)
    there = hub.repo(REPO)
    assert {name: len(content) for name, content in there.files.items()} == files(folder)
    assert there.private
    assert there.commits == ["Publish 4 files", "Publish 2 files"]
    assert counts == {
        "files": 6,
        "size_bytes": 15_011,
        "sent_files": 6,
        "sent_bytes": 15_011,
    }


def test_sent_again_nothing_is_uploaded_or_committed(hub: Hub, folder: Folder) -> None:
    send(folder)
    hub.requests.clear()
    assert send(folder)["sent_files"] == 0
    assert hub.count("PUT|/commit/|preupload") == 0


def test_what_changed_is_sent_alone_and_what_is_gone_is_deleted(hub: Hub, folder: Folder) -> None:
    send(folder)
    hub.repo(REPO).files["notes.txt"] = b"of the owner"
    hub.requests.clear()
    (Path(folder.path) / "train/0.tar").write_bytes(b"x" * 5_000)
    (Path(folder.path) / "train/2.tar").unlink()
    (Path(folder.path) / "manifest.json").write_text('{"a": 1}')
    assert send(folder)["sent_files"] == 2
    assert hub.count("PUT") == 1
    assert set(hub.repo(REPO).files) == {*files(folder), "notes.txt"}
    assert hub.repo(REPO).files["train/0.tar"] == b"x" * 5_000


def test_a_repository_being_changed_has_no_manifest(hub: Hub, folder: Folder) -> None:
    send(folder)
    (Path(folder.path) / "train/0.tar").write_bytes(b"x")
    seen = []

    def sent(*_: int) -> None:
        seen.append("manifest.json" in hub.repo(REPO).files)

    repository = Repository("ann/figures", "dataset", wait_s=0.01)
    upload(repository, folder, files(folder), {}, PATTERNS, sent=sent)
    assert seen == [False, True]


@pytest.mark.parametrize(
    ("where", "status"),
    [("PUT /large", 0), ("PUT /large", 500), ("POST .*/commit/", 0), ("POST .*/commit/", 500)],
)
def test_a_fault_is_tried_again(hub: Hub, folder: Folder, where: str, status: int) -> None:
    hub.faults += [(where, status)]
    send(folder)
    assert set(hub.repo(REPO).files) == set(files(folder))
    assert hub.faults == []


def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub: Hub, folder: Folder) -> None:
    send(folder)
    (Path(folder.path) / "train/0.tar").write_bytes(b"x")
    (Path(folder.path) / "train/2.tar").unlink()
    hub.losses += ["POST .*/commit/"] * 2
    before = len(hub.repo(REPO).commits)
    send(folder)
    assert set(hub.repo(REPO).files) == set(files(folder))
    assert len(hub.repo(REPO).commits) == before + 2


def test_an_upload_that_failed_goes_on_with_what_is_left(hub: Hub, folder: Folder) -> None:
    hub.faults += [("POST .*/commit/", 403)]
    with pytest.raises(StorageError, match=rf"{REPO}.*\b403\b"):
        send(folder)
    assert hub.count("PUT") == 3
    send(folder)
    assert hub.count("PUT") == 3
    assert set(hub.repo(REPO).files) == set(files(folder))


@pytest.mark.parametrize(
    "status",
    [402, 403, 404, 409, 500, 418],
)
def test_what_the_hub_answers_is_told(hub: Hub, folder: Folder, status: int) -> None:
    hub.faults += [("commit", status)] * 4
    with pytest.raises(StorageError, match=rf"{REPO}.*\b{status}\b") as raised:
        send(folder)
    assert TOKEN not in str(raised.value)


def test_a_wrong_token_is_said(hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(StorageError, match="HF_TOKEN") as raised:
        send(folder)
    assert "hf_bad" not in str(raised.value)


def test_no_network_is_said(hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="HF_ENDPOINT"):
        Repository("ann/figures", "dataset", wait_s=0.01).is_private()


def test_what_arrived_otherwise_is_an_error(
    hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository("ann/figures", "dataset", wait_s=0.01)
    repository.create(private=True)

    def spoil(*_: int) -> None:
        hub.repo(REPO).files["train/1.tar"] = b"y" * 5_000

    with pytest.raises(StorageError, match=r"\b1 .*\(train/1\.tar"):
        upload(repository, folder, files(folder), {}, PATTERNS, sent=spoil)
