"""Which weights a column was made with."""

import hashlib

from biovl.core.artifacts import Folder, Input, find_manifest, fingerprint

_BLOCK = 1 << 24


def as_input(uri: str) -> list[Input]:
    """Return what identifies a folder of weights; nothing for a name on the hub.

    A folder that a job of ours published is known by its manifest, another by all its files.
    """
    if not uri:
        return []
    if find_manifest(uri) is not None:
        return [Input(name="weights", uri=uri, fingerprint=fingerprint(uri))]
    folder, known = Folder(uri), hashlib.sha256()
    names = folder.names("")
    for name in names:
        known.update(f"{name}\n".encode())
        with folder.filesystem.open_input_stream(folder.at(name)) as stream:
            while block := stream.read(_BLOCK):
                known.update(block)
    return [Input(name="weights", uri=uri, fingerprint=known.hexdigest())] if names else []
