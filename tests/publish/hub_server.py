"""A hub on loopback: real HTTP in the protocol that the client speaks, and faults on demand.

Source: the requests of huggingface_hub 2.4, ``hf_api.py``, ``_commit_api.py`` and ``lfs.py``.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "hf_good"
_LARGE = (".tar", ".parquet", ".png", ".safetensors")


@dataclass
class Repo:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    history: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files by commit, of each that was asked for."""

    @property
    def sha(self) -> str:
        """The commit: other contents have another one."""
        sha = hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()
        self.history[sha] = dict(self.files)
        return sha

    def at(self, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        """Return commit and files of a revision; None if there is none."""
        sha = self.sha if revision in (None, "main") else str(revision)
        return (sha, self.history[sha]) if sha in self.history else None


@dataclass
class Hub:
    """What the server holds, was asked, and is to do wrong."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    """By ``datasets/USER/NAME`` or ``models/USER/NAME``."""
    large: dict[str, bytes] = field(default_factory=dict)
    """Contents by SHA-256, committed or not."""
    requests: list[str] = field(default_factory=list)
    """``PUT /large/…``: method and path of each."""
    faults: list[tuple[str, int]] = field(default_factory=list)
    """Answers to the next requests that fit a pattern: a status, or 0 to cut the connection."""
    replaced_after: tuple[str, str, dict[str, bytes]] | None = None
    """A request, by pattern, after which a repository has other files: pattern, repository, files.
    """
    losses: list[str] = field(default_factory=list)
    """Requests that are done and never answered, by pattern."""
    makes_public: bool = False

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, request) is not None for request in self.requests)

    def repo(self, name: str) -> Repo:
        return self.repos[name]

    def write(self, name: str, folder: Path) -> Path:
        """Write the files of a repository as a clone of it has them."""
        for path, content in self.repos[name].files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def _handle(self) -> None:
        request = f"{self.command} {self.path}"
        self.hub.requests.append(request)
        size = int(self.headers.get("Content-Length") or 0)
        for number, (pattern, status) in enumerate(self.hub.faults):
            if re.search(pattern, request):
                del self.hub.faults[number]
                self.rfile.read(min(size, 100) if status == 0 else size)
                self.close_connection = True
                if status:
                    self._answer(status, {"error": "as asked"})
                return
        body = self.rfile.read(size)
        is_signed = self.path.startswith("/large/")
        if not is_signed and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(
                401,
                {"error": "no"},
                {"X-Error-Message": "Invalid credentials in Authorization header"},
            )
            return
        for route, answer in _ROUTES:
            if found := re.fullmatch(route, request.partition("?")[0]):
                getattr(self, answer)(body, *found.groups())
                self._replace(request)
                return
        self._answer(500, {"error": f"unknown {request}"})

    def _replace(self, request: str) -> None:
        if self.hub.replaced_after and re.search(self.hub.replaced_after[0], request):
            _, name, files = self.hub.replaced_after
            self.hub.repos[name].files = files
            self.hub.replaced_after = None

    def _answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        for lost in self.hub.losses:
            if re.search(lost, f"{self.command} {self.path}"):
                self.hub.losses.remove(lost)
                self.close_connection = True
                return
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _found(self, name: str, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        repo = self.hub.repos.get(name)
        found = None if repo is None else repo.at(revision)
        if found is None:
            code = "RepoNotFound" if repo is None else "RevisionNotFound"
            self._answer(404, {"error": "none"}, {"X-Error-Code": code})
        return found

    def info(self, body: bytes, name: str, revision: str | None) -> None:
        found = self._found(name, revision)
        if found is None:
            return
        sha, files = found
        private = self.hub.repos[name].private
        about = {"id": name.partition("/")[2], "private": private, "sha": sha}
        self._answer(
            200,
            {
                **about,
                "siblings": [
                    {"rfilename": path, "blobId": _git(content)} for path, content in files.items()
                ],
                "tags": [],
                "downloads": 0,
                "likes": 0,
            },
        )

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> None:
        found = self._found(f"models/{name}", revision)
        if found is None:
            return
        sha, files = found
        if path not in files:
            self._answer(404, {"error": "none"}, {"X-Error-Code": "EntryNotFound"})
            return
        content = files[path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{_git(content)}"')
        self.send_header("X-Repo-Commit", sha)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked.get('type') or 'model'}s/{asked['organization']}/{asked['name']}"
        if name in self.hub.repos:
            self._answer(409, {"error": "there", "url": f"{self.hub.url}/{name}"})
            return
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.hub.repos[name] = Repo(private and not self.hub.makes_public)
        self._answer(200, {"url": f"{self.hub.url}/{name.removeprefix('models/')}"})

    def tree(self, body: bytes, name: str, revision: str) -> None:
        found = self._found(name, revision)
        if found is None:
            return
        _, files = found
        self._answer(200, [self._described(path, files[path]) for path in sorted(files)])

    def _described(self, path: str, content: bytes) -> dict[str, Any]:
        about = {"type": "file", "path": path, "size": len(content), "oid": _git(content)}
        if not path.endswith(_LARGE):
            return about
        sha256 = hashlib.sha256(content).hexdigest()
        return {**about, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 130}}

    def yaml(self, body: bytes) -> None:
        self._answer(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str) -> None:
        there = self.hub.repos[name].files
        self._answer(
            200,
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if file["path"].endswith(_LARGE) else "regular",
                        "shouldIgnore": False,
                        "oid": self._oid(file["path"], there),
                    }
                    for file in json.loads(body)["files"]
                ]
            },
        )

    def _oid(self, path: str, there: dict[str, bytes]) -> str | None:
        if path not in there:
            return None
        about = self._described(path, there[path])
        return str(about["lfs"]["oid"] if "lfs" in about else about["oid"])

    def batch(self, body: bytes, name: str) -> None:
        objects = [
            {
                **{key: asked[key] for key in ("oid", "size")},
                **(
                    {}
                    if asked["oid"] in self.hub.large
                    else {"actions": {"upload": {"href": f"{self.hub.url}/large/{asked['oid']}"}}}
                ),
            }
            for asked in json.loads(body)["objects"]
        ]
        self._answer(200, {"transfer": "basic", "objects": objects})

    def large(self, body: bytes, sha256: str) -> None:
        assert hashlib.sha256(body).hexdigest() == sha256
        self.hub.large[sha256] = body
        self._answer(200, {})

    def commit(self, body: bytes, name: str) -> None:
        repo = self.hub.repos[name]
        for line in body.decode().splitlines():
            item = json.loads(line)
            key, value = item["key"], item["value"]
            if key == "file":
                repo.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                repo.files[value["path"]] = self.hub.large[value["oid"]]
            elif key == "deletedFile":
                del repo.files[value["path"]]
            else:
                repo.commits.append(value["summary"])
        self._answer(
            200,
            {"commitUrl": f"{self.hub.url}/{name}/commit/{40 * chr(49)}", "commitOid": "1" * 40},
        )


_NAME = r"/api/((?:datasets|models)/[^/]+/[^/]+)"
_ROUTES = [
    (f"GET {_NAME}(?:/revision/(\\w+))?", "info"),
    (r"(?:GET|HEAD) /([^/]+/[^/]+)/resolve/(\w+)/(.+)", "resolve"),
    ("POST /api/repos/create", "create"),
    (f"GET {_NAME}/tree/(\\w+)", "tree"),
    ("POST /api/validate-yaml", "yaml"),
    (f"POST {_NAME}/preupload/main", "preupload"),
    (r"POST /(.+)\.git/info/lfs/objects/batch", "batch"),
    (r"PUT /large/(\w+)", "large"),
    (f"POST {_NAME}/commit/main", "commit"),
]


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
