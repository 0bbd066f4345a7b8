"""The demo with real articles: its model from the hub, and the settings of its chain."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from biovl.chain import reports
from biovl.chain.demo import run
from biovl.chain.links import Chain, check, links, read_chain
from biovl.chain.recipes import demo
from biovl.chain.steps import STEPS
from biovl.core import config as configs
from biovl.core.artifacts import find_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.pretrain.publishing import publish_pretrained
from tests.chain.page import published_chain
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
    with pytest.raises(ArtifactError, match="omit --data pmc"):
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


def test_another_number_of_articles_than_the_folder_has_is_refused(tmp_path: Path) -> None:
    packages = tmp_path / "demo" / "packages"
    packages.parent.mkdir()
    run._generate(packages, 2)
    before = sorted(path.name for path in packages.iterdir())
    with pytest.raises(ConfigError, match=r"--articles 3: .* has 2 articles"):
        run._generate(packages, 3)
    run._generate(packages, 2)
    # As in the command that the demo prints, to have it again.
    run._generate(packages, None)
    assert sorted(path.name for path in packages.iterdir()) == before


def test_the_searches_of_the_demo_are_on_its_page_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all steps are published, and after a chain that runs a step again."""
    story = published_chain.publish(tmp_path)
    done: list[Any] = [
        SimpleNamespace(step=SimpleNamespace(name=each.step), out=each.uri, manifest=each.manifest)
        for each in story.chapters
    ]
    took: dict[str, float] = {"index": 5.0}

    def run_chain(chain: Chain, after: Callable[..., object]) -> list[Any]:
        if took:
            after(done, took)
        return done

    def searches(*_: object) -> list[dict[str, Any]]:
        results = [{"figure_id": "PMC1_f3", "score": 0.876}]
        return [{"asked": "By words", "text": "a cell", "matching": 12, "results": results}]

    monkeypatch.setattr(run, "run_chain", run_chain)
    monkeypatch.setattr(run, "_unseen", lambda corpus: {})
    monkeypatch.setattr(run, "_concepts", lambda folder: ([], dict(took), "labels of this run"))
    monkeypatch.setattr(run.demo_service, "serving", lambda _: contextlib.nullcontext("http://h"))
    monkeypatch.setattr(run.demo_service, "searches", searches)
    monkeypatch.setattr(run.demo_service, "screenshot", lambda *_: "page.png")

    def notes() -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / "story.json").read_text())
        return found

    def is_shown() -> bool:
        return "0.88" in (tmp_path / "summary.html").read_text()

    run.run(tmp_path, 1, serve=False)
    assert is_shown()
    took.clear()
    run.run(tmp_path, None, serve=False)
    assert is_shown()
    assert (notes()["screenshot"], notes()["labels"]) == ("page.png", "labels of this run")
    chain = read_chain(STEPS, "demo", {**demo(), "folder": str(tmp_path)})
    reports.note(chain, done, {})
    assert is_shown()
    # The figures that were found are of an index that is no more.
    reports.note(chain, done, {"index": 5.0})
    assert not is_shown()
    assert "its own image is number 1" in (tmp_path / "summary.html").read_text()
    assert [notes()[name] for name in ("searches", "screenshot", "labels")] == [[], "", ""]


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
