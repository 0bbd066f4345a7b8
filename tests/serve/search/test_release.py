"""Models exchanged while they are served: all replicas at once, or none."""

import asyncio
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from biovl.core import artifacts
from biovl.core.artifacts import Draft, Input, Manifest
from biovl.core.errors import ArtifactError
from serve.http.coordinator import LocalCoordinator, ReleaseTarget, ReplicaReport
from serve.http.problems import Problem
from serve.search.holder import Holder
from serve.search.release import Release, find, load_release
from tests.serve.search.published import publish_model

POLL_S = 0.01


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, timeout=600))


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return publish_model(tmp_path / "first", seed=1)


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return publish_model(tmp_path / "second", seed=2)


def version(model: Path) -> str:
    return artifacts.fingerprint(str(model))[:12]


def holder(coordinator: LocalCoordinator, name: str = "one", **changes: Any) -> Holder:
    settings: dict[str, Any] = {"load": load_release, "poll_s": POLL_S}
    return Holder(**{**settings, **changes}, coordinator=coordinator, replica=name)


def served(replica: Holder) -> str:
    return replica.current.target.model_version


def test_an_index_of_another_model_is_refused_and_both_are_named(
    first: Path, second: Path, tmp_path: Path
) -> None:
    of_first = artifacts.fingerprint(str(first))
    inputs = [Input(name="model", uri=str(first), fingerprint=of_first)]
    index = tmp_path / "index"
    Draft(str(index)).publish(Manifest(kind="index", config={}, counts={}, inputs=inputs))
    assert find(str(first), str(index)).index_fingerprint == artifacts.fingerprint(str(index))
    with pytest.raises(ArtifactError) as caught:
        find(str(second), str(index))
    assert of_first in str(caught.value)
    assert artifacts.fingerprint(str(second)) in str(caught.value)


def test_before_anything_is_loaded_requests_are_told_to_come_again() -> None:
    with pytest.raises(Problem) as caught:
        _ = holder(LocalCoordinator()).current
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "2"})


def test_many_who_ask_after_its_health_at_once_cost_one_check(first: Path) -> None:
    checks = []

    class Counted(Release):
        def check(self) -> None:
            checks.append(1)
            super().check()

    def load(wanted: ReleaseTarget) -> Counted:
        return Counted(**vars(load_release(wanted)))

    async def test() -> None:
        replica = holder(LocalCoordinator(), load=load)
        await replica.start(str(first), None)
        before = len(checks)
        await asyncio.gather(*(replica.check() for _ in range(20)))
        assert len(checks) == before + 1
        await replica.close()

    run(test())


def test_a_reload_reaches_every_replica(first: Path, second: Path) -> None:
    async def test() -> None:
        coordinator = LocalCoordinator()
        replicas = [holder(coordinator, name) for name in ("one", "two", "three")]
        for replica in replicas:
            await replica.start(str(first), None)
        assert {served(replica) for replica in replicas} == {version(first)}
        await replicas[1].reload(str(second), None)
        assert {served(replica) for replica in replicas} == {version(second)}
        for replica in replicas:
            await replica.close()

    run(test())


def test_a_request_keeps_the_release_that_it_began_with(first: Path, second: Path) -> None:
    async def test() -> None:
        replica = holder(LocalCoordinator())
        await replica.start(str(first), None)
        pinned = replica.current
        await replica.reload(str(second), None)
        assert pinned.target.model_version == version(first)
        assert served(replica) == version(second)
        # And what it embedded can be searched with for a while.
        assert replica.of_model(version(first)) is pinned
        with pytest.raises(Problem) as unknown:
            replica.of_model("0" * 12)
        assert unknown.value.slug == "stale-model"
        await replica.close()

    run(test())


def test_what_cannot_be_loaded_by_one_replica_is_served_by_none(first: Path, second: Path) -> None:
    def without_memory(wanted: ReleaseTarget) -> Any:
        if wanted.generation > 1:
            raise MemoryError("12 GB are not to be had")
        return load_release(wanted)

    async def test() -> None:
        coordinator = LocalCoordinator()
        large, small = holder(coordinator), holder(coordinator, "small", load=without_memory)
        await large.start(str(first), None)
        await small.start(str(first), None)
        with pytest.raises(Problem, match="12 GB are not to be had") as caught:
            await large.reload(str(second), None)
        assert caught.value.status == 422
        assert served(large) == served(small) == version(first)
        await large.close()
        await small.close()

    run(test())


