"""Pixels and tokens to vectors, together with those of other requests."""

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
"""Told of every batch: images or texts, its size, the seconds that its first input waited."""


_VECTORS_KEPT = 10_000
"""20 MB at 512 dimensions. Classes and templates come again; what they cost is an encoder."""

_TEXTS_INLINE = 4
"""Tokens of so few texts take less time than another thread would."""


class Embedder:
    """Two queues before the towers of a model, and of the next while models are swapped."""

    def __init__(self, batch: BatchSettings, observe: Observe | None = None) -> None:
        def told(kind: str) -> Callable[[int, float], None] | None:
            return None if observe is None else lambda size, waited: observe(kind, size, waited)

        self._images: Batcher[tuple[Encoder, np.ndarray], np.ndarray] = Batcher(
            _embed_images,
            name="images",
            batch_max=batch.images_max,
            queue_max=batch.queue_max,
            wait_ms=batch.wait_ms,
            observe=told("images"),
        )
        self._texts: Batcher[tuple[Encoder, np.ndarray], np.ndarray] = Batcher(
            _embed_texts,
            name="texts",
            batch_max=batch.texts_max,
            queue_max=batch.queue_max,
            wait_ms=batch.wait_ms,
            length=lambda item: len(item[1]),
            observe=told("texts"),
        )

    async def images(self, encoder: Encoder, pixels: Sequence[np.ndarray]) -> np.ndarray:
        """Return unit vectors of prepared images, float32, shape [N, D]."""
        rows = await self._images([(encoder, one) for one in pixels])
        return np.stack(rows) if rows else np.empty((0, encoder.dim), np.float32)

    async def texts(self, encoder: Encoder, tokens: Sequence[np.ndarray]) -> np.ndarray:
        """Return unit vectors of texts as tokens, float32, shape [N, D]."""
        rows = await self._texts([(encoder, one) for one in tokens])
        return np.stack(rows) if rows else np.empty((0, encoder.dim), np.float32)

    async def close(self) -> None:
        """Refuse what waits, and end the threads."""
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
    """Return a vector for each item. There are two encoders only while models are swapped."""
    rows: dict[int, np.ndarray] = {}
    for encoder in {id(encoder): encoder for encoder, _ in items}.values():
        own = [number for number, (of, _) in enumerate(items) if of is encoder]
        vectors = embed(encoder, [items[number][1] for number in own])
        rows |= dict(zip(own, vectors, strict=True))
    return [rows[number] for number in range(len(items))]


class TextVectors:
    """The texts embedded last, of each model: their vectors, tokens read, and whether cut."""

    def __init__(self, size: int = _VECTORS_KEPT) -> None:
        self._size = size
        self._kept: OrderedDict[tuple[str, str], tuple[np.ndarray, int, bool]] = OrderedDict()

    async def embedded(
        self,
        release: Release,
        texts: Sequence[str],
        embed: Callable[[Sequence[np.ndarray]], Awaitable[np.ndarray]],
        *,
        logit_scale: float,
    ) -> EmbeddedVectors:
        """Return vectors of texts; those that are not kept are embedded, each once.

        Args:
            release: By which model.
            texts: Cut to its context.
            embed: Tokens of texts to vectors, float32, shape [N, D].
            logit_scale: Of the model.
        """
        version = release.wanted.model_version
        known = {}
        for text in texts:
            if (version, text) in self._kept:
                self._kept.move_to_end((version, text))
                known[text] = self._kept[version, text]
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            inline = len(new) <= _TEXTS_INLINE
            read = _read(release, new) if inline else await asyncio.to_thread(_read, release, new)
            rows_ND = await embed([ids for ids, _ in read])
            for text, row_D, (ids, is_cut) in zip(new, rows_ND, read, strict=True):
                # A copy: a row of a large batch would keep all of it.
                known[text] = self._kept[version, text] = row_D.copy(), len(ids), is_cut
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return EmbeddedVectors(
            rows_ND=np.stack([known[text][0] for text in texts]),
            model_version=version,
            logit_scale=logit_scale,
            tokens=[known[text][1] for text in texts],
            truncated=[known[text][2] for text in texts],
        )


def _read(release: Release, texts: Sequence[str]) -> list[tuple[np.ndarray, bool]]:
    """Return the tokens of each text, and whether there were more than the model reads."""
    preparation = release.preparation
    context = preparation.tokenizer.context_length
    return [
        # Only a text that fills the context can have been cut.
        (ids, len(ids) >= context and preparation.truncated(text))
        for text, ids in zip(texts, preparation.encode(texts), strict=True)
    ]
