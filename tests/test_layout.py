"""Who may import whom, and what ``platform/`` may hold. The picture in the docs is this list."""

import ast
import sys
from pathlib import Path

import pytest

from tests.conftest import SLOW

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "biovl"

KERNEL = ("core", "images", "articles", "models", "runtime", "sample")

# What each room may import, besides itself. Kernel rooms are listed in the order of their floors.
MAY_IMPORT: dict[str, set[str]] = {
    "core": {"__init__"},  # The version, which manifests hold.
    "images": {"core"},
    "articles": {"core"},
    "models": {"core", "images"},
    "sample": {"core", "images"},
    "runtime": {"__init__", "core"},
    # Stages: the kernel, and never each other but for the reasons given.
    "harvest": {*KERNEL, "enrich"},  # What a search in PubMed finds: the E-utilities' client.
    "enrich": {*KERNEL},
    "split": {*KERNEL},
    "annotate": {*KERNEL, "assemble"},  # Rows are selected by the rules of a corpus.
    "concepts": {*KERNEL},
    "assemble": {*KERNEL},
    # Texts of long captions and perceptual hashes are those of the corpus; leaks are searched for
    # in its index.
    "benchmark": {*KERNEL, "assemble", "index"},
    # Validation reports the benchmark's metric; a refused corpus names the recipe that fits.
    "pretrain": {*KERNEL, "assemble", "benchmark"},
    # Fine-tuning is a run of pretrain, judged by the benchmark; merged models are scored by its
    # metric, too.
    "finetune": {*KERNEL, "benchmark", "pretrain"},
    "index": {*KERNEL},
    # These know other stages.
    "publish": {*KERNEL, "assemble", "benchmark"},  # Scores of models go with them.
    "sweep": {*KERNEL, "benchmark", "pretrain"},
    "plan": {*KERNEL, "harvest", "pretrain"},
    "chain": {
        *KERNEL,
        *("annotate", "assemble", "benchmark", "concepts", "harvest", "index", "pretrain", "split"),
        *("finetune", "plan"),  # Tables of the papers: merged models, and the hours of their steps.
        "client",  # The demo searches in what it serves.
    },
    # What users import.
    "__init__": set(),
    "__main__": {"__init__", "core"},  # Commands are imported when they run.
    "client": {"core"},
    "shards": {"core"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def area(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the full names a module imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_area_may(path: Path) -> None:
    own = area(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "biovl":
            inner = PACKAGE / parts[1] if len(parts) > 1 else PACKAGE / "__init__"
            is_area = inner.is_dir() or inner.with_suffix(".py").exists()
            target = inner.name if is_area else "__init__"
            assert target == own or target in MAY_IMPORT[own], f"{own} may not import {target}"
        if parts[0] == "ray":
            is_job = path.stem == "job" or path.stem.endswith("_job")
            assert own == "runtime" or is_job, f"{path}: Ray stays at the rim"


def test_every_room_is_in_the_picture_and_there_are_few() -> None:
    rooms = {area(path) for path in modules()}
    assert rooms == set(MAY_IMPORT)
    assert len(rooms - {"__init__", "__main__"}) <= 22


def test_a_room_has_tests_of_its_name() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert rooms - tested == set()


def test_slow_tests_are_named_as_they_are() -> None:
    names = [path.relative_to(ROOT / "tests").as_posix() for path in ROOT.glob("tests/**/*.py")]
    assert [s for s in SLOW if not any(n.startswith(s) or n.endswith(s) for n in names)] == []


def test_the_source_root_is_no_package() -> None:
    # platform/__init__.py would hide the standard library's platform module.
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_no_script_hides_a_module_of_the_standard_library() -> None:
    hidden = [
        path.name
        for folder in ("pipelines", "serve", "tune", "benchmarks")
        for path in (ROOT / folder).glob("*.py")
        if path.stem in sys.stdlib_module_names
    ]
    assert hidden == []


def test_nobody_imports_a_driver() -> None:
    for path in modules():
        assert not {name.split(".")[0] for name in imported(path)} & {"pipelines", "serve", "tune"}


def test_the_package_imports_nothing_that_only_the_extra_serve_installs() -> None:
    extra = {"fastapi", "multipart", "prometheus_client", "sqlalchemy", "starlette", "uvicorn"}
    for path in modules():
        names = imported(path)
        assert not {name.split(".")[0] for name in names} & extra, path
        assert not any(name.startswith("ray.serve") for name in names), path


def test_http_imports_neither_service() -> None:
    for path in sorted((ROOT / "serve" / "http").glob("*.py")):
        services = {
            name for name in imported(path) if name.startswith(("serve.search", "serve.review"))
        }
        assert services == set(), f"{path}: serve/http is what both services share"
