"""Names on the hub: the commit that they stand for, and a hub that cannot be reached."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from biovl.annotate import identity
from biovl.benchmark import encoders
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError
from biovl.models import hub as hubs
from biovl.models import weight_files
from biovl.models.weight_identity import fingerprint_of
from tests.publish.hub_server import TOKEN, Hub, Repo, running

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def test_a_name_stands_for_other_weights_after_they_are_replaced(hub: Hub) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    first = encoders.describe("hf-hub:ann/small").fingerprint
    assert encoders.describe("hf-hub:ann/small").fingerprint == first
    repo.files["model.safetensors"] = b"2"
    assert encoders.describe("hf-hub:ann/small").fingerprint != first


def test_weights_of_a_name_are_an_input_of_columns_and_models(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    first = fingerprint_of("ann/small")
    assert first == fingerprint_of("hf-hub:ann/small")
    repo.files["README.md"] = b"a card that was edited"
    assert fingerprint_of("ann/small") == first
    repo.files["model.safetensors"] = b"2"
    assert fingerprint_of("ann/small") not in (first, None)
    (begun,) = inputs = identity.as_input("ann/small", str(tmp_path / "new"))
    assert begun.fingerprint == fingerprint_of("ann/small")
    Draft.begin(str(tmp_path / "new"), "columns", {}, inputs)
    Draft.begin(str(tmp_path / "earlier"), "columns", {})
    assert identity.as_input("ann/small", str(tmp_path / "earlier")) == []
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    assert identity.as_input("ann/small", str(tmp_path / "new")) == inputs
    assert identity.as_input("ann/small", str(tmp_path / "earlier")) == []


def test_other_weights_in_a_folder_that_was_begun_are_an_input(hub: Hub, tmp_path: Path) -> None:
    hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    out, folders = str(tmp_path / "out"), [str(tmp_path / name) for name in "ab"]
    for folder in folders:
        Path(folder).mkdir()
        Path(folder, "model.safetensors").write_bytes(folder.encode())
    Draft.begin(out, "columns", {}, identity.as_input(folders[0], out))
    for uri in (folders[1], "ann/small"):
        (found,) = identity.as_input(uri, out)
        assert found.fingerprint == fingerprint_of(uri)


def test_without_a_network_it_is_the_commit_in_the_cache(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    commit = hubs.commit("ann/small")
    assert commit is not None
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    assert hubs.commit("ann/small") is None
    cached = tmp_path / "cache/models--ann--small/refs/main"
    cached.parent.mkdir(parents=True)
    cached.write_text(commit)
    assert hubs.commit("ann/small") == commit


def test_weights_on_the_hub_are_looked_for_and_a_hub_out_of_reach_is_an_error(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    weight_files.check_existence("ann/small")
    repo.files = {"README.md": b""}
    with pytest.raises(ArtifactError, match="no weights"):
        weight_files.check_existence("ann/small")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    with pytest.raises(ArtifactError, match=r"ann/small.*without network"):
        weight_files.check_existence("ann/small")
