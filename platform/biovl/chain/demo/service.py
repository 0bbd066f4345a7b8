"""Serving in the demo: start the service on this machine, and search.

The service is started by the command that users type: ``serve run demo/serve.yaml``.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import yaml

from biovl.client import Client
from biovl.core.errors import ConfigError

_PATIENCE_S = 240
_WIDTH = 64
_HITS, _PRINTED, _DEEP = 4, 3, 100
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def serve_package() -> Path:
    """Return the folder of the package ``serve``, which is next to biovl or in a checkout.

    Raises:
        ConfigError: If it, or the packages that it needs, are not installed.
    """
    spec = importlib.util.find_spec("serve")
    if spec is None or spec.origin is None:
        raise ConfigError("the package serve was not found: install biovl, or run make setup")
    if importlib.util.find_spec("fastapi") is None:
        raise ConfigError(
            "the demo needs the packages of the extra biovl[serve]: see docs/install.md"
        )
    return Path(spec.origin).parent


def searches(address: str, text: str, unseen: Mapping[str, str]) -> list[dict[str, Any]]:
    """Search by text, by image and by the caption of a figure; print and return the results.

    The model of the synthetic demo is trained for one minute only and rarely finds a figure by a
    few words. The first search therefore also matches the words of captions, and the last one
    reports the rank of its own image.

    Args:
        address: URL of the service.
        text: Text of the first search.
        unseen: ``figure_id`` and ``caption`` of a figure that the model was not trained on.

    Returns:
        The searches in the format of ``biovl.chain.page.reading.Notes``.
    """
    with Client(address) as client:
        first = client.search(text, k=_HITS, words=True)
        best = first["results"][0]
        image = client.image(best["figure_id"])
        group = best["license_group"]
        only = {"license_group": [group]}
        by_caption = client.search(unseen["caption"], k=_DEEP)
        ids = [hit["figure_id"] for hit in by_caption["results"]]
        rank = f"{ids.index(unseen['figure_id']) + 1}" if unseen["figure_id"] in ids else "lower"
        return [
            _report("With a text, by vectors and words", {"text": text}, first),
            _report(
                "With the image of a figure",
                {"figure_id": best["figure_id"]},
                client.search(image=image, k=_HITS),
            ),
            _report(
                f"The same text, where the licence is {group}",
                {"text": text},
                client.search(text, k=_HITS, words=True, filter=only),
            ),
            _report(
                "With the caption of an article it has not seen, by vectors alone",
                {"text": unseen["caption"]},
                by_caption,
                said=f"its own image has rank {rank}",
            ),
        ]


def wait(address: str) -> None:
    """Print the address, and keep the service running until Ctrl-C."""
    print(f"Search in your browser: {address}/    Ctrl-C ends it.", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()


def _report(
    how: str, query: dict[str, str], answer: dict[str, Any], said: str = ""
) -> dict[str, Any]:
    took = answer["timings_ms"].get("total", sum(answer["timings_ms"].values()))
    what = " ".join(repr(value.splitlines()[0][:_WIDTH]) for value in query.values())
    end = f"; {said}" if said else ""
    print(f"{how}, {what}, among {answer['matching']} figures ({took:.0f} ms{end}):")
    for hit in answer["results"][:_PRINTED]:
        caption = hit["caption"].splitlines()[0][:_WIDTH]
        print(f"  {hit['rank']}. {hit['score']:.2f}  {hit['figure_id']}: {caption} …")
    hits = answer["results"][:_HITS]
    results = [{"figure_id": hit["figure_id"], "score": hit["score"]} for hit in hits]
    return {
        "asked": how,
        **query,
        "matching": answer["matching"],
        "took_ms": took,
        "said": said,
        "results": results,
    }


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run the service for the duration of the block, and yield its URL."""
    package = serve_package()
    settings = yaml.safe_load((package / "dev.yaml").read_text())
    port = _free_port(8000)
    settings["http_options"]["port"] = port
    for part in ("model", "index"):
        settings["applications"][0]["args"][part] = str((folder / part).resolve())
    config = folder / "serve.yaml"
    config.write_text("# serve run serve.yaml\n" + yaml.safe_dump(settings))
    address = f"http://127.0.0.1:{port}"
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [_program("serve"), "run", "--address", "local", str(config.resolve())],
            cwd=package.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"RAY_SERVE_LOG_TO_STDERR": "0"},
            # Ctrl-C must reach only this process, which then stops the service itself.
            start_new_session=True,
        )
        try:
            _await_ready(address, process, folder / "serve.log")
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _await_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/readyz", timeout=10).is_success:
                return
        time.sleep(0.5)
    end = log.read_text(errors="replace")[-3_000:]
    sys.exit(f"{end}\nThe service did not start; the above is the end of {log}")


def screenshot(address: str, text: str, target: Path) -> str:
    """Search in a headless browser, if one is installed, and save a screenshot of the page.

    Returns:
        The file name; empty without a browser.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None or importlib.util.find_spec("playwright") is None:
        return ""
    from playwright.sync_api import Error, sync_playwright

    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=arguments)
            page = chromium.new_page(viewport={"width": 1280, "height": 960})
            page.goto(f"{address}/?{urlencode({'q': text, 'words': 1})}")
            page.locator(".card img").first.wait_for()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=target)
    except Error as error:
        print(f"The page could not be drawn: {str(error).splitlines()[0]}")
        return ""
    print(f"The page that searches: {target}\n")
    return target.name


def _program(name: str) -> str:
    """Return the path of a program in the current Python environment."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe, suppress(OSError):
            # As servers do: ports in TIME_WAIT are free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            port_free: int = probe.getsockname()[1]
            return port_free
    raise OSError("no free port")
