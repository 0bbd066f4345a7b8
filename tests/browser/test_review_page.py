"""Reviewing clusters with the page, in a real browser."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.browser.conftest import answering
from tests.browser.waiting import until
from tests.serve.review.small_review import CLUSTERS, an_answer, publish_concepts, review

pytestmark = pytest.mark.browser

Opened = Callable[..., Any]
LAPTOP = {"width": 1366, "height": 650}
"""1366 x 768 without the browser's own bars."""


@pytest.fixture(scope="module")
def concepts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_concepts(tmp_path_factory.mktemp("clusters") / "concepts")


class Served:
    """A review and its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def votes(self) -> list[str]:
        """Return the rows of its export."""
        return httpx.get(f"{self.url}v1/votes.csv").text.splitlines()[1:]


@pytest.fixture
def served(concepts: Path, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Serve a review with a database of its own."""
    open_ones = []

    def serve(**settings: Any) -> Served:
        app = review(concepts, database=f"sqlite:///{tmp_path / 'review.db'}", **settings)
        context = answering(app)
        open_ones.append(context)
        return Served(context.__enter__())

    yield serve
    for one in open_ones:
        one.__exit__(None, None, None)


def sign_in(page: Any, name: str = "ann", token: str = "") -> None:
    page.fill("#name", name)
    page.fill("#token", token)
    page.press("#token", "Enter")


def title(page: Any) -> str:
    page.wait_for_selector('#work[aria-busy="false"] #sheet img')
    return str(page.inner_text("#cluster-title"))


def after(page: Any, act: Callable[[], None]) -> str:
    """Do something that leads to another cluster and return its title."""
    before = title(page)
    act()
    until(page, f"document.getElementById('cluster-title').innerText !== {before!r}")
    return title(page)


def answer_by_keys(page: Any, *, panel: str = "1", concept: str = "light mic") -> None:
    page.keyboard.press(panel)
    page.keyboard.type(concept)
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")


def test_a_cluster_is_a_sheet_of_30_figures_that_fits_a_laptop(
    opened: Opened, served: Callable[..., Served]
) -> None:
    page = opened(served().url, **LAPTOP)
    sign_in(page)
    number = title(page).split()[1]
    images = page.locator("#sheet img")
    assert images.count() == 30
    assert page.evaluate("[...document.querySelectorAll('#sheet img')].every(i => i.naturalWidth)")
    # All of it and every question is on the screen at once.
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    for part in ("#sheet li:last-child", "#save", "#find"):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= 650, part
    page.hover("#sheet li:nth-child(8) button")
    assert page.inner_text("#caption").endswith(f"({number}-7)")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#caption").endswith(f"({number}-6)")
    page.keyboard.press("Enter")
    assert page.inner_text("#enlarged-caption").endswith(f"({number}-6)")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#enlarged-caption").endswith(f"({number}-7)")
    page.keyboard.press("Escape")
    # Closed, the one that was large has the focus.
    until(page, "document.querySelectorAll('#sheet li')[7].contains(document.activeElement)")


def test_clusters_are_answered_by_keys_alone(opened: Opened, served: Callable[..., Served]) -> None:
    review = served()
    page = opened(review.url, **LAPTOP)
    sign_in(page)
    seen = [title(page)]
    for panel in ("1", "2", "4"):
        seen.append(after(page, lambda panel=panel: answer_by_keys(page, panel=panel)))
    assert len(set(seen)) == 4
    assert page.inner_text("#own-text") == f"You: 3 of {CLUSTERS} clusters"
    assert page.inner_text("#all-text").startswith(f"All: 3 of {3 * CLUSTERS} votes")
    rows = sorted(",".join(row.split(",")[2:7]) for row in review.votes())
    assert rows == [
        "ann,multiple,biomedical imaging and assays,Microscopy,light microscopy",
        "ann,multiple,non-biomedical imaging,Microscopy,light microscopy",
        "ann,single,,Microscopy,light microscopy",
    ]
    # Skip, and back to the one before, to change it.
    after(page, lambda: page.keyboard.press("."))
    assert after(page, lambda: page.keyboard.press(",")) == seen[2]
    assert page.is_checked("input[name=panel] >> nth=3")
    after(page, lambda: (page.keyboard.press("1"), page.keyboard.press("Control+Enter")))  # type: ignore[arg-type]
    assert len(review.votes()) == 3
    assert not any("assays" in row for row in review.votes())
    page.keyboard.press("?")
    assert "Save and go on" in page.inner_text("#help")


