"""Models on the Hugging Face hub: which commit a name stands for, and what its client raises."""

import hashlib
from pathlib import Path

TIMEOUT_S = 10.0
"""Seconds that the hub is waited for."""


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".json")
"""Endings of the files that weights and their settings are in."""


def client_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the exceptions of the hub's client: its own, those of its HTTP library, and wrappers.

    Args:
        more: Others; a client that loads files also raises OSError, as where the disk fails.
    """
    from huggingface_hub.errors import HfHubHTTPError

    # Versions of the client use different HTTP libraries, whose errors have a common base.
    return (HfHubHTTPError, HfHubHTTPError.__mro__[1], RuntimeError, ValueError, *more)


def is_hub_name(source: str) -> bool:
    """Return whether a source that does not exist may name a repository: ``OWNER/NAME``."""
    name = source.removeprefix("hf-hub:")
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def weights_hash(name: str) -> str | None:
    """Return a hash of the weights and settings in a repository of models; None if unreachable.

    Other files, as a card that was edited, do not change it.

    Args:
        name: ``OWNER/NAME``.
    """
    from huggingface_hub import HfApi

    try:
        about = HfApi().model_info(name, timeout=TIMEOUT_S, files_metadata=True)
    except client_errors(OSError):
        return None
    # Of a large file, the id is that of a pointer with its SHA-256.
    files = {file.rfilename: file.blob_id for file in about.siblings or ()}
    names = sorted(file for file in files if file.endswith(_WEIGHTS))
    listed = "".join(f"{file} {files[file]}\n" for file in names)
    return hashlib.sha256(listed.encode()).hexdigest() if names else None


def commit(name: str) -> str | None:
    """Return the commit that a repository of models is at.

    Args:
        name: ``OWNER/NAME``.

    Returns:
        The commit on the hub; where the hub is unreachable, that of the copy which its client has
        in its cache and would load; None if there is neither.
    """
    from huggingface_hub import HfApi, constants

    try:
        return HfApi().model_info(name, timeout=TIMEOUT_S).sha
    except client_errors(OSError):
        folder = f"models--{name.replace('/', '--')}"
        cached = Path(constants.HF_HUB_CACHE, folder, "refs", constants.DEFAULT_REVISION)
        return cached.read_text(encoding="utf-8").strip() if cached.is_file() else None
