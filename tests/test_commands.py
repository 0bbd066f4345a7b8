"""The program ``biovl`` and the scripts: which commands there are, and that help comes at once."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from biovl import __main__ as program

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "biovl"
SCRIPTS = sorted([*(ROOT / "pipelines").glob("*.py"), *(ROOT / "tune").glob("*.py")])


def test_every_script_is_a_command_and_every_other_command_serves() -> None:
    assert program.COMMANDS.keys() - {path.stem for path in SCRIPTS} == {"serve", "review"}


def test_the_list_of_commands_is_printed_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "biovl"],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert listed == list(program.COMMANDS)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {name for name in imported if name.startswith("biovl.")} <= {"biovl.__main__"}
    assert not imported & {"numpy", "pydantic", "yaml"}


def test_an_unknown_command_suggests_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["biovl", "pretrian", "tiny"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "did you mean pretrain?" in capsys.readouterr().err


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(module: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["biovl", "pretrain", "tiny"])
    monkeypatch.setattr(program.importlib, "import_module", interrupt)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_of_a_command_is_that_of_its_script(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    of_script = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["biovl", script.stem, "--help"])
    with pytest.raises(SystemExit):
        program.main()
    assert capsys.readouterr().out == of_script
    assert of_script.startswith(f"usage: biovl {script.stem} ")


def test_help_imports_neither_ray_nor_pytorch_nor_a_job() -> None:
    code = (
        "import contextlib, os, sys\n"
        "from biovl.__main__ import COMMANDS, run\n"
        "for name in COMMANDS:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):\n"
        "        run(name, ['--help'])\n"
        "heavy = [n for n in sys.modules if n in ('ray', 'torch') or n.startswith('biovl.') "
        "and n.endswith('job')]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_packages_for_serving_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setattr(sys, "argv", ["biovl", "serve", "model=model"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "biovl[serve]" in capsys.readouterr().err


def test_functions_that_are_imported_when_called_exist() -> None:
    named = re.compile(r'lazy\.function\(\s*"([\w.]+):(\w+)"')
    names = [found for path in PACKAGE.rglob("*.py") for found in named.findall(path.read_text())]
    assert len(names) > len(SCRIPTS)
    for module, function in names:
        path = (PACKAGE.parent / module.replace(".", "/")).with_suffix(".py")
        assert f"\ndef {function}(" in path.read_text(), f"{module} has no {function}"
