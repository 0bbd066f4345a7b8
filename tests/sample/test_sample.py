"""The embedded sample: credible packages, every hard structure, captions that tell the truth."""

import csv
import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image

from biovl.core.records import Article, Figure
from biovl.harvest.rows import rows
from biovl.harvest.sources.packages import Config, PackageSource
from biovl.images.decode import inspect
from biovl.sample import command as sample_command
from biovl.sample import make_damaged_packages, make_packages
from biovl.sample.canvas import WIDTH
from biovl.sample.figures import PHOTOGRAPHS, PLOTS
from biovl.sample.kinds import make_kinds
from biovl.sample.plots import bars
from biovl.sample.scans import chest
from biovl.sample.words import COLOURS, TOPICS, PanelContent, Rng, Topic

ROOT = Path(__file__).parents[2]
FLAVOURS = 6
"""One article of each publisher: every structure that the sample knows is in them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    make_packages(folder, articles=FLAVOURS)
    make_damaged_packages(folder)
    return folder


@pytest.fixture(scope="module")
def published(folder: Path) -> dict[str, dict[str, bytes]]:
    """Package -> its files and their bytes, of the healthy ones."""
    source = PackageSource(Config(path=str(folder)))
    packages = {}
    for address in source.addresses():
        if address.name.startswith("PMC"):
            for package in source.read(address):
                assert package.xml is not None
                files = {name: package.read(name) for name in package.files}
                packages[address.name] = files | {"article.xml": package.xml}
    return packages


@pytest.fixture(scope="module")
def harvested(folder: Path) -> dict[str, list[Figure | Article]]:
    """Package -> its rows, the article's last."""
    source = PackageSource(Config(path=str(folder)))
    return {
        address.name: [row for package in source.read(address) for row in rows(package)]
        for address in source.addresses()
    }


def test_every_article_is_read_without_a_defect(
    harvested: dict[str, list[Figure | Article]],
) -> None:
    articles = [found[-1] for name, found in harvested.items() if name.startswith("PMC")]
    assert len(articles) == FLAVOURS
    for article in articles:
        assert isinstance(article, Article)
        assert article.defect is None
        assert all((article.title, article.abstract, article.full_text))
        assert all((article.journal, article.keywords, article.subjects))
        assert article.figure_count >= 4


def test_metadata_come_in_every_kind(harvested: dict[str, list[Figure | Article]]) -> None:
    articles = [found[-1] for name, found in harvested.items() if name.startswith("PMC")]
    read = [article for article in articles if isinstance(article, Article)]
    assert {article.license_group for article in read} == {"commercial", "noncommercial", "other"}
    assert {len(article.published or "") for article in read} == {4, 7, 10}
    assert "es" in {article.language for article in read}
    assert {"research-article", "review-article", "preprint"} <= {a.article_type for a in read}


def test_nobody_mistakes_the_sample_for_published_work(
    harvested: dict[str, list[Figure | Article]],
) -> None:
    for found in harvested.values():
        article = found[-1]
        if isinstance(article, Article) and article.doi:
            assert article.doi.startswith("10.5555/"), "Crossref keeps this prefix for examples"
            # PMC is far from ten digits, and PubMed, at 42 million in 2026, from these.
            assert re.fullmatch(r"PMC999\d{7}|damaged-.*", article.article_id)
            assert article.pmid is None or int(article.pmid) > 99_000_000


