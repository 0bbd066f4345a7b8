"""Runs the caption steps of many figures concurrently against an endpoint."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.annotate.longcap.endpoint import Endpoint, EndpointConfig
from biovl.annotate.longcap.spending import AnswerCache, Budget, Ledger
from biovl.annotate.longcap.steps import OK, CaptionSteps, LongCaption, ModelRequest
from biovl.core.errors import BiovlError

_JUDGED_FROM = 20
"""Figures after which the share of failures is checked."""
_EXAMPLES = 5


class LongCaptioner:
    """Requests long captions of many figures concurrently. Thread-safe."""

    def __init__(
        self,
        *,
        begin: Callable[[bytes], tuple[str, CaptionSteps]],
        body: Callable[[ModelRequest], Mapping[str, Any]],
        cache: str,
        endpoint: EndpointConfig,
        budget: Budget,
        most_failures: float,
    ) -> None:
        """Read previous spending.

        Args:
            begin: Maps a prepared figure to its caption and steps.
            body: Builds the body of a request.
            cache: Cache of answers.
            endpoint: Settings of the endpoint.
            budget: Limits of spending.
            most_failures: Share of figures without a long caption that stops the job.
        """
        self._begin, self._body, self._most_failures = begin, body, most_failures
        self._seen = Counter[str]()
        self._examples: list[str] = []
        self._ledger = Ledger(cache, budget)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._endpoint = asyncio.run_coroutine_threadsafe(
            self._open(endpoint, AnswerCache(cache)), self._loop
        ).result()

    async def _open(self, endpoint: EndpointConfig, cache: AnswerCache) -> Endpoint:
        return Endpoint(endpoint, cache, self._ledger)

    def __call__(self, prepared: np.ndarray) -> dict[str, list[Any]]:
        """Return the columns by name, each a list of K values.

        Raises:
            BiovlError: If the budget is spent, no request can succeed, or too many figures get no
                long caption.
        """
        made = asyncio.run_coroutine_threadsafe(self._all(list(prepared)), self._loop).result()
        return columns_of(made)

    async def _all(self, prepared: Sequence[bytes]) -> list[LongCaption]:
        tasks = [asyncio.ensure_future(self._one(data)) for data in prepared]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        first = next((task for task in done if task.exception() is not None), None)
        reason = first.exception() if first is not None else None
        if reason is not None:
            self._endpoint.stop(reason)
            # Their errors are this one: asyncio would log each that nobody has asked for.
            await asyncio.gather(*tasks, return_exceptions=True)
        return [task.result() for task in ([first] if first else tasks)]

    async def _one(self, prepared: bytes) -> LongCaption:
        caption, steps = self._begin(prepared)
        request = next(steps)
        try:
            while True:
                request = steps.send(await self._endpoint.send(self._body(request)))
        except StopIteration as stopped:
            made: LongCaption = stopped.value
        self._check_failures(caption, made)
        return made

    def _check_failures(self, caption: str, made: LongCaption) -> None:
        """Stop if too many figures get no long caption, before more is spent."""
        self._seen[made.status] += 1
        if made.status == OK:
            return
        if len(self._examples) < _EXAMPLES:
            last = made.steps[-1]["answer"][:200] if made.steps else ""
            example = self._endpoint.redact_key(last)
            self._examples.append(f"  {made.status}: {caption[:80]!r} … {example!r}")
        total = self._seen.total()
        failed = total - self._seen[OK]
        if total >= _JUDGED_FROM and failed > self._most_failures * total:
            listed = "\n".join(self._examples)
            raise BiovlError(
                f"{failed} of {total} figures got no long caption, more than most_failures "
                f"({self._most_failures:g}) allows. Look at the model, the prompts and the "
                f"bounds, or raise it; paid answers are cached. Examples:\n{listed}"
            )


def columns_of(made: Sequence[LongCaption]) -> dict[str, list[Any]]:
    """Return the columns of the annotator for the captions of figures, in their order."""
    return {
        "long_caption": [item.caption for item in made],
        "long_caption_status": [item.status for item in made],
        "long_caption_steps": [_packed(item.steps) for item in made],
        "long_caption_input_tokens": [item.tokens("input_tokens") for item in made],
        "long_caption_output_tokens": [item.tokens("output_tokens") for item in made],
    }


def _packed(steps: Sequence[Mapping[str, Any]]) -> bytes:
    plain = json.dumps(steps, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")
    return bytes(pa.compress(plain, codec="zstd", asbytes=True))
