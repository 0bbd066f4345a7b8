"""What an endpoint may ask of the models and indexes behind it, wherever they run.

``serve.search.local.LocalEngine`` answers in this process,
``serve.search.deployments.ServeEngine`` through handles to other replicas, and tests through a
small model in memory. Errors of a request are ``serve.http.problems.Problem``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from biovl.index.query import Query, Results
from serve.http.problems import Problem, shortened

Size = Literal["thumbnail", "full"]


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """Vectors, and by which model: an index answers only to its own."""

    rows_ND: np.ndarray
    """Unit length, float32, shape [N, D]."""
    model_version: str
    logit_scale: float
    """The factor on similarities: 1 / temperature."""
    tokens: Sequence[int] = ()
    """Of texts: how many tokens the model read of each; empty if that is not known."""
    truncated: Sequence[bool] = ()
    """Of texts: whether each was longer than the context; empty if that is not known."""


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """An image of the corpus."""

    data: bytes
    media_type: str
    etag: str
    size: Size = "full"
    """``thumbnail`` also where the full image was requested and cannot be read."""


class Engine(Protocol):
    """Everything that endpoints may ask. Versions are the first 12 digits of fingerprints."""

    async def prepare(self, images: Sequence[bytes]) -> list[np.ndarray]:
        """Decode and crop images as the model wants them: uint8, shape [H, W, 3] each.

        Runs where the request arrived, off the event loop, so that files never travel.

        Raises:
            Problem: 415 or 422, with the number of the image and the reason.
        """
        ...

    async def embed_images(self, pixels: Sequence[np.ndarray]) -> Embedded:
        """Return vectors of prepared images."""
        ...

    async def embed_texts(self, texts: Sequence[str]) -> Embedded:
        """Return vectors of texts, cut to the context of the model."""
        ...

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        """Return what is found by vectors of this version of the model.

        Raises:
            Problem: 404 for a figure that is not in the index; 409 ``stale-model`` if the vectors
                are of a model that no index here belongs to: embed again; 503 without an index.
        """
        ...

    async def figures(self, figure_ids: Sequence[str]) -> list[Mapping[str, Any] | None]:
        """Return what is known of figures, in their order; None where there is no such figure."""
        ...

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        """Return a figure's image; its thumbnail where the full image cannot be read.

        Raises:
            Problem: 404 if there is no such figure, or neither is available.
        """
        ...

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        """Return for each field of ``Filter`` its most frequent values and their figures."""
        ...

    async def about(self) -> Mapping[str, Any]:
        """Return what is served.

        ``{"model": {"name", "version", "dim", "image_size", "context_length", "logit_scale",
        "licenses"…}, "index": {"version", "figures", "recall", "settings", "license_groups"…} |
        None, "ready": bool, "reasons": [why not], "warnings": [what an operator should know]}``
        """
        ...

    async def reload(
        self, *, model: str | None = None, index: str | None = None
    ) -> Mapping[str, Any]:
        """Serve what is published now, or other folders, without failing a request; return about().

        Raises:
            Problem: 422 if what is there cannot be served; what was served goes on.
        """
        ...


def no_index() -> Problem:
    """Return the problem of a search where there is only a model; asking again does not help."""
    return Problem(
        503,
        "no-index",
        "no index is served here; start the service with index=DIR, or reload with one",
    )


def stale(version: str) -> Problem:
    """Return the problem of vectors of a model that is not served."""
    return Problem(
        409,
        "stale-model",
        f"these vectors are of the model {shortened(version)}, which is not served any more: "
        "embed again",
    )


def unknown_figure(figure_id: str) -> Problem:
    """Return the problem of a figure that is not in the index."""
    return Problem(404, "unknown-figure", f"there is no figure {shortened(figure_id)} in the index")
