"""The detector that is part of the package."""

import json
from dataclasses import replace

import pytest

from biovl.core import config as configs
from biovl.core.artifacts import fingerprint
from biovl.core.errors import ArtifactError
from biovl.images.boxes import Box
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.metrics import Counts, box_counts
from biovl.split.config import SplitConfig
from biovl.split.detector.config import BUILTIN, default
from biovl.split.detector.detector import CONFIG, WEIGHTS, Detector
from biovl.split.job import _proposer


def test_it_is_small_whole_and_described() -> None:
    assert (BUILTIN / WEIGHTS).stat().st_size < 10_000_000
    # Reading it compares the SHA-256 of the manifest.
    detector = Detector.builtin()
    assert 0 < detector.trust <= 1
    assert detector.threshold == json.loads((BUILTIN / CONFIG).read_text())["threshold"]
    assert "Apache-2.0" in (BUILTIN / "README.md").read_text()


def test_it_is_what_the_default_recipe_makes() -> None:
    settings = configs.to_plain(replace(default(), out="detector"))
    made_by = json.loads((BUILTIN / "manifest.json").read_text())["config"]
    assert made_by == {name: settings[name] for name in made_by}
    assert settings.keys() - made_by.keys() == {"out", "workers", "save_every"}


def test_it_finds_panels_and_tells_compound_figures_from_others() -> None:
    detector = Detector.builtin()
    counts = Counts(0, 0, 0)
    for seed in range(3):
        figure = make_compound(870_000 + seed, "plain")
        found = detector.detect(figure.pixels)
        counts += box_counts(
            [one.box for one in found.proposals], [panel.box for panel in figure.panels]
        )
        assert found.compound > 0.5
        assert all(one.score <= detector.trust for one in found.proposals)
        height, width = figure.pixels.shape[:2]
        assert all(one.box == _within(one.box, width, height) for one in found.proposals)
    assert counts.f1 > 0.8


def _within(box: Box, width: int, height: int) -> Box:
    return Box(max(box.x0, 0), max(box.y0, 0), min(box.x1, width), min(box.y1, height))


@pytest.mark.parametrize(("setting", "is_used"), [("", True), ("none", False)])
def test_split_takes_it_unless_told_otherwise(setting: str, is_used: bool) -> None:
    config = SplitConfig(figures="in", out="out", detector=setting)
    assert (_proposer(config, fingerprint(str(BUILTIN))) is not None) == is_used


def test_a_detector_that_was_replaced_since_the_job_began_is_refused() -> None:
    with pytest.raises(ArtifactError, match="replaced while this job was running"):
        _proposer(SplitConfig(figures="in", out="out"), "0" * 64)
