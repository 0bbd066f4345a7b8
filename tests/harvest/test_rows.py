"""One package to rows: which image is taken, and what becomes of bad ones."""

import io

import pytest
from PIL import Image

from biovl.core.records import Article, Figure
from biovl.harvest import rows as harvesting
from biovl.harvest.rows import rows
from biovl.harvest.sources import Package
from biovl.images import decode


def image(kind: str, width: int, height: int = 60) -> bytes:
    stream = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).save(stream, kind)
    return stream.getvalue()


def read(
    body: str, files: dict[str, bytes], front: str = "", uri: str = "file:///PMC1/x.xml"
) -> tuple[list[Figure], Article]:
    xml = (
        '<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta>'
        f"{front}</article-meta></front><body>{body}</body></article>"
    )
    package = Package(
        name="PMC1",
        uri=uri,
        xml=xml.encode(),
        files={name: len(data) for name, data in files.items()},
        read=files.__getitem__,
    )
    *figures, article = rows(package)
    assert isinstance(article, Article)
    return [figure for figure in figures if isinstance(figure, Figure)], article


def figure(inner: str, caption: str = "<caption><p>C</p></caption>") -> str:
    return f"<fig id='F1'>{caption}{inner}</fig>"


def test_the_largest_usable_original_wins() -> None:
    files = {
        "g.gif": image("GIF", 40),
        "g.jpg": image("JPEG", 200),
        "g.tif": image("TIFF", 400),
        "g.png": image("PNG", 800)[:200],
    }
    ((only,), _) = read(figure("<graphic xlink:href='g'/>"), files)
    assert (only.image_name, only.width_px, only.image) == ("g.tif", 400, files["g.tif"])
    assert (only.image_format, only.defect) == ("tiff", None)


def test_a_version_for_print_or_a_thumbnail_is_taken_only_for_want_of_another() -> None:
    inner = (
        "<alternatives><graphic specific-use='print' xlink:href='p'/><graphic xlink:href='w'/>"
        "<graphic xlink:href='g-thumb'/></alternatives>"
    )
    files = {
        "p.tif": image("TIFF", 400),
        "w.jpg": image("JPEG", 200),
        "g-thumb.gif": image("GIF", 40),
    }
    ((only,), _) = read(figure(inner), files)
    assert only.image_name == "w.jpg"
    ((only,), _) = read(figure(inner), {**files, "w.jpg": b"broken"})
    assert only.image_name == "p.tif"


def test_content_and_not_the_suffix_tells_the_format() -> None:
    ((only,), _) = read(figure("<graphic xlink:href='g.jpg'/>"), {"g.jpg": image("PNG", 100)})
    assert (only.image_format, only.image_name) == ("png", "g.jpg")


@pytest.mark.parametrize(
    ("inner", "caption", "files", "defect"),
    [
        ("<graphic xlink:href='g'/>", "<caption><p>C</p></caption>", {}, harvesting.IMAGE_MISSING),
        ("", "<caption><p>C</p></caption>", {}, harvesting.NO_GRAPHIC),
        ("<graphic/>", "<caption><p>C</p></caption>", {}, harvesting.NO_GRAPHIC),
        ("<media xlink:href='v.mp4'/>", "<caption><p>C</p></caption>", {}, harvesting.VIDEO),
        ("<graphic xlink:href='g'/>", "", {"g.png": image("PNG", 99)}, harvesting.NO_CAPTION),
        ("<graphic xlink:href='g'/>", "<caption><p>C</p></caption>", {"g.jpg": b""}, decode.EMPTY),
        (
            "<graphic xlink:href='g'/>",
            "<caption><p>C</p></caption>",
            {"g.svg": b"<svg/>"},
            "graphic is svg",
        ),
        (
            "<graphic xlink:href='g'/>",
            "<caption><p>C</p></caption>",
            {"g.jpg": image("JPEG", 300)[:500]},
            decode.TRUNCATED,
        ),
    ],
)
def test_every_defect_has_its_name(
    inner: str, caption: str, files: dict[str, bytes], defect: str
) -> None:
    ((only,), article) = read(figure(inner, caption), files)
    assert only.defect == defect
    assert article.defect is None
    assert article.figure_count == 1


@pytest.mark.parametrize(
    ("name", "data", "kind", "defect"),
    [
        ("g.jp2", image("JPEG2000", 300), "jp2", None),
        ("g.jxr", b"II\xbc\x01" + bytes(60), "jxr", "graphic is jxr"),
        ("g.emf", b"\1\0\0\0" + bytes(36) + b" EMF" + bytes(60), "emf", "graphic is emf"),
        ("g.eps", b"%!PS-Adobe-3.0 EPSF-3.0", "eps", "graphic is eps"),
        ("g.mp4", b"\0\0\0\x20ftypisom", "video", "graphic is a video"),
        ("g.webp", image("WEBP", 300), "webp", None),
        # Of a suffix that nobody has heard of.
        ("g.jp2000", image("JPEG2000", 300), "jp2", None),
        ("g.docx", b"PK\3\4", "zip", decode.NOT_AN_IMAGE),
        ("g.opju", b"nothing known", None, decode.NOT_AN_IMAGE),
    ],
)
def test_what_was_delivered_for_a_graphic_is_named(
    name: str, data: bytes, kind: str | None, defect: str | None
) -> None:
    ((only,), _) = read(figure("<graphic xlink:href='g'/>"), {name: data, "h.jpg": b""})
    assert (only.image_name, only.image_format, only.defect) == (name, kind, defect)


