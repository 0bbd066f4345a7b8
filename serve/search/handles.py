"""The engine of a replica whose encoder and index are in other replicas."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from ray.exceptions import ObjectLostError, RayActorError, TaskCancelledError, WorkerCrashedError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from biovl.index.query import Query, Results
from serve.http.problems import Problem
from serve.search.embedding import TextVectors
from serve.search.engine import Embedded, ImageFile, Size, no_index, stale
from serve.search.preparing import Preparer
from serve.search.release import load_release
from serve.search.replica import Replica

Handle = DeploymentHandle[Any]

_PORTION_BYTES = 2_000_000
"""Of one call: Serve's gRPC between deployments refuses more than 4 MB."""
_ATTEMPTS = 8
_LOST = (RayActorError, WorkerCrashedError, ObjectLostError, TaskCancelledError)
"""How a call ends whose replica has died. All calls may be repeated: none changes anything."""


class ServeEngine:
    """Implements ``serve.search.engine.Engine`` over handles.

    The version of the model that this replica prepares for is asked for by name all the way, so
    that an answer never mixes two; others have it loaded before anybody asks.
    """

    def __init__(self, replica: Replica, encoder: Handle, search: Handle | None) -> None:
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
        warnings = self._holder.warnings()
        if self._searches is not None:
            index, more, of_index = await _asked(self._search.about, version)
            reasons = [*reasons, *more]
            warnings = [*warnings, *of_index]
        return {
            "model": model,
            "index": index,
            "ready": not reasons,
            "reasons": reasons,
            "warnings": warnings,
        }

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
