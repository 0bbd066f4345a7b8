"""A disk or a bucket that fails ends a job with one clear reason; mended, the job goes on."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from pyarrow import fs
from werkzeug.serving import make_server

from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, StorageError
from biovl.core.filesystems import open_location
from biovl.core.folders import Folder
from biovl.core.leases import acquire_lease
from biovl.core.parts import PartWriter
from biovl.core.records import Figure
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from tests.compound_rows import figure_row
from tests.runtime.folders import content
from tests.runtime.typed import run_command

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def packages(
    put_packages: Callable[[Path, int], None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    put_packages(folder, 6)
    return folder


def harvest_config(packages: Path | str, out: Path | str) -> HarvestConfig:
    source = {"name": "packages", "path": str(packages)}
    settings = {"source": source, "out": str(out), "packages_per_unit": 1}
    return configs.build(HarvestConfig, settings)


@pytest.fixture(scope="module")
def undisturbed(
    packages: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "figures"
    harvest(harvest_config(packages, out))
    return out


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stderr: str


def in_own_process(packages: Path | str, out: Path | str, *before: str, **environment: str) -> Done:
    """Run the command as a user does."""
    done = subprocess.run(
        [*before, sys.executable, "pipelines/harvest.py", "packages", "--set", f"out={out}",
         "--set", f"source.path={packages}", "--set", "packages_per_unit=1"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**{k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}, **environment},
    )  # fmt: skip
    return Done(done.returncode, done.stderr)


def typed(packages: Path | str, out: Path | str, **environment: str) -> Done:
    """Run the command in this process: another takes seconds to import what is here."""
    said = io.StringIO()
    settings = {"out": str(out), "source.path": str(packages), "packages_per_unit": 1}
    with mock.patch.dict(os.environ, environment), contextlib.redirect_stderr(said):
        try:
            run_command("pipelines/harvest.py", "packages", **settings)
        except SystemExit as ended:
            return Done(int(ended.code or 0), said.getvalue())
    return Done(0, said.getvalue())


def reason(done: Done) -> str:
    """Return what a command that failed said at last, and that nothing before it was a trace."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return "\n".join(done.stderr.splitlines()[-2:])


@pytest.fixture
def small_disk(mount_small_disk: Callable[[Path, str], None], tmp_path: Path) -> Path:
    """A disk of its own that takes 150 kB."""
    mount_small_disk(tmp_path / "disk", "152k")
    return tmp_path / "disk"


def test_a_full_disk_ends_the_command_with_the_reason_and_with_room_it_goes_on(
    small_disk: Path, packages: Path, undisturbed: Path
) -> None:
    out = small_disk / "figures"
    full = reason(typed(packages, out))
    assert str(out) in full
    assert "disk" in full
    assert not (out / "manifest.json").exists()
    assert list((out / ".draft").glob("begun.json"))
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    again = typed(packages, out)
    assert again.returncode == 0, again.stderr
    assert content(out) == content(undisturbed)


def test_where_ray_does_not_start_the_command_ends_with_the_reason(
    packages: Path, tmp_path: Path
) -> None:
    failed = in_own_process(packages, tmp_path / "figures", RAY_TMPDIR="/proc/nowhere")
    assert "RAY_TMPDIR" in reason(failed)


def test_a_part_that_finds_the_disk_full_gives_its_room_back(small_disk: Path) -> None:
    folder = Folder(str(small_disk / "figures"))
    with (
        pytest.raises(StorageError, match=r"\bdisk\b"),
        PartWriter(folder, "figures", 0, Figure, 10**9) as part,
    ):
        part.add(figure_row(image=os.urandom(300_000)))
    assert [file for file in small_disk.rglob("*") if file.is_file()] == []


def test_a_full_disk_ends_a_stage_of_assemble_and_with_room_it_goes_on(
    small_disk: Path, undisturbed: Path, tmp_path: Path
) -> None:
    def run(out: Path) -> None:
        settings = {
            **configs.recipe_settings(assemble_config.small()),
            "figures": str(undisturbed),
            "out": str(out),
        }
        assemble(configs.build(AssembleConfig, settings))

    out = small_disk / "corpus"
    with pytest.raises(StorageError, match=r"\bdisk\b"):
        run(out)
    assert not (out / "manifest.json").exists()
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    run(out)
    run(tmp_path / "corpus")
    assert content(out) == content(tmp_path / "corpus")


