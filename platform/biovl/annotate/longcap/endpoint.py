"""Requests to an OpenAI-compatible endpoint: rate-limited, retried, each paid for once.

``ray.data.llm`` has an HTTP processor too. It awaits the requests of a batch sequentially, does not
retry status 500, supports neither Retry-After nor a cache, fails the job with the request in the
message, and keeps headers, including the key, in its configuration.
"""

import asyncio
import json
import logging
import math
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from biovl.annotate.longcap.spending import AnswerCache, Ledger
from biovl.annotate.longcap.steps import ModelAnswer
from biovl.core.errors import ConfigError
from biovl.core.http import retry_after_s

_log = logging.getLogger(__name__)

GAVE_UP, DECLINED = "no answer", "request declined"

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_NOT_OURS = {401: "the key is not valid", 403: "this key may not", 404: "there is no such model"}
CHARS_PER_TOKEN = 3.5
"""Characters per token: approximate for biomedical English and current tokenizers."""
_IMAGE_TOKENS = 1_500
"""Tokens reserved for an image; the actual usage is booked with the answer."""
_LONGEST_WAIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """The endpoint and its rate limits. None of these settings affects the content of requests."""

    url: str = ""
    """Base URL of the API, with its version: ``https://host/v1``. Empty: cached answers only."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the key, on the requesting machine; without it no key is sent."""
    concurrent: PositiveInt = 32
    """Maximum concurrent requests."""
    requests_per_minute: NonNegativeFloat = 0
    """Maximum requests per minute, evenly spaced; 0: limited by ``concurrent`` only."""
    tokens_per_minute: NonNegativeFloat = 0
    """Maximum estimated tokens per minute; 0: no limit."""
    timeout_s: PositiveFloat = 300
    """Timeout of an attempt, in seconds."""
    tries: PositiveInt = 6
    """Attempts per request, if the endpoint is busy, fails or is unreachable."""
    first_wait_s: PositiveFloat = 1
    """Seconds before the second attempt; doubles with each attempt. A longer Retry-After wins."""

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with https:// or http://, got {self.url!r}")


class Pace:
    """Rate limiter of requests and tokens; for use in one event loop."""

    def __init__(self, config: EndpointConfig) -> None:
        self._gap_s = 60 / config.requests_per_minute if config.requests_per_minute else 0.0
        self._token_s = 60 / config.tokens_per_minute if config.tokens_per_minute else 0.0
        self._next = 0.0

    async def wait(self, tokens: int) -> None:
        """Wait until a request with an estimated number of tokens may be sent."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + max(self._gap_s, tokens * self._token_s)
        if begin > now:
            await asyncio.sleep(begin - now)

    def pause(self, seconds: float) -> None:
        """Delay all further requests by some seconds, as requested by the endpoint."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now + seconds)


