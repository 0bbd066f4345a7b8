"""Identity of the weights that computed a column."""

from biovl.core import config as configs
from biovl.core.artifacts import Input, recorded_inputs
from biovl.models.weight_identity import fingerprint_of


def as_input(uri: str, out: str, pinned: str = "") -> list[Input]:
    """Return the identity of weights, a folder or a name on the Hugging Face hub; empty if unknown.

    Args:
        uri: Folder or name of the weights; may be empty.
        out: Folder of the columns. If an interrupted job recorded no identity of its weights, the
            hub is not queried. If the hub cannot be reached, the recorded identity is used.
        pinned: Result of ``hub.pinned`` for ``uri``, so that the commit which the job loads is
            identified.
    """
    if not uri:
        return []
    recorded = recorded_inputs(out)
    key = f"weights {configs.normalized_location(uri)}"
    is_new = recorded is None or any(name.startswith("weights ") for name in recorded)
    found = fingerprint_of(pinned or uri, ask_hub=is_new) or (recorded or {}).get(key)
    return [] if found is None else [Input(name="weights", uri=uri, fingerprint=found)]
