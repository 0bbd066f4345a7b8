"""Models on the Hugging Face Hub: the commit that a name refers to, and exceptions of the client.

A name may include a revision: ``OWNER/NAME@REVISION``. The driver resolves it to a commit before it
fingerprints the files (``pinned``), and workers load that commit. A name alone would refer to other
files once the repository is updated, or on a machine with an older copy in its cache.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

TIMEOUT_S = 10.0
"""Seconds that the hub is waited for."""
PINNED = "pinned"
"""Note in a draft: the names on the hub that are loaded, with their commits. A run that resumes
loads the same: what is at its names may be another model by then."""

_COMMIT = re.compile("[0-9a-f]{40}")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".json")
"""Endings of the files that weights and their settings are in."""


def client_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the exceptions of the hub's client: its own, those of its HTTP library, and wrappers.

    Args:
        more: Further exceptions, such as OSError, which downloads raise if the disk fails.
    """
    from huggingface_hub.errors import HfHubHTTPError

    # Versions of the client use different HTTP libraries, whose errors have a common base.
    return (HfHubHTTPError, HfHubHTTPError.__mro__[1], RuntimeError, ValueError, *more)


def is_hub_name(source: str) -> bool:
    """Return whether a source that does not exist may name a repository: ``OWNER/NAME``."""
    name, _ = split(source)
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def split(source: str) -> tuple[str, str | None]:
    """Return the repository that a source names, ``OWNER/NAME``, and the revision, if any."""
    name, _, revision = source.removeprefix("hf-hub:").partition("@")
    return name, revision or None


def pinned(source: str) -> str:
    """Return a name on the hub with the commit that it resolves to: ``OWNER/NAME@COMMIT``.

    Other sources, and names whose commit is unknown (see ``commit``), are returned unchanged.
    """
    is_local = source.startswith("local-dir:") or "://" in source
    if is_local or Path(source).expanduser().exists() or not is_hub_name(source):
        return source
    found = commit(source)
    return source if found is None else at(source, found)


def pins(sources: Iterable[str], recorded: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``pinned`` of each name on the Hub; other sources are left out.

    Args:
        sources: Names, folders and other sources; empty ones are ignored.
        recorded: Commits stored in the draft's note ``PINNED``; a resumed run uses them again.
    """
    known = recorded or {}
    found = {name: known.get(name) or pinned(name) for name in dict.fromkeys(sources) if name}
    return {name: source for name, source in found.items() if source != name}


def at(source: str, revision: str) -> str:
    """Return a name on the hub with a revision, in place of its own."""
    return f"{source.partition('@')[0]}@{revision}"


def weights_hash(source: str) -> str | None:
    """Return a hash of the weights and settings in a repository of models; None if unreachable.

    Changes of other files, such as the model card, do not change the hash.

    Args:
        source: ``OWNER/NAME``, optionally with a revision.
    """
    from huggingface_hub import HfApi

    name, revision = split(source)
    try:
        about = HfApi().model_info(name, revision=revision, timeout=TIMEOUT_S, files_metadata=True)
    except client_errors(OSError):
        return None
    # Of a large file, the id is that of a pointer with its SHA-256.
    files = {file.rfilename: file.blob_id for file in about.siblings or ()}
    names = sorted(file for file in files if file.endswith(_WEIGHTS))
    listed = "".join(f"{file} {files[file]}\n" for file in names)
    return hashlib.sha256(listed.encode()).hexdigest() if names else None


def commit(source: str) -> str | None:
    """Return the commit of a model repository on the Hugging Face Hub.

    Args:
        source: ``OWNER/NAME``, optionally with a revision.

    Returns:
        The commit on the hub; if the hub is unreachable, the commit in the local cache; None if
        there is neither.
    """
    from huggingface_hub import HfApi, constants

    name, revision = split(source)
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    try:
        return HfApi().model_info(name, revision=revision, timeout=TIMEOUT_S).sha
    except client_errors(OSError):
        folder = Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}")
        cached = folder / "refs" / (revision or constants.DEFAULT_REVISION)
        return cached.read_text(encoding="utf-8").strip() if cached.is_file() else None
