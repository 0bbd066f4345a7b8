"""Answers of the E-utilities, as they come and as they should not."""

import pytest

from biovl.articles.pubmed_dates import medline_date
from biovl.enrich.answers import (
    MeshTerm,
    NotAnAnswer,
    PubmedRecord,
    Qualifier,
    read_citations,
    read_found,
    read_records,
)
from tests.enrich.eutils import ARTICLES, LINKS, NO_IDS, article, book


def one(record: str) -> PubmedRecord:
    (found,) = read_records(
        f"{ARTICLES}<PubmedArticleSet>{record}</PubmedArticleSet>".encode()
    ).values()
    return found


def test_a_heading_keeps_its_qualifiers_and_what_is_major_in_it():
    record = one(
        article(
            11,
            mesh_xml='<MeshHeading><DescriptorName UI="D008175" MajorTopicYN="N">Lung Neoplasms'
            '</DescriptorName><QualifierName UI="Q000000981" MajorTopicYN="Y">diagnostic imaging'
            '</QualifierName><QualifierName UI="Q000473" MajorTopicYN="N">pathology</QualifierName>'
            "</MeshHeading>",
        )
    )
    imaging = Qualifier("diagnostic imaging", "Q000000981", True)
    pathology = Qualifier("pathology", "Q000473", False)
    assert record.mesh_terms == [MeshTerm("Lung Neoplasms", "D008175", False, [imaging, pathology])]


def test_a_single_heading_is_a_list_of_one_and_none_an_empty_list():
    assert one(article(11, mesh=[("Lung", "D008168", "Y")])).mesh_terms == [
        MeshTerm("Lung", "D008168", True, [])
    ]
    assert one(article(11)).mesh_terms == []


def test_records_are_known_by_their_own_pmid_and_not_by_one_that_they_mention():
    record = one(article(11, notices=["CommentIn"], doi="10.1/mine", pmcid="PMC1"))
    assert (record.pmid, record.doi, record.pmcid) == (11, "10.1/mine", "PMC1")
    # The stand-in's articles cite 10.1/of.a.reference.
    assert one(article(11)).doi is None


def test_of_the_versions_of_an_article_the_last_holds():
    versions = [article(11, keywords=[f"v{n}"], version=n) for n in (1, 3, 2)]
    assert one("".join(versions)).keywords == ["v3"]


@pytest.mark.parametrize(
    ("types", "notices", "retracted"),
    [
        (["Journal Article"], [], False),
        (["Journal Article", "Retracted Publication"], [], True),
        (["Journal Article"], ["RetractionIn"], True),
        # JAMA and the Lancet retract an article and publish its correction under another PMID.
        (["Journal Article"], ["RetractedandRepublishedIn"], True),
        (["Journal Article"], ["RetractedandRepublishedFrom"], False),
        # A notice of retraction is no retracted article, and a correction none.
        (["Retraction of Publication"], ["RetractionOf"], False),
        (["Journal Article"], ["ErratumIn", "PartialRetractionIn"], False),
    ],
)
def test_retracted(types: list[str], notices: list[str], retracted: bool):
    assert one(article(11, types=types, notices=notices)).retracted is retracted


YEAR_2003, DEC_2003 = "<Year>2003</Year>", "<Year>2003</Year><Month>Dec</Month>"


@pytest.mark.parametrize(
    ("issued", "electronic", "published", "origin"),
    [
        (DEC_2003, "", "2003-12", "PubDate"),
        ("<Year>2003</Year><Month>12</Month><Day>5</Day>", "", "2003-12-05", "PubDate"),
        ("<Year>2003</Year><Month>Feb</Month><Day>30</Day>", "", "2003-02", "PubDate"),
        ("<Year>2003</Year><Season>Winter</Season>", "", "2003", "PubDate"),
        # Electronic before the issue; the finer of two that agree; and an issue scanned later.
        (DEC_2003, "<Year>2003</Year><Month>10</Month><Day>12</Day>", "2003-10-12", "ArticleDate"),
        (YEAR_2003, "<Year>2003</Year><Month>10</Month><Day>12</Day>", "2003-10-12", "ArticleDate"),
        (YEAR_2003, "<Year>2009</Year><Month>01</Month><Day>02</Day>", "2003", "PubDate"),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "", "1998-12", "MedlineDate"),
        ("", "", None, None),
    ],
)
def test_the_earlier_of_two_dates_is_that_of_publication(issued, electronic, published, origin):
    record = one(article(11, issued=issued, electronic=electronic))
    assert (record.published, record.published_from) == (published, origin)


