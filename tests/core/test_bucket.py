"""The jobs from bucket to bucket, against a local S3 server, by the commands of the README."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from biovl.core.filesystems import open_location
from biovl.core.folders import Folder
from biovl.core.shards import read_pair
from biovl.models.encoder import load
from tests.runtime.typed import run_command

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def test_from_packages_in_a_bucket_to_a_model_in_a_bucket(
    ray_session: None, sample_packages: Path, bucket: Callable[[str, bytes], None], bucket_uri: str
) -> None:
    packages = sorted(sample_packages.iterdir())
    for path in packages:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_file():
                bucket(f"chain/in/{file.relative_to(sample_packages)}", file.read_bytes())
    figures, corpus = f"{bucket_uri}/chain/figures", f"{bucket_uri}/chain/corpus"
    harvested = run_command(
        "pipelines/harvest.py", "packages", **{"source.path": f"{bucket_uri}/chain/in"}, out=figures
    )
    # A bucket has no empty folders.
    empty = sum(path.is_dir() and not any(path.iterdir()) for path in packages)
    assert harvested["articles"]["seen"] == len(packages) - empty
    assembled = run_command("pipelines/assemble.py", "small", figures=figures, out=corpus)
    filesystem, path = open_location(f"{corpus}/index.parquet")
    pairs = pq.read_table(path, filesystem=filesystem).to_pylist()
    assert len(pairs) == assembled["figures"]["kept"] > 20
    for pair in pairs[::5]:
        files = read_pair(f"{corpus}/{pair['shard']}", pair["offset"], pair["size"])
        assert json.loads(files["json"])["figure_id"] == pair["pair_id"]
    model = f"{bucket_uri}/chain/model"
    trained = run_command(
        "pipelines/pretrain.py",
        "tiny",
        corpus=corpus,
        out=model,
        epochs=2,
        **{"batch.pairs": 8, "workers.cpus": 0.5},
    )
    assert trained["steps"] == 2 * (trained["pairs"]["train"] // 8)
    encoder = load(model)
    image = next(data for kind, data in files.items() if kind in ("jpg", "png"))
    assert encoder.embed_images([image]).shape == (1, encoder.dim)
    names = Folder(model).names("")
    assert {"manifest.json", "README.md", "metrics.jsonl"} <= set(names)
    assert Folder(model).names("tensorboard")
    assert not Folder(model).names(".draft/checkpoints")
