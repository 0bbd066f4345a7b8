"""Client of the E-utilities with retries and a rate limit.

Bio.Entrez is not used: its limit applies per thread, it waits a fixed time between three attempts
regardless of the error, and its reader fetches DTDs over the network.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from biovl.core.errors import BiovlError
from biovl.core.http import retry_after_s
from biovl.enrich.answers import NotAnAnswer
from biovl.enrich.config import EntrezSettings
from biovl.enrich.rate_limiter import RateLimiter

Value = TypeVar("Value")

MAX_ANSWER_BYTES = 256 << 20
"""Two hundred articles take some 3 MB."""

_LONGEST_BACKOFF_S = 30.0
_LONGEST_ANSWER = 5
"""Multiple of ``timeout_s``: bounds responses that arrive byte by byte."""
_LONGEST_PAUSE_S = 600.0

_TOO_MANY, _NOT_REACHED = "too many requests", "not reached"


class Unanswered(BiovlError):
    """All attempts of a request failed; the service may still answer others."""


class ServiceError(BiovlError):
    """The service is unreachable or rejects all requests; earlier responses are cached."""


class EntrezClient:
    """HTTP client of the E-utilities with one rate limit. Thread-safe; close it after use."""

    def __init__(
        self, service: EntrezSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Prepare requests; nothing is sent yet.

        Args:
            service: URL, credentials and limits.
            sleep: Waits for seconds before another attempt.
        """
        self._service, self._sleep = service, sleep
        self._said = service.credentials()
        self._limiter = RateLimiter(service.rate())
        self._http = httpx.Client(
            timeout=service.timeout_s,
            limits=httpx.Limits(max_connections=service.connections),
            headers={"User-Agent": service.tool},
        )

    def request(
        self,
        utility: str,
        parameters: Mapping[str, str | Sequence[str]],
        read: Callable[[bytes], Value],
        *,
        troubles: Counter[str] | None = None,
        tries: int | None = None,
    ) -> Value:
        """Send a request until its response can be parsed; return the parsed value.

        Args:
            utility: ``efetch``, ``elink``, ``esearch`` …
            parameters: Sent as the body of a POST, so that access logs do not contain the key;
                several values of a name are sent one by one: ``id=1&id=2``.
            read: Parses a response, or raises NotAnAnswer.
            troubles: Counts the failed attempts by reason.
            tries: Number of attempts; by default as the service is configured.

        Raises:
            Unanswered: If every attempt failed.
            ServiceError: If the service is unreachable, or rejects all requests.
        """
        troubles = Counter() if troubles is None else troubles
        tries = tries or self._service.tries
        url = f"{self._service.url.rstrip('/')}/{utility}.fcgi"
        failed = away = 0
        while True:
            try:
                return self._once(url, parameters, read)
            except NotAnAnswer as error:
                reason = self._without_key(str(error))
            troubles[reason] += 1
            if _is_of_the_key(reason):
                raise ServiceError(f"{url} rejects this api_key: {reason}")
            # The ids are not the cause of these errors.
            if reason in (_TOO_MANY, _NOT_REACHED):
                away += 1
                if away >= self._service.tries:
                    raise ServiceError(
                        f"{url}: {reason}, {away} times in a row. Received responses are cached: "
                        "the same command resumes with the rest."
                    )
            else:
                failed, away = failed + 1, 0
                if failed >= tries:
                    raise Unanswered(reason)
            longest_s = min(self._service.backoff_s * 2 ** (failed + away - 1), _LONGEST_BACKOFF_S)
            # Full jitter: requests that failed together should not be retried together.
            self._sleep(random.uniform(0, longest_s))

    def _once(
        self,
        url: str,
        parameters: Mapping[str, str | Sequence[str]],
        read: Callable[[bytes], Value],
    ) -> Value:
        try:
            with self._limiter.wait() as sent:
                status, headers, body = self._posted(url, {**parameters, **self._said}, sent)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotAnAnswer(_NOT_REACHED) from error
        except httpx.TimeoutException as error:
            raise NotAnAnswer("no answer in time") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise NotAnAnswer("connection broken") from error
        if status == 429 or (status == 503 and "Retry-After" in headers):
            self._limiter.pause(_pause_s(headers))
            raise NotAnAnswer(_TOO_MANY)
        if status >= 500:
            raise NotAnAnswer(f"status {status}")
        if status not in (200, 400, 413, 414):
            raise ServiceError(
                f"{url} answers with status {status}: check entrez.url, and whether NCBI has "
                "blocked this address. The same command resumes with the rest."
            )
        try:
            # Unknown ids alone are answered with status 400, and errors with 200.
            return read(body)
        except NotAnAnswer as error:
            if "rate limit" in str(error).lower():
                self._limiter.pause(_pause_s(headers))
                raise NotAnAnswer(_TOO_MANY) from error
            raise

    def _posted(
        self, url: str, form: Mapping[str, str | Sequence[str]], sent: Callable[[], None]
    ) -> tuple[int, httpx.Headers, bytes]:
        """Return the status, headers and body of a response.

        Args:
            url: URL of a utility.
            form: The parameters.
            sent: Called when the request has been sent.
        """

        def trace(event: str, _: Mapping[str, Any]) -> None:
            if event.endswith("send_request_body.complete"):
                sent()

        body = bytearray()
        deadline = time.monotonic() + _LONGEST_ANSWER * self._service.timeout_s
        with self._http.stream("POST", url, data=form, extensions={"trace": trace}) as answer:
            for block in answer.iter_bytes():
                body += block
                if len(body) > MAX_ANSWER_BYTES:
                    raise NotAnAnswer("answer too large")
                if time.monotonic() > deadline:
                    raise NotAnAnswer("no answer in time")
            return answer.status_code, answer.headers, bytes(body)

    def _without_key(self, text: str) -> str:
        key = self._said.get("api_key")
        return text.replace(key, "(api_key)") if key else text

    def close(self) -> None:
        """Close the connections of the client."""
        self._http.close()

    def __enter__(self) -> "EntrezClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_of_the_key(reason: str) -> bool:
    return "api key invalid" in reason.lower() or "api_key" in reason.lower()


def _pause_s(headers: httpx.Headers) -> float:
    asked_s = retry_after_s(headers)
    return 1.0 if asked_s is None else min(asked_s, _LONGEST_PAUSE_S)
