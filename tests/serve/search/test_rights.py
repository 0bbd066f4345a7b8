"""Licences, credits and retractions in answers, and whose images are sent."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from biovl.articles.rights import NOT_ALLOWED, NOT_STATED, OF_OTHERS, reason_to_withhold
from biovl.index import metadata
from biovl.index.filters import FilterTable
from biovl.index.query import Filter
from serve.search.messages import FigureAbout
from tests.index import small_index
from tests.serve.search.small_engine import SmallEngine, make_client

FREE, CREDITED, RESERVED, UNSTATED, RETRACTED = range(5)
PERMISSION = "Reprinted with permission from Elsevier, © 2019."


def engine() -> SmallEngine:
    """Five figures, each of another standing."""
    small = SmallEngine()
    changes: list[dict[str, Any]] = [
        {"credit": None, "retracted": False},
        {"credit": PERMISSION, "third_party": True, "license": "CC-BY-4.0"},
        {"license": "LicenseRef-All-Rights-Reserved", "license_group": "other"},
        {"license": None, "license_group": "other"},
        {"retracted": True},
    ]
    for row, change in zip(small.rows, changes, strict=False):
        row.update(change)
    return small


def ids(small: SmallEngine) -> list[str]:
    return [row["figure_id"] for row in small.rows[:5]]


def test_a_figure_of_a_third_party_is_not_shown_under_the_articles_licence() -> None:
    small = engine()
    with make_client(small) as client:
        found = client.get("/v1/figures", params={"ids": ",".join(ids(small))}).json()["figures"]
    for one in found:
        FigureAbout.model_validate(one)
    assert [one["license"] for one in found] == [
        "CC-BY-4.0",
        None,
        "LicenseRef-All-Rights-Reserved",
        None,
        "CC-BY-4.0",
    ]
    credited = found[CREDITED]
    assert credited["license_group"] == "other"
    assert credited["license_url"] is None
    assert (credited["third_party"], credited["credit"]) == (True, PERMISSION)
    assert credited["stated_license"] == "CC-BY-4.0"
    assert [one["retracted"] for one in found] == [False, None, None, None, True]
    assert [one["withheld"] for one in found] == [None, OF_OTHERS, NOT_ALLOWED, NOT_STATED, None]
    assert [one["image_url"] is None for one in found] == [False, True, True, True, False]


@pytest.mark.parametrize("size", ["image", "thumbnail"])
@pytest.mark.parametrize(
    ("images", "statuses"),
    [
        (None, [200, 403, 403, 403, 200]),
        ("unstated", [200, 403, 403, 200, 200]),
        ("all", [200, 200, 200, 200, 200]),
    ],
)
def test_images_are_sent_where_that_is_allowed_or_somebody_says_so(
    size: str, images: str | None, statuses: list[int]
) -> None:
    small = engine()
    with make_client(small, **({"rights": {"images": images}} if images else {})) as client:
        answers = [client.get(f"/v1/figures/{one}/{size}") for one in ids(small)]
        shown = client.get("/v1/figures", params={"ids": ",".join(ids(small))}).json()["figures"]
    assert [answer.status_code for answer in answers] == statuses
    # What answers name is what can be had.
    assert [one["image_url"] is not None for one in shown] == [one == 200 for one in statuses]
    for answer in answers:
        if answer.status_code == 403:
            assert answer.json()["type"].endswith("image-withheld")
            assert answer.headers["cache-control"] == "no-store"
            assert small.rows[0]["url"].rpartition("PMC")[0] in answer.json()["detail"]


def test_search_and_proxy_say_the_same_and_the_retracted_have_no_vote() -> None:
    small = engine()
    for row in small.rows:
        row["retracted"] = row["figure_id"] == ids(small)[RETRACTED]
    with make_client(small) as client:
        found = client.post("/v1/search", json={"text": "red", "k": 36}).json()["results"]
        picture = client.get(f"/v1/figures/{ids(small)[RETRACTED]}/image").content
        answer = client.post(
            "/v1/proxy?k=36", content=picture, headers={"Content-Type": "image/png"}
        ).json()
    for hits in (found, answer["evidence"]):
        of = {hit["figure_id"]: hit for hit in hits}
        assert of[ids(small)[CREDITED]]["license"] is None
        assert of[ids(small)[CREDITED]]["thumbnail_url"] is None
        assert of[ids(small)[RETRACTED]]["retracted"] is True
    voters = {figure for vote in answer["votes"] for figure in vote["figures"]}
    assert ids(small)[RETRACTED] not in voters
    assert ids(small)[FREE] in voters


def test_an_index_counts_and_filters_by_the_licence_that_holds(tmp_path: Path) -> None:
    common = {"license_group": "commercial", "license": "CC-BY-4.0", "kind": "figure"}
    place = {"split": "train", "shard": "a.tar", "offset": 0, "size": 1}
    rows = [
        {"pair_id": "free", "caption": "A view."},
        {"pair_id": "credited", "caption": "A view.", "credit": PERMISSION},
        {"pair_id": "said", "caption": "Reprinted from Smith et al. with permission."},
    ]
    corpus = pa.Table.from_pylist(
        [{"article_id": "PMC1", "credit": None, **common, **place, **row} for row in rows]
    )
    table = metadata.from_index_rows(corpus)
    assert table["license"].to_pylist() == ["CC-BY-4.0", None, None]
    assert table["stated_license"].to_pylist() == ["CC-BY-4.0"] * 3
    assert table["third_party"].to_pylist() == [False, True, True]
    FilterTable.build(table, tmp_path)
    filters = FilterTable.open(tmp_path)
    assert filters.select(Filter(license_group=("commercial",))).rows().tolist() == [0]
    assert filters.facets()["license_group"] == {"other": 2, "commercial": 1}


def test_an_index_of_an_earlier_version_is_opened_and_judged(tmp_path: Path) -> None:
    later = ("redistributable", "third_party", "stated_license")
    names = [name for name in metadata.SCHEMA.names if name not in later]
    rows = [
        small_index.figure(0),
        small_index.figure(2, credit=PERMISSION),
        small_index.figure(4, license="LicenseRef-All-Rights-Reserved"),
    ]
    table = small_index.table_of(rows).select(names)
    with pa.ipc.new_file(str(tmp_path / "table.arrow"), table.schema) as file:
        file.write_table(table)
    metadata.write_lookup(table["figure_id"].to_pylist(), tmp_path / "lookup")
    opened = metadata.MetadataTable.open(tmp_path)
    found = [reason_to_withhold(row) for row in opened.rows([0, 1, 2])]
    assert found == [None, OF_OTHERS, NOT_ALLOWED]
