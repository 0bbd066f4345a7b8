"""Ray Serve deployments: one for everything, or separate ones for HTTP, encoder and index.

fused   Service: everything in each replica.
split   Gateway (HTTP, preprocessing and tokenization) -> Encoder -> Search.

Only small values are sent between deployments: uint8 pixels (150 kB per image), tokens, vectors and
hits, never image files.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI
from ray import serve

from biovl.core.errors import BiovlError
from biovl.index.query import Query
from serve.http.draining import Draining
from serve.http.loopback import require_loopback
from serve.http.problems import Problem, problem_of
from serve.search.api import http_api
from serve.search.embedding import Embedder
from serve.search.engine import Engine, Size
from serve.search.handles import Handle, ServeEngine
from serve.search.local import LocalEngine, about_index, about_model, encoder_of, index_of
from serve.search.release import load_release
from serve.search.replica import Replica
from serve.search.searching import Searcher
from serve.search.settings import Settings

log = logging.getLogger(__name__)

Method = Callable[..., Awaitable[Any]]


def _refusals_travel(method: Method) -> Method:
    """Return problems as values: Ray wraps exceptions, and differently in each mode."""

    @wraps(method)
    async def answered(*arguments: Any, **named: Any) -> Any:
        try:
            return await method(*arguments, **named)
        except (Problem, BiovlError) as error:
            problem = problem_of(error)
            if problem.status == 500:
                log.error("a request failed", exc_info=error)
            return problem

    return answered


class _Ingress:
    """HTTP ingress of an engine."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str, *handles: Any
    ) -> None:
        own = Settings.model_validate(settings)
        await require_loopback(own.auth)
        self._replica = Replica(own, token)
        self._draining = Draining()
        self._engine = self._made(*handles)
        await self._engine.start()

    def _made(self, *handles: Any) -> "LocalEngine | ServeEngine":
        raise NotImplementedError

    def __serve_build_asgi_app__(self) -> FastAPI:
        engine: Engine = self._engine
        return http_api(
            self._replica.settings,
            engine,
            coordinator=self._replica.coordinator,
            replica=self._replica.name,
            metrics=self._replica.metrics,
            draining=self._draining,
            on_stop=self._engine.close,
        )

    async def check_health(self) -> None:
        await self._engine.check()

    async def drain(self) -> None:
        """Reject new requests from now on; return when those in flight are completed."""
        await self._draining.drain()


@serve.ingress()
class Service(_Ingress):
    """Deployment with the whole service: HTTP, encoder and index."""

    def _made(self) -> LocalEngine:
        return LocalEngine(
            self._replica.settings,
            coordinator=self._replica.coordinator,
            replica=self._replica.name,
            observe=self._replica.batched,
        )


@serve.ingress()
class Gateway(_Ingress):
    """Deployment of the HTTP ingress, with preprocessing of images and texts."""

    def _made(self, encoder: Handle, search: Handle | None) -> "ServeEngine":
        return ServeEngine(self._replica, encoder, search)


class EncoderDeployment:
    """Deployment of the image and text towers of a model."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str
    ) -> None:
        own = Settings.model_validate(settings)
        self._replica = Replica(own, token)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._holder = self._replica.holder(partial(load_release, index=False, device=device))
        self._embed = Embedder(own.batch, self._replica.batched)
        await self._holder.start(own.model, own.index)
        self._replica.start_metrics()

    @_refusals_travel
    async def embed_images(self, pixels: Sequence[np.ndarray], version: str) -> Any:
        """Return the embeddings of preprocessed images by a model version, and its logit scale."""
        encoder = encoder_of(self._holder.of_model(version))
        return await self._embed.images(encoder, pixels), encoder.logit_scale

    @_refusals_travel
    async def embed_tokens(self, tokens: Sequence[np.ndarray], version: str) -> Any:
        """Return the embeddings of tokenized texts by a model version, and its logit scale."""
        encoder = encoder_of(self._holder.of_model(version))
        return await self._embed.texts(encoder, tokens), encoder.logit_scale

    @_refusals_travel
    async def about(self, version: str) -> Any:
        """Return the description of a model version, and reasons why it is not ready."""
        return about_model(self._holder.of_model(version)), await self._holder.reasons()

    async def check_health(self) -> None:
        """Run a self-test; Serve restarts the replica if it fails."""
        await self._holder.check()

    async def __del__(self) -> None:
        await self._holder.close()
        await self._embed.close()


class SearchDeployment:
    """Deployment of an index, with its metadata table and thumbnails."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str
    ) -> None:
        own = Settings.model_validate(settings)
        self._replica = Replica(own, token)
        self._holder = self._replica.holder(
            partial(load_release, encoder=False, cache_folder=own.cache_folder, corpus=own.corpus)
        )
        self._searcher = Searcher()
        await self._holder.start(own.model, own.index)

    @_refusals_travel
    async def search(self, query: Query, version: str) -> Any:
        """Return search results for query vectors of a model version."""
        return await self._searcher.search(index_of(self._holder.of_model(version)), query)

    @_refusals_travel
    async def figures(self, figure_ids: Sequence[str], version: str) -> Any:
        """Return the metadata of figures of the index of a model version, in order."""
        return await self._searcher.metadata(index_of(self._holder.of_model(version)), figure_ids)

    @_refusals_travel
    async def image(self, figure_id: str, size: Size) -> Any:
        """Return the image of a figure, in full size or as a thumbnail."""
        return await self._searcher.image(index_of(self._holder.current), figure_id, size)

    @_refusals_travel
    async def facets(self) -> Any:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        return await self._searcher.facets(index_of(self._holder.current))

    @_refusals_travel
    async def about(self, version: str) -> Any:
        """Return the description of a model version's index, reasons if not ready, and warnings."""
        index = self._holder.of_model(version).index
        warnings = await self._searcher.warnings(index)
        return about_index(index), await self._holder.reasons(), warnings

    async def check_health(self) -> None:
        """Run a self-test; Serve restarts the replica if it fails."""
        await self._holder.check()

    async def __del__(self) -> None:
        await self._holder.close()
        self._searcher.close()
