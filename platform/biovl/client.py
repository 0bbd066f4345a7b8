"""Ask a running service from Python.

    from biovl.client import Client

    with Client("http://127.0.0.1:8000") as biovl:
        for hit in biovl.search("chest radiograph with effusion", k=5)["results"]:
            print(hit["score"], hit["figure_id"], hit["caption"])

Answers are what the service sends, as plain values: ``/openapi.json`` describes them. Only public
parts of httpx and NumPy are used, so the client works without PyTorch.
"""

import base64
import os
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from biovl.core.errors import BiovlError, ConfigError
from biovl.core.http import retry_after_s

Image = bytes | str | os.PathLike[str]
"""An encoded image (JPEG, PNG …), or the path of one."""

_LONGEST_WAIT_S = 30.0
_NO_ROUTE = "/-/routes for available routes"
"""Of the 404 of a proxy of Ray Serve that does not know the route (yet). Ours are problems."""


class RequestRefused(BiovlError):
    """The service answered with a problem; its words say what to change."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        """Keep the problem.

        Args:
            status: Of HTTP.
            problem: Members of application/problem+json: type, title, detail, request_id, errors.
        """
        super().__init__(
            f"{status} {problem.get('title', '')}: {problem.get('detail', '')}"
            f" (request {problem.get('request_id', '?')})"
        )
        self.status = status
        self.problem = dict(problem)


class Client:
    """A connection to a service. Use it from one thread, and close it when done."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout_s: float = 60,
        tries: int = 5,
    ) -> None:
        """Prepare to ask; nothing is sent yet.

        Args:
            address: Of the service, without ``/v1``.
            key: An API key; by default the environment's ``BIOVL_API_KEY``, if there is one.
            timeout_s: For one answer.
            tries: How often a request is sent while the service is busy, changes or is not reached.

        Raises:
            ConfigError: If the address is none of HTTP, or ``tries`` is not positive.
        """
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"address: expected http://… or https://…, got {address!r}")
        if tries < 1:
            raise ConfigError(f"tries must be positive, got {tries}")
        key = key or os.environ.get("BIOVL_API_KEY")
        self._tries = tries
        self._http = httpx.Client(
            base_url=address,
            timeout=timeout_s,
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

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
        """Return a page of figures near a text, an image, a figure, a vector, or a sum of them.

        Args:
            text: What is looked for.
            image: An image like those looked for.
            figure_id: A figure of the index like those looked for.
            embedding: A vector of the served model, shape [D].
            k: How many figures.
            options: ``over``, ``words``, ``filter``, ``weights``, ``cursor``, ``exact`` …: see
                ``SearchRequest`` in ``/openapi.json``.

        Raises:
            RequestRefused: If the service cannot do it; says why.
        """
        asked = {
            "text": text,
            "image": None if image is None else _base64(image),
            "figure_id": figure_id,
            "embedding": None if embedding is None else [float(value) for value in embedding],
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return self._posted("/v1/search", {**given, "k": k, **options})

    def search_all(self, text: str | None = None, **asked: Any) -> Iterator[dict[str, Any]]:
        """Yield figures page after page, as deep as the service goes. Takes what search takes."""
        while True:
            page = self.search(text, **asked)
            yield from page["results"]
            if page["next_cursor"] is None:
                return
            asked["cursor"] = page["next_cursor"]

    def classify(
        self,
        images: Sequence[Image],
        classes: Sequence[str] | None = None,
        *,
        benchmark: str | None = None,
        templates: Sequence[str] | None = None,
    ) -> list[list[dict[str, Any]]]:
        """Return for each image its classes with probabilities, from the most probable.

        Args:
            images: Some images.
            classes: What they may show.
            benchmark: Instead of classes, those of a benchmark, with its prompts.
            templates: Prompts with ``{}`` where the class goes; several are averaged.

        Raises:
            RequestRefused: If the service cannot do it; says why.
        """
        asked: dict[str, Any] = {"images": [_base64(image) for image in images]}
        if classes is not None:
            asked["classes"] = list(classes)
        if benchmark is not None:
            asked["benchmark"] = benchmark
        if templates is not None:
            asked["templates"] = list(templates)
        answer = self._posted("/v1/classify", asked)
        return [result["classes"] for result in answer["results"]]

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit vectors of texts, float32, shape [N, D].

        Raises:
            RequestRefused: If the service cannot do it; says why.
        """
        return self._embedded([{"type": "text", "text": text} for text in texts])

    def embed_images(self, images: Sequence[Image]) -> np.ndarray:
        """Return unit vectors of images, float32, shape [N, D].

        Raises:
            RequestRefused: If the service cannot do it; says why.
        """
        return self._embedded(
            [
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/any;base64,{_base64(image)}"},
                }
                for image in images
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
        """Return the vote of the indexed figures nearest to an image that nobody stores.

        Args:
            image: A private image; it is sent to the service, and to no other host.
            classes: Names, or names with the words that stand for them in captions; without them
                the concepts of the figures vote.
            k: How many figures vote.
            options: ``filter``.

        Raises:
            RequestRefused: If the service cannot do it; says why.
        """
        asked = {"image": _base64(image), "k": k, **options}
        if classes is not None:
            asked["classes"] = (
                {name: list(words) for name, words in classes.items()}
                if isinstance(classes, Mapping)
                else list(classes)
            )
        return self._posted("/v1/proxy", asked)

    def figure(self, figure_id: str) -> dict[str, Any]:
        """Return what is known of a figure.

        Raises:
            RequestRefused: If there is no such figure.
        """
        path = f"/v1/figures/{quote(figure_id, safe='')}"
        found: dict[str, Any] = self._sent("GET", path).json()["figure"]
        return found

    def image(self, figure_id: str, *, thumbnail: bool = False) -> bytes:
        """Return the image of a figure as it was published, or a small JPEG of it.

        Where the service cannot read the published image, it sends the small one, and Python warns.

        Raises:
            RequestRefused: If there is no such figure, or its image is not kept.
        """
        size = "thumbnail" if thumbnail else "image"
        answer = self._sent("GET", f"/v1/figures/{quote(figure_id, safe='')}/{size}")
        if not thumbnail and answer.headers.get("X-Image-Size") == "thumbnail":
            warnings.warn(
                f"the service cannot read the full image of {figure_id}: this is its thumbnail "
                "(/readyz says why)",
                stacklevel=2,
            )
        return answer.content

    def models(self) -> dict[str, Any]:
        """Return which model and index are served, with what was measured of them."""
        answer: dict[str, Any] = self._sent("GET", "/v1/models").json()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _embedded(self, inputs: Sequence[Mapping[str, Any]]) -> np.ndarray:
        asked = {"input": list(inputs), "encoding_format": "base64"}
        answer = self._posted("/v1/embeddings", asked)
        rows = [base64.b64decode(item["embedding"]) for item in answer["data"]]
        return np.stack([np.frombuffer(row, "<f4") for row in rows])

    def _posted(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._sent("POST", path, json=asked).json()
        return answer

    def _sent(self, method: str, path: str, **body: Any) -> httpx.Response:
        """Send until it is answered by more than "later": every request may be sent again."""
        for left in reversed(range(self._tries)):
            try:
                answer = self._http.request(method, path, **body)
            except httpx.TransportError as error:
                if not left:
                    raise BiovlError(f"{self._http.base_url} is not reached: {error!r}") from error
                wait_s = 1.0
            else:
                if answer.is_success:
                    return answer
                if not left or not _may_pass(answer):
                    raise RequestRefused(answer.status_code, _problem(answer))
                asked_s = retry_after_s(answer.headers)
                wait_s = 1.0 if asked_s is None else min(asked_s, _LONGEST_WAIT_S)
            # Not all at once: whoever was sent away together should not come back together.
            time.sleep(wait_s * random.uniform(1, 1.5))
        raise AssertionError("unreachable: the last try returns or raises")


def _base64(image: Image) -> str:
    data = image if isinstance(image, bytes) else Path(image).read_bytes()
    return base64.b64encode(data).decode()


def _may_pass(answer: httpx.Response) -> bool:
    """Return whether the same request may be answered later.

    An error that is not a problem of the service comes from what is in front of it: the replica
    that had the request has died. A proxy of Ray Serve that has just started knows no route yet,
    and answers 404 as plain text.
    """
    is_own = answer.headers.get("content-type", "").startswith("application/problem+json")
    is_unknown_route = answer.status_code == 404 and _NO_ROUTE in answer.text
    may_pass = answer.status_code >= 500 or is_unknown_route
    return "Retry-After" in answer.headers or (may_pass and not is_own)


def _problem(answer: httpx.Response) -> dict[str, Any]:
    """Return the problem in an answer; Serve's own refusals are plain text."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {"title": answer.reason_phrase, "detail": answer.text[:500]}
