"""The demo with real articles: its model from the hub, and the settings of its chain."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from biovl.chain import check, links, read_chain
from biovl.chain.demo import run
from biovl.chain.steps import STEPS
from biovl.core import config as configs
from biovl.core.artifacts import find_manifest
from biovl.core.errors import ArtifactError
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.pretrain.publishing import publish_pretrained
from tests.publish import hub_server
from tests.publish.hub_server import Hub, Repo

ROOT = Path(__file__).parents[2]
NAME = "authors/small-clip"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a small model in open_clip's layout."""
    import huggingface_hub.constants as constants

    torch.manual_seed(0)
    vision = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
    text = {"width": 32, "heads": 2, "layers": 1, "context_length": 77}
    settings = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    built = open_clip.build(configs.build(open_clip.Config, settings))
    encoder.save(tmp_path / "small", built, built.model.state_dict())
    with hub_server.running() as hub:
        files = {path.name: path.read_bytes() for path in (tmp_path / "small").iterdir()}
        hub.repos[f"models/{NAME}"] = Repo(private=False, files=files)
        monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub


def test_the_model_is_downloaded_once_and_can_be_searched_with(hub: Hub, tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    manifest = publish_pretrained(f"hf-hub:{NAME}", out)
    assert manifest.kind == "model"
    assert find_manifest(out).notes == manifest.notes
    given, published = (
        encoder.load(str(tmp_path / name)).embed_texts(["chest radiograph"])
        for name in ("small", "model")
    )
    assert (given == published).all()
    asked = len(hub.requests)
    assert publish_pretrained(f"hf-hub:{NAME}", out).notes == manifest.notes
    assert len(hub.requests) == asked


def test_without_internet_the_reason_is_said_and_what_works_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ArtifactError, match="make demo"):
        run._of_pmc(tmp_path / "demo")
    assert find_manifest(str(tmp_path / "demo" / "model")) is None


def test_the_chain_of_real_articles_can_start(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "BIOMEDCLIP", f"hf-hub:{NAME}")
    chain = read_chain(STEPS, "demo", run._of_pmc(tmp_path / "demo"))
    found = links(STEPS, chain)
    assert [each.step.name for each in found] == [
        "harvest", "split", "assemble", "index", "benchmark",
    ]  # fmt: skip
    check(found)
    by_name = {each.step.name: each.config for each in found}
    assert by_name["index"].model == str(tmp_path / "demo" / "model")
    assert by_name["benchmark"].model == by_name["index"].model


def test_make_passes_the_data_and_keeps_the_two_demos_apart() -> None:
    def command(*arguments: str) -> str:
        done = subprocess.run(
            ["make", "--dry-run", "demo", f"VENV={sys.prefix}", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=True,
            # make test tells make what it was called with.
            env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        )  # fmt: skip
        (line,) = (line for line in done.stdout.splitlines() if "demo.py " in line)
        return line.partition("demo.py ")[2]

    assert command().split() == ["demo", "--data", "synthetic"]
    assert command("DATA=pmc", "SERVE=1").split() == ["demo-pmc", "--data", "pmc", "--serve"]
