"""The client against the application on a real port."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from biovl import client as clients
from biovl.client import Client, RequestRefused
from biovl.core.errors import BiovlError, ConfigError
from tests.serve.search.small_engine import CONTEXT, SmallEngine, drawn, make_app, png
from tests.serve.search.tiny_service import listening


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(make_app()) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


def test_a_search_by_text_finds_what_it_says(client: Client) -> None:
    hits = client.search("red circle", k=3)["results"]
    assert len(hits) == 3
    assert "red circle" in hits[0]["caption"].lower()


def test_a_search_takes_bytes_or_a_path_of_an_image(client: Client, tmp_path) -> None:
    data = png(drawn("blue", "square"))
    path = tmp_path / "blue.png"
    path.write_bytes(data)
    by_bytes, by_path = (client.search(image=one, k=4)["results"] for one in (data, path))
    assert by_bytes == by_path
    assert "blue" in by_bytes[0]["caption"].lower()


def test_a_vector_of_the_model_can_be_searched_with(client: Client) -> None:
    (vector_D,) = client.embed_texts(["red circle"])
    by_vector = client.search(embedding=vector_D, k=3)["results"]
    by_text = client.search("red circle", k=3)["results"]
    assert [hit["figure_id"] for hit in by_vector] == [hit["figure_id"] for hit in by_text]


def test_all_pages_are_all_figures_once(client: Client) -> None:
    ids = [hit["figure_id"] for hit in client.search_all("red circle", k=7)]
    assert len(ids) == len(set(ids)) == client.search("red circle", k=1)["matching"]


def test_embeddings_are_unit_rows_in_order(client: Client) -> None:
    rows_ND = client.embed_images([png(drawn("red", "ring")), png(drawn("green", "cross"))])
    assert rows_ND.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows_ND, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(
        rows_ND[1], client.embed_images([png(drawn("green", "cross"))])[0]
    )


def test_a_text_that_is_longer_than_the_model_reads_is_warned_of(client: Client) -> None:
    long = " ".join(["red"] * (CONTEXT + 1))
    with pytest.warns(UserWarning, match="1 of 2"):
        client.embed_texts(["red", long])
    (found,) = client.classify([png(drawn("red", "circle"))], ["blue", long])
    assert {one["name"]: one["truncated"] for one in found} == {"blue": False, long: True}


def test_classes_are_sorted_and_sum_to_one(client: Client) -> None:
    (found,) = client.classify([png(drawn("red", "circle"))], ["red circle", "blue stripes"])
    assert found[0]["name"] == "red circle"
    assert sum(one["probability"] for one in found) == pytest.approx(1)


def test_a_private_image_is_compared_with_classes_of_several_words(client: Client) -> None:
    found = client.compare(png(drawn("red", "circle")), {"round": ["circle", "ring"]}, k=3)
    assert found["votes"][0]["name"] == "round"


def test_figures_and_their_images_are_looked_up(client: Client) -> None:
    figure_id = client.search("red circle", k=1)["results"][0]["figure_id"]
    assert client.figure(figure_id)["figure_id"] == figure_id
    assert client.image(figure_id, thumbnail=True) != b""


def test_a_thumbnail_that_comes_instead_of_an_image_is_no_surprise() -> None:
    class Thumbnails(SmallEngine):
        async def image(self, figure_id, size):
            return await super().image(figure_id, "thumbnail")

    with (
        listening(make_app(Thumbnails())) as port,
        Client(f"http://127.0.0.1:{port}") as client,
    ):
        with pytest.warns(UserWarning, match=r"PMC1000_F1.*thumbnail"):
            instead = client.image("PMC1000_F1")
        assert instead == client.image("PMC1000_F1", thumbnail=True)


def test_a_refusal_says_what_the_service_said(client: Client) -> None:
    with pytest.raises(RequestRefused, match=r"404|422") as caught:
        client.figure("PMC1/../../etc/passwd")
    assert caught.value.status in (404, 422)
    assert caught.value.problem["request_id"]


def test_what_changes_is_asked_again(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    waited: list[float] = []
    monkeypatch.setattr(clients.time, "sleep", waited.append)
    answers = iter(
        [
            httpx.Response(503, headers={"Retry-After": "3"}, json={"title": "Busy"}),
            httpx.Response(500, text="Internal Server Error"),
            httpx.Response(200, json={"results": []}),
        ]
    )
    client = Client(address)
    client._http = httpx.Client(
        transport=httpx.MockTransport(lambda request: next(answers)), base_url=address
    )
    assert client.search("x") == {"results": []}
    assert 3 <= waited[0] <= 4.5


def answering(answers, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(clients.time, "sleep", lambda seconds: None)
    client = Client("http://127.0.0.1:9")
    client._http = httpx.Client(
        transport=httpx.MockTransport(lambda request: next(answers)), base_url="http://127.0.0.1:9"
    )
    return client


def test_a_proxy_that_does_not_know_the_route_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The text of Ray's own source: another version may say something else.
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "serve" / "_private"
    sources = [(folder / name).read_text() for name in ("proxy.py", "haproxy_templates.py")]
    text = "Path '/v1/search' not found. Ping http://.../-/routes for available routes."
    assert "not found. Ping http://.../-/routes for available routes." in sources[1]
    assert "/-/routes for available routes" in sources[0]
    answers = iter([httpx.Response(404, text=text), httpx.Response(200, json={"results": []})])
    assert answering(answers, monkeypatch).search("x") == {"results": []}


def test_a_404_of_the_service_or_of_another_server_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_service = httpx.Response(
        404,
        json={"title": "unknown", "detail": "/-/routes for available routes"},
        headers={"content-type": "application/problem+json"},
    )
    for answer in (of_service, httpx.Response(404, text="<html>404 Not Found</html>")):
        with pytest.raises(RequestRefused, match="404"):
            answering(iter([answer]), monkeypatch).search("x")


@pytest.mark.parametrize(
    "answer",
    [{"text": "<html>Sign in</html>"}, {"json": ["a", "list"]}, {"json": {"status": "running"}}],
)
def test_an_answer_that_is_not_of_the_service_is_named(
    answer: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = answering(iter([httpx.Response(200, **answer)] * 6), monkeypatch)
    for ask in (
        lambda: client.search("x"),
        lambda: client.classify([b""], ["a", "b"]),
        lambda: client.embed_texts(["x"]),
        lambda: client.compare(b""),
        lambda: client.figure("PMC1_f1"),
        client.models,
    ):
        with pytest.raises(
            BiovlError, match=r"instead of a JSON object with '.*: is this the addr"
        ):
            ask()


def test_a_page_in_place_of_an_image_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    page = httpx.Response(200, html="<p>Sign in</p>")
    with pytest.raises(BiovlError, match="instead of an image"):
        answering(iter([page]), monkeypatch).image("PMC1_f1")


@pytest.mark.parametrize(
    "answer", [{"text": "no such route"}, {"json": {"message": "no such route"}}]
)
def test_an_error_of_another_server_is_shown(answer: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestRefused, match=r"403 Forbidden: .*no such route"):
        answering(iter([httpx.Response(403, **answer)]), monkeypatch).search("x")


def test_a_problem_of_the_service_itself_is_not_asked_again(address: str) -> None:
    class Broken(SmallEngine):
        asked = 0

        async def embed_texts(self, texts):
            type(self).asked += 1
            raise RuntimeError("broken")

    with (
        listening(make_app(Broken())) as port,
        Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(RequestRefused, match="500"),
    ):
        client.search("x")
    assert Broken.asked == 1


def test_a_service_that_is_not_there_is_named() -> None:
    with (
        Client("http://127.0.0.1:9", tries=1) as client,
        pytest.raises(BiovlError, match=r"127\.0\.0\.1:9"),
    ):
        client.models()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"address": url} for url in ("127.0.0.1:8000", "http://host:port", "http://[::1")),
        {"tries": 0},
        {"key": "of\ntwo"},
        {"key": "schl\u00fcssel"},
    ],
)
def test_what_cannot_be_asked_is_told_at_once(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Client(**wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_embedding_that_is_not_finite_is_an_error(value: float) -> None:
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(ConfigError, match=r"embedding: .*finite.*NaN"),
    ):
        client.search(embedding=[0.5, value])


def test_a_search_where_there_is_no_index_is_not_asked_again() -> None:
    with (
        listening(make_app(SmallEngine(with_index=False))) as port,
        Client(f"http://127.0.0.1:{port}", tries=2) as client,
        pytest.raises(RequestRefused, match="index=DIR"),
    ):
        client.search("red circle")


def test_the_key_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIOVL_API_KEY", "secret")
    assert Client()._http.headers["Authorization"] == "Bearer secret"


def test_a_key_from_a_file_may_end_in_a_newline() -> None:
    assert Client(key="secret\n")._http.headers["Authorization"] == "Bearer secret"


def test_a_service_on_this_machine_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Client(address, tries=1) as client:
        assert client.models()


def test_one_text_is_no_list_of_its_letters(client: Client) -> None:
    image = png(drawn("red", "circle"))
    for ask in (
        lambda: client.compare(image, {"circle": "circle"}),
        lambda: client.compare(image, "circle"),
        lambda: client.classify([image], "circle"),
        lambda: client.classify("circle.png", ["circle"]),
        lambda: client.embed_texts("circle"),
        lambda: client.embed_images(image),
    ):
        with pytest.raises(ConfigError, match="expected a list"):
            ask()