def test_keys_do_not_change_a_cluster_while_the_next_one_loads(
    opened: Opened, served: Callable[..., Served]
) -> None:
    page = opened(served().url, **LAPTOP)
    sign_in(page)
    saved = title(page)
    held: list[Any] = []
    page.route("**/v1/next", lambda route: held.append(route))
    answer_by_keys(page)
    while not held:
        page.wait_for_timeout(20)
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    page.keyboard.type("bar plot")
    page.keyboard.press("Enter")
    held[0].continue_()
    until(page, f"document.getElementById('cluster-title').innerText !== {saved!r}")
    title(page)
    assert page.locator("input[name=panel]:checked").count() == 0
    assert page.input_value("#find") == ""
    assert after(page, lambda: page.keyboard.press(",")) == saved
    assert page.is_checked("input[name=panel] >> nth=0")
    assert page.inner_text("#chosen-local") == "light microscopy"
    assert "unsaved" not in page.inner_text("#kind-text")


def test_concepts_are_found_by_parts_of_their_names(
    opened: Opened, served: Callable[..., Served]
) -> None:
    page = opened(served().url, **LAPTOP)
    sign_in(page)
    title(page)

    def found(text: str) -> list[str]:
        page.fill("#find", text)
        names: list[str] = page.locator("#options li > span:first-child").all_inner_texts()
        return names

    # Case, spaces and dashes do not matter; whole words come before parts of words.
    assert found("XRAY")[0] == found("x ray")[0] == "x-ray radiography"
    assert found("map")[:2] == ["map", "Maps"]
    assert found("heatmap") == ["heatmap plot"]
    assert found("nothing like it") == []
    assert "No concept" in page.inner_text("#options")
    page.fill("#find", "")
    page.press("#find", "Escape")
    # Without a word all are there, each below its global concept.
    assert page.locator("#options li.above").count() == 16
    page.click("#options >> text=endoscopy")
    assert page.inner_text("#chosen-global") == "Clinical Imaging"
    assert page.inner_text("#chosen-local") == "endoscopy"
    # Without its global concept a local one cannot stay.
    page.click("#chosen-global button")
    assert page.inner_text("#chosen-local") == ""


def test_a_vote_with_names_that_the_taxonomy_lost_can_be_changed(
    opened: Opened, served: Callable[..., Served], tmp_path: Path
) -> None:
    def taxonomy(name: str, concepts: dict[str, list[str]]) -> str:
        (tmp_path / name).write_text(yaml.safe_dump({"concepts": concepts}))
        return str(tmp_path / name)

    before = taxonomy("before.yaml", {"Imaging": ["MRI", "scan"], "Plots": ["bars"]})
    with httpx.Client(
        base_url=served(taxonomy=before).url, headers={"X-Reviewer": "ann"}
    ) as reviewer:
        sheet = reviewer.post("/v1/next", json={}).json()["cluster"]
        vote = an_answer(
            sheet, global_concepts=["Imaging", "Plots"], local_concepts=["MRI", "scan"]
        )
        assert reviewer.post("/v1/votes", json=vote).status_code == 200
    # One name is gone, and one is below another.
    after_it = taxonomy("after.yaml", {"Imaging": ["CT"], "Plots": ["bars"], "Radiology": ["MRI"]})
    review = served(taxonomy=after_it)
    page = opened(review.url, **LAPTOP)
    sign_in(page)
    # Its cluster is assigned to the reviewer again; the vote is changed all the same.
    title(page)
    page.keyboard.press(",")
    until(page, "document.querySelectorAll('#chosen-local button').length > 0")
    assert page.locator("#chosen-local button").all_inner_texts() == ["MRI", "scan"]
    page.click("#chosen-local button >> text=MRI")
    assert page.locator("#chosen-global button").all_inner_texts() == ["Imaging", "Plots"]
    assert page.locator("#chosen-local button").all_inner_texts() == ["scan"]
    page.click("#chosen-global button >> text=Plots")
    assert page.locator("#chosen-global button").all_inner_texts() == ["Imaging"]
    page.click("#options >> text=CT")
    after(page, lambda: page.keyboard.press("Control+Enter"))
    (row,) = review.votes()
    assert row.split(",")[5:7] == ["Imaging", "CT"]


