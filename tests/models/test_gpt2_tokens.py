"""GPT-2's tokens, without its files from the hub."""

import gzip
import hashlib
from importlib.resources import files

import pytest

from biovl.models.gpt2_tokens import gpt2_tokens


def test_the_merges_are_those_that_were_published() -> None:
    packed = files("biovl.models").joinpath("gpt2_merges.txt.gz").read_bytes()
    # The checksum that tiktoken has for GPT-2's vocab.bpe.
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == (
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
    )


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello world", ["Hello", "Ġworld"]),
        ("left lower lobe pneumonia", ["left", "Ġlower", "Ġlobe", "Ġpneumonia"]),
        ("lung", ["l", "ung"]),
        (" lung", ["Ġlung"]),
        ("x-ray", ["x", "-", "ray"]),
        ("", []),
    ],
)
def test_tokens_are_gpt2s(text: str, tokens: list[str]) -> None:
    assert gpt2_tokens(text) == tokens
