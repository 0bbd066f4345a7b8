"""Identity of weight files, as an input of a job. Imported by settings: nothing heavy here."""

import hashlib
from pathlib import Path

from biovl.core.artifacts import find_manifest, fingerprint
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import without_credentials
from biovl.core.folders import Folder
from biovl.models.hub import is_hub_name, weights_hash

ENDINGS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth")
"""Endings of the names of weight files."""
_BLOCK = 1 << 24


def fingerprint_of(source: str, *, ask_hub: bool = True) -> str | None:
    """Return a hash that identifies weights; None for a tag of open_clip, or if they do not exist.

    A folder published by our jobs is identified by its manifest, any other folder by all its
    files, a name on the Hugging Face hub by its files there. None for such a name if the hub is
    unreachable or ``ask_hub`` is false.
    """
    place = source.removeprefix("local-dir:").rstrip("/")
    if "://" not in place:
        place = str(Path(place).expanduser())
    if place.endswith(ENDINGS) or Path(place).is_file():
        parent, _, name = place.rpartition("/")
        folder = Folder(parent or ".")
        names = [name] if folder.exists(name) else []
    elif find_manifest(place) is not None:
        return fingerprint(place)
    else:
        folder = Folder(place)
        names = folder.names("")
    if not names and ask_hub and is_hub_name(source):
        return weights_hash(source)
    known = hashlib.sha256()
    for name in names:
        known.update(f"{name}\n".encode())
        with folder.filesystem.open_input_stream(folder.at(name)) as stream:
            while block := stream.read(_BLOCK):
                known.update(block)
    return known.hexdigest() if names else None


def check_unchanged(source: str, known: str | None) -> None:
    """Verify that weights are still those that a job recorded when it began.

    Workers call it after they have loaded a model: those that start late would otherwise load a
    folder that was replaced meanwhile. Names on the hub need no check, because the job pins them to
    a commit.

    Args:
        source: The weights, as for ``fingerprint_of``.
        known: Their recorded fingerprint; None if they could not be identified.

    Raises:
        ArtifactError: If they have changed.
    """
    found = fingerprint_of(source, ask_hub=False) if known is not None else None
    if known is not None and found not in (known, None):
        raise ArtifactError(
            f"{without_credentials(source)} was replaced while this job was running (found "
            f"{found[:12]}, expected {known[:12]}): put the earlier files back and run the same "
            "command again, or set another out to use the new ones"
        )
