"""Tokens of GPT-2's byte-level BPE, from the merges that the package contains.

Source:
    Radford et al. 2019, GPT-2: ``gpt2_merges.txt.gz`` is the model's ``vocab.bpe``, compressed; its
    licence is in ``gpt2_merges.LICENSE``.
"""

import functools
import gzip
from importlib.resources import files

from tokenizers import Tokenizer, models, pre_tokenizers


def gpt2_tokens(text: str) -> list[str]:
    """Return the tokens of a text, as GPT-2 reads it: nothing is added, changed or truncated.

    A space belongs to the token after it, so a word has other tokens at the beginning of a text.
    """
    tokens: list[str] = _tokenizer().encode(text, add_special_tokens=False).tokens
    return tokens


@functools.cache
def _tokenizer() -> Tokenizer:
    packed = files(__package__).joinpath("gpt2_merges.txt.gz").read_bytes()
    merges: list[tuple[str, str]] = []
    for line in gzip.decompress(packed).decode().split("\n")[1:-1]:
        left, right = line.split()
        merges.append((left, right))
    # Only tokens are compared: their numbers need not be GPT-2's.
    tokens = [*pre_tokenizers.ByteLevel.alphabet(), *(left + right for left, right in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer
