"""The life of a job: what is read must stay the same from the beginning to the end."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from biovl.core.artifacts import Draft, Input, Manifest, find_manifest, fingerprint
from biovl.core.config import Share
from biovl.core.errors import ArtifactError, ConfigError
from biovl.runtime.job import Job, entry_point


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
        with pytest.raises(ArtifactError, match="figures was published again"):
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


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a job."""

    out: str = "out"
    threshold: Share = 0.5
    models: Mapping[str, str] = field(default_factory=dict)


def test_settings_of_a_configuration_made_in_python_are_checked_when_the_job_starts() -> None:
    @entry_point
    def threshold(config: Config, *, times: int) -> float:
        return config.threshold * times

    assert threshold(Config(threshold=1, models={"v1.2": "m"}), times=2) == 2
    with pytest.raises(ConfigError, match=r"threshold: .*less than or equal to 1 \(got 2.0\)"):
        threshold(Config(threshold=2), times=2)
