"""The real application over a small engine, on loopback, and the Chromium of the system."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import uvicorn
import yaml

from tests.serve.search.small_engine import SmallEngine, make_app

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")
KEY = "a-key-of-tests"
HOSTILE = (
    '<img src=x onerror="window.stolen=1"><script>window.stolen=2</script>'
    "<svg onload=window.stolen=3></svg> <b>p</b> < 0.05 & \u202e\u0000 {{7*7}}"
)


class HostileEngine(SmallEngine):
    """Captions, titles and addresses as an attacker would have them published."""

    def __init__(self) -> None:
        """Replace what is shown of every figure."""
        super().__init__()
        for row in self.rows:
            row.update(
                caption=HOSTILE,
                title=HOSTILE,
                journal=HOSTILE,
                citation=HOSTILE,
                figure_label='"><script>window.stolen=4</script>',
                url="javascript:window.stolen=5",
                license_url="javascript:window.stolen=6",
                doi='10.1/"><script>window.stolen=7</script>',
                concepts=["<script>window.stolen=8</script>"],
            )


@contextmanager
def answering(app: Any) -> Iterator[str]:
    """Serve an application on a free port of loopback and yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = time.monotonic() + 600
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < until, "the server did not start in 600 s"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(600)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with answering(make_app()) as url:
        yield url


@pytest.fixture(scope="session")
def hostile_address() -> Iterator[str]:
    with answering(make_app(HostileEngine())) as url:
        yield url


@pytest.fixture(scope="session")
def api_key() -> str:
    return KEY


@pytest.fixture(scope="session")
def guarded_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that answers those who have KEY."""
    keys = tmp_path_factory.mktemp("keys") / "keys.yaml"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys.write_text(
        yaml.safe_dump({"keys": [{"name": "test", "sha256": digest, "scopes": ["search"]}]})
    )
    keys.chmod(0o600)
    with answering(make_app(auth={"keys_file": str(keys)})) as url:
        yield url


# Not for the session: while Playwright runs, no test of this thread has an event loop of its own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watch:
    """What a page complained of and whom it asked."""

    def __init__(self, page: Any) -> None:
        """Listen to a page."""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.responses: list[Any] = []
        self.expects_errors = False
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("response", lambda response: self.responses.append(response))

    def _said(self, message: Any) -> None:
        # A browser itself reports every answer of 400 and more; tests of errors ask for them.
        answered = "Failed to load resource" in message.text
        if message.type in ("error", "warning") and not (answered and self.expects_errors):
            self.complaints.append(message.text)


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open an address in a fresh browser profile.

    At the end no page may have complained in its console, or asked anyone but its own service.
    """
    with ExitStack() as stack:
        pages: list[Any] = []

        def open_page(url: str, *, width: int = 1280, height: int = 860, **options: Any) -> Any:
            context = chromium.new_context(viewport={"width": width, "height": height}, **options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.watch = Watch(page)
            page.home = url.split("?")[0]
            pages.append(page)
            page.goto(url)
            return page

        yield open_page
        for page in pages:
            assert page.watch.complaints == []
            own = (page.home, "data:", "blob:" + page.home)
            assert [url for url in page.watch.requests if not url.startswith(own)] == []


@pytest.fixture(scope="session")
def red_circle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a red circle, as a figure of the index has it."""
    from tests.serve.search.small_engine import drawn, png

    path = tmp_path_factory.mktemp("images") / "mine.png"
    path.write_bytes(png(drawn("red", "circle")))
    return path