@pytest.mark.parametrize(
    "structure",
    [
        "//sec/fig",
        "//p/fig",
        "//floats-group/fig",
        "//fig/fig[@specific-use='child-fig']",
        "//fig-group[caption]/fig",
        "//sub-article//fig",
        "//abstract[@abstract-type='graphical']//fig[not(caption)]",
        "//fig[not(@id)]",
        "//fig[@id][not(label)][caption]",
        "//fig[label][not(caption)]",
        "//fig/caption[title][count(p) > 2]",
        "//fig/caption//list/list-item/label",
        "//fig/caption//bold[string-length(.) = 1 or string-length(.) = 3]",
        "//fig/caption//xref[@ref-type='fig']",
        "//fig[count(graphic) = 2]",
        "//fig/alternatives[count(graphic) = 2]",
        "//fig/media[not(../graphic)]",
        "//fig/object-id",
        "//fig/attrib",
        "//p//xref[@ref-type='fig'][contains(@rid, ' ')]",
        "//p/xref[@ref-type='fig'][starts-with(following-sibling::text()[1], '–')]",
        "//p/xref[@ref-type='fig'][contains(., '–')][not(contains(@rid, ' '))]"
        "[translate(substring(substring-after(., '–'), 1, 1), '0123456789', '') = '']",
        "//p/xref[@ref-type='fig'][translate(., '123456789', '') = ''][. != '']",
        "//p/xref[@ref-type='fig'][translate(., 'abcdefABCDEF', '') = ''][. != '']",
        "//p/xref[@ref-type='fig'][. = '']",
        "//p/xref[not(@ref-type)]",
        "//p/italic/xref[@ref-type='fig']",
        "//p/bold/xref[@ref-type='fig']/bold",
        "//p/sup/xref[@ref-type='fig']",
        "//list-item/p/xref[@ref-type='fig']",
        "//td/xref[@ref-type='fig']",
        "//p[contains(., 'Panel B shows') or contains(., 'Panel b shows')]",
        "//p[contains(., 'their Fig. 3b in')]",
        "//inline-formula/alternatives[tex-math]",
        "//disp-formula/graphic",
        "//inline-graphic",
        "//table-wrap/graphic",
        "//bio//graphic",
        "//supplementary-material/media",
        "//trans-title",
        "//trans-abstract",
        "//abstract/sec/title",
        "//ref//pub-id[@pub-id-type='pmid']",
        "//license[@href]",
        "//license//ext-link",
        "//license_ref",
    ],
)
def test_a_structure_that_readers_get_wrong_is_in_some_article(
    published: dict[str, dict[str, bytes]], structure: str
) -> None:
    assert any(_without_namespaces(files).xpath(structure) for files in published.values())


def _without_namespaces(files: dict[str, bytes]) -> etree._Element:
    root = etree.fromstring(files["article.xml"], etree.XMLParser(load_dtd=False, no_network=True))
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
        for name in [name for name in element.attrib if name.startswith("{")]:
            element.set(etree.QName(name).localname, element.attrib.pop(name))
    return root


def test_panel_letters_stand_in_the_tail_of_a_reference(
    published: dict[str, dict[str, bytes]],
) -> None:
    xml = b"".join(files["article.xml"] for files in published.values())
    assert re.search(rb'rid="\w+">(Figure|Fig\.?|Figura) \d</xref>[A-Fa-f], [A-Fa-f]\)', xml)


def test_every_healthy_graphic_finds_its_file(
    harvested: dict[str, list[Figure | Article]],
) -> None:
    figures = [
        row
        for name, found in harvested.items()
        if name.startswith("PMC")
        for row in found
        if isinstance(row, Figure)
    ]
    defects = {figure.defect for figure in figures}
    assert defects == {None, "no caption", "graphic is a video"}
    assert all(figure.image for figure in figures if figure.kind != "video")
    assert {"CMYK", "I;16", "RGB"} <= {figure.image_mode for figure in figures}
    assert {"jpeg", "png", "tiff", "webp"} <= {figure.image_format for figure in figures}
    cited = [figure for figure in figures if figure.mentions]
    assert len(cited) > 0.8 * len(figures)


def test_names_in_the_xml_differ_from_names_of_files_as_in_life(
    published: dict[str, dict[str, bytes]],
) -> None:
    kinds = set()
    for files in published.values():
        for graphic in _without_namespaces(files).xpath("//fig//graphic"):
            href = graphic.get("href")
            if href in files:
                kinds.add("exact")
            elif any(name.lower() == href.lower() for name in files):
                kinds.add("other case")
            else:
                suffixes = sorted(name[len(href) :] for name in files if name.startswith(href))
                kinds.add(" ".join(suffixes))
    assert {"exact", "other case", ".jpg", ".gif .jpg", ".jpg .tif", ".png"} <= kinds


def test_one_figure_is_published_twice_and_one_is_encoded_again(
    published: dict[str, dict[str, bytes]],
) -> None:
    jpegs = [
        [data for name, data in sorted(files.items()) if name.lower().endswith(".jpg")]
        for _, files in sorted(published.items())
    ]
    assert jpegs[0][0] in jpegs[3]
    original, again = (inspect(data).phash for data in (jpegs[1][1], jpegs[5][0]))
    assert jpegs[1][1] != jpegs[5][0]
    assert original is not None
    assert again is not None
    assert (int(original, 16) ^ int(again, 16)).bit_count() <= 4


def test_captions_are_short_and_long(harvested: dict[str, list[Figure | Article]]) -> None:
    words = [
        len(row.caption.split())
        for found in harvested.values()
        for row in found
        if isinstance(row, Figure) and row.caption
    ]
    # A word is about 1.4 tokens: CLIP's 77 tokens are 55 words, LongCLIP's 154 are 110.
    assert min(words) < 30
    assert sum(count > 55 for count in words) >= 5
    assert max(words) > 110


