"""Searching with the page, in a real browser."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import answering
from tests.browser.waiting import until
from tests.serve.search.small_engine import SmallEngine, make_app

pytestmark = pytest.mark.browser

Opened = Callable[..., Any]
CARDS = "#results .card:not(.skeleton)"

DROP = """([name, type, data, kind]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const target = document.querySelector("#q");
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true })
    : new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  target.dispatchEvent(event);
}"""


def give(
    page: Any, kind: str, data: bytes, name: str = "mine.png", mime: str = "image/png"
) -> None:
    """Drop or paste a file."""
    page.evaluate(DROP, [name, mime, base64.b64encode(data).decode(), kind])


def captions(page: Any) -> list[str]:
    page.wait_for_selector('#found[aria-busy="false"]')
    page.wait_for_selector(CARDS)
    return page.locator(f"{CARDS} .caption").all_inner_texts()


def search(page: Any, text: str) -> None:
    page.fill("#q", text)
    page.press("#q", "Enter")


def test_an_empty_page_offers_examples_that_search(opened: Opened, address: str) -> None:
    page = opened(address)
    page.wait_for_selector("text=36 figures")
    page.click(".examples button >> nth=0")
    assert captions(page)
    assert page.input_value("#q") in page.title()
    assert "q=" in page.url


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("exact over 36 rows", "1 by definition"),
        ("ivf nprobe=4", "1.000, measured against exact search"),
    ],
)
def test_the_recall_of_an_exact_search_is_not_measured(
    opened: Opened, address: str, plan: str, expected: str
) -> None:
    page = opened(address)

    def answer(route: Any) -> None:
        body = {**route.fetch().json(), "plan": plan, "recall_at_10": 1.0}
        route.fulfill(json=body)

    page.route("**/v1/search", answer)
    search(page, "red circle")
    assert captions(page)
    page.click(".how summary")
    assert expected in page.inner_text(".how")
    title = page.get_attribute("#search-status span", "title")
    assert ("measured" in title) is plan.startswith("ivf")


def test_a_text_finds_figures_with_rank_score_caption_source_and_licence(
    opened: Opened, address: str
) -> None:
    page = opened(address)
    search(page, "red circle")
    assert captions(page)[0].startswith("A red circle")
    first = page.locator(CARDS).first
    assert first.locator(".rank").inner_text().startswith("Rank\n#1\n")
    assert re.search(r"0\.\d{3}$", first.locator(".rank").inner_text())
    assert first.locator(".badge").inner_text().startswith("CC BY")
    assert first.locator(".journal").inner_text() in ("Journal of Shapes", "Annals of Colour")
    assert first.locator(".year").inner_text().startswith("20")
    assert first.locator("img").get_attribute("alt").startswith("Figure 1: A red circle")
    assert "24 shown of 36 figures" in page.inner_text("#search-status")
    until(page, "document.querySelector('#results img').naturalWidth === 48")


def test_an_image_is_chosen_and_finds_what_looks_like_it(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    with page.expect_file_chooser() as chooser:
        page.click("#search-pick")
    chooser.value.set_files(red_circle)
    assert captions(page)[0].startswith("A red circle")
    assert "mine.png" in page.inner_text("#query-chips")
    assert "mine" not in page.url
    page.click("#query-chips button")
    page.wait_for_selector(".examples")


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_an_image_dropped_or_pasted_joins_the_text_by_weight(
    opened: Opened, address: str, red_circle: Path, kind: str
) -> None:
    page = opened(address)
    page.fill("#q", "blue")
    with page.expect_request("**/v1/search") as asked:
        give(page, kind, red_circle.read_bytes())
    body = json.loads(asked.value.post_data)
    assert (body["text"], body["weights"]) == ("blue", {"text": 0.5, "image": 0.5})
    assert captions(page)
    with page.expect_request("**/v1/search") as asked:
        page.focus("#weight")
        page.keyboard.press("End")
    assert json.loads(asked.value.post_data)["weights"] == {"text": 0.05, "image": 0.95}
    assert captions(page)[0].startswith("A red circle")


def test_what_is_not_an_image_is_said_and_not_sent(opened: Opened, address: str) -> None:
    page = opened(address)
    give(page, "drop", b"%PDF", "paper.pdf", "application/pdf")
    page.wait_for_selector("#notice:has-text('This is not an image')")
    assert not any(url.endswith("/v1/search") for url in page.watch.requests)


def test_filters_are_those_of_the_index_and_narrow_the_search(opened: Opened, address: str) -> None:
    page = opened(address + "?q=circle")
    captions(page)
    page.wait_for_selector("#filters legend")
    legends = page.locator("#filters legend").all_inner_texts()
    assert legends == [
        *("Licence", "Image type", "Concept", "MeSH term", "Label", "Year", "Journal", "Kind")
    ]
    page.check("#filters input[value=noncommercial]")
    page.wait_for_selector("text=18 figures that match")
    page.fill("#filters [name=year-gte]", "2015")
    page.wait_for_selector("text=From 2015")
    page.wait_for_selector(f"{CARDS} >> text=CC BY-NC")
    years = [int(text) for text in page.locator(".year").all_inner_texts()]
    assert years
    assert min(years) >= 2015
    assert page.locator(f"{CARDS} .badge.commercial").count() == 0
    assert "license_group=noncommercial" in page.url
    assert "from=2015" in page.url
    page.click("text=Clear all")
    page.wait_for_selector("text=24 shown of 36 figures")


def test_values_of_a_filter_are_in_the_order_of_their_counts(opened: Opened, address: str) -> None:
    page = opened("about:blank")
    page.home = address
    facets = '{"label": {"grade": 9, "3": 5, "1": 7, "": 2}}'
    page.route("**/v1/facets", lambda route: route.fulfill(json=json.loads(facets)))
    page.goto(address)
    page.wait_for_selector("#filters legend")
    values = page.locator("#filters .choice .count").all_inner_texts()
    assert values == ["9", "7", "5", "2"]


def test_a_year_counts_that_is_typed_just_before_the_search(opened: Opened, address: str) -> None:
    page = opened(address + "?q=circle")
    captions(page)
    # While the year waits for its other digits, the text is sent: no time in between.
    page.fill("#filters [name=year-gte]", "2015")
    page.evaluate("document.querySelector('#search-form').requestSubmit()")
    page.wait_for_selector("text=From 2015")
    assert "from=2015" in page.url
    assert page.input_value("#filters [name=year-gte]") == "2015"
    assert all(int(text) >= 2015 for text in page.locator(".year").all_inner_texts())


def test_a_filter_that_nothing_fits_says_so_and_can_be_cleared(
    opened: Opened, address: str
) -> None:
    page = opened(address + "?q=circle&from=1999&to=1999")
    page.wait_for_selector("text=No figure found")
    page.click("text=Clear the filters")
    assert len(captions(page)) == 24


def test_captions_and_words_are_searched_when_asked(opened: Opened, address: str) -> None:
    page = opened(address + "?q=nodule")
    captions(page)
    with page.expect_request("**/v1/search") as asked:
        page.click("text=Both")
    assert json.loads(asked.value.post_data)["over"] == ["images", "captions"]
    with page.expect_request("**/v1/search") as asked:
        page.click("text=Words too")
    assert json.loads(asked.value.post_data)["words"] is True
    assert "nodule" in captions(page)[0]
    page.reload()
    captions(page)
    assert page.is_checked("#words")
    assert page.is_checked("[name=over][value=both]")


def test_more_figures_are_added_and_the_first_of_them_is_focused(
    opened: Opened, address: str
) -> None:
    page = opened(address + "?q=circle")
    assert len(captions(page)) == 24
    page.click("text=More figures")
    page.wait_for_selector("text=36 shown of 36")
    assert page.locator(f"{CARDS} .rank").all_inner_texts()[24].startswith("Rank\n#25\n")
    assert (
        len(set(page.locator(CARDS).evaluate_all("all => all.map((one) => one.dataset.figure)")))
        == 36
    )
    assert page.locator("text=More figures").count() == 0
    assert page.evaluate("document.activeElement.closest('.card').dataset.figure") == page.locator(
        CARDS
    ).nth(24).get_attribute("data-figure")


def test_a_page_that_is_asked_for_twice_is_added_once(opened: Opened, address: str) -> None:
    page = opened(address + "?q=circle")
    captions(page)
    held: list[Any] = []
    page.route("**/v1/search", lambda route: held.append(route))
    page.click("text=More figures")
    # The same search draws the same figures again, and another button.
    page.press("#q", "Enter")
    page.click("text=More figures")
    while len(held) < 2:
        page.wait_for_timeout(20)
    for route in held:
        with page.expect_response("**/v1/search"):
            route.continue_()
    page.wait_for_selector("text=36 shown of 36")
    assert page.locator(CARDS).count() == 36


def test_after_a_reload_of_the_index_more_figures_begins_again(opened: Opened) -> None:
    engine = SmallEngine()
    with answering(make_app(engine)) as address:
        page = opened(address + "?q=circle")
        page.watch.expects_errors = True
        captions(page)
        search(page, "square")
        captions(page)
        engine.index_version = "cccccccccccc"
        page.click("text=More figures")
        page.wait_for_selector("#notice.info")
        assert len(captions(page)) == 24
        page.click("text=More figures")
        page.wait_for_selector("text=36 shown of 36")
        # What had been found in the index before is not shown either.
        with page.expect_response("**/v1/search") as asked:
            page.go_back()
        assert asked.value.json()["index"] == "cccccccccccc"
        captions(page)


def test_back_and_forward_walk_through_searches(opened: Opened, address: str) -> None:
    page = opened(address)
    search(page, "red circle")
    captions(page)
    search(page, "blue square")
    until(page, "document.title.startsWith('blue')")
    captions(page)
    page.go_back()
    until(page, "document.querySelector('#q').value === 'red circle'")
    assert captions(page)[0].startswith("A red circle")
    page.go_back()
    page.wait_for_selector(".examples")
    page.go_forward()
    assert captions(page)[0].startswith("A red circle")


def test_an_image_survives_back_and_forward_but_not_a_reload(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    page.set_input_files("#search-file", red_circle)
    captions(page)
    search(page, "blue")
    captions(page)
    page.go_back()
    until(page, "document.querySelector('#q').value === ''")
    assert "mine.png" in page.inner_text("#query-chips")
    page.reload()
    page.wait_for_selector("text=The image of this search is gone")


def test_back_restores_the_weight_of_an_own_image(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    search(page, "blue")
    captions(page)
    page.set_input_files("#search-file", red_circle)
    captions(page)
    page.focus("#weight")
    with page.expect_response("**/v1/search"):
        page.keyboard.press("End")
    search(page, "green")
    until(page, "document.title.startsWith('green')")
    captions(page)
    page.go_back()
    until(page, "document.querySelector('#q').value === 'blue'")
    assert page.input_value("#weight") == "0.95"
    page.go_back()
    until(page, "document.querySelector('#weight').value === '0.5'")
    assert "mine.png" in page.inner_text("#query-chips")


def test_an_image_of_before_a_reload_is_not_taken_for_a_later_one(
    opened: Opened, address: str, red_circle: Path
) -> None:
    page = opened(address)
    search(page, "blue")
    captions(page)
    page.set_input_files("#search-file", red_circle)
    captions(page)
    search(page, "green")
    captions(page)
    page.reload()
    page.wait_for_selector("text=The image of this search is gone")
    give(page, "drop", red_circle.read_bytes(), name="another.png")
    page.wait_for_selector("#query-chips >> text=another.png")
    captions(page)
    while page.input_value("#q") != "blue":
        page.go_back()
        captions(page)
    page.wait_for_selector("text=The image of this search is gone")
    assert page.locator("#query-chips >> text=another.png").count() == 0


def test_what_is_shown_can_be_saved_as_table_and_json(opened: Opened, address: str) -> None:
    page = opened(address + "?q=circle")
    captions(page)
    with page.expect_download() as saved:
        page.click("text=CSV")
    lines = Path(saved.value.path()).read_text("utf-8-sig").splitlines()
    assert len(lines) == 25
    assert lines[0].startswith("rank,score,figure_id")
    with page.expect_download() as saved:
        page.click("text=JSON")
    rows = json.loads(Path(saved.value.path()).read_text())
    assert len(rows) == 24
    assert rows[0]["image_url"].startswith(address)
