"""Identity of the weights that computed a column."""

import hashlib

from biovl.core.artifacts import Folder, Input, find_manifest, fingerprint

_BLOCK = 1 << 24


def as_input(uri: str) -> list[Input]:
    """Return the identity of a folder of weights; empty for a name on the Hugging Face Hub.

    A folder published by our jobs is identified by its manifest, another one by all its files.
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
