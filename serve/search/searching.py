"""Search an index off the event loop, with one thread per query."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from biovl.core.errors import BiovlError
from biovl.images.formats import image_format
from biovl.index.query import Query, Results
from biovl.index.search import VERSION_DIGITS, Index
from serve.http.problems import Problem, shortened
from serve.search.engine import FigureMetadata, ImageFile, Size, unknown_figure

Answer = TypeVar("Answer")

log = logging.getLogger(__name__)

_CHECK_S = 60.0
_NO_IMAGES = (
    "full images are unavailable, thumbnails are sent instead (the setting corpus says where the "
    "corpus is)"
)


class Searcher:
    """Thread pool with one thread per core: faiss releases the GIL, and uses one thread per query.

    Measured: 128 queries in one call cost 7 to 10 % less than one by one, so they are not batched.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="search")
        self._checked: Index | None = None
        self._checked_at = 0.0
        self._checking: asyncio.Task[None] | None = None
        self._warnings: list[str] = []

    async def search(self, index: Index, query: Query) -> Results:
        """Return the search results of a query.

        Raises:
            Problem: 404 for a figure that is not in the index, 422 for an unsupported query.
        """
        figure_ids = [part.figure_id for part in query.parts if part.figure_id is not None]
        if figure_ids:
            known = await self.figures(index, figure_ids)
            for figure_id, about in zip(figure_ids, known, strict=True):
                if about is None:
                    raise unknown_figure(figure_id)
        results = await self._run(index.search, query)
        return replace(results, model_version=_model_version(index))

    async def metadata(self, index: Index, figure_ids: Sequence[str]) -> FigureMetadata:
        """Return the metadata of figures with the versions of their index and its model."""
        return FigureMetadata(
            figures=await self.figures(index, figure_ids),
            index_version=index.version,
            model_version=_model_version(index),
        )

    async def figures(
        self, index: Index, figure_ids: Sequence[str]
    ) -> list[Mapping[str, Any] | None]:
        """Return the metadata of figures, in order; None for unknown ids."""
        return list(await self._run(index.figures, figure_ids))

    async def image(self, index: Index, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image, or its thumbnail if the full image cannot be read.

        Raises:
            Problem: 404 if the figure does not exist, or neither image is available.
        """
        (about,) = await self.figures(index, [figure_id])
        if about is None:
            raise unknown_figure(figure_id)
        sent = size
        data: bytes | None
        try:
            data = await self._run(index.image, figure_id, size)
        except (BiovlError, OSError, KeyError) as error:
            sent = "thumbnail"
            data = await self._run(index.thumbnail, figure_id) if size == "full" else None
            if not data:
                raise Problem(
                    404, "no-image", f"the {size} image of {shortened(figure_id)} is not kept here"
                ) from error
        etag = hashlib.blake2b(data, digest_size=16).hexdigest()
        media_type = f"image/{image_format(data) or 'jpeg'}"
        return ImageFile(data=data, media_type=media_type, etag=etag, size=sent)

    async def warnings(self, index: Index | None) -> list[str]:
        """Return warnings about the index for the operator; they do not affect readiness.

        Updated once a minute. The previous result is returned until a check has finished, so that
        an unresponsive bucket delays no response.
        """
        if index is None:
            return []
        if index is not self._checked:
            self._checked, self._checked_at, self._warnings = index, -_CHECK_S, []
        is_checking = self._checking is not None and not self._checking.done()
        if not is_checking and time.monotonic() - self._checked_at >= _CHECK_S:
            self._checked_at = time.monotonic()
            self._checking = asyncio.create_task(self._check_images(index))
            await asyncio.wait([self._checking], timeout=1)
        return self._warnings

    async def _check_images(self, index: Index) -> None:
        problem = await self._run(index.images_problem)
        if index is not self._checked:
            return
        found = [] if problem is None else [f"{_NO_IMAGES}: {problem}"]
        if found and found != self._warnings:
            log.warning(found[0])
        self._warnings = found

    async def facets(self, index: Index) -> Mapping[str, Mapping[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        return await self._run(index.facets)

    def close(self) -> None:
        """Stop the search threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)


def _model_version(index: Index) -> str:
    return index.model_fingerprint[:VERSION_DIGITS]
