"""No waiting for other drivers: each folder has one here."""

import functools

import pytest

from biovl.core.leases import acquire_lease


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = functools.partial(acquire_lease, settle_s=0)
    monkeypatch.setattr("biovl.runtime.job.acquire_lease", at_once)
