"""Cursors: where the next page begins. Opaque to clients, and signed.

The signature covers the query as well, which therefore need not be in the cursor: cursors end up
in logs of proxies, and a hash of a private text could be guessed.
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
    """Makes and reads cursors.

    The secret comes from the settings and the digests of the keys (``serve.auth``), so that every
    replica has the same without asking anyone, also one started later. Who has neither cannot make
    cursors; without keys only the own machine can ask, and the worst that a forged cursor does is
    to begin elsewhere, within ``limits.depth_max``. After a change of keys, pages begin anew.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """Remember where the secret is; it may change.

        Args:
            secret: Returns the same bytes in all replicas.
        """
        self._secret = secret

    def make(self, offset: int, index_version: str, query_hash: str) -> str:
        """Return a cursor: at most 100 characters of ``A-Za-z0-9_-``.

        Args:
            offset: Hits before the next page.
            index_version: Of the index that the page before came from.
            query_hash: By ``hash_of``: a cursor continues its own query only.
        """
        payload = f"{offset}.{index_version}".encode()
        mac = self._mac(payload, query_hash)
        return base64.urlsafe_b64encode(mac + payload).rstrip(b"=").decode()

    def read(
        self, text: str, query_hash: str, *, index_version: str | None = None
    ) -> tuple[int, str]:
        """Return (offset, index version) of a cursor.

        Args:
            text: What a client sent.
            query_hash: Of the query that it sent with it.
            index_version: What is served, where it is known already.

        Raises:
            Problem: 422 ``bad-cursor`` if it is not one of ours for this query; 410
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
    """Return what identifies a query: of all its fields but those that differ between pages."""
    fields = request.model_dump_json(exclude=set(exclude))
    return hashlib.blake2b(fields.encode(), digest_size=16).hexdigest()


def stale_cursor() -> Problem:
    """Return the problem of a cursor into an index that is not served any more."""
    return Problem(
        410,
        "stale-cursor",
        "the index has changed since this cursor was made; ask again without a cursor",
        errors=[{"loc": ["body", "cursor"], "msg": "is of another version of the index"}],
    )


def _decoded(text: str) -> bytes:
    if len(text) > _MAX_CHARS or not text.isascii():
        raise _bad()
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad() from None
    # The last character may hold bits that decode to nothing: one cursor, one spelling.
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise _bad()
    return data


def _bad() -> Problem:
    return Problem(
        422,
        "bad-cursor",
        "cursor is not a next_cursor of this query; send it with the same query, unchanged, or"
        " ask again without it",
        errors=[{"loc": ["body", "cursor"], "msg": "is not a next_cursor of this query"}],
    )
