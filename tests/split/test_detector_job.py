"""A detector trained over Ray, and figures split beside it."""

import io
from pathlib import Path
from typing import Any

import pytest

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.folders import Folder
from biovl.core.parts import PartWriter
from biovl.core.records import Figure
from biovl.split.config import SplitConfig
from biovl.split.detector import config as detector_config
from biovl.split.detector.config import DetectorConfig
from biovl.split.detector_job import train_detector
from biovl.split.job import split_figures
from tests.compound_rows import figure_row
from tests.runtime.folders import content

pytestmark = pytest.mark.ray


def trained(out: Path, **changes: Any) -> str:
    """Train for six steps; return what was said meanwhile."""
    said = io.StringIO()
    small = {
        "drawing.photographs": 4,
        "drawing.plots": 4,
        "drawing.figures": 4,
        "drawing.steps": 4,
        "optim.steps": 6,
        "validation_figures": 1,
        **changes,
    }
    settings = {
        **configs.recipe_settings(detector_config.RECIPES["tiny"]()),
        "out": str(out),
        **small,
    }
    train_detector(configs.build(DetectorConfig, settings), progress=said)
    return said.getvalue()


def figures(out: Path) -> str:
    draft = Draft.begin(str(out), "figures", {})
    with PartWriter(Folder(str(out)), "figures", 0, Figure, 10**9) as part:
        part.add(figure_row())
    draft.publish(Manifest(kind="figures", config={}, counts={}, files=part.files))
    return str(out)


def test_a_detector_is_trained_and_split_names_the_one_that_it_took(
    tmp_path: Path, ray_session: None
) -> None:
    assert "6/6" in trained(tmp_path / "detector")
    manifest = read_manifest(str(tmp_path / "detector"), "detector")
    assert manifest.counts["steps"] == 6
    before = content(tmp_path / "detector")
    assert trained(tmp_path / "detector", **{"workers.cpus": 2}) == ""
    assert content(tmp_path / "detector") == before

    asked = {
        "figures": figures(tmp_path / "figures"),
        "out": str(tmp_path / "panels"),
        "detector": str(tmp_path / "detector"),
    }
    split_figures(configs.build(SplitConfig, asked), progress=io.StringIO())
    made = read_manifest(asked["out"], "panels")
    assert made.counts["panels"]["seen"] == 2
    assert {one.name: one.fingerprint for one in made.inputs} == {
        "figures": fingerprint(asked["figures"]),
        "detector": fingerprint(asked["detector"]),
    }
    with pytest.raises(ArtifactError, match="figures, expected detector"):
        split_figures(configs.build(SplitConfig, {**asked, "detector": asked["figures"]}))


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path, ray_session: None) -> None:
    with pytest.raises(ConfigError, match=r"workers\.gpus=64"):
        trained(tmp_path / "detector", **{"workers.gpus": 64})
