"""Identity of the weights that computed a column."""

from biovl.core import config as configs
from biovl.core.artifacts import Input, recorded_inputs
from biovl.models.weight_identity import fingerprint_of


def as_input(uri: str, out: str) -> list[Input]:
    """Return the identity of weights, a folder or a name on the Hugging Face hub; empty if unknown.

    Args:
        uri: Folder or name of the weights; may be empty.
        out: Folder of the columns. What an earlier version began there, or a run that reached the
            hub, goes on with the identity that it wrote down.
    """
    recorded, key = recorded_inputs(out), f"weights {configs.spelled(uri)}"
    if not uri or (recorded is not None and key not in recorded):
        return []
    found = fingerprint_of(uri) or (recorded or {}).get(key)
    return [] if found is None else [Input(name="weights", uri=uri, fingerprint=found)]
