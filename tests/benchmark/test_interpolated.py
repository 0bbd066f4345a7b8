"""Models between two are judged as if they had been published."""

from pathlib import Path

import numpy as np
import pytest

from biovl.benchmark import encoders
from biovl.benchmark.config import BenchmarkConfig, WiseFt
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError
from biovl.models import encoder
from biovl.models.wise_ft import interpolate
from tests.annotate.small_models import save_clip, scene

TEXTS = ["a fundus photograph", "a bar chart"]
PIXELS = np.stack([np.asarray(scene(seed, 32, 32)) for seed in range(3)])


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("between")
    return save_clip(folder / "base", seed=1), save_clip(folder / "tuned", seed=2)


def models(ends: tuple[Path, Path]) -> dict[str, str]:
    return WiseFt(base=str(ends[0]), tuned=str(ends[1]), alphas=(1.0, 0.0, 0.25)).models()


def test_the_ends_are_the_two_models(ends: tuple[Path, Path]) -> None:
    named = models(ends)
    assert list(named) == ["alpha-0", "alpha-0.25", "alpha-1"]
    for name, folder in (("alpha-0", ends[0]), ("alpha-1", ends[1])):
        found, own = encoders.load(named[name]), encoder.load(str(folder))
        np.testing.assert_allclose(found.embed_texts(TEXTS), own.embed_texts(TEXTS), atol=1e-6)
        np.testing.assert_allclose(found.embed_pixels(PIXELS), own.embed_pixels(PIXELS), atol=1e-6)


def test_between_them_is_what_their_weights_come_to(ends: tuple[Path, Path]) -> None:
    base, tuned = (encoder.load(str(folder)) for folder in ends)
    state = interpolate(base.model.state_dict(), tuned.model.state_dict(), 0.25)
    tuned.model.load_state_dict(state)
    found = encoders.load(models(ends)["alpha-0.25"])
    np.testing.assert_allclose(found.embed_texts(TEXTS), tuned.embed_texts(TEXTS), atol=1e-6)
    assert not np.allclose(found.embed_texts(TEXTS), base.embed_texts(TEXTS))


def test_each_point_is_a_model_of_its_own(ends: tuple[Path, Path]) -> None:
    known = [encoders.describe(uri) for uri in models(ends).values()]
    assert len({model.fingerprint for model in known}) == 3
    again = [encoders.describe(uri) for uri in models(ends).values()]
    assert known == again


def test_what_is_no_two_models_is_told(ends: tuple[Path, Path], tmp_path: Path) -> None:
    nothing = WiseFt(base=str(tmp_path), tuned=str(ends[1])).models()
    with pytest.raises(ArtifactError, match=r"open_clip_config\.json"):
        encoders.describe(nothing["alpha-0.1"])
    given = {"base": "a", "tuned": "b", "alphas": [0.5, 1.5]}
    settings = {"out": "o", "tasks": {"x": {"name": "retrieval"}}, "wise_ft": given}
    with pytest.raises(ConfigError, match=r"alphas\.1: .*equal to 1 \(got 1\.5"):
        configs.build(BenchmarkConfig, settings)
    settings["wise_ft"] = {"base": "a", "tuned": "b"}
    with pytest.raises(ConfigError, match=r"model, models.*wise_ft"):
        configs.build(BenchmarkConfig, {**settings, "model": "c"})