def test_a_saved_vote_is_not_sent_again_if_the_next_cluster_fails(
    opened: Opened, served: Callable[..., Served]
) -> None:
    page = opened(served().url, **LAPTOP)
    page.watch.expects_errors = True
    sign_in(page)
    before = title(page)
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request) if "v1/votes" in request.url else None)
    page.route("**/v1/next", lambda route: route.fulfill(status=500, json={"title": "Broken"}))
    answer_by_keys(page)
    page.wait_for_selector("#notice.error button.link")
    page.unroute("**/v1/next")
    page.click("#notice button.link")
    until(page, f"document.getElementById('cluster-title').innerText !== {before!r}")
    assert len(sent) == 1


def test_what_is_missing_is_said_and_nothing_is_sent(
    opened: Opened, served: Callable[..., Served]
) -> None:
    review = served()
    page = opened(review.url, **LAPTOP)
    sign_in(page)
    title(page)
    page.keyboard.press("Control+Enter")
    assert "panels" in page.inner_text("#missing")
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")
    assert "global concept" in page.inner_text("#missing")
    assert review.votes() == []


def test_a_reload_keeps_answers_that_were_not_saved(
    opened: Opened, served: Callable[..., Served]
) -> None:
    page = opened(served().url, **LAPTOP)
    sign_in(page)
    before = title(page)
    page.keyboard.press("3")
    page.keyboard.type("bar plot")
    page.keyboard.press("Enter")
    page.reload()
    assert title(page) == before
    assert page.is_checked("input[name=panel] >> nth=2")
    assert page.inner_text("#chosen-local") == "bar plot"
    assert "unsaved" in page.inner_text("#kind-text")


def test_practice_comes_first_and_is_called_so(
    opened: Opened, served: Callable[..., Served]
) -> None:
    review = served(practice=2)
    page = opened(review.url, **LAPTOP)
    sign_in(page)
    title(page)
    assert page.inner_text("#kind") == "Practice"
    assert page.inner_text("#own-text") == "Practice: 0 of 2 clusters"
    for _ in range(2):
        after(page, lambda: answer_by_keys(page))
    assert page.is_hidden("#kind")
    assert page.inner_text("#own-text") == f"You: 0 of {CLUSTERS} clusters"
    assert all(",true," in row for row in review.votes())


def test_two_reviewers_at_once_get_different_clusters_and_lose_nothing(
    opened: Opened, served: Callable[..., Served]
) -> None:
    review = served(votes_per_cluster=1)
    pages = [opened(review.url, **LAPTOP) for _ in range(2)]
    for page, name in zip(pages, ("ann", "ben"), strict=True):
        sign_in(page, name)
    seen = []
    for _ in range(3):
        seen += [title(page) for page in pages]
        for page in pages:
            after(page, lambda page=page: answer_by_keys(page))
    assert len(set(seen)) == 6
    assert len(review.votes()) == 6
    assert pages[0].inner_text("#own-text").startswith("You: 3 of")


def test_a_cluster_that_somebody_else_took_meanwhile_is_told(
    opened: Opened, served: Callable[..., Served]
) -> None:
    review = served(votes_per_cluster=1, reservation_s=0.001)
    page = opened(review.url, **LAPTOP)
    page.watch.expects_errors = True
    sign_in(page)
    number = title(page).split()[1]
    with httpx.Client(base_url=review.url, headers={"X-Reviewer": "ben"}) as ben:
        sheet = ben.post("/v1/next", json={}).json()["cluster"]
        assert str(sheet["cluster_id"]) == number
        assert ben.post("/v1/votes", json=an_answer(sheet)).status_code == 200
    # The page holds its cluster every five seconds while somebody acts.
    page.mouse.move(200, 200)
    page.wait_for_selector("#notice.info button.link")
    after(page, lambda: page.click("#notice button.link"))


