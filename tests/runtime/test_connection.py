"""Commands that use a Ray which was running before them."""

import subprocess
import sys
from pathlib import Path

import pytest

from biovl.runtime import worker_process
from tests.runtime.typed import ROOT, with_this_ray

FOLDERS = """
import os, ray
from biovl.runtime.connection import connect_ray
with connect_ray():
    print(ray.get(ray.remote(lambda: os.getcwd()).remote()))
"""


@pytest.mark.ray
def test_workers_read_and_write_where_the_command_runs(ray_session: None, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    given = with_this_ray()
    given["PYTHONPATH"] = f"{ROOT / 'platform'}:{given['PYTHONPATH']}"
    command = [sys.executable, "-c", FOLDERS]
    said = subprocess.run(command, cwd=folder, env=given, check=True, stdout=subprocess.PIPE)
    assert said.stdout.decode().strip() == str(folder)


def test_a_machine_without_the_commands_folder_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(worker_process.WORKING_FOLDER, str(tmp_path / "of another machine"))
    worker_process.enter_working_folder()
    assert Path.cwd() == tmp_path
