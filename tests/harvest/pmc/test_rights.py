"""What rows say of licences, retractions and owners, of what sources and articles state."""

import pytest

from biovl.articles import licenses
from biovl.articles.content import License
from biovl.articles.credits import is_of_others
from biovl.core.records import Article, Figure
from biovl.harvest.rows import rows
from biovl.harvest.sources import Package, SourceMetadata

BY = "<permissions><license><license-p>CC BY 4.0</license-p></license></permissions>"
BY_ND = "<permissions><license><license-p>CC BY-ND 4.0</license-p></license></permissions>"


def read(
    front: str = BY, figure: str = "", stated: SourceMetadata | None = None, attributes: str = ""
) -> tuple[Figure, Article]:
    xml = (
        f"<article {attributes}><front><article-meta>{front}</article-meta></front><body>"
        f"<fig id='f'><caption><p>C</p></caption>{figure}<graphic href='a'/></fig></body></article>"
    )
    figure_row, article = rows(Package(name="P", uri="u", xml=xml.encode(), stated=stated))
    assert isinstance(figure_row, Figure)
    assert isinstance(article, Article)
    return figure_row, article


def stated(**values: object) -> SourceMetadata:
    plain: dict = {"article_id": "PMC1", "version": "2", "snapshot": "2026-09-01", **values}
    return SourceMetadata(**plain)


@pytest.mark.parametrize(
    ("spdx", "redistributable", "derivatives"),
    [
        ("CC-BY-4.0", True, True),
        ("CC-BY-NC-ND-4.0", True, False),
        (licenses.PUBLIC_DOMAIN, True, True),
        (licenses.RESERVED, False, False),
        (None, None, None),
    ],
)
def test_what_a_licence_allows(
    spdx: str | None, redistributable: bool | None, derivatives: bool | None
) -> None:
    allowed = licenses.allowed_by(License(spdx))
    assert (allowed.redistributable, allowed.derivatives) == (redistributable, derivatives)


def test_flags_are_those_of_the_licence_for_every_source() -> None:
    for row in read(BY_ND):
        assert (row.redistributable, row.derivatives_allowed) == (True, False)
        assert (row.license_code, row.snapshot, row.retracted) == (None, None, None)


def test_of_two_statements_the_one_that_allows_less_holds() -> None:
    for row in read(BY, stated=stated(license_code="CC BY-NC")):
        assert (row.license, row.license_group) == ("CC-BY-NC", "noncommercial")
    for row in read(BY_ND, stated=stated(license_code="CC BY")):
        assert (row.license, row.derivatives_allowed) == ("CC-BY-ND-4.0", False)
    for row in read("", stated=stated(license_code="CC0")):
        assert (row.license, row.license_group) == ("CC0-1.0", "commercial")


def test_what_the_source_does_not_clear_is_not_cleared_by_its_xml_nor_by_a_figure() -> None:
    own = "<permissions><license><license-p>CC BY 4.0</license-p></license></permissions>"
    for row in read(BY, own, stated(license_code="TDM", cleared=False)):
        assert (row.license_code, row.license_group) == ("TDM", "other")
        assert (row.redistributable, row.derivatives_allowed) == (False, False)


def test_a_figure_of_its_own_licence_has_its_own_flags() -> None:
    own = (
        "<permissions><copyright-statement>All rights reserved</copyright-statement></permissions>"
    )
    figure, article = read(BY, own)
    assert (figure.redistributable, figure.third_party) == (False, True)
    assert article.redistributable is True


@pytest.mark.parametrize(
    ("front", "attributes", "says", "retracted"),
    [
        ("", "", None, None),
        ("", "", False, False),
        ("", "", True, True),
        ("<related-article related-article-type='retraction-forward'/>", "", False, True),
        ("", "article-type='retracted-article'", None, True),
        # The notice is not what it retracts.
        ("<related-article related-article-type='retracted-article'/>",
         "article-type='retraction'", None, None),
    ],
)  # fmt: skip
def test_retracted_by_the_source_or_by_the_article(
    front: str, attributes: str, says: bool | None, retracted: bool | None
) -> None:
    for row in read(front, "", stated(retracted=says), attributes):
        assert row.retracted is retracted
        assert (row.version, row.snapshot) == ("2", "2026-09-01")


@pytest.mark.parametrize(
    ("caption", "of_others"),
    [
        ("CT of the chest. Reproduced from [12] with permission.", True),
        ("Adapted from Smith et al. 2019.", True),
        ("Modified with permission from Elsevier.", True),
        ("Image courtesy of Dr A. Person.", True),
        ("© 2019 Elsevier.", True),
        ("Copyright 2015, Nature Publishing Group", True),
        ("Reprinted by permission of the publisher", True),
        ("Cells adapted from suspension culture; images were taken with a camera.", False),
        ("Tissue was obtained from patients, modified from the two-step protocol.", False),
        ("Permission was obtained.", False),
    ],
)
def test_captions_that_credit_others(caption: str, of_others: bool) -> None:
    assert is_of_others(caption, None) is of_others


def test_a_credit_inside_a_graphic_counts() -> None:
    xml = (
        "<article><body><fig><caption><p>C</p></caption><graphic href='a'><attrib>Mr X</attrib>"
        "</graphic></fig></body></article>"
    )
    figure, _ = rows(Package(name="P", uri="u", xml=xml.encode()))
    assert isinstance(figure, Figure)
    assert (figure.credit, figure.third_party) == ("Mr X", True)