def test_a_folder_that_is_none_leaves_what_is_served(first: Path, tmp_path: Path) -> None:
    async def test() -> None:
        replica = holder(LocalCoordinator())
        await replica.start(str(first), None)
        with pytest.raises(Problem, match=r"nowhere .*manifest\.json"):
            await replica.reload(str(tmp_path / "nowhere"), None)
        assert served(replica) == version(first)
        await replica.close()

    run(test())


def test_weights_that_are_damaged_leave_what_is_served(first: Path, second: Path) -> None:
    async def test() -> None:
        replica = holder(LocalCoordinator())
        await replica.start(str(first), None)
        weights = second / "open_clip_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        with pytest.raises(Problem, match=r"open_clip_model\.safetensors"):
            await replica.reload(str(second), None)
        assert served(replica) == version(first)
        await replica.close()

    run(test())


@pytest.mark.parametrize("failures", [1, 3])
def test_after_failed_reloads_the_next_good_one_is_served_by_all(
    failures: int, first: Path, second: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(second, broken)
    (broken / "open_clip_model.safetensors").write_bytes(b"")

    async def test() -> None:
        coordinator = LocalCoordinator()
        replicas = [holder(coordinator, name) for name in ("one", "two", "three")]
        for replica in replicas:
            await replica.start(str(first), None)
        for number in range(failures):
            with pytest.raises(Problem, match=r"open_clip_model\.safetensors"):
                await replicas[number % 3].reload(str(broken), None)
        # Each learns of it when it polls.
        while not all(replica.warnings() for replica in replicas):
            await asyncio.sleep(POLL_S)
        assert {served(replica) for replica in replicas} == {version(first)}
        for replica in replicas:
            (warning,) = replica.warnings()
            assert str(broken) in warning
        await replicas[1].reload(str(second), None)
        assert {served(replica) for replica in replicas} == {version(second)}
        assert replicas[1].warnings() == []
        for replica in replicas:
            await replica.close()

    run(test())


def test_a_folder_that_was_repaired_in_place_can_be_reloaded(first: Path, second: Path) -> None:
    weights = second / "open_clip_model.safetensors"
    whole = weights.read_bytes()

    async def test() -> None:
        coordinator = LocalCoordinator()
        one, two = holder(coordinator), holder(coordinator, "two")
        await one.start(str(first), None)
        await two.start(str(first), None)
        weights.write_bytes(b"")
        with pytest.raises(Problem, match=r"open_clip_model\.safetensors"):
            await one.reload(str(second), None)
        weights.write_bytes(whole)
        await two.reload(str(second), None)
        assert served(one) == served(two) == version(second)
        await one.close()
        await two.close()

    run(test())


def test_a_reload_of_what_is_served_ends_the_warning_of_the_last(first: Path, second: Path) -> None:
    async def test() -> None:
        replica = holder(LocalCoordinator())
        await replica.start(str(first), None)
        (second / "open_clip_model.safetensors").write_bytes(b"")
        with pytest.raises(Problem):
            await replica.reload(str(second), None)
        assert replica.warnings()
        await replica.reload(str(first), None)
        assert replica.warnings() == []
        await replica.close()

    run(test())


def test_a_coordinator_that_was_restarted_assigns_no_generation_that_failed_before(
    first: Path, second: Path
) -> None:
    async def test() -> None:
        coordinator = LocalCoordinator()
        replica = holder(coordinator)
        await replica.start(str(first), None)
        weights = second / "open_clip_model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(b"")
        with pytest.raises(Problem):
            await replica.reload(str(second), None)
        weights.write_bytes(whole)
        replica._coordinator = LocalCoordinator()
        await replica.reload(str(second), None)
        assert served(replica) == version(second)
        await replica.close()

    run(test())


@pytest.mark.parametrize("republish", ["symlink", "in place"])
def test_a_folder_published_anew_under_the_same_path_is_another(
    republish: str, first: Path, second: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        current = tmp_path / "current"
        old, new = version(first), version(second)
        if republish == "symlink":
            current.symlink_to(first)
        else:
            shutil.copytree(first, current)
        replica = holder(LocalCoordinator())
        await replica.start(str(current), None)
        assert served(replica) == old
        await replica.reload(None, None)
        assert served(replica) == old
        if republish == "symlink":
            current.unlink()
            current.symlink_to(second)
        else:
            shutil.rmtree(current)
            shutil.copytree(second, current)
        await replica.reload(None, None)
        assert served(replica) == new
        await replica.close()

    run(test())


def test_a_new_replica_begins_with_what_is_served_not_with_its_settings(
    first: Path, second: Path
) -> None:
    async def test() -> None:
        coordinator = LocalCoordinator()
        old = holder(coordinator)
        await old.start(str(first), None)
        await old.reload(str(second), None)
        shutil.rmtree(first)
        new = holder(coordinator, "new")
        await new.start(str(first), None)
        assert served(new) == version(second)
        await old.close()
        await new.close()

    run(test())


def test_a_replica_that_begins_after_a_folder_was_replaced_has_all_reload(
    first: Path, second: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        current = tmp_path / "current"
        current.symlink_to(first)
        coordinator = LocalCoordinator()
        old, new = holder(coordinator), holder(coordinator, "new")
        await old.start(str(current), None)
        current.unlink()
        current.symlink_to(second)
        await new.start(str(current), None)
        while served(old) == version(first):
            await asyncio.sleep(POLL_S)
        assert served(old) == served(new) == version(second)
        await old.close()
        await new.close()

    run(test())


def wanted(generation: int) -> ReleaseTarget:
    return ReleaseTarget(
        model=f"m{generation}",
        index=None,
        model_fingerprint=str(generation) * 64,
        index_fingerprint=None,
        generation=generation,
    )


def test_a_replica_that_died_is_not_waited_for() -> None:
    async def test() -> None:
        now = [0.0]
        state = LocalCoordinator(silent_s=10, clock=lambda: now[0])
        first, second = wanted(1), wanted(2)
        for name in ("lives", "dies"):
            await state.exchange(name, ReplicaReport(serving=first))
        assert await state.request_release(second) == second
        loaded = ReplicaReport(serving=first, loaded=2)
        assert (await state.exchange("lives", loaded)).serving == first
        now[0] = 11
        assert (await state.exchange("lives", loaded)).serving == second

    run(test())


def test_the_release_that_is_served_replaces_one_that_is_being_loaded() -> None:
    async def test() -> None:
        state = LocalCoordinator()
        await state.exchange("one", ReplicaReport(serving=wanted(1)))
        await state.request_release(wanted(2))
        assert await state.request_release(wanted(1)) == wanted(1)
        orders = await state.exchange("one", ReplicaReport(serving=wanted(1), loaded=2))
        assert (orders.serving, orders.next) == (wanted(1), None)

    run(test())


def test_no_generation_is_assigned_twice() -> None:
    async def test() -> None:
        state = LocalCoordinator()
        await state.exchange("one", ReplicaReport(serving=wanted(1)))
        assigned = []
        for number in (2, 3, 4):
            pending = await state.request_release(wanted(number))
            assigned.append(pending.generation)
            failed = ReplicaReport(serving=wanted(1), failed=pending.generation, reason="no memory")
            assert (await state.exchange("one", failed)).reason == "no memory"
        assert assigned == [2, 3, 4]
        # One that knows of a later failure than a coordinator that was restarted.
        fresh = LocalCoordinator()
        await fresh.exchange("one", ReplicaReport(serving=wanted(1), failed=4))
        assert (await fresh.request_release(wanted(2))).generation == 5

    run(test())


def test_a_coordinator_that_was_restarted_learns_from_its_replicas() -> None:
    async def test() -> None:
        state = LocalCoordinator()
        assert await state.serving() is None
        orders = await state.exchange("one", ReplicaReport(serving=wanted(3)))
        assert orders.serving == wanted(3)
        # One that has missed the last exchange follows.
        orders = await state.exchange("two", ReplicaReport(serving=wanted(2)))
        assert orders.serving == wanted(3)

    run(test())


def test_a_service_that_is_started_again_has_no_reload_that_failed() -> None:
    async def test() -> None:
        state = LocalCoordinator()
        await state.exchange("one", ReplicaReport(serving=wanted(1)))
        pending = await state.request_release(wanted(2))
        failed = ReplicaReport(serving=wanted(1), failed=pending.generation, reason="no memory")
        assert (await state.exchange("one", failed)).reason == "no memory"
        await state.remove_replica("one")
        assert await state.serving() is None
        assert await state.begin(wanted(3)) == wanted(3)
        assert (await state.exchange("two", ReplicaReport(serving=wanted(3)))).reason == ""

    run(test())


def test_values_of_replicas_are_kept_for_a_while() -> None:
    async def test() -> None:
        now = [0.0]
        state = LocalCoordinator(clock=lambda: now[0])
        await state.put("numbers", "one", 1, keep_s=5)
        await state.put("numbers", "two", 2, keep_s=50)
        await state.put("other", "one", 3)
        assert await state.get_all("numbers") == {"one": 1, "two": 2}
        now[0] = 6
        assert await state.get_all("numbers") == {"two": 2}

    run(test())
