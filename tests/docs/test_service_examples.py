"""The examples of asking the service do what they say, as they stand, on a few drawn figures."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, pages
from tests.serve.search.small_engine import drawn, make_app, png
from tests.serve.search.tiny_service import listening

BLOCKS = [block for page in pages() for block in blocks(page) if not block.needs]
COMMANDS = [
    command
    for block in BLOCKS
    if block.language == "bash"
    for command in block.commands()
    if command.startswith("curl ")
]
PYTHON = [
    block.text for block in BLOCKS if block.language == "python" and "biovl.client" in block.text
]
PORT = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(make_app()) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "figure.png").write_bytes(png(drawn("red", "circle")))
    return tmp_path


def test_there_are_examples() -> None:
    assert len(COMMANDS) >= 5
    assert len(PYTHON) == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_answered(command: str, address: str, folder: Path) -> None:
    assert PORT in command
    done = subprocess.run(
        ["bash", "-c", command.replace(PORT, address).replace("curl ", "curl -sS --fail ", 1)],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "/v1/" not in command:
        assert done.stdout
        return
    answer = json.loads(done.stdout)
    assert answer.get("results") or answer.get("data") or answer.get("evidence")


def test_the_python_example_runs(address: str, folder: Path) -> None:
    paths = [str(ROOT / "platform"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[0].replace(PORT, address)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