def test_a_cluster_that_was_clustered_again_meanwhile_is_told(
    opened: Opened, concepts: Path, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    changed = review(publish_concepts(tmp_path / "changed", edition="2"), database=database)
    app = review(concepts, database=database)

    async def either(scope: Any, receive: Any, send: Any) -> None:
        await now["app"](scope, receive, send)

    now = {"app": app}
    with answering(either) as url:
        page = opened(url, **LAPTOP)
        page.watch.expects_errors = True
        sign_in(page)
        title(page)
        now["app"] = changed
        answer_by_keys(page)
        page.wait_for_selector("#notice:not([hidden])")
        assert "clustered again" in page.inner_text("#notice")
        # What was entered is still there to be read.
        assert page.inner_text("#chosen-local") == "light microscopy"
        page.click("#notice button.link")
        until(page, "document.getElementById('notice')?.hidden")
        title(page)
        answer_by_keys(page)
        until(page, "document.getElementById('own-text').innerText.startsWith('You: 1 ')")


def reviewers_file(folder: Path) -> Path:
    keys = folder / "reviewers.yaml"
    digest = hashlib.sha256(b"the-token-of-ann").hexdigest()
    keys.write_text(
        yaml.safe_dump({"keys": [{"name": "ann", "sha256": digest, "scopes": ["review"]}]})
    )
    keys.chmod(0o600)
    return keys


def test_a_reviewer_needs_the_token_made_for_the_name(
    opened: Opened, served: Callable[..., Served], tmp_path: Path
) -> None:
    page = opened(served(reviewers_file=str(reviewers_file(tmp_path))).url, **LAPTOP)
    page.watch.expects_errors = True
    for name, token, said in (
        ("ann", "", "API key required"),
        ("ann", "another", "unknown API key"),
        ("ben", "the-token-of-ann", "does not belong to"),
    ):
        sign_in(page, name, token)
        until(page, f"document.getElementById('notice').innerText.includes({said!r})")
        assert page.is_hidden("#work")
    sign_in(page, "ann", "the-token-of-ann")
    title(page)
    page.reload()
    before = title(page)
    # Back and on again: no part of the address may look like a key.
    after(page, lambda: answer_by_keys(page))
    assert after(page, lambda: page.click("#back")) == before
    assert page.is_hidden("#notice")
    assert page.is_checked("input[name=panel] >> nth=0")
    page.click("#sign-out")
    page.reload()
    assert page.is_visible("#sign-in")


def test_signing_in_is_tried_again_with_the_same_token(
    opened: Opened, served: Callable[..., Served], tmp_path: Path
) -> None:
    page = opened(served(reviewers_file=str(reviewers_file(tmp_path))).url, **LAPTOP)
    page.watch.expects_errors = True
    page.route("**/v1/review", lambda route: route.fulfill(status=500, json={"title": "Broken"}))
    sign_in(page, "ann", "the-token-of-ann")
    page.wait_for_selector("#notice.error button.link")
    page.unroute("**/v1/review")
    page.click("#notice button.link")
    title(page)


def test_captions_that_hold_markup_stay_text(opened: Opened, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="window.stolen=1"><script>window.stolen=2</script>'
    folder = publish_concepts(tmp_path / "hostile", clusters=1, caption=hostile)
    with answering(review(folder)) as url:
        page = opened(url, **LAPTOP)
        sign_in(page)
        title(page)
        page.hover("#sheet li:nth-child(1) button")
        assert page.inner_text("#caption").startswith(hostile)
        page.click("#sheet li:nth-child(1) button")
        assert page.evaluate("window.stolen") is None
        page.keyboard.press("Escape")
        answer_by_keys(page)
        page.wait_for_selector("#done:not([hidden])")
        assert "Nothing is left" in page.inner_text("#done")
