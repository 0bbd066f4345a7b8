"""The files of an index on this machine: where they are, or copied out of a bucket once."""

import shutil
import tempfile
from pathlib import Path

import pyarrow.fs as pafs

from biovl.errors import ArtifactError
from biovl.storage import MANIFEST, Folder, Manifest


def local_folder(uri: str, manifest: Manifest, print_: str, cache_folder: str | None) -> Path:
    """Return a local folder with the files of an index, all of the size that they should have."""
    source = Folder(uri)
    if isinstance(source.filesystem, pafs.LocalFileSystem):
        check_sizes(Path(source.path), manifest)
        return Path(source.path)
    cache = Path(cache_folder) if cache_folder else Path(tempfile.mkdtemp(prefix="biovl-index-"))
    target = cache / print_
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        # Under another name until it is whole: several replicas may be doing the same.
        draft = Path(tempfile.mkdtemp(prefix=f"{print_[:12]}-", dir=cache))
        for name in (*manifest.files, MANIFEST):
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            with (
                source.filesystem.open_input_stream(source.at(name)) as stream,
                (draft / name).open("wb") as file,
            ):
                shutil.copyfileobj(stream, file, 1 << 24)
        check_sizes(draft, manifest)
        try:
            draft.rename(target)
        except OSError:
            shutil.rmtree(draft)
            if not target.is_dir():
                raise
    check_sizes(target, manifest)
    return target


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Refuse what was cut short: what is mapped into memory and is not there ends the process."""
    for name, about in manifest.files.items():
        path = folder / name
        found = path.stat().st_size if path.is_file() else None
        if found != about["size_bytes"]:
            raise ArtifactError(f"{path} has {found} bytes, expected {about['size_bytes']}")
