"""Checkpoints: whole or not at all, the last few kept, nothing in them obeyed."""

import os
import pickle
import threading
from pathlib import Path

import pytest
import torch

from biovl.core.errors import ArtifactError
from biovl.runtime.checkpoints import Checkpoints


def state(steps_done: int) -> dict[str, object]:
    return {"steps_done": steps_done, "model": {"weight": torch.full((3,), float(steps_done))}}


def saved(checkpoints: Checkpoints, *steps: int) -> list[int]:
    for steps_done in steps:
        checkpoints.save(state(steps_done))
    checkpoints.wait()
    return checkpoints.steps()


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    assert saved(checkpoints, 7) == [7]
    assert checkpoints.load(7)["model"]["weight"].tolist() == [7, 7, 7]


def test_what_was_saved_does_not_change_with_later_steps(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=9)
    weight, steps = torch.zeros(100_000), [torch.tensor(0.0)]
    state = {"model": {"weight": weight}, "optimizer": {"state": steps, "lr": 0.5}}
    for steps_done in (1, 2, 3):
        weight += 1
        steps[0] += 1
        checkpoints.save({"steps_done": steps_done, **state})
        # As the next step does, while the copy is written.
        weight += 100
    checkpoints.wait()
    for steps_done, expected in ((1, 1), (2, 102), (3, 203)):
        loaded = checkpoints.load(steps_done)
        assert set(loaded["model"]["weight"].tolist()) == {expected}
        assert loaded["optimizer"] == {"state": [torch.tensor(float(steps_done))], "lr": 0.5}


def test_a_tensor_of_another_shape_is_copied_anew(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    for steps_done, size in ((1, 3), (2, 5)):
        checkpoints.save({"steps_done": steps_done, "model": torch.full((size,), 7.0)})
    checkpoints.wait()
    assert checkpoints.load(2)["model"].tolist() == [7.0] * 5


def test_the_history_stays_in_the_folder_and_is_found_with_the_others(tmp_path: Path) -> None:
    def every(number: int) -> Checkpoints:
        return Checkpoints(str(tmp_path), keep_last=1, is_history=lambda steps: steps % number == 0)

    assert saved(every(10), 5, 10, 15, 20, 25) == [10, 20, 25]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "000000010.pt",
        "000000020.pt",
    ]
    assert every(10).load(10)["steps_done"] == 10
    # With another history, one more is in the draft; what is written again is there once.
    assert saved(every(20), 30) == [20, 30]
    assert saved(Checkpoints(str(tmp_path), keep_last=9), 20) == [20, 30]
    assert every(20).prune_history() == []
    assert saved(every(20), 40) == [20, 40]
    # As without: what was kept before is not published.
    assert Checkpoints(str(tmp_path)).prune_history() == []
    assert Checkpoints(str(tmp_path)).steps() == [20]


def test_a_checkpoint_that_does_not_exist_is_an_error_with_those_that_do(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    saved(checkpoints, 5, 10)
    with pytest.raises(ArtifactError, match=r"\b7 steps.*\b5, 10\b"):
        checkpoints.load(7)


def test_the_last_ones_and_those_that_are_needed_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2, pinned=lambda: [10])
    assert saved(checkpoints, 5, 10, 900, 1000, 1200) == [10, 1000, 1200]


def test_later_ones_that_could_not_be_read_do_not_push_out_what_is_written(tmp_path: Path) -> None:
    saved(Checkpoints(str(tmp_path), keep_last=9), 100, 200)
    (tmp_path / ".draft" / "checkpoints" / "000000200.pt").write_bytes(b"damaged")
    # Gone on with after step 100.
    assert saved(Checkpoints(str(tmp_path), keep_last=1), 150) == [150, 200]
    assert saved(Checkpoints(str(tmp_path), keep_last=1), 210) == [210]


def test_a_checkpoint_that_was_being_written_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    saved(checkpoints, 3)
    with pytest.raises(RuntimeError, match="killed"), checkpoints._folder.writer("x.pt") as stream:
        stream.write(b"half")
        raise RuntimeError("killed")
    assert checkpoints.steps() == [3]


def test_files_of_a_killed_process_are_deleted_by_the_next_one(tmp_path: Path) -> None:
    saved(Checkpoints(str(tmp_path)), 3)
    unfinished = tmp_path / ".draft" / "unfinished"
    for name in ("0a-000000006.pt", "0b-lease.json"):
        (unfinished / name).write_bytes(b"half")
    assert (Checkpoints(str(tmp_path)).load_last() or {})["steps_done"] == 3
    # Another process may be writing the other file.
    assert [path.name for path in unfinished.iterdir()] == ["0b-lease.json"]


def test_a_bucket_holds_them_as_well(bucket_uri: str) -> None:
    checkpoints = Checkpoints(f"{bucket_uri}/run", keep_last=1)
    assert saved(checkpoints, 1, 2) == [2]
    assert checkpoints.load(2)["steps_done"] == 2


def test_a_failed_write_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".draft").write_text("a file where the folder should be")
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(state(1))
    with pytest.raises(ArtifactError, match=r"\.draft"):
        checkpoints.wait()


