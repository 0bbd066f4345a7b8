"""Embed pixels and tokens, batched over concurrent requests."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import numpy as np

from biovl.models.encoder import Encoder
from serve.search.batcher import Batcher
from serve.search.engine import EmbeddedVectors
from serve.search.release import Release
from serve.search.settings import BatchSettings

Input = TypeVar("Input")

Observe = Callable[[str, int, float], None]
"""Called for every batch: images or texts, batch size, queue time of its first input in seconds."""


_VECTORS_KEPT = 10_000
"""Size of the cache: 20 MB at 512 dimensions. Classes and templates are sent repeatedly."""

_TEXTS_INLINE = 4
"""Up to so many texts are tokenized in the event loop: switching threads would take longer."""


class Embedder:
    """Embeds images and texts in batches over concurrent requests.

    During a reload both the previous and the next model are served.
    """

    def __init__(self, batch: BatchSettings, observe: Observe | None = None) -> None:
        def observer(kind: str) -> Callable[[int, float], None] | None:
            return None if observe is None else lambda size, waited: observe(kind, size, waited)

        self._images: Batcher[tuple[Encoder, np.ndarray], np.ndarray] = Batcher(
            _embed_images,
            name="images",
            batch_max=batch.images_max,
            queue_max=batch.queue_max,
            wait_ms=batch.wait_ms,
            observe=observer("images"),
        )
        self._texts: Batcher[tuple[Encoder, np.ndarray], np.ndarray] = Batcher(
            _embed_texts,
            name="texts",
            batch_max=batch.texts_max,
            queue_max=batch.queue_max,
            wait_ms=batch.wait_ms,
            length=lambda item: len(item[1]),
            observe=observer("texts"),
        )

    async def images(self, encoder: Encoder, pixels: Sequence[np.ndarray]) -> np.ndarray:
        """Return embeddings of preprocessed images: unit vectors, float32, shape [N, D]."""
        rows = await self._images([(encoder, one) for one in pixels])
        return np.stack(rows) if rows else np.empty((0, encoder.dim), np.float32)

    async def texts(self, encoder: Encoder, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """Return embeddings of tokenized texts: unit vectors, float32, shape [N, D]."""
        rows = await self._texts([(encoder, one) for one in tokens])
        return np.stack(rows) if rows else np.empty((0, encoder.dim), np.float32)

    async def close(self) -> None:
        """Reject queued items and stop the threads."""
        await self._images.close()
        await self._texts.close()


def _embed_images(items: Sequence[tuple[Encoder, np.ndarray]]) -> list[np.ndarray]:
    return _by_encoder(items, lambda encoder, pixels: encoder.embed_pixels(np.stack(pixels)))


def _embed_texts(items: Sequence[tuple[Encoder, np.ndarray]]) -> list[np.ndarray]:
    return _by_encoder(items, lambda encoder, tokens: encoder.embed_tokens(tokens))


def _by_encoder(
    items: Sequence[tuple[Encoder, Input]],
    embed: Callable[[Encoder, Sequence[Input]], np.ndarray],
) -> list[np.ndarray]:
    """Embed items grouped by encoder, in order. Two encoders occur only during a reload."""
    rows: dict[int, np.ndarray] = {}
    for encoder in {id(encoder): encoder for encoder, _ in items}.values():
        own = [number for number, (of, _) in enumerate(items) if of is encoder]
        vectors = embed(encoder, [items[number][1] for number in own])
        rows |= dict(zip(own, vectors, strict=True))
    return [rows[number] for number in range(len(items))]


class TextVectors:
    """LRU cache of text embeddings, with the number of tokens of each text."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[np.ndarray, int, bool]] = OrderedDict()

    async def embedded(
        self,
        release: Release,
        texts: Sequence[str],
        embed: Callable[[Sequence[np.ndarray]], Awaitable[np.ndarray]],
        *,
        logit_scale: float,
    ) -> EmbeddedVectors:
        """Return embeddings of texts, computing only those that are not cached, each once.

        Args:
            release: The model.
            texts: Texts of any length; they are truncated to the context length.
            embed: Function from tokens to vectors, float32, shape [N, D].
            logit_scale: Logit scale of the model.
        """
        version = release.target.model_version
        rows = {}
        for text in texts:
            if (version, text) in self._kept:
                self._kept.move_to_end((version, text))
                rows[text] = self._kept[version, text]
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new:
            inline = len(new) <= _TEXTS_INLINE
            read = _read(release, new) if inline else await asyncio.to_thread(_read, release, new)
            rows_ND = await embed([ids for ids, _ in read])
            for text, row_D, (ids, is_cut) in zip(new, rows_ND, read, strict=True):
                # A copy: a view would keep the whole batch in memory.
                rows[text] = self._kept[version, text] = row_D.copy(), len(ids), is_cut
            while len(self._kept) > _VECTORS_KEPT:
                self._kept.popitem(last=False)
        return EmbeddedVectors(
            rows_ND=np.stack([rows[text][0] for text in texts]),
            model_version=version,
            logit_scale=logit_scale,
            tokens=[rows[text][1] for text in texts],
            truncated=[rows[text][2] for text in texts],
        )


def _read(release: Release, texts: Sequence[str]) -> list[tuple[np.ndarray, bool]]:
    """Return the tokens of each text, and whether the text was truncated."""
    preparation = release.preparation
    context = preparation.tokenizer.context_length
    return [
        # Only a text that fills the context can have been truncated.
        (ids, len(ids) >= context and preparation.truncated(text))
        for text, ids in zip(texts, preparation.encode(texts), strict=True)
    ]
