"""GET /v1/figures: what is known of figures, and their images."""

import base64
import hashlib
import io
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from serve.search.engine import ImageFile, Size
from serve.search.messages import FigureAbout
from tests.serve.search.small_engine import SmallEngine, drawn, figure, make_app, make_client, png


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


def test_a_figure_is_found_by_its_id(client: TestClient) -> None:
    answer = client.get("/v1/figures/PMC1002_F2").json()
    FigureAbout.model_validate(answer["figure"])
    assert answer["figure"]["caption"] == figure(7)["caption"]
    assert answer["index"] == "bbbbbbbbbbbb"


def test_figures_are_labelled_with_the_index_that_they_are_from() -> None:
    engine = SmallEngine()
    with make_client(engine) as client:
        assert client.get("/v1/figures/PMC1002_F2").json()["index"] == "bbbbbbbbbbbb"
        engine.index_version = "cccccccccccc"
        for path in ("/v1/figures/PMC1002_F2", "/v1/figures?ids=PMC1002_F2"):
            assert client.get(path).json()["index"] == "cccccccccccc"


def test_several_come_in_the_order_asked_for_with_null_for_the_unknown(client: TestClient) -> None:
    found = client.get("/v1/figures?ids=PMC1003_F1,nothing,PMC1000_F1,PMC1003_F1").json()
    ids = [one and one["figure_id"] for one in found["figures"]]
    assert ids == ["PMC1003_F1", None, "PMC1000_F1", "PMC1003_F1"]


@pytest.mark.parametrize("ids", ["", ",", "a,,b", ",".join(["x"] * 101), "x" * 301])
def test_lists_of_ids_that_are_none_are_refused(client: TestClient, ids: str) -> None:
    assert client.get("/v1/figures", params={"ids": ids}).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "%2e%2e%5c%2e%2e%5cwindows",
        "PMC1000_F1%00.png",
        "%F0%9F%A9%BB",
        "%ff%fe",
        "%E2%80%AEPMC1000_F1",
        "PMC1000_F1%20",
        "pmc1000_f1",
        "x" * 300,
        "'%20OR%201=1--",
    ],
)
@pytest.mark.parametrize("kind", ["", "/image", "/thumbnail"])
def test_other_ids_are_not_found(client: TestClient, path: str, kind: str) -> None:
    response = client.get(f"/v1/figures/{path}{kind}")
    assert response.status_code in (400, 404)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_huge_id_is_refused(client: TestClient) -> None:
    assert client.get("/v1/figures/" + "x" * 5_000).status_code == 422


@pytest.mark.parametrize(("kind", "form"), [("image", "PNG"), ("thumbnail", "JPEG")])
def test_images_are_sent_as_what_they_are_and_nothing_else(
    client: TestClient, kind: str, form: str
) -> None:
    response = client.get(f"/v1/figures/PMC1000_F1/{kind}")
    assert response.headers["content-type"] == f"image/{form.lower()}"
    assert Image.open(io.BytesIO(response.content)).format == form
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-disposition"].startswith('inline; filename="PMC1000_F1.')
    assert "max-age" in response.headers["cache-control"]


def test_what_a_client_has_already_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/v1/figures/PMC1000_F1/image")
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get("/v1/figures/PMC1000_F1/image", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    other = client.get("/v1/figures/PMC1000_F1/image", headers={"If-None-Match": '"other"'})
    assert hashlib.sha256(other.content).digest() == hashlib.sha256(first.content).digest()


class Scripts(SmallEngine):
    """Its figures are files that browsers run."""

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        return ImageFile(data=b"<svg onload='run()'/>", media_type="image/svg+xml", etag="1")


def test_what_a_browser_would_run_is_not_sent() -> None:
    with make_client(Scripts()) as client:
        response = client.get("/v1/figures/PMC1000_F1/image")
        assert response.status_code == 404
        assert b"svg onload" not in response.content


def test_ids_in_addresses_are_escaped() -> None:
    engine = SmallEngine()
    engine.rows[0]["figure_id"] = 'a b"?#é'
    engine.row_of['a b"?#é'] = 0
    with make_client(engine) as client:
        (hit,) = client.post("/v1/search", json={"text": "red circle", "k": 1}).json()["results"]
        assert hit["image_url"] == "/v1/figures/a%20b%22%3F%23%C3%A9/image"
        response = client.get(hit["image_url"])
        assert response.status_code == 200
        assert response.headers["content-disposition"] == 'inline; filename="a_b____.png"'


def test_without_an_index_there_are_no_figures() -> None:
    with make_client(SmallEngine(with_index=False)) as client:
        assert client.get("/v1/figures/PMC1000_F1").status_code == 503


class Thumbnails(SmallEngine):
    """Its full images cannot be read."""

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        return await super().image(figure_id, "thumbnail")


def test_a_thumbnail_instead_of_an_image_is_marked_and_not_cached_for_long() -> None:
    with make_client(Thumbnails()) as client:
        instead = client.get("/v1/figures/PMC1000_F1/image").headers
        small = client.get("/v1/figures/PMC1000_F1/thumbnail").headers
    assert instead["x-image-size"] == small["x-image-size"] == "thumbnail"
    assert instead["cache-control"] == "private, max-age=60"
    assert small["cache-control"] == "private, max-age=86400"


@pytest.mark.parametrize("prefix", ["/biovl", "/apps/biovl"])
def test_addresses_of_images_are_right_behind_a_route_prefix(prefix: str) -> None:
    # As Ray Serve calls an application of this route_prefix.
    app = make_app()
    own = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000)}
    with TestClient(app, root_path=prefix, **own) as client:
        found = client.post(f"{prefix}/v1/search", json={"text": "red circle", "k": 2}).json()
        image = {"image": base64.b64encode(png(drawn("red", "circle"))).decode()}
        evidence = client.post(f"{prefix}/v1/proxy", json=image).json()["evidence"]
        one = client.get(f"{prefix}/v1/figures/PMC1000_F1").json()["figure"]
        (of_several,) = client.get(f"{prefix}/v1/figures?ids=PMC1000_F1").json()["figures"]
        for figure in (*found["results"], *evidence, one, of_several):
            for address in (figure["image_url"], figure["thumbnail_url"]):
                assert address.startswith(f"{prefix}/v1/figures/")
                assert client.get(address).status_code == 200
