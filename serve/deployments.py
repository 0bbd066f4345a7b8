"""The service as deployments of Ray Serve: all in one, or HTTP, encoder and index apart.

fused   Service: everything in each replica.
split   Gateway (HTTP; images become pixels and texts tokens) -> Encoder -> Search.

What travels is small: uint8 pixels (150 kB an image), tokens, vectors, hits; never files.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
import ray
import torch
from fastapi import FastAPI
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError, TaskCancelledError, WorkerCrashedError
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from biovl.errors import BiovlError, ConfigError
from biovl.retrieval.query import Query, Results
from serve.api import http_api
from serve.coordinator import RayCoordinator
from serve.embedding import Embedder, TextVectors
from serve.engine import Embedded, Engine, ImageFile, Size, no_index, stale
from serve.local import LocalEngine, about_index, about_model, encoder_of, index_of
from serve.metrics import Metrics, leave_always
from serve.preparing import Preparer
from serve.problems import Problem, problem_of
from serve.release import Holder, Release, load_release
from serve.searching import Searcher
from serve.settings import Settings

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Method = Callable[..., Awaitable[Any]]
Handle = DeploymentHandle[Any]

_PORTION_BYTES = 2_000_000
"""Of one call: Serve's gRPC between deployments refuses more than 4 MB."""
_ATTEMPTS = 8
_LOST = (RayActorError, WorkerCrashedError, ObjectLostError, TaskCancelledError)
"""How a call ends whose replica has died. All calls may be repeated: none changes anything."""


def _refusals_travel(method: Method) -> Method:
    """Return problems as values: exceptions arrive wrapped, and differently in each mode."""

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


async def refuse_strangers(settings: Settings) -> None:
    """See to it that a service without keys is reached from its own machine only.

    With HAProxy each replica has a port of its own; it is bound to the same address.

    Raises:
        ConfigError: If Serve listens to more.
    """
    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    check_bound(settings, (await controller.get_http_config.remote()).host or "0.0.0.0")


def check_bound(settings: Settings, host: str) -> None:
    """Raise ConfigError if a service without keys is bound to more than the loopback interface."""
    if settings.auth.keys_file is None and not _is_loopback(host):
        raise ConfigError(
            f"Serve listens on {host} and auth.keys_file is not set: whoever reaches this machine "
            "could ask. Make keys with `python -m serve.auth new` and name their file, or bind "
            "Serve to 127.0.0.1 (http_options.host of serve deploy, --http-host of serve start)"
        )


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address to which a server is bound."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Replica:
    """What all replicas have: a name, a coordinator, and numbers that are left with it."""

    def __init__(self, settings: Settings, token: str) -> None:
        context = serve.get_replica_context()
        self.settings = settings
        self.name = f"{context.deployment}-{context.replica_id.unique_id}"
        self.coordinator = RayCoordinator(
            f"{context.app_name}-{settings.name}-{token}", poll_s=settings.poll_s
        )
        self.metrics = Metrics(self.name)
        self._leaving: asyncio.Task[None] | None = None

    def batched(self, kind: str, size: int, waited_s: float) -> None:
        self.metrics.batch(kind, size)
        self.metrics.waited(kind, waited_s)

    def holder(self, load: Callable[..., Release]) -> Holder:
        return Holder(
            load, coordinator=self.coordinator, replica=self.name, poll_s=self.settings.poll_s
        )

    def leave_numbers(self) -> None:
        """Leave them with the coordinator from now on; the HTTP layer does so by itself."""
        self._leaving = asyncio.create_task(leave_always(self.metrics, self.coordinator))


