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
from serve.search.engine import (
    EmbeddedVectors,
    FigureMetadata,
    ImageFile,
    PreparedImages,
    Size,
    no_index,
)
from serve.search.preprocessing import Preparer
from serve.search.release import load_release
from serve.search.replica import Replica

Handle = DeploymentHandle[Any]

_PORTION_BYTES = 2_000_000
"""Maximum payload of a call: Serve's gRPC between deployments rejects more than 4 MB."""
_ATTEMPTS = 8
_LOST = (RayActorError, WorkerCrashedError, ObjectLostError, TaskCancelledError)
"""Errors of a call whose replica has died. All calls are idempotent, so they are retried."""


class ServeEngine:
    """Engine over deployment handles; implements ``serve.search.engine.Engine``.

    Every call names the model version that this replica preprocesses for, so that a response never
    mixes two versions; the other replicas have loaded it before any request uses it.
    """

    def __init__(self, replica: Replica, encoder: Handle, search: Handle | None) -> None:
        self._settings = replica.settings
        self._encoder, self._searches = encoder, search
        self._holder = replica.holder(partial(load_release, encoder=False, index=False))
        self._prepare = Preparer(replica.settings.limits)
        self._texts = TextVectors()
        self._logit_scale: dict[str, float] = {}

    async def start(self) -> None:
        """Load the preprocessing of the model."""
        await self._holder.start(self._settings.model, self._settings.index)

    async def close(self) -> None:
        """Stop all threads of this replica."""
        await self._holder.close()
        self._prepare.close()

    async def check(self) -> None:
        """Check this replica only; encoder and search replicas have their own checks."""
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
        version = release.target.model_version
        at_once = max(1, _PORTION_BYTES // (3 * release.preparation.image_size**2))
        rows_ND = await self._embedded(
            self._encoder.embed_images, prepared.pixels, version, at_once
        )
        return EmbeddedVectors(
            rows_ND=rows_ND, model_version=version, logit_scale=self._logit_scale[version]
        )

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        """Return unit embeddings of texts, truncated to the model's context length."""
        release = self._holder.current
        version = release.target.model_version
        at_once = max(1, _PORTION_BYTES // (4 * release.preparation.tokenizer.context_length))

        async def embed(tokens: Sequence[np.ndarray]) -> np.ndarray:
            return await self._embedded(self._encoder.embed_tokens, tokens, version, at_once)

        if version not in self._logit_scale:
            about, _ = await _call(self._encoder.about, version)
            self._logit_scale[about["version"]] = about["logit_scale"]
        return await self._texts.embedded(
            release, texts, embed, logit_scale=self._logit_scale.get(version, 0.0)
        )

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        """Return search results for query vectors of the given model version."""
        # Queries by figure or vector also use the model version that this replica serves.
        version = model_version or self._holder.current.target.model_version
        results: Results = await _call(self._search.search, query, version)
        return results

    async def figures(self, figure_ids: Sequence[str]) -> FigureMetadata:
        """Return the metadata of figures of the index, in order."""
        version = self._holder.current.target.model_version
        metadata: FigureMetadata = await _call(self._search.figures, figure_ids, version)
        return metadata

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image, or its thumbnail if the full image is unavailable."""
        file: ImageFile = await _call(self._search.image, figure_id, size)
        return file

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        facets: Mapping[str, Mapping[str, int]] = await _call(self._search.facets)
        return facets

    async def about(self) -> Mapping[str, Any]:
        """Return the description of the served model and index."""
        version = self._holder.current.target.model_version
        model, reasons = await _call(self._encoder.about, version)
        index = None
        warnings = self._holder.warnings()
        if self._searches is not None:
            index, more, of_index = await _call(self._search.about, version)
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
        """Reload model and index, or load other folders, without downtime; return ``about()``."""
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
        answers = await asyncio.gather(*(_call(method, some, version) for some in portions))
        self._logit_scale[version] = answers[0][1]
        return np.concatenate([rows_ND for rows_ND, _ in answers])


async def _call(method: Any, *arguments: Any) -> Any:
    """Call a replica and return its result; retry on another one if it dies.

    Raises:
        Problem: The problem that the replica returned; 503 if all replicas are busy or dead.
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
            # A replica that has just started lacks the previous model; others have it.
            is_stale = isinstance(answer, Problem) and answer.slug == "stale-model"
            if not is_stale or attempt >= 2:
                if isinstance(answer, Problem):
                    raise answer
                return answer
        await asyncio.sleep(min(1.0, 0.05 * 2**attempt))
    raise Problem(
        503, "overloaded", "no replica is available; try again", headers={"Retry-After": "1"}
    )
