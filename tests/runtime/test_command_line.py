"""The last line of a command: counts and warnings, of a new folder and of a published one."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from biovl.core.artifacts import Manifest
from biovl.runtime import command_line
from biovl.runtime.job import Job


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a job that publishes nothing but warnings."""

    out: str
    warnings: tuple[str, ...] = ()


def recipe() -> Config:
    """The only recipe."""
    return Config(out="?")


def doubt(config: Config) -> Manifest:
    """Publish a folder without files."""
    job = Job.of(config, "model", output_format=1)
    published = job.find_published()
    if published is not None:
        return published
    with job.begin() as draft:
        return draft.publish(job.manifest(counts={"rows": 3}, warnings=config.warnings))


@pytest.mark.parametrize("warnings", [[], ["val has 2 pairs", "the model overfits"]])
def test_the_last_line_lists_the_warnings_each_time(
    warnings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["job.py", "only", f"--set=out={tmp_path / 'out'}"]
    monkeypatch.setattr(sys, "argv", [*given, f"--set=warnings={json.dumps(warnings)}"])
    for _ in range(2):
        command_line.main(Config, {"only": recipe}, doubt, about=None)
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (last["rows"], last["warnings"]) == (3, warnings)


def test_an_interrupted_job_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(config: Config) -> Manifest:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["job.py", "only", f"--set=out={tmp_path / 'out'}"])
    with pytest.raises(SystemExit) as ended:
        command_line.main(Config, {"only": recipe}, interrupted, about=None)
    assert ended.value.code == 130
    assert len(capsys.readouterr().err.splitlines()) == 1
