"""Rate limit of requests per API key, over all replicas together.

Token buckets are kept in one place, the coordinator. Each replica leases tokens from it in small
portions, so that most requests need no call to the coordinator.
"""

import asyncio
import functools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serve.http.problems import Problem
from serve.http.request_context import Caller
from serve.http.settings import Rate

MAX_BUCKETS = 10_000
"""Maximum number of API keys and client addresses whose buckets are stored."""
_PORTION_S = 0.1
_ONE = 1 - 1e-9  # tolerance for floating-point rounding
_LEASE_TIMEOUT_S = 1.0


class Leases(Protocol):
    """Source of tokens: ``serve.http.coordinator.Coordinator``, or ``Buckets`` in this process."""

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        """Take up to ``count`` tokens from a bucket, and return the number taken.

        Args:
            key: Name of the bucket; a new bucket is full.
            count: Number of tokens, at least 0; may be fractional.
            per_s: Refill rate, tokens per second.
            burst: Capacity of the bucket.

        Raises:
            ConnectionError: If the coordinator is unavailable; replicas then use buckets of their
                own.
        """
        ...


class Buckets:
    """Token buckets of all keys, in the memory of one process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create buckets; each is full at first use."""
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        """Take up to ``count`` tokens from a bucket, and return the number taken."""
        now = self._clock()
        level, then = self._levels.pop(key, (float(burst), now))
        level = min(float(burst), level + (now - then) * per_s)
        taken = min(count, level)
        self._levels[key] = (level - taken, now)
        # Evict the least recently used bucket: it is the fullest, so the least limit is lost.
        while len(self._levels) > MAX_BUCKETS:
            self._levels.popitem(last=False)
        return taken


async def lease_tokens(
    leases: Leases, alone: Leases, bucket: str, count: float, per_s: float, burst: int
) -> float:
    """Lease tokens from ``leases``, or from ``alone`` if ``leases`` does not respond."""
    try:
        async with asyncio.timeout(_LEASE_TIMEOUT_S):
            return await leases.lease(bucket, count, per_s, burst)
    except (ConnectionError, TimeoutError):
        # Without the coordinator each replica allows the full rate, so that the service stays up.
        return await alone.lease(bucket, count, per_s, burst)


@dataclass
class _Local:
    """State of one bucket in this replica."""

    level: float
    """Estimated fill level of the bucket, for the response headers."""
    then: float
    tokens: float = 0.0
    """Leased and not yet used."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimit:
    """Limit of requests per second, by API key or client address."""

    def __init__(
        self,
        rate: Rate,
        leases: Leases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a limit; ``rate`` applies to API keys without a rate of their own."""
        self._rate = rate
        self._leases = leases
        self._alone = Buckets(clock=clock)
        self._clock = clock
        self._local_of = functools.lru_cache(MAX_BUCKETS)(
            lambda bucket: _Local(float(rate.burst), clock())
        )

    async def take_token(self, caller: Caller) -> Mapping[str, str]:
        """Take a token and return the ``RateLimit-`` headers of the response; none without a limit.

        Raises:
            Problem: 429 if no token is left.

        Source:
            draft-ietf-httpapi-ratelimit-headers-06, the three headers that clients read.
        """
        per_s = caller.rate_per_s or self._rate.per_s
        if per_s is None:
            return {}
        burst = self._rate.burst
        local = self._local_of(caller.bucket)
        now = self._clock()
        local.level = min(float(burst), local.level + (now - local.then) * per_s)
        local.then = now
        async with local.lock:
            if local.tokens < _ONE:
                portion = max(1 - local.tokens, min(burst / 4, per_s * _PORTION_S))
                local.tokens += await lease_tokens(
                    self._leases, self._alone, caller.bucket, portion, per_s, burst
                )
            passes = local.tokens >= _ONE
            if passes:
                local.tokens = max(0.0, local.tokens - 1)
                local.level = max(0.0, local.level - 1)
            else:
                local.level = 0.0
        headers = {
            "RateLimit-Limit": str(burst),
            "RateLimit-Remaining": str(int(local.level + 1e-9)),
            "RateLimit-Reset": str(math.ceil((burst - local.level) / per_s)),
        }
        if passes:
            return headers
        wait_s = max(1, math.ceil((1 - local.tokens) / per_s))
        raise Problem(
            429,
            "rate-limit",
            f"more than {per_s:g} requests a second, {burst} at once; wait {wait_s} s",
            headers={**headers, "Retry-After": str(wait_s)},
        )
