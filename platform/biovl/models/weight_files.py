"""Weight files: located by name, path or URI, and read without executing their content."""

import contextlib
import functools
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from biovl.core.artifacts import MANIFEST
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.models.hub import TIMEOUT_S, client_errors, is_hub_name, split
from biovl.models.weight_identity import ENDINGS

State = dict[str, Tensor]

WHOLE = ("open_clip_model", "open_clip_pytorch_model", "model", "pytorch_model")
"""File names in a folder, in order of preference, for a whole two-tower model."""
TOWER = ("model", "pytorch_model", "open_clip_model", "open_clip_pytorch_model")
"""File names in a folder, in order of preference, for a single tower: repositories with both have
the backbone's own weights in ``model``."""

PUBLISHED = "open_clip_model.safetensors"
"""The weights that jobs publish; their manifests contain its SHA-256."""


def read(source: str, stems: Sequence[str] = WHOLE, *, architecture: str = "") -> State:
    """Return the tensors of a weight file by name. See ``load_model`` for the arguments."""
    with local_copy(source) as path:
        if path is None:
            path = _downloaded(source, stems, architecture)
        file = _in_folder(path, stems) if path.is_dir() else path
        _verify(file)
        return read_file(file)


def check_existence(
    source: str, stems: Sequence[str] = WHOLE, *, architecture: str = "", ask_hub: bool = True
) -> None:
    """Verify that there are weights to read, without reading or downloading them.

    The arguments are those of ``read``. Without ``ask_hub``, names on the Hugging Face hub are
    not checked.

    Raises:
        ArtifactError: If there are no weights, or the hub is unavailable.
    """
    from open_clip.pretrained import get_pretrained_cfg

    place = source.removeprefix("local-dir:")
    if "://" in place:
        _check_bucket(place)
        return
    path = Path(place).expanduser()
    if path.exists():
        if path.is_dir():
            _in_folder(path, stems)
        return
    if architecture and get_pretrained_cfg(architecture, source):
        return
    if not is_hub_name(place):
        raise _unknown(source, architecture)
    if ask_hub:
        _check_hub(place, [stem + ending for stem in stems for ending in ENDINGS])


def _check_bucket(uri: str) -> None:
    parent, _, name = uri.rstrip("/").rpartition("/")
    if name.endswith(ENDINGS):
        if not Folder(parent).exists(name):
            raise ArtifactError(f"{uri} does not exist")
    elif not any(name.endswith(ENDINGS) for name in Folder(uri).names("")):
        raise ArtifactError(f"{uri} does not exist, or has no weights")