class _Ingress:
    """HTTP before an engine."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str, *handles: Any
    ) -> None:
        own = Settings.model_validate(settings)
        await refuse_strangers(own)
        self._replica = _Replica(own, token)
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
            on_stop=self._engine.close,
        )

    async def check_health(self) -> None:
        await self._engine.check()


@serve.ingress()
class Service(_Ingress):
    """The whole service in one process."""

    def _made(self) -> LocalEngine:
        return LocalEngine(
            self._replica.settings,
            coordinator=self._replica.coordinator,
            replica=self._replica.name,
            observe=self._replica.batched,
        )


@serve.ingress()
class Gateway(_Ingress):
    """HTTP, and what comes before the towers."""

    def _made(self, encoder: Handle, search: Handle | None) -> "ServeEngine":
        return ServeEngine(self._replica, encoder, search)


class EncoderDeployment:
    """The towers of a model."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str
    ) -> None:
        own = Settings.model_validate(settings)
        self._replica = _Replica(own, token)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._holder = self._replica.holder(partial(load_release, index=False, device=device))
        self._embed = Embedder(own.batch, self._replica.batched)
        await self._holder.start(own.model, own.index)
        self._replica.leave_numbers()

    @_refusals_travel
    async def embed_images(self, pixels: Sequence[np.ndarray], version: str) -> Any:
        """Return vectors by a version of the model, and its logit scale."""
        encoder = encoder_of(self._of(version))
        return await self._embed.images(encoder, pixels), encoder.logit_scale

    @_refusals_travel
    async def embed_tokens(self, tokens: Sequence[np.ndarray], version: str) -> Any:
        """Return vectors by a version of the model, and its logit scale."""
        encoder = encoder_of(self._of(version))
        return await self._embed.texts(encoder, tokens), encoder.logit_scale

    @_refusals_travel
    async def about(self, version: str) -> Any:
        """Return what is told of a version of the model, and why it cannot be asked."""
        return about_model(self._of(version)), await self._holder.reasons()

    async def check_health(self) -> None:
        await self._holder.check()

    async def __del__(self) -> None:
        await self._holder.close()
        await self._embed.close()

    def _of(self, version: str) -> Release:
        release = self._holder.of_model(version)
        if release is None:
            raise stale(version)
        return release


class SearchDeployment:
    """An index, its table and its thumbnails."""

    async def __init__(  # type: ignore[misc]
        self, settings: Mapping[str, Any], token: str
    ) -> None:
        own = Settings.model_validate(settings)
        self._replica = _Replica(own, token)
        self._holder = self._replica.holder(
            partial(load_release, encoder=False, cache_folder=own.cache_folder)
        )
        self._searcher = Searcher()
        await self._holder.start(own.model, own.index)

    @_refusals_travel
    async def search(self, query: Query, version: str) -> Any:
        """Return what is found by vectors of a version of the model."""
        return await self._searcher.search(index_of(self._of(version)), query)

    @_refusals_travel
    async def figures(self, figure_ids: Sequence[str]) -> Any:
        """Return what is known of figures."""
        return await self._searcher.figures(index_of(self._holder.current), figure_ids)

    @_refusals_travel
    async def image(self, figure_id: str, size: Size) -> Any:
        """Return a figure's image."""
        return await self._searcher.image(index_of(self._holder.current), figure_id, size)

    @_refusals_travel
    async def facets(self) -> Any:
        """Return the values of each field of ``Filter``."""
        return await self._searcher.facets(index_of(self._holder.current))

    @_refusals_travel
    async def about(self, version: str) -> Any:
        """Return what is told of the index of a version of the model, and why it is not asked."""
        return about_index(self._of(version).index), await self._holder.reasons()

    async def check_health(self) -> None:
        await self._holder.check()

    async def __del__(self) -> None:
        await self._holder.close()
        self._searcher.close()

    def _of(self, version: str) -> Release:
        release = self._holder.of_model(version)
        if release is None:
            raise stale(version)
        return release


