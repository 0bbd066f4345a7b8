"""Texts to token ids of any length: the same ids as stock open_clip, without its padding.

There are two kinds: CLIP's BPE, which open_clip ships, and the fast tokenizers of transformers.
Both can be pickled for workers, including the vocabulary.
"""

import copy
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from open_clip.tokenizer import SimpleTokenizer, get_clean_fn

from biovl.core.errors import ArtifactError, ConfigError

CLIP_CONTEXT = 77
_MOST_WORDS_KEPT = 200_000
"""Maximum cache size. The reference never evicts words, and captions have millions of distinct
ones."""


class Tokenizer(Protocol):
    """A tokenizer with a vocabulary and a context length."""

    context_length: int
    """Maximum tokens per text, including start and end."""
    vocab_size: int
    """Vocabulary size: one more than the largest id."""
    pad_id: int
    """Padding id of open_clip; never in the result of ``encode``."""
    is_clip: bool
    """Whether it is CLIP's BPE, for which open_clip needs no files."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text, int32, with start and end tokens.

        Longer texts are truncated to the context length.
        """
        ...

    def truncates(self, text: str) -> bool:
        """Return whether ``encode`` truncates a text."""
        ...

    def save(self, folder: Path) -> None:
        """Write the files from which ``open_clip.get_tokenizer("local-dir:…")`` loads it."""
        ...


def make(source: str, context_length: int) -> Tokenizer:
    """Return a tokenizer by its name or folder.

    Args:
        source: A Hugging Face name or a local folder; empty for CLIP's BPE. A folder with only
            ``vocab.txt`` and ``config.json`` suffices.
        context_length: Maximum tokens per text, at least 3.

    Raises:
        ArtifactError: If there is no tokenizer, or it has no vocabulary.
        ConfigError: If it is not a fast tokenizer of transformers, or the context length is below
            3.
    """
    if context_length < 3:
        raise ConfigError(f"context_length must be at least 3, got {context_length}")
    return HubTokenizer(source, context_length) if source else ClipTokenizer(context_length)


@functools.cache
def _clip_reference() -> SimpleTokenizer:
    """Return open_clip's tokenizer, to be copied: its tables are shared, its cache of words is not.

    Reading the tables takes a third of a second.
    """
    return SimpleTokenizer()


class ClipTokenizer:
    """CLIP's BPE: lower case, repaired by ftfy. Source: openai/CLIP, ``simple_tokenizer.py``."""

    pad_id = 0
    is_clip = True

    def __init__(self, context_length: int = CLIP_CONTEXT) -> None:
        self.context_length = context_length
        # Measured: 5,400 captions of 230 tokens per second and core with a warm cache, thirty times
        # the rate of decoding their images; so the reference itself is used.
        self._reference = copy.copy(_clip_reference())
        self._specials = dict(self._reference.cache)
        self._reference.cache = dict(self._specials)
        self.vocab_size: int = self._reference.vocab_size

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text with start and end, truncated to the context; int32."""
        if len(self._reference.cache) > _MOST_WORDS_KEPT:
            self._reference.cache = dict(self._specials)
        start, end = self._reference.sot_token_id, self._reference.eot_token_id
        room = self.context_length - 2
        return [
            np.array([start, *self._reference.encode(text)[:room], end], np.int32) for text in texts
        ]

    def truncates(self, text: str) -> bool:
        """Return whether ``encode`` truncates a text."""
        return len(self._reference.encode(text)) > self.context_length - 2

    def save(self, folder: Path) -> None:
        """Write nothing: the vocabulary is part of open_clip."""


class HubTokenizer:
    """A fast tokenizer of transformers, applied to texts cleaned as in open_clip."""

    is_clip = False

    def __init__(self, source: str, context_length: int) -> None:
        # A heavy import that models with CLIP's BPE do not need.
        from transformers import AutoTokenizer

        try:
            # Code in a tokenizer's repository is never executed.
            self._whole: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ArtifactError(
                f"{source} holds no tokenizer that can be loaded ({error}); give a folder with "
                "tokenizer.json, or vocab.txt and config.json, or a name on the hub"
            ) from error
        if not self._whole.is_fast:
            raise ConfigError(f"{source} has no fast tokenizer; convert it to tokenizer.json first")
        vocabulary = self._whole.get_vocab()
        # transformers silently creates a tokenizer from a folder without a vocabulary, which maps
        # every word to the unknown token.
        if len(vocabulary) <= len(self._whole.all_special_ids):
            raise ArtifactError(f"{source} holds a tokenizer without a vocabulary")
        if self._whole.pad_token_id is None:
            raise ConfigError(f"{source} has no padding token, which open_clip needs")
        self.context_length = context_length
        self.vocab_size: int = max(vocabulary.values()) + 1
        self.pad_id: int = self._whole.pad_token_id
        self._clean = get_clean_fn("whitespace")
        self._use_own_settings()
        self._ends_with_pad = self.pad_id in self._fast.encode("").ids

    def _use_own_settings(self) -> None:
        # Set once: transformers sets truncation and padding at every call, which is not thread-safe
        # ("Already borrowed").
        self._fast = self._whole.backend_tokenizer
        self._fast.no_padding()
        self._fast.enable_truncation(self.context_length, direction=self._whole.truncation_side)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text with start and end, truncated to the context; int32."""
        cleaned = [self._clean(text) for text in texts]
        encoded = [np.array(found.ids, np.int32) for found in self._fast.encode_batch(cleaned)]
        if self._ends_with_pad:
            return encoded
        # Of a text that spells it, "[PAD]": towers do not read it, padded or not.
        return [ids[ids != self.pad_id] for ids in encoded]

    def truncates(self, text: str) -> bool:
        """Return whether ``encode`` truncates a text."""
        return bool(self._fast.encode(self._clean(text)).overflowing)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and its configuration."""
        # Saved without this project's truncation and padding, which would be stored in the file.
        self._fast.no_truncation()
        self._whole.save_pretrained(os.fspath(folder))
        self._use_own_settings()
