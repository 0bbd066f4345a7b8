"""The page about a chain: what it shows, and that it needs and runs nothing else."""

import dataclasses
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from biovl.assemble.statistics import statistics
from biovl.assemble.tally import tally
from biovl.chain.page.page import render
from biovl.chain.page.reading import Notes, Story
from biovl.chain.page.sections import corpus as corpus_section
from biovl.chain.page.sections import figures as figures_section
from biovl.core.artifacts import to_json
from tests.assemble.corpora import HARVESTED, pair, pairs
from tests.chain.page.published_chain import FIGURES, publish

HOSTILE = (
    "<img src=x onerror=alert(1)><script>window.stolen=1</script>\" onload='x' &amp; "
    "</details></style>\u202e\u0000 p < 0.05"
)


class Parsed(HTMLParser):
    """Elements with their attributes, and the text outside style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return publish(tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="module")
def page(story: Story) -> Parsed:
    return Parsed(render(story))


def test_every_row_is_accounted_for(page: Parsed) -> None:
    text = " ".join(page.text.split())
    assert "14 usable of 20 articles" in text
    assert "43 usable of 50 figures" in text
    assert "12 pairs of 50 figures" in text
    for reason in ("XML is malformed", "no figures", "image missing"):
        assert reason in text
    assert "38 left out, for 2 reasons" in text
    assert "64 seen in 8 steps of 2 epochs" in text
    assert "1 min 15 s" in text


def test_the_plots_and_scores_are_those_of_the_model(page: Parsed) -> None:
    text = " ".join(page.text.split())
    # R@1 is 1/20, and so is chance; R@10 is 10/20.
    assert "at once 1.0 times as often as chance" in text
    assert "50%" in text
    plots = [a["alt"] for a in page.tags("img") if a["alt"] in ("Loss", "Recall")]
    assert plots == ["Loss", "Recall"]


def test_a_step_that_published_no_plot_has_none(tmp_path: Path) -> None:
    story = publish(tmp_path)
    shutil.rmtree(tmp_path / "model" / "plots")
    (tmp_path / "corpus" / "plots" / "image_sizes.png").write_bytes(b"no picture")
    titles = {a["alt"] for a in Parsed(render(story)).tags("img")}
    assert titles >= {"Length of captions"}
    assert not titles & {"Loss", "Recall", "Size of images"}


def test_a_contact_sheet_shows_each_article_before_a_second_figure_of_one(story: Story) -> None:
    sheet = figures_section.body(story)
    assert sheet is not None
    articles = re.findall(r'alt="a cell of (PMC\d+)"', sheet)
    assert len(articles) == FIGURES
    assert sorted(articles[:6]) == [f"PMC{number}" for number in range(6)]


def test_journals_beyond_the_listed_ones_are_counted_too(tmp_path: Path) -> None:
    story = publish(tmp_path / "told")
    # 60 journals, of which the statistics list 50, and an article without one.
    named = [pair(f"PMC{n}", journal=f"Journal {n % 60:02}") for n in range(180)]
    stats = statistics(
        tally(pairs([*named, *named[:30], pair("PMC999", journal=None)])),
        harvested=HARVESTED,
        dropped={},
    )
    (tmp_path / "told/corpus/stats.json").write_bytes(to_json(stats))
    text = " ".join(Parsed(str(corpus_section.body(story))).text.split())
    assert "Journal 003Journal 013" in text
    # 55 journals of three articles each.
    assert "55 more165" in text
    assert "181 articles, published from 2020 to 2020." in text


def test_searches_show_the_question_and_what_was_found(story: Story) -> None:
    # Without a service, captions ask: vectors of images are those of captions here.
    assert "its own image is number 1" in render(story)
    asked = {"asked": "With a text", "text": "who <b>asks", "matching": 12, "took_ms": 3.2}
    found = [{"figure_id": "PMC1_f3", "score": 0.876}, {"figure_id": "gone", "score": 0.5}]
    notes = Notes(searches=({**asked, "results": found},))
    told = render(dataclasses.replace(story, notes=notes))
    assert "who &lt;b&gt;asks" in told
    assert "0.88" in told
    assert "a cell number 3" in told
    assert "Among 12 figures in 3 ms." in told


def test_the_page_refers_to_nothing_outside_itself_and_is_small(page: Parsed, story: Story) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster", "xlink:href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/", "#")), (tag, value)
        assert not [name for name in attributes if name.startswith("on")]
        assert tag not in ("script", "link", "iframe", "object", "embed", "form", "base")
        assert "url(" not in (attributes.get("style") or "")
    style = render(story).partition("<style>")[2].partition("</style>")[0]
    assert "--accent:" in style
    assert "url(" not in style
    assert "@import" not in style
    assert len(render(story)) < 3_000_000
    targets = {attributes.get("id") for _, attributes in page.elements}
    links = [str(attributes["href"])[1:] for attributes in page.tags("a")]
    assert links
    assert set(links) <= targets


def test_a_hostile_caption_stays_text_wherever_it_stands(tmp_path: Path, story: Story) -> None:
    hostile = Parsed(render(publish(tmp_path, caption=HOSTILE)))
    tame = Parsed(render(story))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in tame.elements]
    assert [set(a) for _, a in hostile.elements] == [set(a) for _, a in tame.elements]
    assert "<script>window.stolen=1</script>" in hostile.text
    assert "\u202e" not in hostile.text
    assert "\0" not in hostile.text


def test_what_is_not_published_yet_is_left_out(tmp_path: Path) -> None:
    story = publish(tmp_path, index=False)
    assert "figures to search" not in render(story)
    only = Story(story.folder, story.chapters[:1])
    told = Parsed(render(only))
    assert [a["id"] for a in told.tags("section") if "id" in a] == ["journey", "next-steps"]
    assert "From articles to pairs" in told.text
    assert "Nothing is published yet." in render(Story(str(tmp_path), ()))
    assert "Not published yet" not in told.text
    begun = dataclasses.replace(only, notes=Notes(remaining=["assemble", "index"]))
    assert "Not published yet: assemble, index." in Parsed(render(begun)).text


def test_warnings_of_all_steps_are_listed_once_and_escaped(story: Story) -> None:
    own, again = "val has 12 <b>pairs</b>: few", "patients may be in several splits"
    noted = [{"warnings": [again]}, {"warnings": [again, own]}, {}, {}]
    chapters = []
    for chapter, more in zip(story.chapters, noted, strict=True):
        manifest = dataclasses.replace(chapter.manifest, notes={**chapter.manifest.notes, **more})
        chapters.append(dataclasses.replace(chapter, manifest=manifest))
    told = Parsed(render(dataclasses.replace(story, chapters=tuple(chapters))))
    assert "warnings" in [a.get("id") for a in told.tags("section")]
    assert told.text.count(again) == 1
    assert own in told.text
    assert "warnings" not in [a.get("id") for a in Parsed(render(story)).tags("section")]
