"""Cache of paid answers by the content of their request, and a ledger that enforces a budget."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from biovl.annotate.longcap.steps import ModelAnswer
from biovl.core.artifacts import Folder
from biovl.core.errors import BiovlError

_ANSWERS, _SPENT = "answers", "spent"
_WRITTEN_EVERY_S = 1.0
"""Seconds between writes; an interrupted process loses its spending since the last one."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on spending, for all runs that share a cache."""

    tokens: int | None = None
    """Maximum of input and output tokens together; None: no limit."""
    dollars: float | None = None
    """Maximum cost in dollars, at the prices below; None: no limit."""
    dollars_per_million_input: float = 0.0
    """The endpoint's price of a million input tokens, images included."""
    dollars_per_million_output: float = 0.0
    """The endpoint's price of a million output tokens."""

    def __post_init__(self) -> None:
        prices = (self.dollars_per_million_input, self.dollars_per_million_output)
        if min(prices) < 0:
            raise ValueError("prices must not be negative")
        if self.dollars is not None and max(prices) == 0:
            raise ValueError(
                "dollars can be capped where prices are known: set dollars_per_million_input and "
                "dollars_per_million_output"
            )

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Return the cost of some tokens in dollars."""
        return (
            input_tokens * self.dollars_per_million_input
            + output_tokens * self.dollars_per_million_output
        ) / 1e6


class AnswerCache:
    """Answers by the hash of their request. One file each, written atomically."""

    def __init__(self, uri: str) -> None:
        self._folder = Folder(uri)

    @staticmethod
    def key(body: Mapping[str, Any]) -> str:
        """Return the key of a request: a hash of its whole content."""
        plain = json.dumps(body, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()

    def get(self, key: str) -> ModelAnswer | None:
        """Return the cached answer to a request, by its key; None if there is none."""
        name = self._name(key)
        if not self._folder.exists(name):
            return None
        return ModelAnswer(**json.loads(self._folder.read(name)))

    def put(self, key: str, answer: ModelAnswer) -> None:
        """Store the answer to a request by its key."""
        self._folder.write(self._name(key), json.dumps(asdict(answer)).encode())

    @staticmethod
    def _name(key: str) -> str:
        return f"{_ANSWERS}/{key[:2]}/{key}.json"


class Ledger:
    """Spending of all jobs that share a cache, and reservations of pending requests."""

    def __init__(self, uri: str, budget: Budget) -> None:
        """Read the spending of earlier jobs."""
        self._folder, self._budget = Folder(uri), budget
        self._own = f"{_SPENT}/{uuid.uuid4().hex}.json"
        self._before = {"input_tokens": 0, "output_tokens": 0}
        self._dollars_before = 0.0
        for name in self._folder.names(_SPENT, ".json"):
            spent = json.loads(self._folder.read(f"{_SPENT}/{name}"))
            tokens = {kind: spent[kind] for kind in self._before}
            for kind, count in tokens.items():
                self._before[kind] += count
            # Jobs without a price, and of earlier versions, are priced as this one.
            self._dollars_before += spent.get("dollars") or budget.cost(**tokens)
        self._mine = {"input_tokens": 0, "output_tokens": 0}
        self._open = {"input_tokens": 0, "output_tokens": 0}
        self._written, self._lock = 0.0, threading.Lock()

    def reserve(self, input_tokens: int, output_tokens: int) -> None:
        """Reserve the maximum usage of a request.

        Raises:
            BiovlError: If it exceeds the remaining budget.
        """
        with self._lock:
            requested = {"input_tokens": input_tokens, "output_tokens": output_tokens}
            own = {k: self._mine[k] + self._open[k] + requested[k] for k in requested}
            limit = self._budget
            tokens = sum(own.values()) + sum(self._before.values())
            dollars = limit.cost(**own) + self._dollars_before
            if limit.tokens is not None and tokens > limit.tokens:
                raise BiovlError(self._over(f"{limit.tokens:,} tokens", "budget.tokens"))
            if limit.dollars is not None and dollars > limit.dollars:
                raise BiovlError(self._over(f"${limit.dollars:,.2f}", "budget.dollars"))
            for kind, count in requested.items():
                self._open[kind] += count

    def settle(self, input_tokens: int, output_tokens: int, answer: ModelAnswer | None) -> None:
        """Replace a reservation by the actual usage of the request."""
        with self._lock:
            self._open["input_tokens"] -= input_tokens
            self._open["output_tokens"] -= output_tokens
            if answer is not None:
                self._mine["input_tokens"] += answer.input_tokens
                self._mine["output_tokens"] += answer.output_tokens
            is_due = time.monotonic() - self._written > _WRITTEN_EVERY_S
            if is_due:
                self._written = time.monotonic()
        if is_due:
            self.write()

    def write(self) -> None:
        """Write the spending of this process, so that other jobs can add it."""
        if any(self._mine.values()):
            spent = {**self._mine, "dollars": self._budget.cost(**self._mine)}
            self._folder.write(self._own, json.dumps(spent).encode())

    def described(self) -> str:
        """Return the spending of all jobs that share the cache, as text."""
        spent = {kind: self._before[kind] + self._mine[kind] for kind in self._mine}
        text = f"{spent['input_tokens']:,} + {spent['output_tokens']:,} tokens"
        cost = self._budget.cost(**self._mine) + self._dollars_before
        return f"{text}, ${cost:,.2f}" if cost else text

    def _over(self, limit: str, setting: str) -> str:
        return (
            f"the budget of {limit} does not allow another request: spent so far, with "
            f"earlier runs with this cache, {self.described()}. Raise {setting} and run the "
            "same command again; paid answers are cached"
        )
