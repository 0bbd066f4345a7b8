"""Data sets published by ``biovl prepare``: class order and content are stated in the manifest."""

from dataclasses import dataclass, replace

import numpy as np

from biovl.benchmark.datasets import LabelledImages, Pairs, table
from biovl.core.artifacts import Manifest, find_manifest, read_manifest
from biovl.core.errors import ArtifactError

KIND = "benchmark_data"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: a folder published by prepare."""

    path: str
    """The folder, local or ``s3://``."""
    finding: str = ""
    """Column of 1, 0, -1 or null, as in CheXpert: images are classified by its presence, and
    uncertain and blank ones are left out. Empty: by ``label``."""


def content_kind(uri: str) -> str | None:
    """Return what the rows of a prepared folder are (``RawSet.holds``); None for other folders.

    Raises:
        ArtifactError: If its manifest cannot be read.
    """
    manifest = find_manifest(uri)
    return manifest.notes["holds"] if manifest is not None and manifest.kind == KIND else None


def build(config: Config) -> LabelledImages | Pairs:
    """Return labelled images or pairs; reads no image.

    Raises:
        ArtifactError: If the folder was not published by prepare, or its rows are neither classes
            nor texts.
    """
    manifest = read_manifest(config.path, KIND)
    content = manifest.notes["holds"]
    # Ids in two splits were reported when the data were prepared; rows have numbers as well.
    ids = "" if manifest.notes["ids_in_two_splits"]["count"] else "id"
    if config.finding:
        present = (f"no {config.finding}", config.finding)
        return table.build(
            table.Config(path=config.path, id=ids, label=config.finding, classes=present)
        )
    if content == "classes":
        return _labelled(config.path, ids, manifest)
    if content == "pairs":
        # Quilt-1M, for example, has no test split: papers use val.
        split = next(name for name in ("test", "val", "train") if name in manifest.counts)
        return table.build(table.Config(path=config.path, text="text", id="id", pairs_of=split))
    hint = "; choose one of its findings" if content == "findings" else ""
    raise ArtifactError(f"{config.path} holds {content}: neither classes nor texts{hint}")


def _labelled(path: str, ids: str, manifest: Manifest) -> LabelledImages:
    classes = tuple(manifest.notes["classes"])
    counts = manifest.notes["by_class"].values()
    # A class without images remains a class that can be predicted.
    present = tuple(name for name in classes if any(of_split.get(name) for of_split in counts))
    data = table.build(table.Config(path=path, id=ids, classes=present))
    assert isinstance(data, LabelledImages)
    place_C = np.array([classes.index(name) for name in present], np.int64)
    return replace(data, classes=classes, labels=place_C[data.labels])
