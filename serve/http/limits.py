"""Limits of a request: body size, upload time, and concurrent requests per replica.

Their values are in ``settings.Limits``. The size of an uploaded image is checked in
``search/uploads.py``, the number of pixels of a request in ``pixels.py``.
"""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive

from serve.http.problems import Problem
from serve.http.settings import Limits

_MIB = 1 << 20
_RECEIVED_AT_ONCE_MIB = 256
"""Total size of the bodies that a replica buffers: many slow uploads must not exhaust memory."""

_CLOSE = {"Connection": "close"}
_BUSY = {"Retry-After": "1"}


class ClientGoneError(ConnectionError):
    """The client disconnected before it sent the whole body."""


class Bodies:
    """Reads request bodies into memory, up to a total size.

    Bodies are read completely before a concurrency slot is taken, so that slow clients hold none.
    """

    def __init__(self, limits: Limits) -> None:
        """Limit the size of one body by ``limits``, and the total size of all buffered bodies."""
        self._limits = limits
        self._max_bytes = int(limits.body_mib * _MIB)
        self._max_held = max(_RECEIVED_AT_ONCE_MIB * _MIB, 2 * self._max_bytes)
        self._held = 0

    def free(self, size_bytes: int) -> None:
        """Release the buffer space of a body."""
        self._held -= size_bytes

    async def read_body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the body of a request. Its size counts against the total until ``free`` is called.

        Raises:
            Problem: 413 if it is too large, 408 if the upload is too slow, 415 if it is compressed
                (a small body could decompress to any size), 503 if the buffers are full.
            ClientGoneError: If the client disconnected.
        """
        coding = headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise Problem(
                415, "compressed-body", "compressed bodies are not supported; send it uncompressed"
            )
        declared = headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20 and int(declared) > self._max_bytes:
            if "expect" not in headers and int(declared) <= 3 * self._max_bytes:
                await self._drain(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await self._collected(receive)
        except TimeoutError:
            raise Problem(
                408,
                "slow-body",
                f"the body did not arrive within {self._limits.body_s:g} s; send less, or faster",
                headers=_CLOSE,
            ) from None

    async def _collected(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                if part:
                    size += len(part)
                    self._held += len(part)
                    parts.append(part)
                    self._check(size)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        except BaseException as error:
            self._held -= size
            parts.clear()
            if isinstance(error, Problem) and error.status == 413:
                await self._drain(receive)
            raise

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise self._too_large()
        if self._held > self._max_held:
            raise Problem(
                503,
                "busy",
                "too many uploads at once; try again",
                headers={**_BUSY, **_CLOSE},
            )

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            f"the body is larger than {self._limits.body_mib:g} MiB; send fewer or smaller images",
            headers=_CLOSE,
        )

    async def _drain(self, receive: Receive) -> None:
        """Read and discard the rest of the body, within limits.

        Most clients read the response only after sending the whole body, and report a connection
        error if the connection is closed earlier.
        """
        left = 3 * self._max_bytes
        try:
            async with asyncio.timeout(self._limits.body_s):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return


class RequestSlots:
    """Limit of concurrent requests; further ones are rejected instead of queued."""

    def __init__(self, limits: Limits) -> None:
        """Create ``limits.concurrent_requests`` slots."""
        self._free = limits.concurrent_requests
        self._all = limits.concurrent_requests

    def take(self) -> None:
        """Acquire a slot for a request.

        Raises:
            Problem: 503 with Retry-After if none is free.
        """
        if self._free == 0:
            raise Problem(
                503,
                "busy",
                f"{self._all} requests are in progress, the maximum; try again in a second",
                headers=_BUSY,
            )
        self._free -= 1

    def release(self) -> None:
        """Release the slot of a request."""
        self._free += 1
