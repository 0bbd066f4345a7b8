"""Columns of a private table on their way: harvest, corpus, filters of an index, a benchmark."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.assemble import config as assemble_config
from biovl.assemble import job as assemble_job
from biovl.assemble import rules, statistics, steps
from biovl.assemble.config import AssembleConfig
from biovl.benchmark.datasets import LabelledImages
from biovl.core import config as configs
from biovl.core import records
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError
from biovl.core.harvests import HarvestPart
from biovl.core.plugins import Plugin, make
from biovl.core.shards import shard_names
from biovl.harvest import job as harvest_job
from biovl.harvest.config import HarvestConfig
from biovl.index import metadata
from biovl.index.filters import FilterTable
from biovl.index.query import Filter
from tests.images.dicom_files import dicom

FINDINGS = ["nodule", "effusion", "", "nodule", "effusion", "nodule"]
ROWS = [
    {
        "image": f"{number}.png",
        "caption": f"Radiograph {number} of a chest.",
        "sex": "FM"[number % 2],
    }
    | {"finding": finding, "name": "Doe", "patient": f"P{number}"}
    for number, finding in enumerate(FINDINGS)
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Harvest and assemble in this process: the rows of figures, pairs and their index."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    for row in ROWS:
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(folder / row["image"])
    cells = [",".join(ROWS[0]), *(",".join(row.values()) for row in ROWS)]
    (folder / "t.csv").write_text("\n".join(cells) + "\n")
    harvest(folder, folder / "figures", keep=["finding", "sex"], columns={"group": "patient"})
    return assemble(folder / "figures", folder / "corpus")


def harvest(folder: Path, out: Path, **settings: object) -> None:
    source = {"name": "table", "path": str(folder / "t.csv"), **settings}
    config = configs.build(HarvestConfig, {"source": source, "out": str(out)})
    Draft(config.out).folder.create()
    addresses = make("harvest.sources", config.source).addresses()
    harvest_job.read_unit(config, 0, [{"uri": one.uri, "name": one.name} for one in addresses])


def assemble(
    figures: Path,
    out: Path,
    row_rules: Sequence[rules.Rule] = (),
    columns: Sequence[str] = (),
    **settings: object,
) -> Path:
    settings = {
        **configs.recipe_settings(assemble_config.small()),
        "split.val_permyriad": 0,
        "split.test_permyriad": 5_000,
        "figures": str(figures),
        "out": str(out),
        **settings,
    }
    config = configs.build(AssembleConfig, settings)
    parts = [HarvestPart(str(figures), "figures/part-000000-000.parquet", tuple(columns), (), ())]
    steps.join_columns(config, parts, 0)
    steps.decide(config, row_rules, 1, [])
    steps.encode(config, parts, 0)
    shards_of = steps.plan(config, 1)
    names = shard_names(shards_of)
    for number in range(len(names)):
        steps.shard(config, names, number)
    pq.write_table(pa.concat_tables(steps.index(config, 1, shards_of)), out / "index.parquet")
    pq.write_table(pa.concat_tables(steps.dropped_figures(config, 1)), out / "dropped.parquet")
    splits = pq.read_table(out / "index.parquet")["split"].to_pylist()
    counts = {"pairs": {name: splits.count(name) for name in statistics.SPLITS}}
    Draft(str(out)).publish(Manifest(kind="corpus", config={}, counts=counts))
    return out


def index(corpus: Path) -> pa.Table:
    return pq.read_table(corpus / "index.parquet").sort_by("image_name")


def test_only_columns_that_are_named_reach_the_corpus(corpus: Path) -> None:
    pairs = index(corpus)
    assert pairs["finding"].to_pylist() == [finding or None for finding in FINDINGS]
    assert pairs["sex"].to_pylist() == [row["sex"] for row in ROWS]
    assert "name" not in pairs.column_names
    assert "Doe" not in repr(pairs.to_pylist())


def test_rules_can_read_them(corpus: Path, tmp_path: Path) -> None:
    row_rules = [rules.value_one_of("finding", ("nodule",))]
    chosen = assemble(corpus.parent / "figures", tmp_path / "corpus", row_rules)
    assert set(index(chosen)["finding"].to_pylist()) == {"nodule"}


def test_an_index_filters_by_those_that_its_settings_name(corpus: Path, tmp_path: Path) -> None:
    pairs = index(corpus)
    assert metadata.from_index_rows(pairs)["labels"].to_pylist() == [[]] * len(ROWS)
    table = metadata.from_index_rows(pairs, labels=["finding", "sex"])
    assert table["labels"].to_pylist()[:3] == [
        ["finding=nodule", "sex=F"],
        ["finding=effusion", "sex=M"],
        ["sex=F"],
    ]
    FilterTable.build(table, tmp_path)
    filters = FilterTable.open(tmp_path)
    assert filters.facets()["label"] == {
        "finding=nodule": 3,
        "sex=F": 3,
        "sex=M": 3,
        "finding=effusion": 2,
    }

    def rows(*labels: str) -> list[int]:
        return filters.select(Filter(label=labels)).rows_kept.tolist()  # type: ignore[union-attr]

    assert rows("finding=nodule", "finding=effusion") == [0, 1, 3, 4, 5]
    assert rows("finding=nodule", "finding=effusion", "sex=F") == [0, 4]
    assert rows("finding=nodule", "scanner=3") == []


def test_a_benchmark_classifies_by_them_with_the_splits_of_the_corpus(corpus: Path) -> None:
    settings = {"path": str(corpus), "label": "finding"}
    data = make("benchmark.datasets", Plugin("corpus", settings))
    assert isinstance(data, LabelledImages)
    assert data.classes == ("effusion", "nodule")
    assert dict(data.left_out) == {"no label": 1}
    expected = {row["pair_id"]: row for row in index(corpus).to_pylist()}
    found = zip(data.ids, data.labels, data.splits, strict=True)
    for pair_id, label, split in found:
        assert data.classes[label] == expected[pair_id]["finding"]
        assert split == expected[pair_id]["split"]
    assert set(data.splits) == {"train", "test"}
    assert all(data.images.read(0, len(data.ids)))
    with pytest.raises(ArtifactError, match=r"no column scanner; it has .*finding"):
        make("benchmark.datasets", Plugin("corpus", {**settings, "label": "scanner"}))
    with pytest.raises(ArtifactError, match=r"'fracture'.* effusion, nodule"):
        classes = ["nodule", "fracture"]
        make("benchmark.datasets", Plugin("corpus", {**settings, "classes": classes}))


def test_attributes_of_dicom_images_are_columns_if_they_are_named(tmp_path: Path) -> None:
    pixels = np.arange(1024, dtype=np.uint16).reshape(32, 32)
    (tmp_path / "a.dcm").write_bytes(dicom(pixels, Modality="CT", PatientSex=""))
    (tmp_path / "t.csv").write_text("image,caption,note\na.dcm,One,own\nabsent.dcm,Two,\n")
    settings = {"dicom_columns": ["Modality", "PatientSex"], "keep": ["note"]}
    harvest(tmp_path, tmp_path / "figures", **settings)
    figures = pq.read_table(tmp_path / "figures" / "figures" / "part-000000-000.parquet")
    assert records.extra_columns(figures.schema) == ["note", "Modality", "PatientSex"]
    assert figures["Modality"].to_pylist() == ["CT", None]
    assert figures["PatientSex"].to_pylist() == [None, None]
    assert figures["note"].to_pylist() == ["own", None]


def test_names_of_columns_that_assemble_adds_are_rejected(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,caption_tokens\na.png,One,5\n")
    harvest(tmp_path, tmp_path / "figures", keep=["caption_tokens"])
    part = HarvestPart(str(tmp_path / "figures"), "figures/part-000000-000.parquet", (), (), ())
    with pytest.raises(ArtifactError, match="caption_tokens; rename"):
        assemble_job._columns([part])
