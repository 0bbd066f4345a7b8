"""The end of the demo: serve its model and index on this machine, and search.

What is run is what a user types: ``serve run demo/serve.yaml``.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import httpx
import yaml

from biovl.client import Client

ROOT = Path(__file__).parents[1]
_PATIENCE_S = 240
_TEXT = "Phase map of a cell treated with carvedilol"
_WORDS = "swollen mitochondria"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def show(folder: Path, *, keep: bool = False) -> int:
    """Search by text, by image and among some figures, print what is found; return how often.

    Args:
        folder: Of the demo; has ``model/`` and ``index/``.
        keep: Whether to go on serving until Ctrl-C.
    """
    print("Serving model and index on this machine …", flush=True)
    with _serving(folder) as address:
        with Client(address) as client:
            done = _searches(client)
        _screenshot(address, folder / "page.png")
        if keep:
            print(f"\nSearch in your browser: {address}/    Ctrl-C ends it.", flush=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    again = f"serve run {folder}/serve.yaml"
    print(f"The page was at {address}/; to have it again: make demo SERVE=1, or {again}\n")
    return done


def _searches(client: Client) -> int:
    first = client.search(_TEXT, k=3)
    _print(f"Asked for {_TEXT!r}", first)
    best = first["results"][0]
    _print(f"Asked with the image of {best['figure_id']}", _like(client, best["figure_id"]))
    group = best["license_group"]
    filtered = client.search(_WORDS, k=3, words=True, filter={"license_group": [group]})
    _print(f"Asked for {_WORDS!r} by vectors and words, where the licence is {group}", filtered)
    return 3


def _like(client: Client, figure_id: str) -> dict:
    return client.search(image=client.image(figure_id), k=3)


def _print(asked: str, answer: dict) -> None:
    took = answer["timings_ms"].get("total", sum(answer["timings_ms"].values()))
    print(f"{asked}, among {answer['matching']} figures ({took:.0f} ms):")
    for hit in answer["results"]:
        caption = hit["caption"].splitlines()[0][:64]
        print(f"  {hit['rank']}. {hit['score']:.2f}  {hit['figure_id']}: {caption} …")


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """Yield the address of a service that runs as long as the block."""
    settings = yaml.safe_load((ROOT / "serve" / "dev.yaml").read_text())
    port = _free_port(8000)
    settings["http_options"]["port"] = port
    for part in ("model", "index"):
        settings["applications"][0]["args"][part] = str((folder / part).resolve())
    config = folder / "serve.yaml"
    config.write_text("# serve run, in the repository's folder\n" + yaml.safe_dump(settings))
    address = f"http://127.0.0.1:{port}"
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [_program("serve"), "run", "--address", "local", str(config.resolve())],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"RAY_SERVE_LOG_TO_STDERR": "0"},
            # Ctrl-C is for this process: it ends the service when it is done itself.
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


def _await_ready(address: str, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/readyz", timeout=10).is_success:
                return
        time.sleep(0.5)
    end = log.read_text(errors="replace")[-3_000:]
    sys.exit(f"{end}\nThe service did not start; the above is the end of {log}")


def _screenshot(address: str, target: Path) -> None:
    """Search in a real browser, where there is one, and keep what it shows."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None or importlib.util.find_spec("playwright") is None:
        return
    from playwright.sync_api import Error, sync_playwright

    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=arguments)
            page = chromium.new_page(viewport={"width": 1280, "height": 960})
            page.goto(f"{address}/?{urlencode({'q': _TEXT})}")
            page.locator(".card img").first.wait_for()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=target)
    except Error as error:
        print(f"The page could not be drawn: {str(error).splitlines()[0]}")
        return
    print(f"The page that searches: {target}")


def _program(name: str) -> str:
    """Return a program of the environment that runs this."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe, suppress(OSError):
            # As a server would: what lately closed does not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found: int = probe.getsockname()[1]
            return found
    raise OSError("no free port")
