"""From raw files to the scores of a suite: every task of BiomedCLIP's, from prepared folders."""

import io
import json
from pathlib import Path

import pytest

from biovl.benchmark import config as benchmark_config
from biovl.benchmark.benchmarks import with_benchmarks
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.job import benchmark
from biovl.core import config as configs
from tests.benchmark.prepare import test_lc25000, test_pcam, test_rsna, test_tcga_til
from tests.benchmark.prepare.preparing import run
from tests.index.test_job import save_model

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, and the data sets of the suite in prepared/."""
    folder = tmp_path_factory.mktemp("suite")
    raw = folder / "raw"
    raw.mkdir()
    test_pcam.write(raw / "pcam", "test", [1, 0, 0, 1])
    test_pcam.write(raw / "pcam", "train", [0, 1] * 20, zipped=False)
    test_lc25000.zipped(raw / "lc25000/LC25000.zip", test_lc25000.files())
    test_tcga_til.packed(raw / "til/TCGA-TILs.tar.gz", test_tcga_til.files())
    test_rsna.write(raw / "rsna", test_rsna.patients(40))
    for name, source in (
        ("pcam", "pcam"),
        ("lc25000_lung", "lc25000"),
        ("lc25000_colon", "lc25000"),
        ("tcga_til", "til"),
        ("rsna", "rsna"),
    ):
        run(name, raw / source, folder / "prepared" / name)
    save_model(folder / "model")
    return folder


def scores(place: Path, recipe: str, **changes: object) -> dict[str, dict[str, float]]:
    known = with_benchmarks(benchmark_config.RECIPES)
    plain = configs.recipe_settings(known[recipe]())
    settings = {"out": str(place / recipe), "model": str(place / "model"), "resamples": 20}
    config = configs.build(BenchmarkConfig, {**plain, **settings, **changes})
    benchmark(config, progress=io.StringIO())
    rows = json.loads((place / recipe / "scores.json").read_text())["scores"]
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["task"], {})[row["name"]] = row["value"]
    return found


def test_a_suite_is_evaluated_from_prepared_folders(place: Path, ray_session: None) -> None:
    found = scores(place, "biomedclip", data_root=str(place / "prepared"))
    assert {"pcam", "lc25000_lung", "lc25000_colon", "tcga_til", "rsna"} <= found.keys()
    assert "auroc" in found["tcga_til"]
    table = (place / "biomedclip/table.md").read_text()
    assert "biomedclip: of tasks" in table
    assert "normal lymph node" in (place / "biomedclip/scores.json").read_text() + table


def test_a_probe_trains_on_the_prepared_splits(place: Path, ray_session: None) -> None:
    found = scores(place, "linear_probe", data=str(place / "prepared/pcam"))
    assert found["linear_probe"]
