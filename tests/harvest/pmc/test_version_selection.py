"""Records, and which version of an article they make us take."""

import json

import pytest

from biovl.harvest.pmc import records
from biovl.harvest.pmc.records import Record, RecordError
from biovl.harvest.pmc.version_selection import (
    CatalogueVersion,
    Filters,
    choose_version,
    is_cleared,
)

MD5 = "0123456789abcdef0123456789ABCDEF"


def record(version: int = 1, *, media: tuple[str, ...] = ("a.jpg",), **values: object) -> Record:
    prefix = f"s3://b/PMC7.{version}"
    plain = {
        "pmcid": "PMC7", "version": version, "is_pmc_openaccess": True, "license_code": "CC BY",
        "xml_url": f"{prefix}/PMC7.{version}.xml?md5={MD5}",
        "media_urls": [f"{prefix}/{name}?md5={MD5}" for name in media], **values,
    }  # fmt: skip
    return records.read(json.dumps(plain).encode(), 7, version, "2026-09-01", "b")


def choose(*found: Record | str, filters: Filters | None = None) -> list[str]:
    """Return what becomes of versions 1, 2, …"""
    versions = [CatalogueVersion(7, number, "2026-09-01") for number in range(1, len(found) + 1)]
    return choose_version(versions, lambda v: found[v.version - 1], filters or Filters()).states


def test_the_highest_version_that_is_no_manuscript_and_has_media_is_taken() -> None:
    found = choose(record(1), record(2), record(3, is_manuscript=True), record(4, media=()))
    assert found == ["another version is taken", "harvested", "author manuscript", "no media"]


def test_no_record_is_read_that_the_choice_does_not_need() -> None:
    asked: list[int] = []

    def record_of(known: CatalogueVersion) -> Record:
        asked.append(known.version)
        return record(known.version)

    choose_version(
        [CatalogueVersion(7, 1, ""), CatalogueVersion(7, 3, ""), CatalogueVersion(7, 2, "")],
        record_of,
        Filters(),
    )
    assert asked == [3]


def test_no_earlier_version_takes_the_place_of_one_that_is_left_out() -> None:
    assert choose(record(1), record(2, is_retracted=True)) == [
        "another version is taken",
        "retracted",
    ]
    # A retraction that a manuscript tells is one of the article.
    assert choose(record(1), record(2, is_retracted=True, is_manuscript=True)) == [
        "retracted", "author manuscript",
    ]  # fmt: skip
    only_commercial = Filters(licenses=("commercial",))
    assert choose(record(1), record(2, license_code="CC BY-NC"), filters=only_commercial) == [
        "another version is taken", "licence group is left out",
    ]  # fmt: skip


def test_a_record_that_could_not_be_fetched_leaves_its_article_out_for_now() -> None:
    assert choose(record(1), "record cannot be fetched") == ["record cannot be fetched"] * 2
    assert choose(record(1), "record is missing") == ["harvested", "record is missing"]


@pytest.mark.parametrize(
    ("filters", "state"),
    [
        (Filters(), "text by OCR"),
        (Filters(ocr="harvested"), "harvested"),
        (Filters(ocr="harvested", modified_from="2026-09-02"), "modified at another time"),
        (Filters(ocr="harvested", modified_from="2026-09", modified_until="2026"), "harvested"),
        (Filters(ocr="harvested", published_from="2001-11-02"), "harvested"),
        (Filters(ocr="harvested", published_until="2001-10"), "published at another time"),
    ],
)
def test_filters(filters: Filters, state: str) -> None:
    citation = "Breast Cancer Res. 2001 Nov 2; 3(1):55-60"
    assert choose(record(is_historical_ocr=True, citation=citation), filters=filters) == [state]


@pytest.mark.parametrize(
    ("values", "cleared"),
    [
        ({"license_code": "CC BY-NC-ND"}, True),
        ({"license_code": None}, True),
        ({"license_code": "TDM"}, False),
        ({"license_code": "CC BY", "is_pmc_openaccess": False}, False),
        ({"license_code": "CC0", "is_pmc_openaccess": "yes"}, True),
    ],
)
def test_what_the_bucket_does_not_offer_for_reuse_is_not_cleared(
    values: dict, cleared: bool
) -> None:
    assert is_cleared(record(**values)) == cleared


def test_media_that_lead_elsewhere_are_refused_and_the_rest_is_kept() -> None:
    urls = [
        f"s3://b/PMC7.1/a%20b#1?.jpg?md5={MD5}", f"s3://b/PMC7.1/sub/b.webp?md5={MD5}",
        f"s3://other/PMC7.1/c.jpg?md5={MD5}", f"http://169.254.169.254/d.jpg?md5={MD5}",
        f"s3://b/PMC7.1/../PMC8.1/e.jpg?md5={MD5}", f"s3://b/PMC8.1/f.jpg?md5={MD5}",
        "s3://b/PMC7.1/g.jpg", "s3://b/PMC7.1/h.jpg?md5=00", f"s3://b/PMC7.1/?md5={MD5}", None, 3,
        f"s3://b/PMC7.1/sub/b.webp?md5={'0' * 32}", "file:///etc/passwd",
    ]  # fmt: skip
    found = record(media_urls=urls)
    assert [(m.name, m.md5) for m in found.media] == [
        ("a%20b#1?.jpg", MD5.lower()), ("sub/b.webp", MD5.lower()),
    ]  # fmt: skip
    assert len(found.refused) == 10


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000, b'{"xml_url": 3}',
        b'{"pmcid": "PMC8", "xml_url": "s3://b/PMC7.1/x.xml"}',
        f'{{"xml_url": "s3://b/PMC7.1/../x.xml?md5={MD5}"}}'.encode(),
        f'{{"xml_url": "s3://b/PMC7.1/x.xml?md5={MD5}", "media_urls": "all"}}'.encode(),
    ],
)  # fmt: skip
def test_what_is_no_record_says_so(data: bytes) -> None:
    with pytest.raises(RecordError):
        records.read(data, 7, 1, "2026-09-01", "b")


@pytest.mark.parametrize(
    ("citation", "date"),
    [
        ("Breast Cancer Res. 2001 Nov 2; 3(1):55-60", "2001-11-02"),
        ("Front Med. 2021; 8:1", "2021"),
        ("Nature. 1998 Dec;1:2", "1998-12"),
        ("Volume 2001", None),
    ],
)
def test_the_date_of_a_citation(citation: str, date: str | None) -> None:
    assert records.published_by(citation) == date
