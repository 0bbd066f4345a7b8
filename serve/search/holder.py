"""The release that a replica serves, and the next one, loaded before all replicas switch to it."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from biovl.core.errors import ArtifactError, BiovlError
from serve.http.coordinator import Coordinator, Orders, ReleaseTarget, ReplicaReport
from serve.http.problems import Problem
from serve.search.engine import stale
from serve.search.release import Release, find

log = logging.getLogger(__name__)

_KEEP_S = 60.0
"""How long the previous release is kept: queries with its embeddings may still arrive."""
_BUSY_POLL_S = 0.1
_RETRY_S = 10.0
"""Delay before retrying to load a release that the other replicas already serve, in seconds."""
_CHECK_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """A release that failed to load."""

    generation: int = 0
    """``ReleaseTarget.generation`` of the release; 0 if none has failed."""
    reason: str = ""
    at: float = 0.0
    """Time of the failure, ``time.monotonic``, seconds."""


class Holder:
    """Releases of a replica. Each request reads ``current`` once and uses it throughout."""

    def __init__(
        self,
        load: Callable[[ReleaseTarget], Release],
        *,
        coordinator: Coordinator,
        replica: str,
        poll_s: float,
    ) -> None:
        """Create a holder; nothing is loaded yet.

        Args:
            load: Loads a release, in a thread; if it raises, the release is not served.
            coordinator: Determines which release to serve.
            replica: Name of this replica.
            poll_s: Polling interval of the coordinator, in seconds.
        """
        self._load = load
        self._coordinator = coordinator
        self._replica = replica
        self._poll_s = poll_s
        self._current: Release | None = None
        self._next: Release | None = None
        self._previous: list[tuple[float, Release]] = []
        self._loading: asyncio.Task[None] | None = None
        self._failed = _Failure()
        self._refused = ""
        self._checked: tuple[float, Release | None, list[str]] = (0.0, None, [])
        self._checking = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    @property
    def current(self) -> Release:
        """The release that is served.

        Raises:
            Problem: 503 before the first release is loaded.
        """
        if self._current is None:
            raise Problem(
                503, "not-ready", "the model is being loaded", headers={"Retry-After": "2"}
            )
        return self._current

    def of_model(self, version: str) -> Release:
        """Return the current, next or previous release with this model version.

        Raises:
            Problem: 409 if none of them has it.
        """
        releases = [
            self._current,
            self._next,
            *(release for _, release in reversed(self._previous)),
        ]
        for release in releases:
            if release is not None and release.target.model_version == version:
                return release
        raise stale(version)

    async def start(self, model: str, index: str | None) -> None:
        """Load the release that the application serves; in the first replica, the given folders.

        Raises:
            BiovlError: If it cannot be served.
        """
        target = await self._coordinator.serving()
        if target is None:
            target = await self._coordinator.begin(await asyncio.to_thread(find, model, index))
        found = await asyncio.to_thread(find, target.model, target.index)
        if replace(found, generation=target.generation) != target:
            # The folder has been replaced: the release that others serve no longer exists.
            target = await self._coordinator.request_release(found)
        self._next = await asyncio.to_thread(self._load, target)
        while self._current is None:
            report = ReplicaReport(serving=None, loaded=target.generation)
            orders = await self._coordinator.exchange(self._replica, report)
            if orders.serving is None:
                await self._coordinator.begin(target)
            elif orders.serving == target:
                self._current, self._next = self._next, None
            elif orders.next == target:
                await asyncio.sleep(_BUSY_POLL_S)
            else:
                target = orders.serving
                self._next = await asyncio.to_thread(self._load, target)
        self._watch = asyncio.create_task(self._watch_coordinator())

    async def close(self) -> None:
        """Stop the polling of the coordinator."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            try:
                await self._coordinator.remove_replica(self._replica)
            except ConnectionError:
                log.warning("the coordinator was unavailable when this replica stopped")

    async def reasons(self) -> list[str]:
        """Return the reasons why requests cannot be served; cached for a few seconds."""
        async with self._checking:
            # Concurrent callers share one check, which takes at least as long as a request.
            current = self.current
            at, release, reasons = self._checked
            if release is not current or time.monotonic() - at > _CHECK_S:
                work = asyncio.ensure_future(asyncio.to_thread(current.check))
                await asyncio.wait([work])
                error = work.exception()
                reasons = [_describe(error)] if error else []
                self._checked = time.monotonic(), current, reasons
        return reasons

    def warnings(self) -> list[str]:
        """Return warnings for the operator that do not affect readiness."""
        if not self._refused:
            return []
        return [f"the last reload failed, the previous release is served: {self._refused}"]

    async def check(self) -> None:
        """Run a self-test: embed a text and search.

        Raises:
            ArtifactError: If it fails.
        """
        reasons = await self.reasons()
        if reasons:
            raise ArtifactError("; ".join(reasons))

    async def reload(self, model: str | None, index: str | None) -> None:
        """Make all replicas reload their folders, or load others.

        Raises:
            Problem: 422 with the reason if the release cannot be served; 409 if another reload
                replaced this one.
        """
        served = self.current.target
        try:
            found = await asyncio.to_thread(find, model or served.model, index or served.index)
        except BiovlError as error:
            log.warning("reload rejected: %s", error)
            raise _refused(str(error)) from error
        # First send the current release to a coordinator that may have been restarted.
        await self._step()
        target = await self._coordinator.request_release(found)
        patience = time.monotonic() + 10 * self._poll_s + 5
        while True:
            orders = await self._step()
            serving = orders.serving
            if serving is not None and serving.generation > target.generation:
                raise Problem(409, "superseded", "another reload was requested after this one")
            if serving == target:
                # Other replicas switch at their next poll; wait for them, within a limit.
                if orders.settled or time.monotonic() > patience:
                    return
            elif orders.next != target:
                raise _refused(orders.reason or "another reload was requested after this one")
            else:
                patience = time.monotonic() + 10 * self._poll_s + 5
            await asyncio.sleep(_BUSY_POLL_S / 2)

    async def _watch_coordinator(self) -> None:
        while True:
            try:
                orders = await self._step()
                busy = not orders.settled
            except ConnectionError as error:
                log.warning("the coordinator is unavailable: %s", error)
                busy = False
            await asyncio.sleep(min(_BUSY_POLL_S, self._poll_s) if busy else self._poll_s)

    async def _step(self) -> Orders:
        """Report to the coordinator and apply its orders."""
        async with self._turn:
            orders = await self._report()
            if self._apply(orders):
                orders = await self._report()
            return orders

    async def _report(self) -> Orders:
        failed = self._failed
        report = ReplicaReport(
            serving=self.current.target,
            loaded=self._next.target.generation if self._next else 0,
            failed=failed.generation,
            reason=failed.reason,
        )
        orders = await self._coordinator.exchange(self._replica, report)
        self._refused = orders.reason
        pending = {one.generation for one in (orders.serving, orders.next) if one is not None}
        if self._failed is failed and failed.generation not in pending:
            # The failure was reported; it must not fail a later reload.
            self._failed = _Failure()
        return orders

    def _apply(self, orders: Orders) -> bool:
        """Apply orders or start loading; return whether the status has changed."""
        now = time.monotonic()
        self._previous = [(until, release) for until, release in self._previous if until > now]
        current = self.current
        if orders.serving is not None and orders.serving != current.target:
            if self._next is not None and self._next.target == orders.serving:
                self._previous.append((now + _KEEP_S, current))
                self._current, self._next = self._next, None
                log.info(
                    "now serving model %s, index %s",
                    orders.serving.model_version,
                    orders.serving.index_version,
                )
                return True
            self._begin_loading(orders.serving)
        elif orders.next is not None:
            self._begin_loading(orders.next)
        else:
            self._next = None
        return False

    def _begin_loading(self, target: ReleaseTarget) -> None:
        is_loading = self._loading is not None and not self._loading.done()
        is_there = self._next is not None and self._next.target == target
        failed = self._failed
        has_failed = failed.generation == target.generation
        if has_failed and time.monotonic() - failed.at < _RETRY_S:
            return
        if not is_loading and not is_there:
            self._next = None
            self._loading = asyncio.create_task(self._load_next(target))

    async def _load_next(self, target: ReleaseTarget) -> None:
        work = asyncio.ensure_future(asyncio.to_thread(self._load, target))
        await asyncio.wait([work])
        error = work.exception()
        if error is None:
            self._next = work.result()
            return
        reason = _describe(error)
        log.error("release %d is not served: %s", target.generation, reason, exc_info=error)
        self._failed = _Failure(generation=target.generation, reason=reason, at=time.monotonic())


def _describe(error: BaseException) -> str:
    return str(error) if isinstance(error, BiovlError) else f"{type(error).__name__}: {error}"


def _refused(reason: str) -> Problem:
    detail = f"{reason.rstrip('.')}; the previous release remains in service"
    return Problem(422, "cannot-be-served", detail)