class Endpoint:
    """Client of an endpoint that caches answers; for use in one event loop."""

    def __init__(self, config: EndpointConfig, cache: AnswerCache, ledger: Ledger) -> None:
        self._config, self._cache, self._ledger = config, cache, ledger
        self._key = os.environ.get(config.key_variable, "") if config.key_variable else ""
        self._pace, self._room = Pace(config), asyncio.Semaphore(config.concurrent)
        self._asked: dict[str, asyncio.Future[ModelAnswer]] = {}
        self._client = httpx.AsyncClient(
            timeout=config.timeout_s,
            limits=httpx.Limits(
                max_connections=config.concurrent, max_keepalive_connections=config.concurrent
            ),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            # Never send the key to a redirect target.
            follow_redirects=False,
        )
        self._stopped: BaseException | None = None
        self._writing = asyncio.Lock()
        self._is_estimating = False

    async def send(self, body: Mapping[str, Any]) -> ModelAnswer:
        """Return the answer to a request; a failed answer has the reason as text.

        Raises:
            BiovlError: If no request of the job can succeed: invalid key or model, spent budget.
        """
        key = self._cache.key(body)
        # Two figures may send the same request concurrently.
        if key in self._asked:
            return await asyncio.shield(self._asked[key])
        future: asyncio.Future[ModelAnswer] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        try:
            answer = await self._cached_or_sent(key, body)
            future.set_result(answer)
            return answer
        except BaseException as error:
            future.set_exception(error)
            # Also if nobody awaits it.
            future.exception()
            raise
        finally:
            del self._asked[key]

    async def _cached_or_sent(self, key: str, body: Mapping[str, Any]) -> ModelAnswer:
        known = await asyncio.to_thread(self._cache.get, key)
        if known is not None:
            return known
        if not self._config.url:
            return ModelAnswer(finish="failed", text="not in the cache")
        data = json.dumps(body).encode()
        input_tokens, output_tokens = estimate_input_tokens(body), int(body["max_tokens"])
        async with self._room:
            if self._stopped is not None:
                raise self._stopped
            self._ledger.reserve(input_tokens, output_tokens)
            answer = None
            try:
                answer = await self._send_with_retries(data, input_tokens + output_tokens)
                answer = self._with_tokens(answer, input_tokens)
            finally:
                self._ledger.settle(input_tokens, output_tokens, answer)
            if answer.finish != "failed":
                await self._keep(key, answer)
        return answer

    def _with_tokens(self, answer: ModelAnswer, input_tokens: int) -> ModelAnswer:
        """Return an answer with estimated tokens where the endpoint reported none."""
        if answer.finish == "failed":
            return answer
        # Some endpoints report zeros; no request is empty.
        counted = replace(
            answer,
            input_tokens=answer.input_tokens or input_tokens,
            output_tokens=answer.output_tokens or math.ceil(len(answer.text) / CHARS_PER_TOKEN),
        )
        if counted != answer and not self._is_estimating:
            self._is_estimating = True
            _log.warning(
                "the endpoint reports no usage: tokens, in the columns and of the budget, are "
                "estimated from the length of texts and the number of images"
            )
        return counted

    async def _keep(self, key: str, answer: ModelAnswer) -> None:
        """Write the ledger and store an answer: it is paid for."""
        try:
            # The ledger first, so that no stored answer is missing in it, whenever the process is
            # killed. Answers that wait here share a write.
            async with self._writing:
                await asyncio.to_thread(self._ledger.write)
        finally:
            await asyncio.to_thread(self._cache.put, key, answer)

    async def _send_with_retries(self, data: bytes, tokens: int) -> ModelAnswer:
        wait_s, last = self._config.first_wait_s, ""
        for attempt in range(self._config.tries):
            if attempt:
                if self._stopped is not None:
                    break
                # Jitter, so that retries do not coincide.
                await asyncio.sleep(wait_s * random.uniform(0.5, 1))
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            await self._pace.wait(tokens)
            try:
                response = await self._client.post(
                    f"{self._config.url.rstrip('/')}/chat/completions",
                    content=data,
                    headers={"Content-Type": "application/json"},
                )
            except httpx.HTTPError as error:
                last = type(error).__name__
                continue
            if response.status_code == httpx.codes.OK:
                answer = _read(response)
                if answer is not None:
                    return answer
                last = "an answer that is not of the protocol"
                continue
            self._raise_if_fatal(response)
            if response.status_code not in _RETRIED:
                return ModelAnswer(finish="failed", text=f"{DECLINED} ({response.status_code})")
            last = str(response.status_code)
            asked_s = retry_after_s(response.headers)
            if asked_s:
                self._pace.pause(min(asked_s, _LONGEST_WAIT_S))
        return ModelAnswer(finish="failed", text=f"{GAVE_UP} ({last})")

    def _raise_if_fatal(self, response: httpx.Response) -> None:
        """Raise an error if all other requests would fail as well."""
        if response.status_code in _NOT_OURS:
            message = self.redact_key(response.text[:300])
            shown = httpx.URL(self._config.url).copy_with(username="", password="", query=None)
            raise ConfigError(
                f"{shown} answers {response.status_code}: "
                f"{_NOT_OURS[response.status_code]}. Set the key in the environment variable "
                f"{self._config.key_variable} on the worker, and check annotator.model. Response: "
                f"{message}"
            )

    def redact_key(self, text: str) -> str:
        """Return a text without the key, in case the endpoint repeated it."""
        return text.replace(self._key, "[key]") if self._key else text

    def stop(self, reason: BaseException) -> None:
        """Send no further requests; pending ones complete, and their answers are cached."""
        self._stopped = self._stopped or reason


def estimate_input_tokens(body: Mapping[str, Any]) -> int:
    """Return the estimated number of input tokens of a request."""
    tokens = 0.0
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            is_text = part["type"] == "text"
            tokens += len(part["text"]) / CHARS_PER_TOKEN if is_text else _IMAGE_TOKENS
    return int(tokens) + 1


def _read(response: httpx.Response) -> ModelAnswer | None:
    """Return the answer in a response; None if it does not follow the protocol."""
    try:
        values = response.json()
        choice = values["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content"), message.get("refusal")
        usage = values.get("usage") or {}
        tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if not isinstance(text, str) and not isinstance(refusal, str):
        return None
    finish = "content_filter" if refusal else str(choice.get("finish_reason") or "stop")
    return ModelAnswer(
        text=refusal or text or "",
        finish=finish,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
    )
