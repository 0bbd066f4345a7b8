"""Cache of paid answers by the content of their request, and a ledger that enforces a budget."""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import NonNegativeFloat

from biovl.annotate.longcap.steps import ModelAnswer
from biovl.core.errors import BiovlError
from biovl.core.folders import Folder

_ANSWERS, _SPENT = "answers", "spent"
_READ_EVERY_S = 1.0
"""Minimum seconds after which the ledgers of other jobs are read again."""
_RECENT_NS = 60 * 10**9
"""Age of a file below which its time of change, in whole seconds in some buckets, is too coarse to
tell that it has not changed."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on spending, for all runs that share a cache."""

    tokens: int | None = None
    """Maximum of input and output tokens together; None: no limit."""
    dollars: float | None = None
    """Maximum cost in dollars, at the prices below; None: no limit."""
    dollars_per_million_input: NonNegativeFloat = 0.0
    """The endpoint's price of a million input tokens, images included."""
    dollars_per_million_output: NonNegativeFloat = 0.0
    """The endpoint's price of a million output tokens."""

    def __post_init__(self) -> None:
        prices = (self.dollars_per_million_input, self.dollars_per_million_output)
        if self.dollars is not None and max(prices) == 0:
            raise ValueError(
                "a limit of dollars needs prices: set dollars_per_million_input and "
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
        """Read the spending of other jobs."""
        self._folder, self._budget = Folder(uri), budget
        self._own = f"{uuid.uuid4().hex}.json"
        self._mine = {"input_tokens": 0, "output_tokens": 0}
        self._open = {"input_tokens": 0, "output_tokens": 0}
        self._written = dict(self._mine)
        self._lock = threading.Lock()
        self._ledgers: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._read_others()

    def reserve(self, input_tokens: int, output_tokens: int) -> None:
        """Reserve the maximum usage of a request.

        Raises:
            BiovlError: If it exceeds the remaining budget.
        """
        with self._lock:
            requested = {"input_tokens": input_tokens, "output_tokens": output_tokens}
            own = {k: self._mine[k] + self._open[k] + requested[k] for k in requested}
            limit = self._budget
            tokens = sum(own.values()) + sum(self._others.values())
            dollars = limit.cost(**own) + self._dollars_of_others
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

    def write(self) -> None:
        """Write this process's spending if it changed; at intervals, read that of other jobs.

        Not thread-safe. Usage that is settled during a write is included in the next one.
        """
        with self._lock:
            mine = dict(self._mine)
        if mine != self._written:
            spent = {**mine, "dollars": self._budget.cost(**mine)}
            self._folder.write(f"{_SPENT}/{self._own}", json.dumps(spent).encode())
            self._written = mine
        if time.monotonic() - self._read_at >= _READ_EVERY_S:
            self._read_others()

    def _read_others(self) -> None:
        """Read the ledgers of other jobs that may have changed, and add up all of them."""
        recent_ns = time.time_ns() - _RECENT_NS
        for name, version in self._folder.versions(_SPENT, ".json").items():
            known, _ = self._ledgers.get(name, (None, {}))
            if name != self._own and (version != known or version[0] > recent_ns):
                spent = json.loads(self._folder.read(f"{_SPENT}/{name}"))
                self._ledgers[name] = version, spent
        others, dollars = {"input_tokens": 0, "output_tokens": 0}, 0.0
        for _, spent in self._ledgers.values():
            tokens = {kind: spent[kind] for kind in others}
            for kind, count in tokens.items():
                others[kind] += count
            # Jobs without a price, and of earlier versions, are priced as this one.
            dollars += spent.get("dollars") or self._budget.cost(**tokens)
        with self._lock:
            self._others, self._dollars_of_others = others, dollars
        self._read_at = time.monotonic()

    def described(self) -> str:
        """Return the spending of all jobs that share the cache, as text."""
        spent = {kind: self._others[kind] + self._mine[kind] for kind in self._mine}
        text = f"{spent['input_tokens']:,} + {spent['output_tokens']:,} tokens"
        cost = self._budget.cost(**self._mine) + self._dollars_of_others
        return f"{text}, ${cost:,.2f}" if cost else text

    def _over(self, limit: str, setting: str) -> str:
        return (
            f"the budget of {limit} does not allow another request: spent so far, with "
            f"other runs with this cache, {self.described()}. Raise {setting} and run the "
            "same command again; paid answers are cached"
        )
