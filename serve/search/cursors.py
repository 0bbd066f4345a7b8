"""Pagination cursors: signed, and opaque to clients.

The signature covers the query as well, so that the cursor does not need to contain it. Cursors end
up in logs of proxies, and a hash of a private text could be guessed.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from pydantic import BaseModel

from serve.http.problems import Problem

_MAC_BYTES = 16
_MAX_CHARS = 200


class Cursors:
    """Creates and verifies pagination cursors.

    The secret is derived from the settings and the digests of the API keys (``serve.auth``), so
    that all replicas have the same one, including those started later. Clients know neither and
    cannot forge cursors. Without API keys only this machine has access, and a forged cursor can
    only start at another offset within ``limits.depth_max``. After a change of keys, existing
    cursors are rejected.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """Set the source of the secret, which may change.

        Args:
            secret: Returns the same bytes in all replicas.
        """
        self._secret = secret

    def make(self, offset: int, index_version: str, query_hash: str) -> str:
        """Return a cursor: at most 100 characters of ``A-Za-z0-9_-``.

        Args:
            offset: Number of hits before the next page.
            index_version: Index version of the previous page.
            query_hash: Result of ``hash_of``: a cursor is valid for one query only.
        """
        payload = f"{offset}.{index_version}".encode()
        mac = self._mac(payload, query_hash)
        return base64.urlsafe_b64encode(mac + payload).rstrip(b"=").decode()

    def read(
        self, text: str, query_hash: str, *, index_version: str | None = None
    ) -> tuple[int, str]:
        """Verify a cursor and return (offset, index version).

        Args:
            text: The cursor that the client sent.
            query_hash: Hash of the query sent with it.
            index_version: Version of the served index, if known.

        Raises:
            Problem: 422 ``bad-cursor`` if the cursor is invalid for this query; 410
                ``stale-cursor`` if it is of another index than ``index_version``.
        """
        data = _decoded(text)
        mac, payload = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload, query_hash)):
            raise _bad()
        offset, _, version = payload.decode().partition(".")
        if index_version is not None and version != index_version:
            raise stale_cursor()
        return int(offset), version

    def _mac(self, payload: bytes, query_hash: str) -> bytes:
        message = query_hash.encode("utf-8", "surrogatepass") + b"\0" + payload
        return hmac.digest(self._secret(), message, "sha256")[:_MAC_BYTES]


def hash_of(request: BaseModel, *, exclude: frozenset[str] = frozenset({"cursor", "k"})) -> str:
    """Return the hash of a query over all fields that are the same on every page."""
    fields = request.model_dump_json(exclude=set(exclude))
    return hashlib.blake2b(fields.encode(), digest_size=16).hexdigest()


def stale_cursor() -> Problem:
    """Return the problem of a cursor of an index that is no longer served."""
    return Problem(
        410,
        "stale-cursor",
        "the index has changed since this cursor was made; search again without a cursor",
        errors=[{"loc": ["body", "cursor"], "msg": "is of another version of the index"}],
    )


def _decoded(text: str) -> bytes:
    if len(text) > _MAX_CHARS or not text.isascii():
        raise _bad()
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad() from None
    # Reject unused bits in the last character: each cursor has exactly one encoding.
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise _bad()
    return data


def _bad() -> Problem:
    return Problem(
        422,
        "bad-cursor",
        "cursor is not a next_cursor of this query; send it with the same query, unchanged, or"
        " search again without it",
        errors=[{"loc": ["body", "cursor"], "msg": "is not a next_cursor of this query"}],
    )
