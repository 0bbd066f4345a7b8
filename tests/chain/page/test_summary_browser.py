"""The page about a chain in a real browser: wide, on a phone, in the dark."""

from collections.abc import Iterator
from shutil import which
from typing import Any

import pytest

from biovl.chain.page.page import render
from tests.chain.page.published_chain import FIGURES, publish

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.browser

CHROMIUM = which("chromium") or which("chromium-browser") or which("google-chrome")
CAPTION = "Phase map of a cell. " * 12


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("told")
    (folder / "summary.html").write_text(render(publish(folder, caption=CAPTION)))
    return (folder / "summary.html").as_uri()


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")], ids=str
)
def test_the_page_is_whole_and_complains_of_nothing(
    chromium: Any, address: str, width: int, scheme: str
) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    assert page.locator(".steps > li").count() == 4
    assert page.locator("#figures .card").count() == FIGURES
    broken = "images => images.filter(i => !i.complete || !i.naturalWidth).length"
    assert page.eval_on_selector_all("img", broken) == 0
    assert page.locator(".panel.wide img").count() == 4
    assert page.locator(".search .card").count() == 8
    # Nothing makes a reader scroll sideways.
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # A click shows the rest of a caption.
    caption = page.locator("#figures summary").first
    before = caption.bounding_box()["height"]
    caption.click()
    assert caption.bounding_box()["height"] > before
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light == ("rgb(19, 23, 26)" if scheme == "dark" else "rgb(246, 247, 247)")
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()
