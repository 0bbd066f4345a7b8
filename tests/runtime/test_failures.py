"""Damaged inputs end a job with one reason, and name the file."""

import functools
import io
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from biovl.core.artifacts import Draft, Input, Manifest
from biovl.core.errors import ArtifactError, DamagedTable, RayError
from biovl.core.tables import damaged_tables
from biovl.runtime import failures, units
from biovl.runtime.failures import Attempts, explain_resume, raise_task_error, run_steps, run_task
from biovl.runtime.job import Job
from biovl.runtime.progress import Progress
from biovl.runtime.units import run_with_model


def counts_attempts(row: dict[str, Any]) -> dict[str, Any]:
    if row["item"] == 3 and failures._earlier_attempts() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"attempts": failures._earlier_attempts()}


@pytest.mark.ray
def test_a_task_knows_how_often_its_worker_died(ray_session: None) -> None:
    items = ray.data.from_items([3], override_num_blocks=1)
    done = items.map(counts_attempts, num_cpus=0.5)
    assert [row["attempts"] for row in done.iter_rows()] == [1]


def test_a_task_that_killed_its_worker_too_often_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_task(str(tmp_path), lambda: {"a": 1}) == {"a": 1}
    monkeypatch.setattr(failures, "_earlier_attempts", lambda: failures.MAX_DEATHS)
    row = run_task(str(tmp_path), lambda: {"a": 1}, "unit 3")
    with pytest.raises(RayError, match="unit 3: its worker died 8 times"):
        raise_task_error(row)


@dataclass(frozen=True)
class Pool:
    count: int = 2
    cpus: float = 0.5
    gpus: float = 0


def load_deadly(place: Path) -> Callable[[dict[str, Any]], int]:
    """Return what writes down each unit that it is given, and dies at unit 3."""

    def work(row: dict[str, Any]) -> int:
        with (place / str(row["number"])).open("a") as begun:
            begun.write("x")
        if row["number"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1

    return work


@pytest.mark.ray
def test_a_unit_that_kills_the_actors_of_a_pool_ends_the_job_and_is_named(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts()
    for _ in range(failures.MAX_DEATHS - 2):
        attempts.begin("embedding unit 3")
    monkeypatch.setattr(units, "Attempts", lambda: attempts)
    report = Progress("job", io.StringIO())
    report.stage("embedding unit", 6)
    with pytest.raises(RayError, match="embedding unit 3"):
        run_with_model(
            *(functools.partial(load_deadly, tmp_path), [{"number": n} for n in range(6)], report),
            workers=Pool(),
            uri=str(tmp_path),
            unit="pairs",
        )
    assert (tmp_path / "3").read_text() == "xx"
    # Those that it shared its worker with are blamed for nothing.
    assert all(path.read_text() == "x" for path in tmp_path.iterdir() if path.name != "3")
    assert attempts.begin("embedding unit 0") == 0


def test_a_damaged_table_of_an_input_is_named(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    draft = Draft(str(figures))
    draft.folder.create()
    names = ("part-0.parquet", "part-1.parquet", "part-2.parquet")
    for name in names:
        pq.write_table(pa.table({"a": [1]}), figures / name)
    files = {name: {"rows": 1} for name in names}
    draft.publish(Manifest(kind="figures", config={}, counts={}, files=files))
    assert damaged_tables(str(figures)) == []
    whole = (figures / names[1]).read_bytes()
    (figures / names[1]).write_bytes(whole[:-20])
    (figures / names[2]).unlink()
    assert damaged_tables(str(figures)) == [f"{figures}/{name}" for name in names[1:]]

    def read() -> dict[str, int]:
        return {"rows": len(pq.read_table(figures / names[1]))}

    given = Input(name="figures", uri=str(figures), fingerprint="f")
    job = Job(out=str(tmp_path / "out"), kind="corpus", config={}, inputs=[given], defaults={})
    with pytest.raises(ArtifactError, match="truncated or corrupt") as refused, job.begin():
        raise_task_error(run_task(job.out, read))
    assert str(refused.value).endswith(f"{figures}/{names[1]}, {figures}/{names[2]}")
    # Also outside of a draft; and other errors of Arrow are bugs.
    with pytest.raises(DamagedTable), explain_resume(job.out):
        read()
    with pytest.raises(pa.ArrowInvalid), explain_resume(job.out):
        pa.array(["a"]).cast(pa.int64())


def test_steps_of_a_task_are_followed_by_the_error_that_ends_them() -> None:
    def values() -> Iterator[int]:
        yield 1
        yield 2
        raise ArtifactError("damaged")

    assert list(run_steps("out", lambda: iter([1, 2]))) == [1, 2]
    first, second, failed = run_steps("out", values)
    assert (first, second) == (1, 2)
    with pytest.raises(ArtifactError, match="damaged"):
        raise_task_error(failed)