@pytest.mark.parametrize(
    ("place", "stated", "version"),
    [
        ("PMC1.1/x.xml", "", "1"),
        ("PMC1.2/PMC1.xml", "", "2"),
        ("PMC1.12.tar.gz#x.xml", "", "12"),
        ("many.tar#PMC1.2/x.xml", "", "2"),
        ("PMC1.2/x.xml", "<article-version>1</article-version>", "1"),
        ("PMC1/x.xml", "", None),
        # Neither of these is a version of the article.
        ("PMC9.2/PMC1/x.xml", "", None),
        ("old-PMC1.2/x.xml", "", None),
    ],
)
def test_a_version_may_stand_in_the_name_alone(
    place: str, stated: str, version: str | None
) -> None:
    _, article = read("", {}, stated, uri=f"file:///{place}")
    assert article.version == version


def test_one_doi_in_two_spellings_is_one_article() -> None:
    inner = figure("<graphic xlink:href='g'/>")
    for doi in ("10.1/Abc", "10.1/aBC"):
        stated = f"<article-id pub-id-type='doi'>{doi}</article-id>"
        ((only,), article) = read(inner, {}, stated)
        assert (only.article_id, article.article_id, article.doi) == ("10.1/abc", "10.1/abc", doi)


def test_large_files_are_not_held_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvesting, "_LARGE_BYTES", 100)
    graphic = figure("<graphic xlink:href='g'/>")
    large, small = image("TIFF", 300), image("PNG", 200)
    ((only,), _) = read(graphic, {"g.png": small, "g.tif": large})
    assert (only.image_name, only.image, only.size_bytes) == ("g.tif", large, len(large))
    # What is no image is named, and its bytes are not stored.
    pdf = b"%PDF-1.4" + bytes(200)
    ((only,), _) = read(graphic, {"g.pdf": pdf})
    assert (only.image_name, only.defect) == ("g.pdf", "graphic is pdf")
    assert (only.image, only.size_bytes) == (None, len(pdf))


def test_an_image_that_cannot_be_read_is_a_defect() -> None:
    def fails(name: str) -> bytes:
        raise OSError(f"{name}: too large")

    xml = b'<article xmlns:xlink="http://www.w3.org/1999/xlink"><body><fig><graphic xlink:href="g"/></fig></body></article>'
    package = Package(name="P", uri="u", xml=xml, files={"g.jpg": 1}, read=fails)
    only, article = rows(package)
    assert isinstance(only, Figure)
    assert only.defect == harvesting.IMAGE_UNREADABLE
    assert isinstance(article, Article)


def test_several_graphics_are_rows_with_ids_of_their_own() -> None:
    files = {"a.png": image("PNG", 90), "b.png": image("PNG", 91)}
    figures, article = read(
        figure("<graphic xlink:href='a'/><graphic xlink:href='b'/>")
        + "<fig id='F1_2'><graphic xlink:href='a'/></fig><fig id='x.y z'><graphic xlink:href='a'/></fig>",
        files,
    )
    assert [f.figure_id for f in figures] == ["PMC1_F1", "PMC1_F1_2", "PMC1_F1_2-2", "PMC1_x-y-z"]
    assert article.figure_count == 4


def test_an_article_without_figures_says_so() -> None:
    figures, article = read("<p>Text</p>", {})
    assert figures == []
    assert (article.defect, article.full_text) == (harvesting.NO_FIGURES, "Text")


def test_a_defect_of_the_package_or_its_xml_is_still_one_row() -> None:
    (row,) = rows(Package(name="PMC12_x", uri="u", xml=b"<broken", defect=None))
    assert isinstance(row, Article)
    assert (row.article_id, row.defect) == ("PMC12", "xml is malformed")
    assert row.xml_sha256 is not None
    (row,) = rows(Package(name="thing", uri="u", defect="package is empty"))
    assert isinstance(row, Article)
    assert (row.article_id, row.defect, row.xml_sha256) == ("thing", "package is empty", None)


def test_a_mistake_of_ours_is_counted_and_does_not_end_the_run() -> None:
    def breaks(name: str) -> bytes:
        raise RuntimeError("a bug")

    xml = b'<article xmlns:xlink="http://www.w3.org/1999/xlink"><body><fig><graphic xlink:href="g"/></fig></body></article>'
    (row,) = rows(Package(name="P", uri="u", xml=xml, files={"g.jpg": 1}, read=breaks))
    assert isinstance(row, Article)
    assert (row.defect, row.defect_detail) == (harvesting.READER_FAILED, "RuntimeError: a bug")


def test_a_figure_may_have_a_licence_of_its_own() -> None:
    article_license = '<permissions><license xlink:href="http://creativecommons.org/licenses/by/4.0/"/></permissions>'
    own = article_license.replace("/by/", "/by-nc/")
    figures, article = read(figure(own) + "<fig id='F2'/>", {}, front=article_license)
    assert article.license == "CC-BY-4.0"
    urls = [f"http://creativecommons.org/licenses/{terms}/4.0/" for terms in ("by-nc", "by")]
    assert article.license_url == urls[1]
    assert [(f.license, f.license_group, f.license_url) for f in figures] == [
        ("CC-BY-NC-4.0", "noncommercial", urls[0]),
        ("CC-BY-4.0", "commercial", urls[1]),
    ]