def test_the_same_seed_gives_the_same_bytes_and_fewer_articles_are_the_first_of_more(
    folder: Path, tmp_path: Path
) -> None:
    again = make_packages(tmp_path / "again", articles=2)
    for path in again:
        assert _contents(path) == _contents(folder / path.name)
    other = make_packages(tmp_path / "other", articles=1, seed=1)
    assert _contents(other[0]) != _contents(again[0])


def _contents(path: Path) -> dict[str, bytes]:
    files = path.iterdir() if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("draw", PLOTS + PHOTOGRAPHS, ids=lambda draw: draw.__name__)
def test_a_panel_is_an_image_with_words_in_jats(draw: Callable[[Topic, Rng], PanelContent]) -> None:
    panels = [draw(TOPICS[i], np.random.default_rng(i)) for i in range(4)]
    for panel in panels:
        assert panel.image.dtype == np.uint8
        assert panel.image.shape == (280, 360, 3)
        assert panel.image.std() > 5, "something is drawn"
        for words in (panel.finding, panel.subject, panel.detail, panel.spanish):
            etree.fromstring(f"<p>{words}</p>")
    assert len({panel.subject for panel in panels}) > 1
    assert len({panel.image.tobytes() for panel in panels}) == len(panels)


@pytest.mark.parametrize("seed", range(8))
def test_an_opacity_is_on_the_side_that_the_caption_says(seed: int) -> None:
    panel = chest(TOPICS[3], np.random.default_rng(seed))
    grey = panel.image[..., 0].astype(float)
    # The lungs without what the heart and the diaphragm cover.
    shown_left, shown_right = grey[75:200, 85:115], grey[75:200, WIDTH - 115 : WIDTH - 85]
    brighter_on_the_right = np.percentile(shown_right, 96) > np.percentile(shown_left, 96)
    assert brighter_on_the_right == ("in the left lung" in panel.subject)


@pytest.mark.parametrize("seed", range(8))
def test_bars_have_the_colour_and_the_trend_that_the_caption_says(seed: int) -> None:
    panel = bars(TOPICS[0], np.random.default_rng(seed))
    (colour,) = [colour for colour in COLOURS if f"({colour.name} bars)" in panel.subject]
    value = np.array([int(colour.hex[i : i + 2], 16) for i in (1, 3, 5)])
    painted = np.abs(panel.image.astype(int) - value).max(axis=2) < 3
    painted = painted[25:228, 70:340]  # inside the axes: their text is not a bar
    assert painted.sum() > 2_000
    columns = np.flatnonzero(painted.any(axis=0))
    first, last = (painted[:, columns[i]].sum() for i in (5, -5))
    assert (last > first) == (" rises " in panel.finding)


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("truncated-image", "image is truncated"),
        ("missing-image", "image missing"),
        ("bomb-image", "image too large"),
        ("svg-graphic", "graphic is svg"),
        ("malformed-xml", "xml is malformed"),
        ("no-figures", "no figures"),
        ("external-entity", "xml declares entities"),
        ("entity-bomb", "xml declares entities"),
        ("no-xml", "package has no XML"),
        ("empty", "package is empty"),
        ("parent-path", "archive has an unsafe member"),
        ("cut-archive", "archive is truncated or corrupt"),
    ],
)
def test_a_damaged_package_has_the_one_defect_it_is_named_for(
    harvested: dict[str, list[Figure | Article]], name: str, defect: str
) -> None:
    assert [row.defect for row in harvested[f"damaged-{name}"] if row.defect] == [defect]


def test_a_bomb_is_small_on_disk(folder: Path) -> None:
    (bomb,) = (folder / "damaged-bomb-image").glob("*.png")
    assert bomb.stat().st_size < 1_000
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(bomb.read_bytes()))


def test_the_command_says_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sample.py", str(tmp_path), "--articles", "1"])
    runpy.run_path(str(ROOT / "pipelines" / "sample.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1].endswith('"packages": 1, "damaged": 12}')
    assert len(list(tmp_path.iterdir())) == 13


def test_a_sample_without_articles_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["biovl sample", str(tmp_path / "new"), "--articles", "-3"])
    with pytest.raises(SystemExit) as ended:
        sample_command.main()
    assert ended.value.code == 2
    assert "--articles is at least 1" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_table_of_known_kinds_has_captions_without_markup(tmp_path: Path) -> None:
    table = make_kinds(tmp_path, each=2, kinds=("bars", "survival"))
    captions = [row["caption"] for row in csv.DictReader(table.open(encoding="utf-8"))]
    assert "P < 0.05" in captions[0]
    assert not any(sign in caption for caption in captions for sign in ("&", "<i", "</"))
