"""A benchmark's data by its description, or by nothing but where it is."""

from dataclasses import replace
from typing import Any

import pyarrow.fs as pafs

from biovl.benchmark.datasets import LabelledImages, Pairs, choices
from biovl.core import plugins
from biovl.core.artifacts import Folder, find_manifest
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location, translate_storage_errors
from biovl.core.plugins import Plugin

KIND = "benchmark.datasets"


def described(data: str | Plugin) -> Plugin:
    """Return the description of data: as given, or what the files at a location look like.

    Raises:
        ArtifactError: If nothing known is there.
    """
    if isinstance(data, Plugin):
        return data
    return Plugin(_format(data), {"path": data})


def _format(uri: str) -> str:
    if uri.endswith(".npz"):
        return "medmnist"
    if uri.endswith((".csv", ".tsv")):
        return "captions"
    filesystem, path = open_location(uri)
    with translate_storage_errors(uri):
        info = filesystem.get_file_info(path)
    if info.type != pafs.FileType.Directory:
        raise ArtifactError(f"{uri} is no folder, no .npz, no .csv and no .tsv")
    folder, manifest = Folder(uri), find_manifest(uri)
    if manifest is not None:
        kinds = {"corpus": "corpus", "figures": "long_captions"}
        if manifest.kind not in kinds:
            raise ArtifactError(f"{uri} holds {manifest.kind}, which is no benchmark's data")
        return kinds[manifest.kind]
    for ending, name in ((".parquet", "table"), (".tar", "webdataset")):
        if any(folder.names(inner, ending) for inner in ("", "data", "train", "val", "test")):
            is_asked = name == "table" and choices.recognized(uri)
            return "choices" if is_asked else name
    return "folder"


def with_classes(found: Plugin) -> Plugin:
    """Return the description of a location as images with classes: questions have labels, too."""
    return replace(found, name="table") if found.name == "choices" else found


def opened(data: str | Plugin) -> Any:
    """Return data by its description, or by where it is.

    Raises:
        ArtifactError: If it is not there, or not what its description says.
        ConfigError: If the description is not valid.
    """
    return plugins.make(KIND, described(data))


def labelled(data: str | Plugin) -> LabelledImages:
    """Return images with classes.

    Raises:
        ArtifactError: If it is something else.
    """
    found = opened(data if isinstance(data, Plugin) else with_classes(described(data)))
    if not isinstance(found, LabelledImages):
        raise ArtifactError(f"{_where(data)} has no classes: it holds {type(found).__name__}")
    return found


def pairs(data: str | Plugin) -> Pairs:
    """Return images with texts.

    Raises:
        ArtifactError: If it is something else.
    """
    found = opened(data)
    if not isinstance(found, Pairs):
        raise ArtifactError(f"{_where(data)} has no texts: it holds {type(found).__name__}")
    return found


def _where(data: str | Plugin) -> str:
    return data if isinstance(data, str) else str(data.settings.get("path", data.name))
