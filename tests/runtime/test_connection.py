"""Commands that use a Ray which was running before them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray.dashboard.utils import ray_address_to_api_server_url

from biovl.runtime import worker_process
from biovl.runtime.connection import running_ray
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


def test_commands_use_the_ray_that_was_started_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert running_ray() is None
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:6379\n")
    assert running_ray() == "127.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert running_ray() == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert running_ray() is None


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_ray_that_does_not_answer_is_an_error_at_once(tmp_path: Path, is_noted: bool) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    given = {**os.environ, "RAY_TMPDIR": str(tmp_path), "RAY_ADDRESS": "" if is_noted else address}
    given["PYTHONPATH"] = f"{ROOT / 'platform'}:{given.get('PYTHONPATH', '')}"
    (tmp_path / "ray").mkdir()
    noted = tmp_path / "ray" / "ray_current_cluster"
    noted.write_text(address)
    ended = subprocess.run(
        [sys.executable, "-c", FOLDERS], env=given, check=False, capture_output=True, text=True
    )
    assert "RayError" in ended.stderr
    assert address in ended.stderr
    assert (str(noted) in ended.stderr) == is_noted


def test_a_machine_without_the_commands_folder_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(worker_process.WORKING_FOLDER, str(tmp_path / "of another machine"))
    worker_process.enter_working_folder()
    assert Path.cwd() == tmp_path
