"""The life of a job: what is read must stay the same from the beginning to the end."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from biovl.core.artifacts import Draft, Input, Manifest, find_manifest, fingerprint
from biovl.core.errors import ArtifactError
from biovl.runtime.job import Job


def publish(folder: Path, seed: int) -> Path:
    """Publish a folder; another seed gives another one."""
    shutil.rmtree(folder, ignore_errors=True)
    Draft.begin(str(folder), "figures", {"seed": seed}).publish(
        Manifest(kind="figures", config={"seed": seed}, counts={})
    )
    return folder


Begin = Callable[[], AbstractContextManager[tuple[Job, Draft]]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Return what begins or resumes a job that reads a published folder and a file."""
    (tmp_path / "votes.csv").write_text("votes")

    @contextlib.contextmanager
    def run() -> Iterator[tuple[Job, Draft]]:
        figures = str(tmp_path / "figures")
        inputs = [
            Input(name="figures", uri=figures, fingerprint=fingerprint(figures)),
            Input(name="votes", uri=str(tmp_path / "votes.csv"), fingerprint="of its bytes"),
            Input(name="weights", uri="hf-hub:owner/name", fingerprint="of the hub"),
            Input(name="service", uri="https://owner.test", fingerprint="of what it answered"),
            Input(name="computed", uri="", fingerprint="of nothing that lies anywhere"),
        ]
        job = Job(out=str(tmp_path / "out"), kind="corpus", config={}, inputs=inputs, defaults={})
        with job.begin() as draft:
            yield job, draft

    return run


def test_what_was_read_from_two_versions_of_an_input_is_never_published(
    begin: Begin, tmp_path: Path
) -> None:
    figures = publish(tmp_path / "figures", seed=0)
    with begin() as (job, draft):
        publish(figures, seed=1)
        with pytest.raises(ArtifactError, match="figures was published anew"):
            draft.publish(job.manifest(counts={}))
    assert find_manifest(str(tmp_path / "out")) is None
    # Nor with the earlier folder back in its place: rows of both are in the draft.
    publish(figures, seed=0)
    with pytest.raises(ArtifactError, match=r"remove .*out, and run the same"), begin():
        pass
    shutil.rmtree(tmp_path / "out")
    with begin() as (job, draft):
        draft.publish(job.manifest(counts={}))
    assert find_manifest(str(tmp_path / "out")) is not None


def test_an_input_that_is_deleted_when_all_of_it_was_read_costs_nothing(
    begin: Begin, tmp_path: Path
) -> None:
    figures = publish(tmp_path / "figures", seed=0)
    with begin() as (job, draft):
        shutil.rmtree(figures)
        draft.publish(job.manifest(counts={}))
    assert find_manifest(str(tmp_path / "out")) is not None