def test_a_folder_that_this_user_may_not_write_to_is_named(packages: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere")
    # To root without this right permissions are what they are to others.
    mortal = ("setpriv", "--bounding-set=-dac_override") if os.getuid() == 0 else ()
    said = reason(in_own_process(packages, closed / "figures", *mortal))
    assert f"{closed / 'figures'}: " in said
    assert "Permission denied" in said
    closed.chmod(0o755)
    assert list(closed.iterdir()) == []


class Gate:
    """An S3 server, on the same buckets as that of all tests, that refuses when told to."""

    def __init__(self) -> None:
        self.refusal: tuple[str, str] | None = None
        """Status and code of the answer to every request."""
        self.expires_after: str | None = None
        """A request with this in its path is the last that is served."""
        self._served = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.refusal is None:
            if self.expires_after and self.expires_after in environ["PATH_INFO"]:
                self.refusal = ("400 Bad Request", "ExpiredToken")
            return self._served(environ, start_response)
        status, code = self.refusal
        # As S3 says it, and as it answers HEAD: without a body.
        body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        start_response(status, [("Content-Type", "application/xml")])
        return [] if is_head else [body]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def gate(bucket_uri: str) -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.close()


def through(gate: Gate, path: str) -> str:
    """Return a location that every worker reaches through the gate."""
    return f"s3://key:secret@{path}?region=us-east-1&scheme=http&endpoint_override={gate.address}"


def in_bucket(uri: str) -> dict[str, bytes]:
    """Return the files below a location in a bucket."""
    filesystem, path = open_location(uri)
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    return {
        info.path.removeprefix(f"{path}/"): filesystem.open_input_file(info.path).read()
        for info in found
        if info.type == fs.FileType.File
    }


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (("400 Bad Request", "ExpiredToken"), "expired"),
        (("403 Forbidden", "InvalidAccessKeyId"), "credential is wrong"),
    ],
)
def test_a_credential_that_is_refused_is_told_at_once(
    refusal: tuple[str, str], expected: str, gate: Gate, packages: Path
) -> None:
    gate.refusal = refusal
    said = reason(typed(packages, through(gate, "corpora/refused")))
    assert expected in said
    assert "AWS_SESSION_TOKEN" in said
    assert "s3://corpora/refused" in said
    assert "key:secret" not in said


def test_a_bucket_that_cannot_be_reached_is_told_within_seconds(packages: Path) -> None:
    # Nothing listens there.
    out = "s3://corpora/x"
    said = reason(typed(packages, out, AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_REGION="x"))
    assert "s3://corpora/x: " in said
    assert "AWS_ENDPOINT_URL" in said
    assert "127.0.0.1" in said


def test_a_bucket_that_does_not_exist_is_named(
    packages: Path, bucket_uri: str, tmp_path: Path
) -> None:
    said = reason(typed(packages, "s3://corpse/figures"))
    assert "s3://corpse/figures: " in said
    said = reason(typed("s3://corpse/packages", tmp_path / "figures"))
    assert "source.path: " in said
    assert "s3://corpse/packages" in said


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_credential_that_expires_in_the_middle_makes_no_defect_and_a_new_one_goes_on(
    side: str,
    gate: Gate,
    packages: Path,
    undisturbed: Path,
    bucket: Callable[[str, bytes], None],
    tmp_path: Path,
    ray_session: None,
) -> None:
    if side == "output":
        source, out = str(packages), through(gate, f"corpora/{tmp_path.name}")
        gate.expires_after = "/units/"
    else:
        for file in packages.rglob("*"):
            if file.is_file():
                bucket(f"{tmp_path.name}/{file.relative_to(packages)}", file.read_bytes())
        source, out = through(gate, f"corpora/{tmp_path.name}"), str(tmp_path / "figures")
        gate.expires_after = ".nxml"
    config = harvest_config(source, out)
    with pytest.raises(StorageError, match=r"(?i)expired"):
        harvest(config)
    gate.expires_after = gate.refusal = None
    counts = harvest(config).counts
    assert counts["articles"]["usable"] == counts["articles"]["seen"] == 6
    if side == "output":
        found = in_bucket(out)
        wanted = {name: (undisturbed / name).read_bytes() for name in content(undisturbed)}
        assert found == wanted


def test_a_second_driver_is_refused_and_disturbs_nothing(
    packages: Path, undisturbed: Path, tmp_path: Path, ray_session: None
) -> None:
    out, corpus = tmp_path / "figures", tmp_path / "corpus"
    settings = {
        **configs.recipe_settings(assemble_config.small()),
        "figures": str(undisturbed),
        "out": str(corpus),
    }
    jobs = {
        out: lambda: harvest(harvest_config(packages, out)),
        corpus: lambda: assemble(configs.build(AssembleConfig, settings)),
    }
    for folder, job in jobs.items():
        with acquire_lease(str(folder), settle_s=0):
            before = content(folder)
            with pytest.raises(
                ArtifactError, match=rf"{re.escape(str(folder))} .*\b{os.getpid()}\b"
            ):
                job()
            assert content(folder) == before
        job()
        assert not (folder / ".draft").exists()
    assert content(out) == content(undisturbed)
