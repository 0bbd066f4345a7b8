"""Engine in a single process: the model, its index, and their threads."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import torch

from biovl.index.query import Query, Results
from biovl.index.search import Index
from biovl.models.encoder import Encoder
from serve.http.coordinator import Coordinator, LocalCoordinator
from serve.search.embedding import Embedder, Observe, TextVectors
from serve.search.engine import (
    EmbeddedVectors,
    FigureMetadata,
    ImageFile,
    PreparedImages,
    Size,
    no_index,
)
from serve.search.holder import Holder
from serve.search.preprocessing import Preparer
from serve.search.release import Release, load_release
from serve.search.searching import Searcher
from serve.search.settings import Settings


class LocalEngine:
    """Engine in this process; implements ``serve.search.engine.Engine``.

    Call ``start`` in the event loop of the service.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        coordinator: Coordinator | None = None,
        replica: str = "local",
        observe: Observe | None = None,
    ) -> None:
        """Create an engine; nothing is loaded yet.

        Args:
            settings: Settings of the service.
            coordinator: Shared state of the replicas; None for a single replica.
            replica: Name of this replica.
            observe: Called for every batch.
        """
        self._settings = settings
        self._holder = Holder(
            partial(
                load_release,
                device="cuda" if torch.cuda.is_available() else "cpu",
                cache_folder=settings.cache_folder,
                corpus=settings.corpus,
            ),
            coordinator=coordinator or LocalCoordinator(),
            replica=replica,
            poll_s=settings.poll_s,
        )
        self._prepare = Preparer(settings.limits)
        self._embed = Embedder(settings.batch, observe)
        self._searcher = Searcher()
        self._texts = TextVectors()

    async def start(self) -> None:
        """Load the model and its index.

        Raises:
            BiovlError: If they cannot be served.
        """
        await self._holder.start(self._settings.model, self._settings.index)

    async def close(self) -> None:
        """Reject queued items and stop all threads."""
        await self._holder.close()
        await self._embed.close()
        self._prepare.close()
        self._searcher.close()

    async def check(self) -> None:
        """Run a self-test, unless one was run recently.

        Raises:
            BiovlError: If it fails.
        """
        await self._holder.check()

    async def prepare(self, images: Sequence[bytes]) -> PreparedImages:
        """Decode and crop images to the model's input size."""
        release = self._holder.current
        pixels = await self._prepare(images, release.preparation)
        return PreparedImages(pixels=pixels, model_version=release.target.model_version)

    async def embed_images(self, prepared: PreparedImages) -> EmbeddedVectors:
        """Return unit embeddings of preprocessed images."""
        release = self._holder.current
        prepared.check_version(release.target.model_version)
        encoder = encoder_of(release)
        rows_ND = await self._embed.images(encoder, prepared.pixels)
        return EmbeddedVectors(
            rows_ND=rows_ND,
            model_version=release.target.model_version,
            logit_scale=encoder.logit_scale,
        )

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        """Return unit embeddings of texts, truncated to the model's context length."""
        release = self._holder.current
        encoder = encoder_of(release)
        return await self._texts.embedded(
            release, texts, partial(self._embed.texts, encoder), logit_scale=encoder.logit_scale
        )

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        """Return search results for query vectors of the given model version.

        Raises:
            Problem: 409 if that version is no longer served; see also ``Searcher.search``.
        """
        release = self._holder.of_model(model_version) if model_version else self._holder.current
        return await self._searcher.search(index_of(release), query)

    async def figures(self, figure_ids: Sequence[str]) -> FigureMetadata:
        """Return the metadata of figures of the index, in order."""
        return await self._searcher.metadata(index_of(self._holder.current), figure_ids)

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image, or its thumbnail if the full image is unavailable."""
        return await self._searcher.image(index_of(self._holder.current), figure_id, size)

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        return await self._searcher.facets(index_of(self._holder.current))

    async def about(self) -> Mapping[str, Any]:
        """Return the description of the served model and index."""
        release = self._holder.current
        reasons = await self._holder.reasons()
        return {
            "model": about_model(release),
            "index": about_index(release.index),
            "ready": not reasons,
            "reasons": reasons,
            "warnings": [
                *self._holder.warnings(),
                *await self._searcher.warnings(release.index),
            ],
        }

    async def reload(
        self, *, model: str | None = None, index: str | None = None
    ) -> Mapping[str, Any]:
        """Reload model and index, or load other folders, without downtime; return ``about()``."""
        await self._holder.reload(model, index)
        return await self.about()


def about_model(release: Release) -> dict[str, Any]:
    """Return the public description of a model."""
    uri, preparation = release.target.model, release.preparation
    about = {
        "name": PurePosixPath(uri.rstrip("/")).name,
        "version": release.target.model_version,
        "fingerprint": release.target.model_fingerprint,
        "image_size": preparation.image_size,
        "context_length": preparation.tokenizer.context_length,
        "licenses": release.model_notes.get("licenses"),
    }
    if release.encoder is not None:
        about |= {"dim": release.encoder.dim, "logit_scale": release.encoder.logit_scale}
    return about


def about_index(index: Index | None) -> dict[str, Any] | None:
    """Return the public description of an index, from its manifest; None without an index."""
    if index is None:
        return None
    return {
        **index.manifest.notes,
        "version": index.version,
        "figures": index.manifest.notes["rows"],
    }


def encoder_of(release: Release) -> Encoder:
    """Return the encoder of a release; it must have been loaded with one."""
    if release.encoder is None:
        raise TypeError("a release of this process has no encoder")
    return release.encoder


def index_of(release: Release) -> Index:
    """Return the index of a release.

    Raises:
        Problem: 503 if the release has no index.
    """
    if release.index is None:
        raise no_index()
    return release.index
