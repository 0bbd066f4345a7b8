"""Errors of a request as ``application/problem+json`` (RFC 9457).

Each problem states the cause, the expected input and what to do. Images and long inputs are never
quoted, because problems end up in logs and bug reports.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from serve.http.request_context import exchange_in

MEDIA_TYPE = "application/problem+json"
_MAX_CHARS = 80
_MAX_DETAIL_CHARS = 600
_MAX_ERRORS = 20
# Fields whose values are never quoted, however short.
_PRIVATE = frozenset({"image", "images", "input", "url", "image_url", "embedding", "text", "file"})
_NONE: Mapping[str, str] = MappingProxyType({})


class Problem(Exception):
    """An error response. It can be pickled, because engines may raise it in another process."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        headers: Mapping[str, str] = _NONE,
        errors: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Create a problem.

        Args:
            status: HTTP status code, 400 to 599.
            slug: Machine-readable identifier, such as ``bad-cursor``. The title is derived from it.
            detail: What was found, what is expected, what to do, in one or two sentences.
            headers: Additional response headers, such as ``Retry-After``.
            errors: ``{"loc": ["body", "k"], "msg": "…"}`` for each invalid field.
        """
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers)
        self.errors = [dict(error) for error in errors]

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.status, self.slug, self.detail, self.headers, self.errors)
        return _problem, arguments


def _problem(
    status: int, slug: str, detail: str, headers: dict[str, str], errors: list[dict[str, Any]]
) -> Problem:
    return Problem(status, slug, detail, headers=headers, errors=errors)


def shortened(value: object, limit: int = _MAX_CHARS) -> str:
    """Return a value for use in a message: on one line, printable, and truncated."""
    text = value if isinstance(value, str) else repr(value)
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(letter if letter.isprintable() else "�" for letter in cut)


def problem_json(problem: Problem, *, path: str, request_id: str) -> dict[str, Any]:
    """Return the members of a problem document.

    For ``/v1/embeddings`` an ``error`` object is added, which clients of OpenAI's API read.

    Source:
        RFC 9457, and the error object of OpenAI's API.
    """
    about: dict[str, Any] = {
        "type": f"urn:biovl:problem:{problem.slug}",
        "title": problem.slug.replace("-", " ").capitalize(),
        "status": problem.status,
        "detail": shortened(problem.detail, _MAX_DETAIL_CHARS),
        "instance": shortened(quote(path), 200),
        "request_id": request_id,
        "errors": problem.errors[:_MAX_ERRORS],
    }
    if path.startswith("/v1/embeddings"):
        first = problem.errors[0]["loc"] if problem.errors else []
        about["error"] = {
            "message": about["detail"],
            "type": _openai_type(problem.status),
            "param": str(first[-1]) if first else None,
            "code": problem.slug,
        }
    return about


def problem_answer(problem: Problem, *, path: str, request_id: str) -> Response:
    """Return a problem as an HTTP response."""
    about = problem_json(problem, path=path, request_id=request_id)
    # ASCII: a lone surrogate in a message would otherwise have no encoding.
    return Response(
        json.dumps(about, ensure_ascii=True),
        status_code=problem.status,
        headers={"Cache-Control": "no-store", **problem.headers},
        media_type=MEDIA_TYPE,
    )


def problem_of(error: Exception) -> Problem:
    """Return the problem for an exception; messages of unexpected exceptions are not disclosed."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _of_http(error)
        case ArtifactError() | ConfigError():
            # The served files are corrupt: not the client's fault, and details are not disclosed.
            return _failed()
        case BiovlError():
            return Problem(422, "cannot-be-met", str(error))
        case TimeoutError():
            return timed_out()
    return _failed()


def _failed() -> Problem:
    return Problem(
        500,
        "internal-error",
        "the service failed at this request; its log names the reason under this request id",
    )


def timed_out() -> Problem:
    """Return the problem of a request that exceeded the timeout."""
    return Problem(
        504,
        "timeout",
        "the response took longer than the service allows; request less, or try again later",
        headers={"Retry-After": "5"},
    )


def too_much_work(inputs: int, timeout_s: float) -> Problem:
    """Return the problem of a request that exceeds the timeout even without other load."""
    return Problem(
        422,
        "too-much-work",
        f"{timeout_s:g} s were not enough for the {inputs:,} texts and images of this request;"
        " send fewer at once",
    )


def handle_problems(app: FastAPI) -> None:
    """Register handlers that turn expected exceptions of endpoints into problem responses.

    All others reach ``serve.http.middleware``, which logs and answers them.
    """

    async def answer(request: Request, error: Exception) -> Response:
        exchange = exchange_in(request.scope)
        problem = problem_of(error)
        if problem.status == 500:
            # The middleware logs the stack frames.
            raise error
        exchange.problem = problem.slug
        return problem_answer(problem, path=request.scope["path"], request_id=exchange.request_id)

    for kind in (Problem, RequestValidationError, HTTPException, BiovlError, TimeoutError):
        app.add_exception_handler(kind, answer)


def _openai_type(status: int) -> str:
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _of_http(error: HTTPException) -> Problem:
    phrase = HTTPStatus(error.status_code).phrase
    slug = phrase.lower().replace(" ", "-").replace("'", "")
    detail = shortened(error.detail, _MAX_DETAIL_CHARS)
    if error.status_code == 404 and detail == phrase:
        detail = "there is nothing at this path; /openapi.json lists what there is"
    elif error.status_code == 405 and detail == phrase:
        allowed = (error.headers or {}).get("Allow") or (error.headers or {}).get("allow")
        detail = f"this path takes {allowed or 'other methods'}; /openapi.json lists them"
    return Problem(error.status_code, slug, detail, headers=error.headers or {})


def _invalid(error: RequestValidationError) -> Problem:
    invalid_fields = error.errors()
    if any(one["type"] == "json_invalid" for one in invalid_fields):
        return Problem(400, "bad-json", "the body is not JSON; check it with a JSON parser")
    errors = [_said(one) for one in invalid_fields[:_MAX_ERRORS]]
    first = errors[0]
    place = ".".join(str(step) for step in first["loc"])
    more = f" (and {len(invalid_fields) - 1} more, see errors)" if len(invalid_fields) > 1 else ""
    return Problem(422, "invalid-request", f"{place}: {first['msg']}{more}", errors=errors)


def _said(error: Mapping[str, Any]) -> dict[str, Any]:
    loc = [step if isinstance(step, int) else shortened(step) for step in error["loc"]]
    message = shortened(error["msg"], 200)
    got = _got(error)
    return {"loc": loc, "msg": f"{message} (got {got})" if got else message}


def _got(error: Mapping[str, Any]) -> str | None:
    """Return a short description of the invalid value; None if the message already contains it."""
    if error["type"] in ("missing", "extra_forbidden"):
        return None
    value = error.get("input")
    match value:
        case bytes():
            return "a body that is not declared as application/json" if value else "no body"
        case str() if len(value) > _MAX_CHARS or _PRIVATE.intersection(map(str, error["loc"])):
            return f"a string of {len(value)} characters"
        case bool() | int() | float() if abs(value) < 1e15:
            return str(value)
        case str():
            return shortened(ascii(value))
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case None:
            return "null"
    return None
