"""The examples of docs/extending.md, written where they say into a copy, do what they say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks

EXAMPLES = [block for block in blocks("docs/extending.md") if block.word in ("file", "after")]
COPIED = ("platform", "serve", "tune", "pipelines", "tests", "pyproject.toml")
CONTRACTS = ("tests/contracts", "tests/test_layout.py")
NEW = [block.said for block in EXAMPLES if block.word == "file"]
OWN = [name for name in NEW if name.startswith("tests/")]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository with all examples in it."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "docs")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    for block in EXAMPLES:
        write(block, folder)
    return folder


def write(block: Block, folder: Path) -> None:
    """Write an example: a new file, or lines after one that stands there once."""
    if block.word == "file":
        path = folder / block.said
        assert not path.exists(), f"{block}: there is a {block.said} already"
        path.write_text(block.text)
        return
    name, _, line = block.said.partition(": ")
    text = (folder / name).read_text()
    assert text.count(f"{line}\n") == 1, f"{block}: {name} has no such line, or more than one"
    (folder / name).write_text(text.replace(f"{line}\n", f"{line}\n{block.text}"))


def python(copy: Path, *arguments: str) -> str:
    """Run Python in the copy, on the copy's packages."""
    paths = os.pathsep.join([str(copy / "platform"), str(copy)])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_contracts_find_the_examples_and_their_own_tests_pass(copy: Path) -> None:
    # What the contracts say of everything else is the same as without the examples.
    about = " or ".join(Path(name).stem for name in NEW)
    found = python(
        copy, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-k", about, *CONTRACTS, *OWN
    )
    assert "[captioned]" in found
    assert "[colourful]" in found
    assert "sources/captioned.py" in found


def test_examples_are_written_as_we_write(copy: Path) -> None:
    touched = sorted({block.said.partition(": ")[0] for block in EXAMPLES})
    python(copy, "-m", "ruff", "check", *touched)
    python(copy, "-m", "ruff", "format", "--check", *touched)
