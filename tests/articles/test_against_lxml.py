"""Captions and mentions equal an independent reading, on our sample and on real articles."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from biovl.articles.content import ArticleContent
from biovl.articles.jats import read_article
from tests.articles import truth


def articles_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if "damaged" in str(path.relative_to(folder)):
            continue
        if path.suffix in (".xml", ".nxml") and path.is_file():
            yield path.name, path.read_bytes()
        elif path.name.endswith(".tar.gz") and path.is_file():
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.name.endswith((".xml", ".nxml")):
                        stream = archive.extractfile(member)
                        assert stream is not None
                        yield f"{path.name}/{member.name}", stream.read()


def compare(name: str, xml: bytes) -> tuple[int, int]:
    """Check one article; return how many captions and mentions were compared."""
    reading = read_article(xml)
    assert reading.content is not None, (name, reading.defect, reading.detail)
    root = truth.tree(xml)
    expected = truth.captions(root)
    figures = reading.content.figures[: len(expected)]
    assert [figure.xml_id for figure in figures] == [key for key, _ in expected], name
    compared = 0
    for figure, (key, caption) in zip(figures, expected, strict=True):
        if caption is not None:
            assert truth.bare(figure.caption) == caption, (name, key)
            compared += 1
    pairs = truth.mentions(root)
    missing = pairs - mentions_of(reading.content)
    assert not missing, (name, list(missing)[:3])
    return compared, pairs.total()


def mentions_of(content: ArticleContent) -> truth.Counter[tuple[str, str]]:
    return truth.Counter(
        (figure.xml_id or "", truth.bare(mention.text))
        for figure in content.figures
        for mention in figure.mentions
        if any(not reference.implied for reference in mention.refs)
    )


def check_spans(content: ArticleContent) -> None:
    for figure in content.figures:
        for span in [*figure.caption_bold, *figure.caption_superscripts]:
            assert 0 <= span.start <= span.end <= len(figure.caption)
        for mention in figure.mentions:
            for reference in mention.refs:
                assert 0 <= reference.start <= reference.end <= len(mention.text)
            assert not any("\ufdd0" <= character <= "\ufdef" for character in mention.text)


def test_the_sample_is_read_as_lxml_reads_it(sample_packages: Path) -> None:
    captions = mentions = 0
    for name, xml in articles_in(sample_packages):
        if read_article(xml).content is None:
            continue
        more_captions, more_mentions = compare(name, xml)
        captions, mentions = captions + more_captions, mentions + more_mentions
    assert captions > 20
    assert mentions > 50


@pytest.mark.shared
def test_real_articles_are_read_as_lxml_reads_them(shared_data: Path) -> None:
    captions = mentions = articles = 0
    for name, xml in articles_in(shared_data):
        more_captions, more_mentions = compare(name, xml)
        content = read_article(xml).content
        assert content is not None
        check_spans(content)
        articles += 1
        captions, mentions = captions + more_captions, mentions + more_mentions
    assert articles >= 600
    assert captions > 2_900
    assert mentions > 5_500


def damaged(xml: bytes, seed: int) -> bytes:
    """Return a copy cut short, with bytes turned over, or with a part taken out."""
    place = (seed * 2654435761) % max(len(xml), 1)
    kind = seed % 4
    if kind == 0:
        return xml[:place]
    if kind == 1:
        return xml[:place] + bytes([xml[place] ^ 0x15]) + xml[place + 1 :]
    if kind == 2:
        return xml[:place] + xml[place + 200 :]
    return xml[:place] + xml[place : place + 300] * 2 + xml[place:]


def test_damaged_articles_never_raise(sample_packages: Path) -> None:
    for name, xml in articles_in(sample_packages):
        for seed in range(40):
            reading = read_article(damaged(xml, seed * 7919 + len(xml)))
            assert (reading.content is None) == (reading.defect is not None), name
            if reading.content is not None:
                check_spans(reading.content)


@pytest.mark.shared
def test_damaged_real_articles_never_raise(shared_data: Path) -> None:
    for number, (_, xml) in enumerate(articles_in(shared_data)):
        for seed in range(2):
            reading = read_article(damaged(xml, number * 31 + seed))
            assert (reading.content is None) == (reading.defect is not None)