def test_a_failed_write_is_seen_without_another_save(tmp_path: Path) -> None:
    going = threading.Event()
    checkpoints = Checkpoints(str(tmp_path))

    def full() -> None:
        going.wait()
        raise OSError("no space left")

    checkpoints.save(state(1), before=full)
    checkpoints.check()
    assert checkpoints.is_writing()
    going.set()
    with pytest.raises(OSError, match="no space left"):
        while True:
            checkpoints.check()
    # It is raised once: the next save may succeed.
    assert saved(checkpoints, 2) == [2]


def test_whatever_goes_wrong_beside_training_is_raised_where_it_is_waited_for(
    tmp_path: Path,
) -> None:
    def unheard() -> None:
        raise LookupError("whoever was to be told is gone")

    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(state(1), then=unheard)
    with pytest.raises(LookupError, match="gone"):
        checkpoints.wait()


class Harm:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harmed",)


@pytest.mark.parametrize("content", [b"", b"no checkpoint", pickle.dumps(Harm())])
def test_a_damaged_or_dangerous_checkpoint_is_an_error(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".draft" / "checkpoints" / "000000004.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"000000004\.pt"):
        Checkpoints(str(tmp_path)).load(4)
    assert not (tmp_path / "harmed").exists()


def test_a_pickle_that_torch_would_read_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".draft" / "checkpoints" / "000000004.pt"
    path.parent.mkdir(parents=True)
    torch.save({"steps_done": 4, "model": Harm()}, path)
    with pytest.raises(ArtifactError, match=r"000000004\.pt"):
        Checkpoints(str(tmp_path)).load(4)
    assert not (tmp_path / "harmed").exists()


def test_a_checkpoint_is_whole_when_it_is_there_and_can_be_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    saved(checkpoints, 7)
    assert checkpoints.is_whole(7)
    assert not checkpoints.is_whole(8)
    path = tmp_path / ".draft" / "checkpoints" / "000000007.pt"
    path.write_bytes(path.read_bytes()[:-100])
    assert not checkpoints.is_whole(7)


def flipped(data: bytes, place: float, bit: int) -> bytes:
    changed = bytearray(data)
    changed[int(place * len(data))] ^= 1 << bit
    return bytes(changed)


def test_no_flipped_bit_is_loaded(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    saved(checkpoints, 7)
    path = tmp_path / ".draft" / "checkpoints" / "000000007.pt"
    whole = path.read_bytes()
    # All over the archive, its directory, the checksum, and what says that there is one.
    for place in range(0, len(whole), 7):
        path.write_bytes(flipped(whole, place / len(whole), place % 8))
        with pytest.raises(ArtifactError, match=r"000000007\.pt"):
            checkpoints.load(7)
        assert not checkpoints.is_whole(7)
    path.write_bytes(whole)
    assert checkpoints.is_whole(7)


def test_a_checkpoint_without_a_checksum_still_loads(tmp_path: Path) -> None:
    """As versions before wrote them; what PyTorch writes has CRC-32s, of which we make use."""
    path = tmp_path / ".draft" / "checkpoints" / "000000007.pt"
    path.parent.mkdir(parents=True)
    torch.save(state(7), path)
    checkpoints = Checkpoints(str(tmp_path))
    assert checkpoints.is_whole(7)
    assert checkpoints.load(7)["model"]["weight"].tolist() == [7, 7, 7]
    whole = path.read_bytes()
    at = whole.index(torch.full((3,), 7.0).numpy().tobytes())
    path.write_bytes(flipped(whole, (at + 1.5) / len(whole), 3))
    assert not checkpoints.is_whole(7)


def test_the_last_intact_one_is_resumed_from_and_the_others_are_reported(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=3)
    assert checkpoints.load_last() is None
    saved(checkpoints, 5, 10, 15)
    folder = tmp_path / ".draft" / "checkpoints"
    said: list[str] = []
    for name, resumed in (("000000015.pt", 10), ("000000010.pt", 5)):
        path = folder / name
        path.write_bytes(flipped(path.read_bytes(), 0.5, 0))
        assert (checkpoints.load_last(said.append) or {})["steps_done"] == resumed
        assert name in said[-1]
    assert checkpoints.corrupt() == [10, 15]
    path = folder / "000000005.pt"
    path.write_bytes(flipped(path.read_bytes(), 0.5, 0))
    with pytest.raises(ArtifactError, match=r"\b3 checkpoints .*\.draft/checkpoints"):
        checkpoints.load_last()


def test_a_corrupt_checkpoint_is_none_of_those_that_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep_last=2)
    saved(checkpoints, 100, 200)
    path = tmp_path / ".draft" / "checkpoints" / "000000200.pt"
    path.write_bytes(flipped(path.read_bytes(), 0.5, 0))
    assert (checkpoints.load_last() or {})["steps_done"] == 100
    assert saved(checkpoints, 150, 250) == [150, 250]
    # One that was written again is.
    path = path.with_name("000000250.pt")
    path.write_bytes(flipped(path.read_bytes(), 0.5, 0))
    assert (checkpoints.load_last() or {})["steps_done"] == 150
    assert saved(checkpoints, 250, 260) == [250, 260]


def test_a_full_disk_is_what_is_told_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    monkeypatch.setattr(checkpoints._folder, "writer", lambda name: Path("/dev/full").open("wb"))  # noqa: SIM115
    checkpoints.save({"steps_done": 1, "model": torch.zeros(1_000_000)})
    with pytest.raises(OSError, match="No space left"):
        checkpoints.wait()