def test_without_a_date_of_its_own_an_article_has_that_which_pubmed_was_told():
    def event(status: str, year: int) -> str:
        return (
            f'<PubMedPubDate PubStatus="{status}"><Year>{year}</Year><Month>7</Month><Day>4</Day>'
            "<Hour>0</Hour></PubMedPubDate>"
        )

    told = event("received", 1999) + event("pubmed", 2001) + event("ppublish", 2000)
    record = one(article(11, issued="", history=told))
    assert (record.published, record.published_from) == ("2000-07-04", "History/ppublish")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("1998 Dec-1999 Jan", "1998-12"),
        ("1998-1999", "1998"),
        ("Winter 2003", "2003"),
        ("2000 Spring-Summer", "2000"),
        ("1999 Nov-Dec", "1999-11"),
        ("1998 Dec 15-31", "1998-12-15"),
        ("1998 Dec 31-1999 Jan 6", "1998-12-31"),
        ("Dec 1998-Jan 1999", "1998-12"),
        ("Nov-Dec 1999", "1999-11"),
        ("March 2003", "2003-03"),
        ("2nd Quart. 1999", "1999"),
        ("1976-1977 Winter", "1976"),
        ("in press", None),
        ("", None),
    ],
)
def test_a_period_has_the_date_it_begins_with(text: str, date: str | None):
    assert medline_date(text) == date


def test_keywords_of_all_lists_are_plain_text_each_once():
    record = one(article(11, keywords=["<i>in  vivo</i> imaging", "CT", "CT", "CO<sub>2</sub>"]))
    assert record.keywords == ["in vivo imaging", "CT", "CO2"]


def test_a_chapter_of_a_book_is_told_from_an_article():
    record = one(book(14, year="1993", keywords=["genes"]))
    assert (record.status, record.pmid, record.published) == ("book", 14, "1993")
    assert (record.keywords, record.publication_types) == (["genes"], ["Review"])


def test_an_id_that_was_deleted_says_so():
    record = one("<DeleteCitation><PMID Version='1'>15</PMID></DeleteCitation>")
    assert (record.pmid, record.status) == (15, "deleted")


@pytest.mark.parametrize("text", ["<PubmedArticleSet></PubmedArticleSet>", NO_IDS])
def test_where_no_id_is_known_there_are_no_records(text: str):
    assert read_records(text.encode()) == {}


def test_each_article_has_those_that_cite_it():
    def links(pmid: int, *named: tuple[str, list[int]]) -> str:
        return f"<LinkSet><DbFrom>pubmed</DbFrom><IdList><Id>{pmid}</Id></IdList>" + "".join(
            f"<LinkSetDb><DbTo>pubmed</DbTo><LinkName>{name}</LinkName>"
            + "".join(f"<Link><Id>{number}</Id></Link>" for number in numbers)
            + "</LinkSetDb>"
            for name, numbers in named
        ) + "</LinkSet>"  # fmt: skip

    body = links(1, ("pubmed_pubmed_refs", [7]), ("pubmed_pubmed_citedin", [30, 4, 30])) + links(2)
    assert read_citations(f"{LINKS}<eLinkResult>{body}</eLinkResult>".encode()) == {
        1: [4, 30],
        2: [],
    }


def test_citations_of_several_articles_together_are_no_answer():
    body = "<LinkSet><IdList><Id>1</Id><Id>2</Id></IdList></LinkSet>"
    with pytest.raises(NotAnAnswer, match="ids"):
        read_citations(f"<eLinkResult>{body}</eLinkResult>".encode())


def test_xml_that_declares_entities_is_not_read():
    text = b'<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/hostname">]><PubmedArticleSet/>'
    with pytest.raises(NotAnAnswer, match="entities"):
        read_records(text)


def test_an_error_never_holds_more_of_an_answer_than_its_reason():
    body = b'{"error":"API key invalid","api-key":"secret","type":"api-key"}'
    with pytest.raises(NotAnAnswer) as refused:
        read_records(body)
    assert str(refused.value) == "error: API key invalid"


def test_a_search_in_json_may_hold_line_breaks():
    body = b'{"esearchresult":{"ERROR":"Search Backend failed: Exception:\n\'retstart\' cannot"}}'
    with pytest.raises(NotAnAnswer, match="Search Backend failed"):
        read_found(body)
