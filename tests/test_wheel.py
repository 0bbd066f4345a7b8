"""The wheel: it has every file that the packages read, and works without a checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built from a copy: setuptools leaves a folder where it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("platform", "serve"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip(
        *("wheel", "--no-deps", "--no-build-isolation", "--no-index"),
        *("--wheel-dir", str(folder), str(folder / "source")),
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--no-compile", "--target", str(folder), str(wheel))
    return folder


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True)


def biovl(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program of an installed wheel in another folder, without the checkout."""
    return subprocess.run(
        [str(installed / "bin" / "biovl"), *arguments],
        env=os.environ | {"PYTHONPATH": str(installed)},
        cwd=installed.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    packages = (ROOT / "platform" / "biovl", ROOT / "serve")
    files = {
        path.relative_to(package.parent).as_posix()
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files


def test_the_program_of_the_wheel_runs_without_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    assert "pretrain" in biovl(installed, "--help").stdout
    done = biovl(installed, "sample", str(tmp_path / "packages"), "--articles", "1")
    assert '"packages": 1' in done.stdout, done.stderr
    done = biovl(installed, "plan", "laptop")
    assert done.stdout.splitlines()[-1].startswith("{"), done.stderr


def test_ray_serve_finds_the_service_of_the_wheel(installed: Path) -> None:
    done = biovl(installed, "serve", "model=missing", "index=missing")
    assert done.returncode == 1
    assert "missing" in done.stderr.splitlines()[-1], done.stderr