class ServeEngine:
    """Implements ``serve.engine.Engine`` over handles.

    The version of the model that this replica prepares for is asked for by name all the way, so
    that an answer never mixes two; others have it loaded before anybody asks.
    """

    def __init__(self, replica: _Replica, encoder: Handle, search: Handle | None) -> None:
        self._settings = replica.settings
        self._encoder, self._searches = encoder, search
        self._holder = replica.holder(partial(load_release, encoder=False, index=False))
        self._prepare = Preparer(replica.settings.limits)
        self._texts = TextVectors()
        self._logit_scale: dict[str, float] = {}

    async def start(self) -> None:
        """Load how inputs are prepared."""
        await self._holder.start(self._settings.model, self._settings.index)

    async def close(self) -> None:
        """End all threads."""
        await self._holder.close()
        self._prepare.close()

    async def check(self) -> None:
        """Raise where this replica cannot answer; those behind it are checked on their own."""
        await self._holder.check()

    async def prepare(self, images: Sequence[bytes]) -> list[np.ndarray]:
        """Decode and crop images as the model wants them: uint8, shape [H, W, 3] each."""
        return await self._prepare(images, self._holder.current.preparation)

    async def embed_images(self, pixels: Sequence[np.ndarray]) -> Embedded:
        """Return vectors of prepared images."""
        release = self._holder.current
        side = release.preparation.image_size
        if any(one.shape[:2] != (side, side) for one in pixels):
            # They were prepared for the model before this.
            raise stale("of another image size")
        version = release.wanted.model_version
        at_once = max(1, _PORTION_BYTES // (3 * side * side))
        rows_ND = await self._embedded(self._encoder.embed_images, pixels, version, at_once)
        return Embedded(
            rows_ND=rows_ND, model_version=version, logit_scale=self._logit_scale[version]
        )

    async def embed_texts(self, texts: Sequence[str]) -> Embedded:
        """Return vectors of texts, cut to the context of the model."""
        release = self._holder.current
        version = release.wanted.model_version
        at_once = max(1, _PORTION_BYTES // (4 * release.preparation.tokenizer.context_length))

        async def embed(tokens: Sequence[np.ndarray]) -> np.ndarray:
            return await self._embedded(self._encoder.embed_tokens, tokens, version, at_once)

        if version not in self._logit_scale:
            about, _ = await _asked(self._encoder.about, version)
            self._logit_scale[about["version"]] = about["logit_scale"]
        return await self._texts.embedded(
            release, texts, embed, logit_scale=self._logit_scale.get(version, 0.0)
        )

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        """Return what is found by vectors of this version of the model."""
        # A figure or a vector alone is searched for with the model that this replica serves, too.
        version = model_version or self._holder.current.wanted.model_version
        results: Results = await _asked(self._search.search, query, version)
        return results

    async def figures(self, figure_ids: Sequence[str]) -> list[Mapping[str, Any] | None]:
        """Return what is known of figures, in their order; None where there is no such figure."""
        return list(await _asked(self._search.figures, figure_ids))

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image."""
        file: ImageFile = await _asked(self._search.image, figure_id, size)
        return file

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        """Return for each field of ``Filter`` its most frequent values and their figures."""
        facets: Mapping[str, Mapping[str, int]] = await _asked(self._search.facets)
        return facets

    async def about(self) -> Mapping[str, Any]:
        """Return what is served."""
        version = self._holder.current.wanted.model_version
        model, reasons = await _asked(self._encoder.about, version)
        index = None
        if self._searches is not None:
            index, more = await _asked(self._search.about, version)
            reasons = [*reasons, *more]
        return {"model": model, "index": index, "ready": not reasons, "reasons": reasons}

    async def reload(
        self, *, model: str | None = None, index: str | None = None
    ) -> Mapping[str, Any]:
        """Serve what is published now, or other folders, without failing a request."""
        await self._holder.reload(model, index)
        return await self.about()

    @property
    def _search(self) -> Handle:
        if self._searches is None:
            raise no_index()
        return self._searches

    async def _embedded(
        self, method: Any, inputs: Sequence[np.ndarray], version: str, at_once: int
    ) -> np.ndarray:
        portions = [inputs[first : first + at_once] for first in range(0, len(inputs), at_once)]
        answers = await asyncio.gather(*(_asked(method, some, version) for some in portions))
        self._logit_scale[version] = answers[0][1]
        return np.concatenate([rows_ND for rows_ND, _ in answers])


async def _asked(method: Any, *arguments: Any) -> Any:
    """Return what a replica answers; where it has died meanwhile, what another does.

    Raises:
        Problem: That of the answer; 503 where all replicas are busy or gone.
    """
    for attempt in range(_ATTEMPTS):
        try:
            answer = await method.remote(*arguments)
        except BackPressureError:
            break
        except _LOST as error:
            current = asyncio.current_task()
            if isinstance(error, TaskCancelledError) and current and current.cancelling():
                raise
        else:
            # A replica that has just begun may not have the model before this; others have.
            is_stale = isinstance(answer, Problem) and answer.slug == "stale-model"
            if not is_stale or attempt >= 2:
                if isinstance(answer, Problem):
                    raise answer
                return answer
        await asyncio.sleep(min(1.0, 0.05 * 2**attempt))
    raise Problem(
        503, "overloaded", "no replica could take this; ask again", headers={"Retry-After": "1"}
    )
