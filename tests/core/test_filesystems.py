"""Where a location is: local folders, and buckets as every AWS client finds them."""

import http.server
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree, base_name, below, is_within, open_location
from biovl.core.folders import Folder


class Endpoint(http.server.ThreadingHTTPServer):
    """An S3 server that holds nothing and remembers who asked."""

    signatures: list[str | None]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self.server.signatures.append(self.headers.get("Authorization"))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), _Answer)
    server.signatures = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("environment", "uri", "is_signed"),
    [
        ({"AWS_ENDPOINT_URL": "http://{}"}, "s3://b/x", True),
        (
            {"AWS_ENDPOINT_URL_S3": "http://{}", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
            "s3://b/x",
            True,
        ),
        ({"AWS_ENDPOINT_URL": "http://{}"}, "s3://anonymous@b/x", False),
        ({}, "s3://b/x?scheme=http&endpoint_override={}", True),
    ],
)
def test_the_endpoint_and_the_signature_are_as_documented(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    uri: str,
    is_signed: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(endpoint.address))
    filesystem, path = open_location(uri.format(endpoint.address))
    assert path == "b/x"
    assert filesystem.get_file_info(path).type == pafs.FileType.NotFound
    assert {signature is not None for signature in endpoint.signatures} == {is_signed}


def test_local_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("a", "./a/", f"{tmp_path}/a", f"file://{tmp_path}/a/"):
        filesystem, path = open_location(uri)
        assert isinstance(filesystem, pafs.LocalFileSystem)
        assert path == f"{os.path.realpath(tmp_path)}/a"


@pytest.mark.parametrize("uri", ["foo://x", "https://host/x", "file://relative", "s3:///x"])
def test_a_location_of_no_known_kind_is_an_error(uri: str) -> None:
    with pytest.raises(ArtifactError, match=re.escape(uri)):
        open_location(uri)


def test_the_uri_of_a_path_holds_no_credentials(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint.address}")
    tree = Tree("s3://key:secret@b/x?region=us-east-1")
    assert tree.uri(f"{tree.path}/y") == "s3://b/x/y"
    assert tree.path_of("s3://b/x/y/") == "b/x/y"


@pytest.mark.parametrize(
    ("uri", "inner", "name"),
    [
        ("/data/what?/x/", "/data/what?/x/y/z", "x"),
        ("x", "x/y/z", "x"),
        ("s3://key:secret@b/x", "s3://key:secret@b/x/y/z", "x"),
        ("s3://key:secret@b", "s3://key:secret@b/y/z", "b"),
        ("s3://b/x/?scheme=http&endpoint=a/b", "s3://b/x/y/z?scheme=http&endpoint=a/b", "x"),
    ],
)
def test_a_query_stays_at_the_end_and_out_of_names(uri: str, inner: str, name: str) -> None:
    assert below(uri, "y/z") == inner
    assert base_name(uri) == name


def test_folders_whose_names_differ_after_a_question_mark_are_two(tmp_path: Path) -> None:
    assert not is_within(f"{tmp_path}/x?1", f"{tmp_path}/x?2")
    assert is_within(f"{tmp_path}/x?1/y", f"{tmp_path}/x?1")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_every_file_is_listed_with_its_size(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = str(tmp_path / "source")
    if kind == "s3":
        uri = f"{request.getfixturevalue('bucket_uri')}/{tmp_path.name}"
    assert Tree(uri).sizes() == {}
    folder = Folder(uri)
    for name in ("b.tar", "PMC1/a.nxml", "PMC1/media/c.jpg", ".hidden", "PMC1/.DS_Store"):
        folder.write(name, b"12345")
    assert Tree(uri).sizes() == {"PMC1/a.nxml": 5, "PMC1/media/c.jpg": 5, "b.tar": 5}
    one = folder.uri.partition("?")
    assert Tree(f"{one[0]}/b.tar{one[1]}{one[2]}").sizes() == {"": 5}


def test_what_is_not_read_is_listed_by_name(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "link").symlink_to(tmp_path / "nothing")
    assert list(Tree(str(tmp_path / "source")).sizes().values()) == [-1]


def test_a_source_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    tree = Tree(str(tmp_path / "source"))

    def refused(_: str) -> None:
        raise PermissionError

    monkeypatch.setattr(tree, "folder", refused)
    with pytest.raises(PermissionError):
        tree.sizes()
