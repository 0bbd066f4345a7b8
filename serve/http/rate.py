"""How many requests a second one key may send, over all replicas together.

Token buckets live in one place, the coordinator; each replica leases tokens from there in small
portions, so that most requests ask nobody.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serve.http.exchanges import Caller
from serve.http.problems import Problem
from serve.http.settings import Rate

MAX_BUCKETS = 10_000
"""Of keys and addresses that are remembered."""
_PORTION_S = 0.1
_ONE = 1 - 1e-9  # a sum of fractions is seldom exactly one
_LEASE_TIMEOUT_S = 1.0


class Leases(Protocol):
    """Where tokens come from: ``serve.http.coordinator.Coordinator``."""

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        """Take up to ``count`` tokens of a bucket and return how many were taken.

        Args:
            key: Which bucket; a new one is full.
            count: At least 0; fractions are tokens too.
            per_s: How fast it fills.
            burst: How many it holds.

        Raises:
            ConnectionError: If nobody can be asked; replicas then count on their own.
        """
        ...


class Buckets:
    """The buckets of one process: all there is without a coordinator, and what one is made of."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with all buckets full."""
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def lease(self, key: str, count: float, per_s: float, burst: int) -> float:
        """Take up to ``count`` tokens of a bucket and return how many were taken."""
        now = self._clock()
        level, then = self._levels.pop(key, (float(burst), now))
        level = min(float(burst), level + (now - then) * per_s)
        taken = min(count, level)
        self._levels[key] = (level - taken, now)
        # The one not asked for the longest is the fullest: forgetting it gives away the least.
        while len(self._levels) > MAX_BUCKETS:
            self._levels.popitem(last=False)
        return taken


async def leased(
    leases: Leases, alone: Leases, bucket: str, count: float, per_s: float, burst: int
) -> float:
    """Take up to ``count`` tokens of a bucket from ``leases``; from ``alone`` if nobody answers."""
    try:
        async with asyncio.timeout(_LEASE_TIMEOUT_S):
            return await leases.lease(bucket, count, per_s, burst)
    except (ConnectionError, TimeoutError):
        # Without the coordinator each replica allows the whole rate: late, not down.
        return await alone.lease(bucket, count, per_s, burst)


@dataclass
class _Local:
    """What this replica has of one bucket."""

    level: float
    """How full the bucket is as far as this replica knows: for the headers."""
    then: float
    tokens: float = 0.0
    """Leased and not yet used."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimit:
    """Lets requests through or not."""

    def __init__(
        self,
        rate: Rate,
        leases: Leases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit by ``rate`` whoever has no rate of its own."""
        self._rate = rate
        self._leases = leases
        self._alone = Buckets(clock=clock)
        self._clock = clock
        self._local: OrderedDict[str, _Local] = OrderedDict()

    async def take_token(self, caller: Caller) -> Mapping[str, str]:
        """Take a token and return the ``RateLimit-`` headers of the answer; none without a limit.

        Raises:
            Problem: 429 if there is none.

        Source:
            draft-ietf-httpapi-ratelimit-headers-06, the three headers that clients read.
        """
        per_s = caller.rate_per_s or self._rate.per_s
        if per_s is None:
            return {}
        burst = self._rate.burst
        local = self._local_of(caller.bucket, per_s)
        async with local.lock:
            if local.tokens < _ONE:
                wanted = max(1 - local.tokens, min(burst / 4, per_s * _PORTION_S))
                local.tokens += await leased(
                    self._leases, self._alone, caller.bucket, wanted, per_s, burst
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

    def _local_of(self, bucket: str, per_s: float) -> _Local:
        now, burst = self._clock(), float(self._rate.burst)
        local = self._local.pop(bucket, None) or _Local(burst, now)
        local.level = min(burst, local.level + (now - local.then) * per_s)
        local.then = now
        self._local[bucket] = local
        while len(self._local) > MAX_BUCKETS:
            self._local.popitem(last=False)
        return local
