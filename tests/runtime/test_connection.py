"""Commands that use a Ray which was running before them."""

import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.dashboard.utils import ray_address_to_api_server_url

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


@pytest.mark.ray
def test_a_ray_without_a_dashboard_asks_no_other_dashboard(ray_session: None) -> None:
    """Ray Train asks the dashboard whether a training lives, and ends the workers of a dead one."""
    address = ray.get_runtime_context().gcs_address
    assert ray_address_to_api_server_url(address).rsplit(":", 1)[1] == "0"


def test_a_machine_without_the_commands_folder_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(worker_process.WORKING_FOLDER, str(tmp_path / "of another machine"))
    worker_process.enter_working_folder()
    assert Path.cwd() == tmp_path
