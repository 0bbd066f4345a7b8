"""Client of a repository on the Hugging Face Hub, with readable errors."""

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from biovl.core.errors import StorageError
from biovl.models.hub import client_errors

_ATTEMPTS = 4
_TRANSIENT = (408, 409, 412, 429, 500, 502, 503, 504)
"""Status codes that may succeed on retry; 409 and 412: a concurrent commit."""
_NETWORK = (ConnectionError, TimeoutError)
"""What the Xet client, which uploads large files, raises after retries of its own."""

_MEANINGS = {
    401: "the token is not accepted, or there is none: give one that may write in HF_TOKEN, or by "
    "`hf auth login`",
    402: "the hub requires payment for this: check the plan and storage of this account",
    403: "this token may not do that: give one with the right to write to this repository, or "
    "make room if the private storage of this account is used up",
    404: "there is no such repository or user, or this token may not see it",
    409: "another process changes this repository: run the same command again later",
    412: "another process changes this repository: run the same command again later",
    413: "a file is larger than the hub takes: make smaller shards",
    429: "too many requests to the hub: the same command resumes later",
}
_NO_SERVICE = "the hub returns errors, also after retries: the same command resumes later"

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Digest:
    """Content hash of a file, as stored by the Hub."""

    size_bytes: int
    hash: str
    """SHA-256 of a large file, Git blob SHA-1 of a small one: 64 or 40 hexadecimal digits."""

    @property
    def is_large(self) -> bool:
        """Whether the file is stored in LFS instead of Git."""
        return len(self.hash) == 64


class Repository:
    """A repository on the Hub, which may not exist yet."""

    def __init__(
        self, name: str, repo_type: str, *, bars: bool = False, wait_s: float = 2.0
    ) -> None:
        """Create a client of a repository; nothing is sent yet.

        Args:
            name: ``USER/NAME``.
            repo_type: ``dataset`` or ``model``.
            bars: Whether the client shows progress bars.
            wait_s: Delay before the second attempt, in seconds; doubled for each further one.
        """
        # Imported here: slow to import, and used by publish only.
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not bars:
            disable_progress_bars()
        self._api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="biovl")
        self._wait_s = wait_s
        self._which: dict[str, Any] = {"repo_id": name, "repo_type": repo_type}
        prefix = "datasets/" if repo_type == "dataset" else ""
        self.endpoint = str(self._api.endpoint)
        self.url = f"{self.endpoint}/{prefix}{name}"

    def is_private(self) -> bool | None:
        """Return whether the repository is private; None if it does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def ask() -> bool | None:
            try:
                return bool(self._api.repo_info(**self._which).private)
            except RepositoryNotFoundError as error:
                # The Hub answers 401 if the caller may not know whether the repository exists.
                if error.response.status_code == 401:
                    raise
                return None

        return self._tried(ask)

    def create(self, *, private: bool) -> None:
        """Create the repository if it does not exist."""
        self._tried(lambda: self._api.create_repo(private=private, exist_ok=True, **self._which))

    def files(self) -> dict[str, Digest]:
        """Return the content hashes of all files, by path."""
        from huggingface_hub.hf_api import RepoFile

        def ask() -> dict[str, Digest]:
            return {
                item.path: Digest(item.size, item.lfs.sha256 if item.lfs else item.blob_id)
                for item in self._api.list_repo_tree(recursive=True, **self._which)
                if isinstance(item, RepoFile)
            }

        return self._tried(ask)

    def commit(
        self, subject: str, added: Mapping[str, Path | bytes], deleted: Sequence[str]
    ) -> dict[str, str]:
        """Commit files, and return the SHA-256 of each by path."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        def send() -> dict[str, str]:
            # Rebuilt for each attempt: the client marks operations as sent, and an attempt whose
            # response was lost may have succeeded.
            additions = [CommitOperationAdd(name, content) for name, content in added.items()]
            existing = self.files() if deleted else {}
            deletions = [CommitOperationDelete(name) for name in deleted if name in existing]
            operations: list[Any] = [*deletions, *additions]
            self._api.create_commit(operations=operations, commit_message=subject, **self._which)
            return {item.path_in_repo: item.upload_info.sha256.hex() for item in additions}

        return self._tried(send)

    def _tried(self, ask: Callable[[], _Answer]) -> _Answer:
        with translate_errors(self.url):
            for attempt in range(1, _ATTEMPTS):
                try:
                    return ask()
                except client_errors() as error:
                    if not _is_transient(error):
                        raise
                time.sleep(self._wait_s * 2 ** (attempt - 1) * (0.5 + random.random()))
            return ask()


@contextlib.contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Translate exceptions of the Hub client to ours.

    Raises:
        StorageError: If the Hub rejects the request, is unreachable or fails.
    """
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    try:
        yield
    except LocalTokenNotFoundError as error:
        raise StorageError(f"{url}: {_MEANINGS[401]}") from error
    except OfflineModeIsEnabled as error:
        raise StorageError(f"{url}: HF_HUB_OFFLINE is set: unset it to publish") from error
    except PermissionError as error:
        # Raised by the Xet client for network errors, but also by the local disk.
        if not type(error).__module__.startswith("hf_xet"):
            raise
        raise StorageError(f"{url}: {_MEANINGS[401]}. Found: {_short(error)}") from error
    except client_errors(*_NETWORK) as error:
        cause = _cause(error)
        if isinstance(cause, HfHubHTTPError):
            status = cause.response.status_code
            meaning = _MEANINGS.get(
                status, _NO_SERVICE if status >= 500 else "the hub rejects the request"
            )
            raise StorageError(f"{url}: {meaning}. Found: {_short(cause)}") from error
        if isinstance(cause, ValueError | RuntimeError):
            # Errors of single files, such as an exceeded quota, have no status code.
            raise StorageError(
                f"{url}: the hub rejects the request. Found: {_short(cause)}"
            ) from error
        raise StorageError(
            f"{url}: the hub cannot be reached: check the network, and HF_ENDPOINT if it is "
            f"set; the same command resumes. Found: {_short(cause)}"
        ) from error


def _cause(error: BaseException) -> BaseException:
    """Return the exception wrapped by an error of an upload thread."""
    wraps = isinstance(error, RuntimeError) and error.__cause__ is not None
    return _cause(error.__cause__) if wraps and error.__cause__ is not None else error


def _is_transient(error: BaseException) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    cause = _cause(error)
    if isinstance(cause, HfHubHTTPError):
        return cause.response.status_code in _TRANSIENT
    return not isinstance(cause, ValueError | RuntimeError)


def _short(error: Any) -> str:
    return " ".join(str(error).split())[:300]
