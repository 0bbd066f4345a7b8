"""Python client of the search service.

    from biovl.client import Client

    with Client("http://127.0.0.1:8000") as biovl:
        for hit in biovl.search("chest radiograph with effusion", k=5)["results"]:
            print(hit["score"], hit["figure_id"], hit["caption"])

Results are the decoded JSON responses, described by ``/openapi.json``. The client needs only httpx
and NumPy, not PyTorch.
"""

import base64
import math
import os
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from biovl.core.errors import BiovlError, ConfigError
from biovl.core.http import is_loopback, retry_after_s

Image = bytes | str | os.PathLike[str]
"""An encoded image (JPEG, PNG …), or its path."""

_LONGEST_WAIT_S = 30.0
_NO_ROUTE = "/-/routes for available routes"
"""Text of the 404 of a Ray Serve proxy without a route (yet). The service itself sends problems."""


class RequestRefused(BiovlError):
    """The service returned an error; the message has the cause and the setting to change."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        """Store the problem.

        Args:
            status: HTTP status code.
            problem: Members of application/problem+json: type, title, detail, request_id, errors.
        """
        super().__init__(
            f"{status} {problem.get('title', '')}: {problem.get('detail', '')}"
            f" (request {problem.get('request_id', '?')})"
        )
        self.status = status
        self.problem = dict(problem)


class Client:
    """HTTP client of a search service. Use it from one thread, and close it after use."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout_s: float = 60,
        tries: int = 5,
    ) -> None:
        """Create a client; no request is sent yet.

        Args:
            address: URL of the service, without ``/v1``.
            key: API key; by default the environment variable ``BIOVL_API_KEY``, if set.
            timeout_s: Timeout of one request, in seconds.
            tries: Maximum attempts per request while the service is busy, reloading or
                unreachable.

        Raises:
            ConfigError: If the address is not an HTTP URL, the key has characters that no header
                can have, or ``tries`` is not positive.
        """
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"address: expected http://… or https://…, got {address!r}")
        if tries < 1:
            raise ConfigError(f"tries must be positive, got {tries}")
        # Files and secrets of environments often end in a newline.
        key = (key or os.environ.get("BIOVL_API_KEY") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("key: an API key has ASCII characters only, and no line breaks")
        self._tries = tries
        try:
            self._http = httpx.Client(
                base_url=address,
                timeout=timeout_s,
                # HTTP_PROXY would send private images, and the key, to another machine.
                trust_env=not is_loopback(address),
                headers={"Authorization": f"Bearer {key}"} if key else {},
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"address: {address!r} is not a URL: {error}") from error

    def search(
        self,
        text: str | None = None,
        *,
        image: Image | None = None,
        figure_id: str | None = None,
        embedding: Sequence[float] | np.ndarray | None = None,
        k: int = 20,
        **options: Any,
    ) -> dict[str, Any]:
        """Return a page of figures similar to a text, image, figure, vector, or their weighted sum.

        Args:
            text: Query text.
            image: Query image.
            figure_id: Query by a figure of the index.
            embedding: Query vector of the served model, shape [D].
            k: Number of figures.
            options: ``over``, ``words``, ``filter``, ``weights``, ``cursor``, ``exact`` …: see
                ``SearchRequest`` in ``/openapi.json``.

        Raises:
            RequestRefused: If the service rejects the request; the message gives the reason.
        """
        body = {
            "text": text,
            "image": None if image is None else _base64(image),
            "figure_id": figure_id,
            "embedding": None if embedding is None else _finite(embedding),
        }
        parts = {name: value for name, value in body.items() if value is not None}
        return self._posted("/v1/search", {**parts, "k": k, **options}, "results")

    def search_all(self, text: str | None = None, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the figures of all pages, up to the service's limit; arguments as in ``search``."""
        while True:
            page = self.search(text, **options)
            yield from page["results"]
            if page["next_cursor"] is None:
                return
            options["cursor"] = page["next_cursor"]

    def classify(
        self,
        images: Sequence[Image],
        classes: Sequence[str] | None = None,
        *,
        benchmark: str | None = None,
        templates: Sequence[str] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Return the classes of each image with probabilities, the most probable first.

        ``truncated`` of a class says whether a prompt was longer than the model reads: classes that
        differ only at the end are then the same.

        Args:
            images: The images to classify.
            classes: Class names.
            benchmark: Name of a benchmark whose classes and prompts are used instead.
            templates: Prompts with ``{}`` in place of the class; several are averaged.

        Raises:
            ConfigError: If a text or an image was given instead of a list.
            RequestRefused: If the service rejects the request; the message gives the reason.
        """
        body: dict[str, Any] = {"images": [_base64(image) for image in _several("images", images)]}
        if classes is not None:
            body["classes"] = _several("classes", classes)
        if benchmark is not None:
            body["benchmark"] = benchmark
        if templates is not None:
            body["templates"] = _several("templates", templates)
        answer = self._posted("/v1/classify", body, "results")
        return [result["classes"] for result in answer["results"]]

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit vectors of texts, float32, shape [N, D].

        A warning is issued if a text was truncated to the model's context length.

        Raises:
            ConfigError: If a text or an image was given instead of a list.
            RequestRefused: If the service rejects the request; the message gives the reason.
        """
        return self._embedded([{"type": "text", "text": text} for text in _several("texts", texts)])

    def embed_images(self, images: Sequence[Image]) -> np.ndarray:
        """Return unit vectors of images, float32, shape [N, D].

        Raises:
            ConfigError: If a text or an image was given instead of a list.
            RequestRefused: If the service rejects the request; the message gives the reason.
        """
        return self._embedded(
            [
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/any;base64,{_base64(image)}"},
                }
                for image in _several("images", images)
            ]
        )

    def compare(
        self,
        image: Image,
        classes: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
        *,
        k: int = 10,
        **options: Any,
    ) -> dict[str, Any]:
        """Return labels for a private image, voted by the nearest indexed figures.

        Args:
            image: A private image; it is sent to the service only, which does not store it.
            classes: Class names, or names with their synonyms in captions; by default the
                concepts of the figures.
            k: Number of figures that vote.
            options: ``filter``.

        Raises:
            ConfigError: If a text was given instead of a list.
            RequestRefused: If the service rejects the request; the message gives the reason.
        """
        body = {"image": _base64(image), "k": k, **options}
        if classes is not None:
            body["classes"] = (
                {name: _several(f"classes.{name}", words) for name, words in classes.items()}
                if isinstance(classes, Mapping)
                else _several("classes", classes)
            )
        return self._posted("/v1/proxy", body, "votes")

    def figure(self, figure_id: str) -> dict[str, Any]:
        """Return the metadata of a figure.

        Raises:
            RequestRefused: If the figure does not exist.
        """
        path = f"/v1/figures/{quote(figure_id, safe='')}"
        figure: dict[str, Any] = _decoded(self._sent("GET", path), "figure")["figure"]
        return figure

    def image(self, figure_id: str, *, thumbnail: bool = False) -> bytes:
        """Return the published image of a figure, or its thumbnail as JPEG.

        If the service cannot read the published image, it sends the thumbnail and a warning is
        issued.

        Raises:
            RequestRefused: If the figure does not exist, or its image is unavailable or withheld.
            BiovlError: If another server, such as a proxy with its sign-in page, has answered.
        """
        size = "thumbnail" if thumbnail else "image"
        answer = self._sent("GET", f"/v1/figures/{quote(figure_id, safe='')}/{size}")
        if not thumbnail and answer.headers.get("X-Image-Size") == "thumbnail":
            warnings.warn(
                f"the service cannot read the full image of {figure_id}: this is its thumbnail "
                "(/readyz says why)",
                stacklevel=2,
            )
        if not answer.headers.get("content-type", "").startswith("image/"):
            raise _of_another_server(answer, "an image")
        return answer.content

    def models(self) -> dict[str, Any]:
        """Return the served model and index, with the index's measured recall."""
        return _decoded(self._sent("GET", "/v1/models"), "data")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _embedded(self, inputs: Sequence[Mapping[str, Any]]) -> np.ndarray:
        body = {"input": list(inputs), "encoding_format": "base64"}
        answer = self._posted("/v1/embeddings", body, "data")
        truncated = answer.get("truncated")
        if truncated:
            numbers = ", ".join(map(str, truncated[:5])) + (", …" if len(truncated) > 5 else "")
            warnings.warn(
                f"{len(truncated)} of {len(inputs)} texts are longer than the model reads, and "
                f"their ends were left out: number {numbers} (from 0)",
                stacklevel=3,
            )
        rows = [base64.b64decode(item["embedding"]) for item in answer["data"]]
        return np.stack([np.frombuffer(row, "<f4") for row in rows])

    def _posted(self, path: str, body: Mapping[str, Any], member: str) -> dict[str, Any]:
        return _decoded(self._sent("POST", path, json=body), member)

    def _sent(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Send a request, with retries: all requests are idempotent."""
        for left in reversed(range(self._tries)):
            try:
                answer = self._http.request(method, path, **body)
            except httpx.TransportError as error:
                if not left:
                    raise BiovlError(f"{self._http.base_url} is unreachable: {error!r}") from error
                wait_s = 1.0
            else:
                if answer.is_success:
                    return answer
                if not left or not _may_pass(answer):
                    raise RequestRefused(answer.status_code, _problem(answer))
                requested_s = retry_after_s(answer.headers)
                wait_s = 1.0 if requested_s is None else min(requested_s, _LONGEST_WAIT_S)
            # Jitter, so that rejected clients do not all retry at the same time.
            time.sleep(wait_s * random.uniform(1, 1.5))
        raise AssertionError("unreachable: the last try returns or raises")


def _several(name: str, values: Sequence[Any]) -> list[Any]:
    """Return a list of an argument's values.

    Raises:
        ConfigError: If the argument is a single text or image, which would be taken apart into its
            characters.
    """
    if isinstance(values, (str, bytes, os.PathLike)):
        raise ConfigError(f"{name}: expected a list, got {type(values).__name__}")
    return list(values)


def _finite(embedding: Sequence[float] | np.ndarray) -> list[float]:
    """Return a vector as plain numbers.

    Raises:
        ConfigError: If one is NaN or infinite, which JSON does not have.
    """
    values = [float(value) for value in embedding]
    if not all(map(math.isfinite, values)):
        raise ConfigError("embedding: expected finite numbers, got NaN or infinity")
    return values


def _base64(image: Image) -> str:
    data = image if isinstance(image, bytes) else Path(image).read_bytes()
    return base64.b64encode(data).decode()


def _may_pass(answer: httpx.Response) -> bool:
    """Return whether a retry may succeed.

    An error without a problem document comes from a proxy in front of the service: the replica has
    died. A Ray Serve proxy that has just started has no routes yet, and sends 404 as plain text.
    """
    is_own = answer.headers.get("content-type", "").startswith("application/problem+json")
    is_unknown_route = answer.status_code == 404 and _NO_ROUTE in answer.text
    may_pass = answer.status_code >= 500 or is_unknown_route
    return "Retry-After" in answer.headers or (may_pass and not is_own)


def _decoded(answer: httpx.Response, member: str) -> dict[str, Any]:
    """Return the JSON object of a response, which has a member.

    Raises:
        BiovlError: If it is no such object: another server, or the sign-in page of a proxy, has
            answered.
    """
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or member not in found:
        raise _of_another_server(answer, f"a JSON object with {member!r}")
    return found


def _of_another_server(answer: httpx.Response, expected: str) -> BiovlError:
    kind = answer.headers.get("content-type", "an unknown type")
    return BiovlError(
        f"{answer.url} answers with {kind} instead of {expected}: is this the address of the "
        f"search service? It begins with {answer.text[:200]!r}"
    )


def _problem(answer: httpx.Response) -> dict[str, Any]:
    """Return the problem of a response; those of Ray Serve and of proxies are none."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if isinstance(found, dict) and "title" in found:
        return found
    return {"title": answer.reason_phrase, "detail": answer.text[:500]}
