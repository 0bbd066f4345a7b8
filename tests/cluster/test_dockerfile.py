"""The Dockerfile: what it copies is there and not ignored, versions are pinned, nobody is root."""

import fnmatch
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage, with those of the stage that it begins from."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            found[name] = [*found.get(base, [("FROM", base)])]
        else:
            found[name].append((instruction, " ".join(rest.split())))
    return found


def ignored(name: str) -> bool:
    """Return whether ``.dockerignore`` leaves out a file or folder of the root."""
    out = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch.fnmatch(name, line.removeprefix("!")):
            out = not line.startswith("!")
    return out


TARGETS = [(name, steps) for name, steps in stages().items() if name != "base"]


def test_there_is_an_image_without_and_one_with_cuda() -> None:
    assert [name for name, _ in TARGETS] == ["cpu", "gpu"]


@pytest.mark.parametrize(("name", "steps"), TARGETS)
def test_an_image_is_pinned_and_not_run_by_root(name: str, steps: list[tuple[str, str]]) -> None:
    images = [rest for instruction, rest in steps if instruction == "FROM"]
    assert all(re.search(r":\d+\.\d+", image) for image in images)
    assert [rest for instruction, rest in steps if instruction == "USER"][-1] == "1000"
    installs = re.findall(r"pip install [^;&]+", " ".join(rest for _, rest in steps))
    assert any("-r requirements.txt" in install for install in installs)
    assert all("--no-deps" in install for install in installs)


@pytest.mark.parametrize(("name", "steps"), TARGETS)
def test_what_is_copied_is_there(name: str, steps: list[tuple[str, str]]) -> None:
    copied = [rest.split()[:-1] for instruction, rest in steps if instruction == "COPY"]
    assert copied
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists()
        assert source == "." or not ignored(source)


def test_the_context_has_all_that_is_installed_and_nothing_else() -> None:
    sent = {path.name for path in ROOT.iterdir() if not ignored(path.name)}
    assert {"platform", "serve", "pyproject.toml", "README.md", "LICENSE"} <= sent
    assert not sent & {".git", ".venv", "docs", "tests", "demo"}


def test_without_cuda_no_package_of_it_is_left() -> None:
    (pattern,) = {
        re.search(r"sed -i -E '/(.+?)/d'", rest)[1] for _, rest in stages()["cpu"] if "sed" in rest
    }
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    left = [line for line in lines if not re.search(pattern, line)]
    assert any(line.startswith("torch==") for line in left)
    assert not any(re.match(r"cuda|nvidia|triton", line) for line in left)
