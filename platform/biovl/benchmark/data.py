"""Open a dataset by its plug-in and settings, or by its location alone."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow.fs as pafs

from biovl.benchmark import choice_columns
from biovl.benchmark.datasets import LabelledImages, Pairs, prepared, queries
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.core import plugins
from biovl.core.artifacts import find_manifest, unpublished
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree, below, open_location, translate_storage_errors
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin

KIND = "benchmark.datasets"
CAPTIONS = "captions.csv"
"""Table of captions in a folder of images."""
_SPLITS = frozenset("train val valid validation dev test".split())
_REPORTS_DEPTH = 4
"""Folders from the top of MIMIC-CXR to its reports, with the top: files/p10/p10000032/."""


def dataset_plugin(data: str | Plugin) -> Plugin:
    """Return a dataset plug-in with its settings; for a location, the plug-in is detected.

    Raises:
        ArtifactError: If no known format is detected.
    """
    if isinstance(data, Plugin):
        return data
    name = _format(data)
    if name == "folder" and Folder(data).exists(CAPTIONS):
        return Plugin("captions", {"path": below(data, CAPTIONS)})
    if name == "folder" and _holds_reports(data):
        name = "reports"
    return Plugin(name, {"path": data})


def location_type(uri: str) -> pafs.FileType:
    """Return whether a location is a file or a folder, or does not exist."""
    filesystem, path = open_location(uri)
    with translate_storage_errors(uri):
        return filesystem.get_file_info(path).type


def _format(uri: str) -> str:
    if uri.endswith(".npz"):
        return "medmnist"
    if uri.endswith((".csv", ".tsv")):
        return "captions"
    if location_type(uri) != pafs.FileType.Directory:
        raise ArtifactError(f"{uri} is not a folder, .npz, .csv or .tsv file")
    folder, manifest = Folder(uri), find_manifest(uri)
    if manifest is not None:
        kinds = {
            "corpus": "corpus",
            "figures": "long_captions",
            prepared.KIND: {"questions": "vqa", "choices": "choices"}.get(
                manifest.notes.get("holds", ""), "prepared"
            ),
            queries.KIND: "queries",
        }
        if manifest.kind not in kinds:
            raise ArtifactError(f"{uri} holds {manifest.kind}, expected one of {', '.join(kinds)}")
        return kinds[manifest.kind]
    if folder.exists(".draft/begun.json"):
        raise unpublished(uri)
    for ending, name in ((".parquet", "table"), (".tar", "webdataset")):
        if any(folder.names(inner, ending) for inner in ("", "data", "train", "val", "test")):
            is_asked = name == "table" and choice_columns.detect_settings(uri)
            return "choices" if is_asked else name
    return "folder"


def _holds_reports(uri: str) -> bool:
    """Return whether a report is next to its image, or below next to a folder of its images.

    Below, a text next to an image may be about an image of a class.
    """
    tree = Tree(uri)
    path = tree.path
    for depth in range(_REPORTS_DEPTH):
        found = tree.folder(path)
        texts = {name[:-4] for name in found.files if name[-4:].lower() == ".txt"}
        if depth == 0 and texts & _stems_of_images(found.files):
            return True
        if not found.folders:
            return False
        path = f"{path.rstrip('/')}/{min(found.folders)}"
        # Each study has a report. A single text is about a class or, as train.txt, a split.
        are_studies = texts.issuperset(found.folders) and _SPLITS.isdisjoint(found.folders)
        if are_studies and _stems_of_images(tree.folder(path).files):
            return True
    return False


def _stems_of_images(names: Iterable[str]) -> set[str]:
    return {name.rpartition(".")[0] for name in names if name.lower().endswith(ENDINGS)}


def with_classes(plugin: Plugin) -> Plugin:
    """Return a plug-in that reads the data as labelled images, even a table of questions."""
    return replace(plugin, name="table") if plugin.name == "choices" else plugin


def open_dataset(data: str | Plugin) -> Any:
    """Return a dataset by its plug-in or its location.

    Raises:
        ArtifactError: If it does not exist, or does not match its settings.
        ConfigError: If the settings are not valid.
    """
    return plugins.make(KIND, dataset_plugin(data))


def open_labelled(data: str | Plugin) -> LabelledImages:
    """Return a dataset of images with class labels.

    Raises:
        ArtifactError: If it has no class labels.
    """
    dataset = open_dataset(data if isinstance(data, Plugin) else with_classes(dataset_plugin(data)))
    if not isinstance(dataset, LabelledImages):
        raise ArtifactError(f"{_where(data)} has no classes: it holds {type(dataset).__name__}")
    return dataset


def open_pairs(data: str | Plugin) -> Pairs:
    """Return a dataset of images with texts.

    Raises:
        ArtifactError: If it has no texts.
    """
    dataset = open_dataset(data)
    if not isinstance(dataset, Pairs):
        raise ArtifactError(f"{_where(data)} has no texts: it holds {type(dataset).__name__}")
    return dataset


def _where(data: str | Plugin) -> str:
    return data if isinstance(data, str) else str(data.settings.get("path", data.name))
