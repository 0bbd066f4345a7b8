"""One figure, large."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.waiting import until

pytestmark = pytest.mark.browser

Opened = Callable[..., Any]
FIRST = "#results .open >> nth=0"


def test_a_figure_opens_with_image_caption_citation_links_and_licence(
    opened: Opened, address: str
) -> None:
    page = opened(address + "?q=red+circle", permissions=["clipboard-read", "clipboard-write"])
    page.click(FIRST)
    until(page, "document.querySelector('dialog .large img').naturalWidth === 96")
    text = page.inner_text("dialog")
    assert "A red circle with pneumonia. Scale bar, 1 µm." in text
    assert "On red shapes" in text
    assert (
        page.get_attribute("dialog a >> nth=0", "href")
        == "https://pmc.ncbi.nlm.nih.gov/articles/PMC1000/"
    )
    assert (
        page.get_attribute("dialog a >> text=Terms", "href")
        == "https://creativecommons.org/licenses/by/4.0/"
    )
    page.click("text=Copy citation")
    page.wait_for_selector("dialog >> text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "Shapes PMC1000."


def test_an_open_figure_has_an_address_of_its_own(opened: Opened, address: str) -> None:
    page = opened(address + "?q=red+circle")
    page.click(FIRST)
    page.wait_for_selector("dialog[open]")
    assert "open=PMC1000_F1" in page.url
    shared = page.url
    page.go_back()
    page.wait_for_selector("dialog", state="hidden")
    assert page.locator("#results .card").count() == 24
    other = opened(shared)
    other.wait_for_selector("dialog[open] >> text=On red shapes")
    other.keyboard.press("Escape")
    other.wait_for_selector("dialog", state="hidden")
    until(other, "!location.search.includes('open')")


def test_a_figure_that_arrives_after_the_reader_went_back_stays_closed(
    opened: Opened, address: str
) -> None:
    page = opened(address + "?q=red+circle")
    page.click(FIRST)
    page.keyboard.press("Escape")
    until(page, "!location.search.includes('open')")
    held: list[Any] = []
    page.route("**/v1/figures/PMC1000_F1", lambda route: held.append(route))
    page.go_forward()
    while not held:
        page.wait_for_timeout(20)
    page.go_back()
    until(page, "!location.search.includes('open')")
    with page.expect_response("**/v1/figures/PMC1000_F1"):
        held[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator("dialog[open]").count() == 0


def test_find_similar_searches_by_the_figure_and_back_returns(opened: Opened, address: str) -> None:
    page = opened(address + "?q=red+circle")
    page.click(FIRST)
    page.click("text=Find similar")
    page.wait_for_selector("#query-chips >> text=Similar to PMC1000_F1")
    page.wait_for_selector("#results .open")
    assert "similar=PMC1000_F1" in page.url
    assert page.locator("#results .card").count() == 24
    assert page.locator("#results .card[data-figure=PMC1000_F1]").count() == 0
    page.go_back()
    until(page, "document.querySelector('#q').value === 'red circle'")
    assert page.locator("#query-chips > *").count() == 0


def test_a_concept_of_a_figure_becomes_a_filter(opened: Opened, address: str) -> None:
    page = opened(address + "?q=red+circle")
    page.click(FIRST)
    page.click(".terms >> text=circle")
    page.wait_for_selector("text=6 figures that match")
    assert "concept=circle" in page.url


def test_search_open_walk_and_close_need_no_pointer(opened: Opened, address: str) -> None:
    page = opened(address)
    page.wait_for_selector("#filters fieldset")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("red circle")
    page.keyboard.press("Enter")
    page.wait_for_selector("#results .open")
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#results .open')"):
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] >> text=2 of 24")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("dialog[open] >> text=3 of 24")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("dialog[open] >> text=1 of 24")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    until(page, "document.activeElement.closest('.card')?.dataset.figure === 'PMC1000_F1'")


def test_markup_in_captions_is_text(opened: Opened, hostile_address: str) -> None:
    page = opened(hostile_address + "?q=red+circle")
    page.wait_for_selector("#results .open")
    assert '<img src=x onerror="window.stolen=1">' in page.inner_text("#results .caption >> nth=0")
    page.click(FIRST)
    page.wait_for_selector("dialog[open] >> text=<script>window.stolen=2</script>")
    links = page.locator("dialog a").evaluate_all("all => all.map((one) => one.protocol)")
    assert set(links) <= {"https:"}
    page.click("dialog dd span >> nth=0")
    assert page.evaluate("window.stolen") is None
    assert page.locator("#results script, dialog script, #filters script").count() == 0


LEFT_TO_RIGHT = """(badge) => {
  const edge = (from) => {
    const range = document.createRange();
    range.setStart(badge.firstChild, from);
    range.setEnd(badge.firstChild, from + 1);
    return range.getBoundingClientRect().left;
  };
  return edge(0) < edge(badge.firstChild.length - 1);
}"""


def test_marks_of_direction_in_a_journal_do_not_turn_the_licence_around(
    opened: Opened, hostile_address: str
) -> None:
    page = opened(hostile_address + "?q=red+circle")
    page.wait_for_selector("#results .open")
    assert all(badge.evaluate(LEFT_TO_RIGHT) for badge in page.locator("#results .badge").all())
    page.click(FIRST)
    assert page.locator("dialog .badge").evaluate(LEFT_TO_RIGHT)
