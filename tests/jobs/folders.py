"""Comparing published folders."""

import hashlib
from pathlib import Path


def content(folder: Path) -> dict[str, str]:
    """Return a hash of every file below a folder, by relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
