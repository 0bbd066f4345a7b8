"""Identity of the weights that computed a column."""

from biovl.core.artifacts import Input
from biovl.models.weight_identity import fingerprint_of


def as_input(uri: str) -> list[Input]:
    """Return the identity of a folder of weights; empty for a name on the Hugging Face Hub."""
    found = fingerprint_of(uri) if uri else None
    return [] if found is None else [Input(name="weights", uri=uri, fingerprint=found)]
