"""Interface between endpoints and the models and indexes behind them.

Implementations: ``serve.search.local.LocalEngine`` in this process,
``serve.search.handles.ServeEngine`` over handles to other replicas, and a small model in memory for
tests. Errors of a request are ``serve.http.problems.Problem``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from biovl.index.query import Query, Results
from serve.http.problems import Problem, shortened

Size = Literal["thumbnail", "full"]


@dataclass(frozen=True, kw_only=True)
class PreparedImages:
    """Preprocessed images, and the version of the model for which they were preprocessed."""

    pixels: Sequence[np.ndarray] = ()
    """uint8, shape [H, W, 3] each."""
    model_version: str = ""

    def check_version(self, served: str) -> None:
        """Raise ``Problem``, 409, if they are for another model than the one that is served."""
        if self.model_version != served:
            raise stale(self.model_version)


@dataclass(frozen=True, kw_only=True)
class EmbeddedVectors:
    """Embeddings and the version of their model: an index accepts only vectors of its own model."""

    rows_ND: np.ndarray
    """Embeddings of unit length, float32, shape [N, D]."""
    model_version: str
    logit_scale: float
    """Factor on similarities: 1 / temperature."""
    tokens: Sequence[int] = ()
    """Number of tokens used of each text; empty for images, and if unknown."""
    truncated: Sequence[bool] = ()
    """Whether each text exceeded the context length; empty for images, and if unknown."""


@dataclass(frozen=True, kw_only=True)
class FigureMetadata:
    """Metadata of figures, and the versions of the index that it is from and of its model."""

    figures: Sequence[Mapping[str, Any] | None]
    """In the order of the request; None for unknown ids."""
    index_version: str
    model_version: str


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """An encoded image of the corpus, with its media type."""

    data: bytes
    media_type: str
    etag: str
    size: Size = "full"
    """Size of the image: ``thumbnail`` also if the full image is unavailable."""


class Engine(Protocol):
    """Operations that endpoints use. Versions are the first 12 digits of fingerprints."""

    async def prepare(self, images: Sequence[bytes]) -> PreparedImages:
        """Decode and crop images to the model's input size.

        Runs in the process that received the request, off the event loop, so that image files are
        not sent between processes.

        Raises:
            Problem: 415 or 422, with the number of the image and the reason.
        """
        ...

    async def embed_images(self, prepared: PreparedImages) -> EmbeddedVectors:
        """Return unit embeddings of preprocessed images.

        Raises:
            Problem: 409 ``stale-model`` if the model was replaced since: prepare them again.
        """
        ...

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        """Return unit embeddings of texts, truncated to the model's context length."""
        ...

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        """Return search results for query vectors of the given model version.

        Raises:
            Problem: 404 for a figure that is not in the index; 409 ``stale-model`` if no loaded
                index is of that model version: embed again; 503 without an index.
        """
        ...

    async def figures(self, figure_ids: Sequence[str]) -> FigureMetadata:
        """Return the metadata of figures of the index, in order."""
        ...

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image, or its thumbnail if the full image is unavailable.

        Raises:
            Problem: 404 if the figure does not exist, or neither is available.
        """
        ...

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        ...

    async def about(self) -> Mapping[str, Any]:
        """Return the description of the served model and index.

        ``{"model": {"name", "version", "dim", "image_size", "context_length", "logit_scale",
        "licenses"…}, "index": {"version", "figures", "recall", "settings", "license_groups"…} |
        None, "ready": bool, "reasons": [causes if not ready], "warnings": [for the operator]}``
        """
        ...

    async def reload(
        self, *, model: str | None = None, index: str | None = None
    ) -> Mapping[str, Any]:
        """Reload model and index, or load other folders, without downtime; return ``about()``.

        Raises:
            Problem: 422 if they cannot be served; the previous release remains in service.
        """
        ...


def no_index() -> Problem:
    """Return the problem of a search in a service without an index; a retry does not help."""
    return Problem(
        503,
        "no-index",
        "no index is served here; start the service with index=DIR, or reload with one",
    )


def stale(version: str) -> Problem:
    """Return the ``Problem`` for embeddings of a model that is no longer served."""
    return Problem(
        409,
        "stale-model",
        f"these embeddings are of the model {shortened(version)}, which is no longer served: "
        "embed again",
    )


def unknown_figure(figure_id: str) -> Problem:
    """Return the problem of a figure that is not in the index."""
    return Problem(404, "unknown-figure", f"there is no figure {shortened(figure_id)} in the index")