def _check_hub(source: str, files: Sequence[str]) -> None:
    from huggingface_hub import HfApi, try_to_load_from_cache

    name, revision = split(source)
    cached = (try_to_load_from_cache(name, file, revision=revision) for file in files)
    if any(isinstance(path, str) for path in cached):
        return
    try:
        # One request: the client repeats those for lists of files until they are answered.
        about = HfApi().model_info(name, revision=revision, timeout=TIMEOUT_S)
        present = [file.rfilename for file in about.siblings or ()]
    except client_errors(OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ArtifactError(
            f"{source!r} is not a local file or folder, and was not found on the hub "
            f"({type(error).__name__}: {reason}); without network access, give a local file or "
            "folder instead"
        ) from error
    if not set(files) & set(present):
        raise ArtifactError(f"{source} on the hub has no weights under a known name")


def read_file(path: Path) -> State:
    """Return the tensors of one file, or of the shards that an index lists.

    Raises:
        ArtifactError: If it is invalid, or holds more than tensors: such files can execute code.
    """
    if path.name.endswith(".index.json"):
        return {k: v for part in _parts(path) for k, v in read_file(path.parent / part).items()}
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, SafetensorError) as error:
        raise _unreadable(path, error) from error
    except pickle.UnpicklingError as error:
        raise _unreadable(path, error) from error
    for inner in ("state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(inner), Mapping):
            state = state[inner]
    if not isinstance(state, Mapping) or not state:
        raise ArtifactError(f"{path} holds no named tensors")
    return {
        str(name).removeprefix("module.").removeprefix("_orig_mod."): tensor
        for name, tensor in state.items()
        if isinstance(tensor, Tensor)
    }


def verify(folder: str) -> None:
    """Compare the weights in the local folder of a published model with its manifest.

    Raises:
        ArtifactError: If they differ.
    """
    path = Path(folder.removeprefix("local-dir:")).expanduser() / PUBLISHED
    if "://" not in folder and path.is_file():
        stat = path.stat()
        # Once per process: it reads all weights.
        _verify_version(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache
def _verify_version(path: Path, *_: int) -> None:
    _verify(path)


def _verify(path: Path) -> None:
    """Compare the weights of a model that biovl published with the checksum in its manifest.

    Raises:
        ArtifactError: If they differ.
    """
    manifest = path.with_name(MANIFEST)
    if path.name != PUBLISHED or not manifest.is_file():
        return
    try:
        expected = json.loads(manifest.read_bytes())["notes"]["weights_sha256"]
    except (ValueError, KeyError, TypeError):
        # A manifest of another program.
        return
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() == expected:
            return
    raise ArtifactError(
        f"{path} is corrupt: its SHA-256 is not the one in {MANIFEST}. Copy the folder again, or "
        "run the job that published it with another out"
    )


def _parts(index: Path) -> list[str]:
    """Return the names of the files that an index lists, all in its folder."""
    try:
        parts = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(index, error) from error
    if any(os.path.basename(part) != part or part.endswith(".index.json") for part in parts):
        raise ArtifactError(f"{index} names files outside its folder")
    return parts


def _unreadable(path: Path, error: Exception) -> ArtifactError:
    reason = str(error).strip().split("\n")[0][:200]
    return ArtifactError(
        f"{path} cannot be read as weights: {reason}. Only files of nothing but tensors are read; "
        "convert others to .safetensors"
    )


@contextlib.contextmanager
def local_copy(source: str, *, with_weights: bool = True) -> Iterator[Path | None]:
    """Yield the local path of a file or folder; None if the source is a model name.

    From a folder in a bucket, the configuration of a model can be copied without its weights.
    """
    source = source.removeprefix("local-dir:")
    if "://" not in source:
        path = Path(source).expanduser()
        yield path if path.exists() else None
        return
    with tempfile.TemporaryDirectory(prefix="biovl-model-") as folder:
        yield _copied(source, Path(folder), with_weights)


def _copied(uri: str, target: Path, with_weights: bool) -> Path:
    parent, _, name = uri.rstrip("/").rpartition("/")
    if name.endswith(ENDINGS):
        folder = Folder(parent)
        for beside in (MANIFEST, name):
            if beside == name or (name == PUBLISHED and folder.exists(beside)):
                (target / beside).write_bytes(folder.read(beside))
        return target / name
    folder = Folder(uri)
    for name in folder.names(""):
        if name.endswith(ENDINGS) and not with_weights:
            continue
        (target / name).write_bytes(folder.read(name))
    return target


def _in_folder(folder: Path, stems: Sequence[str]) -> Path:
    for stem in stems:
        for ending in ENDINGS:
            if (folder / f"{stem}{ending}").is_file():
                return folder / f"{stem}{ending}"
    others = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS))
    if len(others) != 1:
        found = ", ".join(path.name for path in others) or "none"
        raise ArtifactError(
            f"{folder} has no weights under a known name (found: {found}); name one file, or call "
            f"it {stems[0]}.safetensors"
        )
    return others[0]


def _downloaded(source: str, stems: Sequence[str], architecture: str) -> Path:
    """Return the download location of a name, from the Hugging Face hub's or open_clip's client."""
    from open_clip.pretrained import download_pretrained, get_pretrained_cfg

    tag = get_pretrained_cfg(architecture, source) if architecture else None
    try:
        if tag:
            return Path(download_pretrained(tag))
        if is_hub_name(source):
            return _from_hub(source, stems)
    except client_errors(OSError) as error:
        raise ArtifactError(
            f"the weights {source!r} cannot be downloaded ({type(error).__name__}: {error}); where "
            "there is no network, give a local file or folder instead"
        ) from error
    raise _unknown(source, architecture)


def _unknown(source: str, architecture: str) -> ArtifactError:
    from open_clip.pretrained import list_pretrained_tags_by_model

    tags = list_pretrained_tags_by_model(architecture) if architecture else []
    return ArtifactError(
        f"{source!r} is not a file or folder, a name on the hub (owner/name) or a tag of open_clip"
        + (f" for {architecture} ({', '.join(tags)})" if tags else "")
    )


def _from_hub(source: str, stems: Sequence[str]) -> Path:
    """Return the first of the known files in a repository, or in its cached copy."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    name, revision = split(source)
    problem: Exception = FileNotFoundError(f"no file of weights under a known name in {source}")
    from_cache = False

    def download(file: str) -> Path:
        return Path(hf_hub_download(name, file, revision=revision, local_files_only=from_cache))

    for file in (stem + ending for stem in stems for ending in ENDINGS):
        try:
            path = download(file)
        except LocalEntryNotFoundError as error:
            # The hub is unavailable; it need not be asked for every name.
            from_cache, problem = True, error
        except EntryNotFoundError:
            continue
        else:
            if path.name.endswith(".index.json"):
                for part in _parts(path):
                    download(part)
            return path
    raise problem
