"""Classifying, comparing a private image, trouble, and what the page costs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.waiting import until

pytestmark = pytest.mark.browser

Opened = Callable[..., Any]
PAGE = Path(__file__).parents[2] / "serve" / "search" / "page"


def problem(status: int, title: str, detail: str, **headers: str) -> dict[str, Any]:
    body = {"type": "x", "title": title, "status": status, "detail": detail, "request_id": "r-1"}
    return {
        "status": status,
        "headers": {"Content-Type": "application/problem+json", **headers},
        "body": json.dumps({**body, "instance": "/v1/search", "errors": []}),
    }


def test_an_image_is_classified_into_classes_one_edits(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    page.click("#tab-classify")
    rows = page.locator(".classes input")
    while rows.count() > 1:
        page.click(".classes button >> nth=0")
    rows.first.fill("red circle")
    # Of the composition of a word, as in Japanese; it adds no line.
    before = rows.count()
    rows.first.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    assert rows.count() == before
    rows.first.press("Enter")
    page.keyboard.type("blue square")
    page.click("text=Add a class")
    page.keyboard.type("green stripes")
    page.set_input_files("#panel-classify input[type=file]", red_circle)
    page.wait_for_selector("text=Most probable: red circle")
    bars = page.locator(".bars [role=meter]")
    shares = [float(bar.get_attribute("aria-valuenow")) for bar in bars.all()]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)
    widths = [bar.bounding_box()["width"] for bar in page.locator(".bars [role=meter] span").all()]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0
    assert page.locator("#panel-classify .result .hint").count() == 0
    page.click("text=Prompt templates")
    page.fill("#templates", "a drawing of a {}")
    with page.expect_request("**/v1/classify") as asked:
        page.click("#panel-classify button[type=submit]")
    assert json.loads(asked.value.post_data)["templates"] == ["a drawing of a {}"]
    # A prompt that the model does not read to its end.
    page.fill("#templates", "a drawing of" + " a" * 100 + " {}")
    page.click("#panel-classify button[type=submit]")
    page.wait_for_selector("#panel-classify .result .hint:has-text('red circle')")


def test_the_classes_of_a_benchmark_can_be_chosen(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address + "?tab=classify")
    page.select_option("#benchmark", index=1)
    with page.expect_request("**/v1/classify") as asked:
        page.set_input_files("#panel-classify input[type=file]", red_circle)
    body = json.loads(asked.value.post_data)
    assert body["benchmark"]
    assert "classes" not in body
    page.wait_for_selector(".bars")


def test_classes_of_a_private_image_are_read_line_by_line(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    page.click("#tab-private")
    page.click("#panel-private details summary")
    page.fill("#proxy-classes", "red: circle, disc\nred: round\n5,10-MTHF\nratio 1:3\n:\nplain:x")
    with page.expect_request("**/v1/proxy") as asked:
        page.set_input_files("#panel-private input[type=file]", red_circle)
    assert json.loads(asked.value.post_data)["classes"] == {
        "red": ["circle", "disc", "round"],
        "5,10-MTHF": ["5,10-MTHF"],
        "ratio 1:3": ["ratio 1:3"],
        "plain": ["x"],
    }


def test_a_private_image_gets_votes_their_figures_and_what_left_the_service(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    page.click("#tab-private")
    assert address.split("/")[2] in page.inner_text(".promise")
    page.set_input_files("#panel-private input[type=file]", red_circle)
    page.wait_for_selector(".disclosure")
    assert "Images are never kept, logged or sent outside this service" in page.inner_text(
        ".disclosure"
    )
    assert page.locator("#panel-private .card").count() == 10
    page.click("#panel-private .bars .link >> nth=0")
    marked = page.locator("#panel-private .card:not(.dim)").count()
    assert page.inner_text("#panel-private .bars .link >> nth=0") == f"{marked} of 10"
    page.click("#panel-private .open >> nth=0")
    page.wait_for_selector("dialog[open] >> text=Find similar")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    assert page.is_visible("#panel-private .disclosure")
    assert "mine" not in page.url


def test_tabs_are_walked_by_arrows_and_have_addresses(opened: Opened, address: str) -> None:
    page = opened(address + "?q=red+circle")
    page.wait_for_selector("#results .open")
    page.focus("#tab-search")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-classify", "aria-selected") == "true"
    assert page.url.endswith("?tab=classify")
    page.go_back()
    page.wait_for_selector("#results .open")
    assert page.input_value("#q") == "red circle"


def test_an_error_is_said_in_the_words_of_the_service(opened: Opened, address: str) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    page.goto(address + "?similar=nothing")
    notice = page.locator("#notice[role=alert]")
    notice.wait_for()
    assert "there is no such figure" in notice.inner_text()
    assert "Request " in notice.inner_text()
    page.fill("#q", "red circle")
    page.click("#query-chips button")
    page.press("#q", "Enter")
    page.wait_for_selector("#results .open")
    assert notice.is_hidden()


def test_an_error_of_another_server_is_shown(opened: Opened, address: str) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    page.wait_for_selector("text=36 figures")
    page.route(
        "**/v1/search", lambda route: route.fulfill(status=403, json={"message": "no such route"})
    )
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#notice:has-text('The service answered 403')")
    assert "no such route" in page.inner_text("#notice")


def test_a_broken_image_is_refused_by_the_service_and_said(opened: Opened, address: str) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    broken = {"name": "broken.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\nnothing"}
    page.set_input_files("#search-file", broken)
    page.wait_for_selector("#notice.error")
    assert "Request " in page.inner_text("#notice")


@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_service_is_asked_again_when_it_says_so(
    opened: Opened, address: str, status: int
) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    busy = problem(status, "Too much at once", "Come back.", **{"Retry-After": "1"})
    page.route("**/v1/search", lambda route: route.fulfill(**busy), times=1)
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#notice >> text=Trying again in 1 s")
    assert page.get_attribute("#found", "aria-busy") == "true"
    page.wait_for_selector("#results .open")
    assert page.is_hidden("#notice")


def test_a_search_without_connection_is_repeated_when_it_is_back(
    opened: Opened, address: str
) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    page.wait_for_selector("#filters fieldset")
    page.context.set_offline(True)
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#notice >> text=You are offline")
    page.context.set_offline(False)
    page.wait_for_selector("#results .open")


def test_a_service_that_is_gone_is_told_from_being_offline(opened: Opened, address: str) -> None:
    page = opened(address)
    page.watch.expects_errors = True
    page.route("**/v1/search", lambda route: route.abort(), times=1)
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("text=The service does not answer")
    page.click("text=Try again")
    page.wait_for_selector("#results .open")


def test_an_answer_of_another_server_is_told(opened: Opened, address: str) -> None:
    page = opened(address)
    page.wait_for_selector("text=36 figures")
    # The sign-in page of a proxy.
    page.route(
        "**/v1/search", lambda route: route.fulfill(content_type="text/html", body="<p>Sign in</p>")
    )
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#notice:has-text('Something else has answered')")
    page.unroute("**/v1/search")
    page.click("#notice button.link")
    page.wait_for_selector("#results .card:not(.skeleton)")


def test_a_page_in_place_of_an_image_is_not_kept(
    opened: Opened, guarded_address: str, api_key: str
) -> None:
    page = opened(guarded_address)
    page.watch.expects_errors = True
    page.fill("#key", api_key)
    page.press("#key", "Enter")
    page.wait_for_selector("#filters fieldset")
    thumbnails = "**/v1/figures/*/thumbnail"
    page.route(
        thumbnails, lambda route: route.fulfill(content_type="text/html", body="<p>Sign in</p>")
    )
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#results .no-image")
    page.unroute(thumbnails)
    page.fill("#q", "red ring")
    page.press("#q", "Enter")
    until(page, "document.querySelector('#results img')?.naturalWidth === 48")
    assert page.locator("#results .no-image").count() == 0


def test_an_answer_whose_connection_ends_within_it_is_told(opened: Opened, address: str) -> None:
    page = opened(address)
    page.wait_for_selector("text=36 figures")
    page.evaluate("() => { Response.prototype.json = () => Promise.reject(new TypeError('end')); }")
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    page.wait_for_selector("#notice:has-text('The service does not answer')")


def test_a_key_is_asked_for_tried_and_kept_for_the_tab(
    opened: Opened, guarded_address: str, api_key: str
) -> None:
    page = opened(guarded_address)
    page.watch.expects_errors = True
    page.fill("#key", "wrong")
    page.press("#key", "Enter")
    page.wait_for_selector(".key-form.refused")
    page.fill("#key", api_key)
    page.press("#key", "Enter")
    page.wait_for_selector("#filters fieldset")
    page.fill("#q", "red circle")
    page.press("#q", "Enter")
    until(page, "document.querySelector('#results img')?.naturalWidth === 48")
    assert page.get_attribute("#results img >> nth=0", "src").startswith("blob:")
    page.reload()
    page.wait_for_selector("#results .open")
    assert page.is_hidden("#key-form")
    assert not any(api_key in url for url in page.watch.requests)
    assert page.evaluate("localStorage.length") == 0


def test_nothing_is_wider_than_a_phone(opened: Opened, address: str, red_circle: Path) -> None:
    page = opened(address, width=390, height=844, has_touch=True)

    def is_wider() -> bool:
        return page.evaluate("document.documentElement.scrollWidth > innerWidth")

    assert not is_wider()
    page.fill("#q", "red circle")
    page.set_input_files("#search-file", red_circle)
    page.wait_for_selector("#results .open")
    assert not is_wider()
    assert page.is_hidden("#filters-body")
    page.click("#filters-toggle")
    page.wait_for_selector("#filters-body", state="visible")
    assert not is_wider()
    page.click("#results .open >> nth=0")
    page.wait_for_selector("dialog[open]")
    assert not page.evaluate("document.querySelector('dialog').scrollWidth > innerWidth")
    page.keyboard.press("Escape")
    for tab in ("classify", "private"):
        page.click(f"#tab-{tab}")
        page.set_input_files(f"#panel-{tab} input[type=file]", red_circle)
        page.wait_for_selector(f"#panel-{tab} .bars")
        assert not is_wider()


def test_the_page_weighs_less_than_100_kb_and_comes_from_one_place(
    opened: Opened, address: str
) -> None:
    page = opened(address)
    page.wait_for_load_state("networkidle")
    sizes = [request.sizes() for request in (answer.request for answer in page.watch.responses)]
    total = sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes)
    assert total < 100_000
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 100_000


CONTRAST = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!own || !node.checkVisibility() || node.closest(".unseen, noscript, :disabled, .skip")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(
    opened: Opened, address: str, red_circle: Path, scheme: str
) -> None:
    page = opened(address, color_scheme=scheme, reduced_motion="reduce")
    assert page.evaluate(CONTRAST) == []
    page.goto(address + "?q=red+circle&license_group=commercial&license_group=noncommercial")
    page.wait_for_selector("#results .open")
    page.click(".how summary")
    assert page.evaluate(CONTRAST) == []
    page.click("#results .open >> nth=0")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate(CONTRAST) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    page.click("#tab-private")
    page.set_input_files("#panel-private input[type=file]", red_circle)
    page.wait_for_selector(".bars")
    assert page.evaluate(CONTRAST) == []


UNNAMED = """() => [...document.querySelectorAll("button, input, select, textarea, a, img")]
  .filter((node) => node.checkVisibility() && !node.closest("[aria-hidden=true]"))
  .filter((node) => node.getAttribute("alt") !== "")
  .filter((node) => !(node.innerText?.trim() || node.getAttribute("aria-label") || node.alt
    || [...(node.labels ?? [])].some((label) => label.textContent.trim())))
  .map((node) => node.outerHTML)"""


def test_everything_one_can_use_has_a_name(opened: Opened, address: str) -> None:
    page = opened(address + "?q=red+circle")
    page.wait_for_selector("#results .open")
    assert page.evaluate(UNNAMED) == []
    page.click("#results .open >> nth=0")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate(UNNAMED) == []
    page.goto(address + "?tab=classify")
    assert page.evaluate(UNNAMED) == []


def test_no_script_writes_markup() -> None:
    for path in PAGE.glob("*.js"):
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in path.read_text(), path.name
