"""POST /v1/search: what it finds, how pages follow each other, and what it refuses."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from biovl.index.query import Query, Results
from serve.search.messages import SearchAnswer
from serve.search.queries import unit_vector
from tests.serve.search.small_engine import (
    COLOURS,
    DIM,
    SHAPES,
    SmallEngine,
    drawn,
    figure,
    image_vector,
    make_client,
    png,
    text_vector,
)

COUNT = len(COLOURS) * len(SHAPES)


@pytest.fixture(scope="module")
def engine() -> SmallEngine:
    return SmallEngine()


@pytest.fixture(scope="module")
def client(engine: SmallEngine) -> Iterator[TestClient]:
    with make_client(engine) as client:
        yield client


def found(client: TestClient, **asked: Any) -> dict[str, Any]:
    response = client.post("/v1/search", json=asked)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    SearchAnswer.model_validate(answer)
    return answer


def ids(answer: dict[str, Any]) -> list[str]:
    return [hit["figure_id"] for hit in answer["results"]]


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def id_of(colour: str, shape: str) -> str:
    number = list(COLOURS).index(colour) * len(SHAPES) + SHAPES.index(shape)
    return str(figure(number)["figure_id"])


def test_a_text_finds_the_figures_that_brute_force_finds(
    client: TestClient, engine: SmallEngine
) -> None:
    score_N = engine.vectors_ND["images"] @ text_vector("a green cross")
    order = np.argsort(-score_N)[:5]
    answer = found(client, text="a green cross", k=5)
    assert ids(answer) == [engine.rows[row]["figure_id"] for row in order]
    assert ids(answer)[0] == id_of("green", "cross")
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == pytest.approx(score_N[order].tolist(), abs=1e-5)
    assert [hit["rank"] for hit in answer["results"]] == [1, 2, 3, 4, 5]


def test_a_hit_says_what_is_needed_to_judge_cite_and_reuse_it(client: TestClient) -> None:
    (hit,) = found(client, text="green circle", k=1)["results"]
    assert hit["figure_id"] == "PMC1002_F1"
    assert hit["caption"].startswith("A green circle")
    assert hit["license"] == "CC-BY-4.0"
    assert hit["url"] == "https://pmc.ncbi.nlm.nih.gov/articles/PMC1002/"
    assert hit["image_url"] == "/v1/figures/PMC1002_F1/image"
    assert client.get(hit["thumbnail_url"]).headers["content-type"] == "image/jpeg"


def test_an_image_is_found_however_it_is_sent(client: TestClient) -> None:
    image = png(drawn("purple", "ring", side_px=64))
    as_json = found(client, image=data_url(image), k=3)
    plain = found(client, image=base64.b64encode(image).decode(), k=3)
    as_form = client.post(
        "/v1/search", files={"image": ("x.png", image)}, data={"k": "3", "over": "images"}
    ).json()
    raw = client.post(
        "/v1/search/image?k=3", content=image, headers={"Content-Type": "image/png"}
    ).json()
    assert ids(as_json) == ids(plain) == ids(as_form) == ids(raw)
    assert ids(raw)[0] == id_of("purple", "ring")


def test_options_of_forms_and_query_strings_are_those_of_json(client: TestClient) -> None:
    image = png(drawn("blue", "square"))
    wanted = {"license_group": ["noncommercial"], "year": {"gte": 2015}}
    as_json = found(client, image=data_url(image), filter=wanted, over=["images", "captions"])
    options = {"filter": json.dumps(wanted), "over": ["images", "captions"], "text": "{x}"}
    as_form = client.post("/v1/search", files={"file": image}, data={**options, "text": "[a"})
    assert as_form.status_code == 200, as_form.text
    del options["text"]
    raw = client.post(
        "/v1/search/image", params=options, content=image, headers={"Content-Type": "image/png"}
    ).json()
    assert ids(raw) == ids(as_json)


def test_parts_are_added_by_weight(client: TestClient, engine: SmallEngine) -> None:
    image = png(drawn("red", "circle"))
    answer = found(
        client,
        text="green",
        image=data_url(image),
        figure_id=id_of("blue", "cross"),
        weights={"text": 2, "image": 1, "figure_id": -0.5},
        k=COUNT,
    )
    row = engine.row_of[id_of("red", "circle")]
    away = engine.row_of[id_of("blue", "cross")]
    images_ND = engine.vectors_ND["images"]
    whole_D = 2 * text_vector("green") + images_ND[row] - 0.5 * images_ND[away]
    score_N = images_ND @ (whole_D / np.linalg.norm(whole_D))
    assert [hit["score"] for hit in answer["results"]] == pytest.approx(
        np.sort(score_N)[::-1].tolist(), abs=1e-4
    )


def test_an_embedding_of_any_length_searches_by_its_direction(client: TestClient) -> None:
    vector = text_vector("orange stripes")
    once = found(client, embedding=vector.tolist(), k=4)
    assert ids(found(client, embedding=(vector.astype(float) * 1e30).tolist(), k=4)) == ids(once)
    assert ids(once) == ids(found(client, text="orange stripes", k=4))


def test_an_embedding_of_tiny_numbers_keeps_its_direction() -> None:
    assert unit_vector([3e-300, 4e-300], 2) == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    "embedding",
    [[1.0], [0.0] * DIM, [1.0] * 20_000, [], "x"],
    ids=["short", "zero", "long", "empty", "text"],
)
def test_an_embedding_without_direction_or_of_another_length_is_refused(
    client: TestClient, embedding: Any
) -> None:
    response = client.post("/v1/search", json={"embedding": embedding})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"][:2] == ["body", "embedding"]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_an_embedding_holds_finite_numbers_only(client: TestClient, number: str) -> None:
    body = f'{{"embedding": [{", ".join([number] * DIM)}]}}'
    response = client.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)


def test_captions_are_searched_when_asked_for(client: TestClient, engine: SmallEngine) -> None:
    answer = found(client, text="red ring", over=["captions"], k=1)
    assert ids(answer) == [id_of("red", "ring")]
    assert answer["results"][0]["matched"] == ["captions"]
    both = found(client, text="red ring", over=["captions", "images"], k=1)
    assert sorted(both["results"][0]["matched"]) == ["captions", "images"]


def test_words_join_the_captions_that_hold_them(client: TestClient, engine: SmallEngine) -> None:
    answer = found(client, text="nodule", words=True, k=COUNT)
    by_words = [hit for hit in answer["results"] if "words" in hit["matched"]]
    assert len(by_words) == COUNT // 3
    assert all("nodule" in hit["caption"] for hit in by_words)


def test_filters_hold_for_every_hit_and_all_that_fit_are_found(client: TestClient) -> None:
    wanted = {"license_group": ["commercial"], "image_type": ["ct", "x-ray"], "year": {"lte": 2015}}
    answer = found(client, text="circle", filter=wanted, k=COUNT)
    rows = [figure(number) for number in range(COUNT)]
    fits = {
        row["figure_id"]
        for row in rows
        if row["license_group"] == "commercial"
        and row["image_type"] in ("ct", "x-ray")
        and row["year"] <= 2015
    }
    assert set(ids(answer)) == fits
    assert answer["matching"] == len(fits)
    assert answer["next_cursor"] is None


def test_labels_of_a_table_are_filters_and_sent_with_each_figure(client: TestClient) -> None:
    answer = found(client, text="circle", filter={"label": ["finding=nodule"]}, k=COUNT)
    assert answer["matching"] == sum(1 for number in range(COUNT) if number % 3)
    assert {tuple(hit["labels"]) for hit in answer["results"]} == {("finding=nodule",)}


def test_a_filter_that_nothing_fits_gives_an_empty_page(client: TestClient) -> None:
    answer = found(client, text="circle", filter={"journal": ["no such journal"]})
    assert (answer["results"], answer["matching"], answer["next_cursor"]) == ([], 0, None)


@pytest.mark.parametrize("sent", ["json", "raw"])
def test_pages_follow_each_other_without_gap_or_repetition(client: TestClient, sent: str) -> None:
    image = png(drawn("black", "triangle"))

    def page(cursor: str | None) -> dict[str, Any]:
        if sent == "json":
            return found(client, image=data_url(image), k=10, cursor=cursor)
        params = {"k": 10, **({"cursor": cursor} if cursor else {})}
        response = client.post(
            "/v1/search/image",
            params=params,
            content=image,
            headers={"Content-Type": "image/png"},
        )
        answer: dict[str, Any] = response.json()
        return answer

    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        answer = page(cursor)
        seen += ids(answer)
        cursor = answer["next_cursor"]
        pages += 1
    assert pages == 4
    assert seen == ids(found(client, image=data_url(image), k=COUNT))


def test_a_cursor_continues_its_own_query_only(client: TestClient) -> None:
    cursor = found(client, text="red", k=2)["next_cursor"]
    assert found(client, text="red", k=5, cursor=cursor)["results"][0]["rank"] == 3
    other = client.post("/v1/search", json={"text": "blue", "k": 2, "cursor": cursor})
    assert (other.status_code, other.json()["type"]) == (422, "urn:biovl:problem:bad-cursor")
    image = data_url(png(drawn("red", "ring")))
    assert client.post("/v1/search", json={"image": image, "cursor": cursor}).status_code == 422


def test_pages_end_where_the_service_allows_no_deeper(engine: SmallEngine) -> None:
    with make_client(engine, limits={"depth_max": 12}) as client:
        first = found(client, text="red", k=5)
        second = found(client, text="red", k=5, cursor=first["next_cursor"])
        last = found(client, text="red", k=5, cursor=second["next_cursor"])
        assert [hit["rank"] for hit in last["results"]] == [11, 12]
        assert last["next_cursor"] is None
        long = found(client, text="red", k=8, cursor=first["next_cursor"])
        assert ids(long) == ids(second) + ids(last)
        assert long["next_cursor"] is None
        assert client.post("/v1/search", json={"text": "red", "k": 13}).status_code == 422


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, ""),
        ({"k": 5}, ""),
        ({"text": ""}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": "a" * 5_000}, "text"),
        ({"text": 5}, "text"),
        ({"text": "a", "k": 0}, "k"),
        ({"text": "a", "k": -1}, "k"),
        ({"text": "a", "k": 10**9}, "k"),
        ({"text": "a", "k": 10**30}, "k"),
        ({"text": "a", "k": 2.5}, "k"),
        ({"text": "a", "over": []}, "over"),
        ({"text": "a", "over": ["videos"]}, "over"),
        ({"text": "a", "over": "images"}, "over"),
        ({"text": "a", "colour": "red"}, "colour"),
        ({"text": "a", "nprobe": 0}, "nprobe"),
        ({"text": "a", "weights": {"text": 0}}, "weights"),
        ({"text": "a", "weights": {"text": 1e9}}, "weights"),
        ({"figure_id": "PMC1000_F1", "words": True}, "words"),
        ({"figure_id": ""}, "figure_id"),
        ({"figure_id": "x" * 301}, "figure_id"),
        ({"text": "a", "filter": {"yaer": {"gte": 2000}}}, "filter"),
        ({"text": "a", "filter": {"year": {"gte": "20x4"}}}, "filter"),
        ({"text": "a", "filter": {"year": {"gte": 10**30}}}, "filter"),
        ({"text": "a", "filter": {"journal": ["x"] * 10_000}}, "filter"),
        ({"text": "a", "filter": {"journal": ["x" * 1_000]}}, "filter"),
        ({"text": "a", "filter": {"journal": "x"}}, "filter"),
        ({"image": "http://127.0.0.1/x.png"}, "image"),
        ({"text": "a", "cursor": "nonsense"}, "cursor"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field_named(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    response = client.post("/v1/search", json=body)
    problem = response.json()
    assert response.status_code == 422, problem
    assert response.headers["content-type"] == "application/problem+json"
    if field:
        assert problem["errors"][0]["loc"][1] == field


def test_two_images_in_one_query_are_refused(client: TestClient) -> None:
    image = png(drawn("red", "ring"))
    files = [("image", image), ("file", image)]
    assert client.post("/v1/search", files=files).status_code == 422


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_of_another_type_is_refused(client: TestClient, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = client.post("/v1/search", content=b'{"text": "a"}', headers=headers)
    assert response.status_code == 415
    assert "application/json" in response.json()["detail"]


def test_figures_like_a_figure_are_others(client: TestClient, engine: SmallEngine) -> None:
    own = id_of("blue", "ring")
    answer = found(client, figure_id=own, k=COUNT)
    score_N = engine.vectors_ND["images"] @ engine.vectors_ND["images"][engine.row_of[own]]
    order = np.argsort(-score_N, kind="stable")
    assert ids(answer) == [engine.rows[row]["figure_id"] for row in order[1:]]


def test_an_unknown_figure_is_not_found(client: TestClient) -> None:
    response = client.post("/v1/search", json={"figure_id": "PMC1_F1"})
    assert response.status_code == 404


def test_without_an_index_search_says_what_to_do_and_not_to_ask_again() -> None:
    with make_client(SmallEngine(with_index=False)) as client:
        response = client.post("/v1/search", json={"text": "a"})
        assert response.status_code == 503
        assert "index=DIR" in response.json()["detail"]
        assert "retry-after" not in response.headers


@pytest.mark.parametrize(("stale", "status"), [(1, 200), (2, 200), (3, 409)])
def test_what_was_embedded_by_the_model_before_is_embedded_again(stale: int, status: int) -> None:
    with make_client(SmallEngine(stale_searches=stale)) as client:
        response = client.post("/v1/search", json={"text": "red circle"})
        assert response.status_code == status


def test_measured_recall_is_told_for_queries_that_it_was_measured_for(
    client: TestClient, engine: SmallEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where few rows match a filter.
    assert found(client, text="a")["recall_at_10"] == 1
    monkeypatch.setattr(engine, "plan", "ivf")
    image = data_url(png(drawn("red", "ring")))
    assert found(client, text="a")["recall_at_10"] == 0.96
    assert found(client, image=image)["recall_at_10"] == 0.99
    assert found(client, text="a", nprobe=3)["recall_at_10"] is None
    assert found(client, text="a", over=["captions"])["recall_at_10"] is None
    assert found(client, text="a", image=image)["recall_at_10"] is None
    assert found(client, text="a", words=True)["recall_at_10"] is None
    assert found(client, text="a", weights={"text": -1})["recall_at_10"] is None


def test_settings_of_a_query_reach_the_index(client: TestClient, engine: SmallEngine) -> None:
    found(client, text="a", nprobe=7, k_factor=3, exact=True)
    assert engine.queries[-1].settings == {"nprobe": 7, "k_factor": 3}
    assert engine.queries[-1].exact


def test_answers_to_images_are_not_to_be_kept(client: TestClient) -> None:
    image = png(drawn("red", "ring"))
    response = client.post("/v1/search/image", content=image, headers={"Content-Type": "image/png"})
    assert response.headers["cache-control"] == "no-store"


def test_the_small_model_tells_colours_and_shapes_apart(engine: SmallEngine) -> None:
    nearest_NN = engine.vectors_ND["images"] @ engine.vectors_ND["images"].T
    assert (nearest_NN.argmax(1) == np.arange(COUNT)).all()
    pixels = np.asarray(drawn("red", "ring").resize((32, 32)))
    assert np.linalg.norm(image_vector(pixels)) == pytest.approx(1, abs=1e-5)


def test_a_last_page_that_is_full_leads_to_no_empty_one(client: TestClient) -> None:
    # Of 36 figures 35 are like this one: it is not like itself.
    answer = found(client, figure_id=id_of("red", "circle"), k=35)
    assert (len(answer["results"]), answer["matching"], answer["next_cursor"]) == (35, 36, None)
    assert found(client, figure_id=id_of("red", "circle"), k=34)["next_cursor"]


def test_no_figure_below_a_score_is_found(client: TestClient) -> None:
    whole = found(client, text="red circle", k=10)
    least = whole["results"][3]["score"]
    some = found(client, text="red circle", k=10, min_score=least - 1e-6)
    assert ids(some) == [
        hit["figure_id"] for hit in whole["results"] if hit["score"] >= least - 1e-6
    ]
    assert some["next_cursor"] is None
    for hit in whole["results"]:
        again = found(client, text="red circle", k=10, min_score=hit["score"])
        assert hit["figure_id"] in ids(again)


def test_figures_of_joined_rankings_are_found_below_others_of_a_lower_score() -> None:
    class Deeper(SmallEngine):
        """Joins deeper rankings from rank 5 on, whose scores are higher."""

        async def search(self, query: Query, *, model_version: str | None = None) -> Results:
            results = await super().search(query, model_version=model_version)
            hits = [replace(hit, score=(1 + (hit.rank >= 5)) / hit.rank) for hit in results.hits]
            return replace(results, hits=hits)

    with make_client(Deeper()) as client:
        joined = {"text": "red circle", "over": ["images", "captions"]}
        cursor, ranks, pages = None, [], 0
        while pages == 0 or cursor:
            answer = found(client, **joined, k=4, min_score=0.3, cursor=cursor)
            ranks += [hit["rank"] for hit in answer["results"]]
            cursor = answer["next_cursor"]
            pages += 1
        assert ranks == [1, 2, 3, 5, 6]
        assert pages == COUNT // 4
        # The scores of one ranking only fall: there is nothing after the first that is too low.
        alone = found(client, text="red circle", k=3, min_score=0.3)
        assert (len(alone["results"]), alone["next_cursor"]) == (3, None)


def test_figures_beyond_the_first_level_of_an_approximate_ranking_are_found_below_lower_scores() -> (
    None
):
    class Approximate(SmallEngine):
        """Searches more cells from rank 101 on."""

        async def search(self, query: Query, *, model_version: str | None = None) -> Results:
            results = await super().search(query, model_version=model_version)
            return replace(results, plan="ivf nprobe=2")

    asked = {"text": "red circle", "k": 3, "min_score": 0.9999}
    with make_client(Approximate()) as client:
        assert found(client, **asked)["next_cursor"]
    with make_client(Approximate(), limits={"depth_max": 100}) as client:
        assert found(client, **asked)["next_cursor"] is None


def test_an_exact_search_of_a_large_index_is_refused() -> None:
    with make_client(limits={"exact_figures": 5}) as client:
        asked = {"text": "red circle", "exact": True}
        answer = client.post("/v1/search", json=asked)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["loc"] == ["body", "exact"]
        assert client.post("/v1/search", json={"text": "red circle"}).status_code == 200
