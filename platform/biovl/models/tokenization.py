"""Texts to token ids, ragged: the very ids that stock open_clip makes, without its padding.

There are two kinds: CLIP's BPE, which open_clip ships, and the fast tokenizers of transformers.
Both travel to workers by pickle, vocabulary included.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from open_clip.tokenizer import SimpleTokenizer, get_clean_fn

from biovl.core.errors import ArtifactError, ConfigError

CLIP_CONTEXT = 77
_MOST_WORDS_KEPT = 200_000
"""The reference keeps every word it ever met; captions have millions of numbers and names."""


class Tokenizer(Protocol):
    """Texts to ids of one vocabulary, cut to one length."""

    context_length: int
    """The most tokens of a text, start and end included."""
    vocab_size: int
    """One more than the largest id."""
    pad_id: int
    """What open_clip fills short texts with; never in what ``encode`` returns."""
    is_clip: bool
    """Whether it is CLIP's BPE, which open_clip needs no files for."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, int32, with start and end tokens, cut to the context."""
        ...

    def truncates(self, text: str) -> bool:
        """Return whether a text is longer than the context, so that ``encode`` cuts it."""
        ...

    def save(self, folder: Path) -> None:
        """Write the files from which ``open_clip.get_tokenizer("local-dir:…")`` makes it again."""
        ...


def make(source: str, context_length: int) -> Tokenizer:
    """Return a tokenizer.

    Args:
        source: A name on the Hugging Face hub or a local folder; empty for CLIP's BPE. A folder
            with nothing but ``vocab.txt`` and ``config.json`` will do.
        context_length: The most tokens of a text, at least 3.

    Raises:
        ArtifactError: If there is no tokenizer, or one without a vocabulary.
        ConfigError: If it is not a fast one, or the context has no room for a word.
    """
    if context_length < 3:
        raise ConfigError(f"context_length must be at least 3, got {context_length}")
    return HubTokenizer(source, context_length) if source else ClipTokenizer(context_length)


class ClipTokenizer:
    """CLIP's BPE: lower case, repaired by ftfy. Source: openai/CLIP, ``simple_tokenizer.py``."""

    pad_id = 0
    is_clip = True

    def __init__(self, context_length: int = CLIP_CONTEXT) -> None:
        self.context_length = context_length
        # Measured: 5,400 captions of 230 tokens a second and core once words repeat, which is
        # thirty times what decoding their images allows; so the reference itself is used.
        self._reference = SimpleTokenizer(context_length=context_length)
        self._specials = dict(self._reference.cache)
        self.vocab_size: int = self._reference.vocab_size

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, int32, with start and end tokens, cut to the context."""
        if len(self._reference.cache) > _MOST_WORDS_KEPT:
            self._reference.cache = dict(self._specials)
        start, end = self._reference.sot_token_id, self._reference.eot_token_id
        room = self.context_length - 2
        return [
            np.array([start, *self._reference.encode(text)[:room], end], np.int32) for text in texts
        ]

    def truncates(self, text: str) -> bool:
        """Return whether a text is longer than the context, so that ``encode`` cuts it."""
        return len(self._reference.encode(text)) > self.context_length - 2

    def save(self, folder: Path) -> None:
        """Write nothing: open_clip has this vocabulary."""


class HubTokenizer:
    """A fast tokenizer of transformers, given the texts as open_clip cleans them."""

    is_clip = False

    def __init__(self, source: str, context_length: int) -> None:
        # Heavy, and models with CLIP's BPE do without.
        from transformers import AutoTokenizer

        try:
            # Whatever code a tokenizer's repository holds is not run.
            self._whole: Any = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ArtifactError(
                f"{source} holds no tokenizer that can be loaded ({error}); give a folder with "
                "tokenizer.json, or vocab.txt and config.json, or a name on the hub"
            ) from error
        if not self._whole.is_fast:
            raise ConfigError(f"{source} has no fast tokenizer; convert it to tokenizer.json first")
        vocabulary = self._whole.get_vocab()
        # transformers makes a tokenizer also of a folder without a vocabulary, in silence: then
        # every word is unknown.
        if len(vocabulary) <= len(self._whole.all_special_ids):
            raise ArtifactError(f"{source} holds a tokenizer without a vocabulary")
        if self._whole.pad_token_id is None:
            raise ConfigError(f"{source} has no padding token, which open_clip needs")
        self.context_length = context_length
        self.vocab_size: int = max(vocabulary.values()) + 1
        self.pad_id: int = self._whole.pad_token_id
        self._clean = get_clean_fn("whitespace")
        self._use_own_settings()

    def _use_own_settings(self) -> None:
        # Set once and for all: transformers sets them at every call, which two threads cannot do
        # at a time ("Already borrowed").
        self._fast = self._whole.backend_tokenizer
        self._fast.no_padding()
        self._fast.enable_truncation(self.context_length)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, int32, with start and end tokens, cut to the context."""
        cleaned = [self._clean(text) for text in texts]
        return [np.array(found.ids, np.int32) for found in self._fast.encode_batch(cleaned)]

    def truncates(self, text: str) -> bool:
        """Return whether a text is longer than the context, so that ``encode`` cuts it."""
        return bool(self._fast.encode(self._clean(text)).overflowing)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and its settings."""
        # Saved without this project's settings: they would become those of the file.
        self._fast.no_truncation()
        self._whole.save_pretrained(os.fspath(folder))
        self._use_own_settings()
