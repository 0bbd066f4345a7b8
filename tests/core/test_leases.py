"""One driver at a time makes a folder, and one that died stands in nobody's way."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biovl.core import leases
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder

LEASE = ".draft/lease.json"


@pytest.fixture(params=["local", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "out")
    return f"{request.getfixturevalue('bucket_uri')}/{tmp_path.name}"


def stored(uri: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Folder(uri).read(LEASE))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def left_behind(uri: str, **changes: Any) -> None:
    """Leave the lease of another process, last heard of now."""
    with leases.acquire_lease(uri, settle_s=0):
        owner = stored(uri)
    Draft(uri).note("lease", {**owner, "id": "another", "refreshed": time.time(), **changes})


def test_a_second_driver_is_refused_with_who_and_since_when(uri: str) -> None:
    since = r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"
    with leases.acquire_lease(uri, settle_s=0):
        first = stored(uri)
        with (
            pytest.raises(ArtifactError, match=rf"process {os.getpid()} on .* {since}"),
            leases.acquire_lease(uri, settle_s=0),
        ):
            pass
        assert stored(uri) == first


def test_what_the_lease_made_goes_with_it_and_the_draft_stays(uri: str) -> None:
    with leases.acquire_lease(uri, settle_s=0):
        draft = Draft.begin(uri, "figures", {})
    assert not Folder(uri).exists(LEASE)
    assert draft.folder.exists(".draft/begun.json")
    with leases.acquire_lease(uri, settle_s=0):
        draft.publish(Manifest(kind="figures", config={}, counts={}))
    assert Folder(uri).names(".draft") == []


def test_nothing_is_left_where_nothing_was_begun_or_all_is_published(tmp_path: Path) -> None:
    with leases.acquire_lease(str(tmp_path), settle_s=0):
        pass
    assert list(tmp_path.iterdir()) == []
    with leases.acquire_lease(str(tmp_path), settle_s=0, refresh_s=0.001) as lease:
        draft = Draft.begin(str(tmp_path), "figures", {})
        draft.publish(Manifest(kind="figures", config={}, counts={}))
        # Its thread notices and ends, or was about to refresh and writes the lease again.
        wait_until(lambda: not lease._thread.is_alive() or (tmp_path / LEASE).exists())
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_lease_is_refreshed_and_one_that_is_not_is_taken_over(uri: str) -> None:
    # Not more often: the local S3 server does not replace an object at once, as S3 does.
    with leases.acquire_lease(uri, settle_s=0, refresh_s=0.5):
        before = stored(uri)
        # Not "later": the clock of a machine may be set back meanwhile.
        wait_until(lambda: stored(uri)["refreshed"] != before["refreshed"])
        after = stored(uri)
        assert after == {**before, "refreshed": after["refreshed"]}
    left_behind(uri, host="elsewhere")
    with pytest.raises(ArtifactError, match="elsewhere"), leases.acquire_lease(uri, settle_s=0):
        pass
    left_behind_long_ago = {**stored(uri), "refreshed": time.time() - leases.STALE_S - 1}
    Draft(uri).note("lease", left_behind_long_ago)
    with leases.acquire_lease(uri, settle_s=0):
        assert stored(uri)["id"] != "another"


def test_the_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, time; from biovl.core import leases\n"
        "with leases.acquire_lease(sys.argv[1], settle_s=0):\n    print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with (
        pytest.raises(ArtifactError, match=f"process {other.pid} "),
        leases.acquire_lease(str(tmp_path), settle_s=0),
    ):
        pass
    other.kill()
    # Not waited for: its parent may be slow to notice.
    wait_until(lambda: leases._began(other.pid) == "")
    with leases.acquire_lease(str(tmp_path), settle_s=0):
        assert stored(str(tmp_path))["pid"] == os.getpid()
    other.communicate()


def test_a_process_with_the_id_of_one_that_died_is_another(uri: str) -> None:
    left_behind(uri, began="1")
    with leases.acquire_lease(uri, settle_s=0):
        assert stored(uri)["began"] != "1"


def test_of_two_that_begin_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_writes(_: float) -> None:
        Draft(str(tmp_path)).note("lease", {**stored(str(tmp_path)), "id": "other"})

    monkeypatch.setattr(leases.time, "sleep", other_writes)
    with (
        pytest.raises(ArtifactError, match=str(os.getpid())),
        leases.acquire_lease(str(tmp_path)),
    ):
        pass
    assert stored(str(tmp_path))["id"] == "other"


def test_who_was_taken_over_is_told_and_leaves_the_lease_alone(tmp_path: Path) -> None:
    with leases.acquire_lease(str(tmp_path), settle_s=0, refresh_s=0.01) as lease:
        lease.check()
        Draft.begin(str(tmp_path), "figures", {})
        taken = {**stored(str(tmp_path)), "id": "other", "host": "elsewhere"}

        # A refresh of ours may come in between.
        def taken_over() -> bool:
            Draft(str(tmp_path)).note("lease", taken)
            lease._thread.join(0.02)
            return not lease._thread.is_alive()

        wait_until(taken_over)
        with pytest.raises(ArtifactError, match="elsewhere"):
            lease.check()
    assert stored(str(tmp_path))["id"] == "other"


def test_a_driver_learns_at_once_that_another_has_taken_over_or_published(uri: str) -> None:
    with leases.acquire_lease(uri, settle_s=0) as lease:
        Draft.begin(uri, "figures", {}).check = lease.check
        own = stored(uri)
        Draft(uri).note("lease", {**own, "id": "other", "host": "elsewhere"})
        with pytest.raises(ArtifactError, match="elsewhere"):
            lease.check()
    with leases.acquire_lease(f"{uri}-2", settle_s=0) as lease:
        draft = Draft.begin(f"{uri}-2", "figures", {})
        draft.check = lease.check
        other = Draft(f"{uri}-2")
        other.publish(Manifest(kind="figures", config={}, counts={"rows": 40}))
        with pytest.raises(ArtifactError, match="another process"):
            draft.publish(Manifest(kind="figures", config={}, counts={"rows": 20}))


def test_a_lease_that_is_no_lease_stands_in_nobodys_way(uri: str) -> None:
    Draft(uri).note("lease", {"owner": "an older version"})
    with leases.acquire_lease(uri, settle_s=0):
        assert stored(uri)["pid"] == os.getpid()
