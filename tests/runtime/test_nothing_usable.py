"""A job that makes nothing usable fails, keeps nothing, and lets the corrected command begin."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.annotate.config import AnnotateConfig
from biovl.annotate.job import annotate
from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.concepts.cluster_config import ClusterConfig
from biovl.concepts.cluster_job import cluster
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, find_manifest
from biovl.core.errors import ConfigError, NothingUsable
from biovl.enrich.config import EnrichConfig
from biovl.enrich.job import enrich
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from biovl.index.config import IndexConfig
from biovl.index.job import index
from biovl.runtime.failures import check_usable
from biovl.split.config import SplitConfig
from biovl.split.job import split_figures
from tests.annotate.small_models import save_dinov2
from tests.serve.search.published import publish_model

PATIENTS, EACH = 30, 3


def test_an_abandoned_draft_lets_another_configuration_begin(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    draft = Draft.begin(out, "corpus", {"rules": 1})
    draft.note("decided/000", {})
    draft.folder.write("train/00000.tar", b"x")
    draft.abandon()
    assert not (tmp_path / "out").exists()
    assert Draft.begin(out, "corpus", {"rules": 2}).note_names("decided") == []


def test_reasons_are_counted_with_the_most_frequent_first() -> None:
    reasons = {"image missing": 700, "no caption": 2, **{f"odd {n}": 1 for n in range(20)}}
    with pytest.raises(NothingUsable) as refused:
        check_usable(0, "722 figures", reasons, may_be_empty=False, first="/data/a.png")
    lines = str(refused.value).splitlines()
    assert "722 figures" in lines[0]
    assert lines[1].split() == ["700", "x", "image", "missing"]
    assert "10 other" in lines[13]
    assert "/data/a.png" in str(refused.value)
    check_usable(0, "722 figures", reasons, may_be_empty=True)
    check_usable(1, "722 figures", reasons, may_be_empty=False)


@pytest.fixture(scope="module")
def folder(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of patients whose images are in another folder than it says."""
    folder = tmp_path_factory.mktemp("private")
    rng = np.random.default_rng(0)
    (folder / "images").mkdir()
    with (folder / "t.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "caption", "patient"])
        for number in range(PATIENTS * EACH):
            name = f"{number:03d}.png"
            pixels = rng.integers(0, 256, (70, 80, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name)
            writer.writerow([name, f"Scan {number} of the chest", f"p{number % PATIENTS}"])
    return folder


def harvested(folder: Path, out: Path, **changes: Any) -> Manifest:
    source = {"name": "table", "path": str(folder / "t.csv"), **changes.pop("source", {})}
    return harvest(configs.build(HarvestConfig, {"source": source, "out": str(out), **changes}))


@pytest.fixture(scope="module")
def nothing(folder: Path) -> Path:
    """A harvest of defective figures alone, which was allowed."""
    out = folder / "nothing"
    counts = harvested(folder, out, may_be_empty=True).counts["figures"]
    assert (counts["usable"], counts["defects"]) == (0, {"image missing": PATIENTS * EACH})
    return out


@pytest.mark.ray
def test_a_harvest_whose_images_are_all_missing_says_where_it_looked_and_can_be_corrected(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "figures"
    with pytest.raises(NothingUsable) as refused:
        harvested(folder, out)
    assert "90 x image missing" in str(refused.value)
    for image in ("000.png", "001.png", "002.png"):
        assert f"{folder}/{image}" in str(refused.value)
    assert "003.png" not in str(refused.value)
    assert "relative to source.images" in str(refused.value)
    assert not out.exists()
    group = {"images": str(folder / "images"), "columns": {"group": "patient"}}
    manifest = harvested(folder, out, source=group)
    assert manifest.counts["figures"]["usable"] == PATIENTS * EACH
    assert "warnings" not in manifest.notes


def chained(
    folder: Path, nothing: Path, out: Path
) -> dict[str, tuple[Callable[..., Manifest], dict[str, Any], dict[str, Any]]]:
    """Return jobs with settings under which they make nothing, and what mends them."""
    figures = {"figures": str(nothing)}
    rules = {"rules": list(map(configs.to_plain, assemble_config.DEFAULT_RULES))}
    return {
        "split": (
            lambda **given: split_figures(configs.build(SplitConfig, given)),
            figures,
            {"confidence": 0.9, "may_be_empty": True},
        ),
        "annotate": (
            lambda **given: annotate(configs.build(AnnotateConfig, given)),
            {"table": str(nothing), "weights": str(save_dinov2(out / "dinov2"))}
            | configs.nested({"annotator.name": "dinov2"}),
            {"batch": 32, "may_be_empty": True},
        ),
        "enrich": (
            lambda **given: enrich(configs.build(EnrichConfig, given)),
            {"articles": str(nothing)},
            {"citations": False, "may_be_empty": True},
        ),
        "assemble": (
            lambda **given: assemble(configs.build(AssembleConfig, given)),
            {**rules, **figures},
            {"seed": 7, "may_be_empty": True},
        ),
    }


@pytest.mark.ray
@pytest.mark.parametrize("job", ["split", "annotate", "enrich", "assemble"])
def test_every_job_refuses_to_publish_nothing_unless_it_may(
    folder: Path, nothing: Path, tmp_path: Path, job: str
) -> None:
    run, settings, mended = chained(folder, nothing, tmp_path)[job]
    out = tmp_path / job
    with pytest.raises(NothingUsable, match="may_be_empty"):
        run(**settings, out=str(out))
    assert not out.exists()
    # Another configuration: a draft that was left would refuse it.
    run(**settings, **mended, out=str(out))
    assert find_manifest(str(out)) is not None
    # What was allowed to be empty is still the same job.
    assert run(**{**settings, **mended, "may_be_empty": False}, out=str(out)) is not None


@pytest.mark.ray
def test_nothing_is_clustered_or_indexed_of_nothing(
    folder: Path, nothing: Path, tmp_path: Path
) -> None:
    run, settings, _ = chained(folder, nothing, tmp_path)["annotate"]
    run(**settings, out=str(tmp_path / "embedding"), may_be_empty=True)
    clusters = {"table": str(nothing), "embedding": str(tmp_path / "embedding")}
    clusters |= {"components": 2, "clusters": 2, "out": str(tmp_path / "concepts")}
    with pytest.raises(NothingUsable, match="usable dinov2"):
        cluster(configs.build(ClusterConfig, clusters))
    run, settings, _ = chained(folder, nothing, tmp_path / "more")["assemble"]
    run(**settings, out=str(tmp_path / "corpus"), may_be_empty=True)
    model = publish_model(tmp_path / "model")
    into = {"model": str(model), "corpus": str(tmp_path / "corpus"), "out": str(tmp_path / "i")}
    with pytest.raises(NothingUsable, match=r"corpus.*pairs"):
        index(configs.build(IndexConfig, into))
    assert not (tmp_path / "concepts").exists()
    assert not (tmp_path / "i").exists()


@pytest.mark.ray
def test_patients_stay_in_one_split_and_without_a_group_are_warned_of(
    folder: Path, tmp_path: Path
) -> None:
    def splits_of(name: str, **source: Any) -> tuple[dict[str, set[str]], Manifest]:
        source["images"] = str(folder / "images")
        harvested(folder, tmp_path / f"{name}-figures", source=source)
        if name == "alone":
            # As versions wrote it that knew no groups.
            for part in (tmp_path / "alone-figures" / "figures").iterdir():
                pq.write_table(pq.read_table(part).drop_columns(["group_id"]), part)
        given = {"figures": str(tmp_path / f"{name}-figures"), "out": str(tmp_path / name)}
        manifest = assemble(
            configs.build(
                AssembleConfig,
                configs.nested(
                    {**configs.recipe_settings(assemble_config.RECIPES["small"]()), **given}
                ),
            )
        )
        found: dict[str, set[str]] = {}
        for pair in pq.read_table(tmp_path / name / "index.parquet").to_pylist():
            patient = int(pair["caption"].split()[1]) % PATIENTS
            found.setdefault(f"p{patient}", set()).add(pair["split"])
        return found, manifest

    grouped, manifest = splits_of("grouped", columns={"group": "patient"})
    assert len(grouped) == PATIENTS
    assert all(len(splits) == 1 for splits in grouped.values())
    assert set.union(*grouped.values()) == {"train", "val", "test"}
    assert not any("patient" in line for line in manifest.warnings)
    alone, manifest = splits_of("alone")
    assert any(len(splits) > 1 for splits in alone.values())
    assert any("source.columns.group=patient" in line for line in manifest.warnings)


@pytest.mark.ray
def test_a_name_of_a_column_that_is_nowhere_ends_a_harvest_before_it_writes(
    folder: Path, tmp_path: Path
) -> None:
    from biovl.core.errors import SourceError

    with pytest.raises((SourceError, ConfigError), match="group=patients"):
        harvested(folder, tmp_path / "f", source={"columns": {"group": "patients"}})
    assert not (tmp_path / "f").exists()
