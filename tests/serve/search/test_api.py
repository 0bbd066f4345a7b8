import pickle
from pathlib import Path

import httpx
import pytest

from biovl.core.errors import ArtifactError, BiovlError
from serve.http.problems import Problem, problem_json, shortened
from serve.search.api import http_api
from serve.search.settings import Settings
from tests.serve.search.tiny_service import Asking, Facets, TinyEngine, service

RELOAD = "/v1/admin/reload"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def ask() -> Asking:
    return Asking(service())


def test_what_is_served_is_told_as_openai_does(ask: Asking) -> None:
    listed = ask.get("/v1/models").json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert (model["id"], model["object"], model["version"]) == ("tiny", "model", "aaaaaaaaaaaa")
    assert model["index"]["recall"]["images"]["text"] == 0.97


def test_limits_are_told(ask: Asking) -> None:
    info = ask.get("/v1/info").json()
    assert info["limits"]["k_max"] == 200
    assert info["keys_required"] is False


def test_facets_are_those_of_the_engine(ask: Asking) -> None:
    assert ask.get("/v1/facets").json() == {"kind": {"figure": 3}}


def test_a_path_that_leads_nowhere_and_a_wrong_method_are_problems(ask: Asking) -> None:
    nowhere = ask.get("/v1/nothing")
    assert (nowhere.status_code, nowhere.headers["Content-Type"]) == (404, PROBLEM)
    wrong = ask.get(RELOAD)
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "POST")
    assert "POST" in wrong.json()["detail"]


def test_a_problem_names_the_request_and_the_field(ask: Asking) -> None:
    answer = ask("POST", RELOAD, json={"model": 3}, headers={"X-Request-ID": "mine-1"})
    assert answer.json() == {
        "type": "urn:biovl:problem:invalid-request",
        "title": "Invalid request",
        "status": 422,
        "detail": "body.model: Input should be a valid string (got 3)",
        "instance": RELOAD,
        "request_id": "mine-1",
        "errors": [{"loc": ["body", "model"], "msg": "Input should be a valid string (got 3)"}],
    }
    assert answer.headers["X-Request-ID"] == "mine-1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"{",
        b"[]",
        b'{"model": NaN}',
        b'{"model": Infinity}',
        b'{"model": 1e400}',
        b'{"model": -1e400}',
        b'{"model": 1' + b"0" * 5_000 + b"}",
        b'{"model": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b"[" * 100_000,
        b'{"model": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}",
        b'{"model": "a", "model": "b"}',
        b'{"model": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"model": ["\\ud800\\ud800"]}',
        b'{"model": "a\\u0000b"}',
        b'{"model": "\xff\xfe"}',
        b"\xff\xfe{\x00}\x00",
        b'{"model": "a\nb"}',
        b'{"model": true}',
        b'{"model": {"a": "b"}}',
        b'{"' + b"x" * 100_000 + b'": 1}',
        b'{"modell": "a"}',
        b'{"model": ""}',
        b'{"model": "' + b"a" * 100_000 + b'"}',
        b"null",
        b'"text"',
    ],
)
def test_hostile_json_is_refused_in_few_words(ask: Asking, body: bytes) -> None:
    answer = ask.json(RELOAD, body)
    if body in (b"", b"null"):
        assert answer.status_code == 200  # Reload takes no body as well.
        return
    assert answer.status_code in (400, 422)
    assert answer.headers["Content-Type"] == PROBLEM
    assert len(answer.content) < 1_500
    assert "a" * 200 not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "\\ud83d\\ude00"}',
        b'{"model": "\\\\u0000 and \\\\ud800"}',
        '{"model": "éß😀\u202e"}'.encode(),
        b'\t{"model"\r\n: "a" }  ',
    ],
)
def test_unusual_json_is_still_json(ask: Asking, body: bytes) -> None:
    assert ask.json(RELOAD, body).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "json", ""])
def test_json_of_another_type_is_refused_with_the_reason(ask: Asking, kind: str) -> None:
    answer = ask("POST", RELOAD, content=b'{"model": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert "application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fetc/passwd",
        "/%00",
        "/%ff%fe",
        "//v1/facets",
        "/V1/facets",
        "/v1/facets/",
        "/" + "a" * 8_000,
        "/v1/%0d%0aX-Evil:1",
    ],
)
def test_strange_paths_lead_nowhere(ask: Asking, path: str) -> None:
    answer = ask.get(httpx.URL("http://127.0.0.1" + path))
    assert answer.status_code == 404
    assert "X-Evil" not in answer.headers
    assert len(answer.content) < 1_500


def test_errors_of_a_request_are_answered_in_their_words() -> None:
    async def failing() -> Facets:
        raise BiovlError("the folder holds corpus, expected index")

    answer = Asking(service(TinyEngine(failing))).get("/v1/facets")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "the folder holds corpus, expected index"


def test_a_damaged_artefact_is_not_the_fault_of_who_asks() -> None:
    async def failing() -> Facets:
        raise ArtifactError("/data/index/table.arrow has 3 rows, expected 4")

    answer = Asking(service(TinyEngine(failing))).get("/v1/facets")
    assert answer.status_code == 500
    assert "table.arrow" not in answer.text


def test_openai_clients_find_their_error_object() -> None:
    problem = Problem(
        422, "too-many", "at most 64", errors=[{"loc": ["body", "input"], "msg": "at most 64"}]
    )
    about = problem_json(problem, path="/v1/embeddings", request_id="r")
    assert about["error"] == {
        "message": "at most 64",
        "type": "invalid_request_error",
        "param": "input",
        "code": "too-many",
    }
    assert "error" not in problem_json(problem, path="/v1/search", request_id="r")


def test_a_problem_travels_between_processes() -> None:
    sent = Problem(
        503, "busy", "later", headers={"Retry-After": "1"}, errors=[{"loc": ["k"], "msg": "m"}]
    )
    got = pickle.loads(pickle.dumps(sent))
    assert vars(got) == vars(sent)
    assert str(got) == "later"


def test_what_is_found_is_cut_and_printable() -> None:
    assert shortened("a" * 1_000) == "a" * 79 + "…"
    assert shortened("a\x00\x1b[31m\ud800\n") == "a��[31m��"


def test_every_answer_forbids_what_the_page_does_not_need(ask: Asking) -> None:
    for path in ("/healthz", "/v1/info", "/v1/nothing", "/openapi.json"):
        headers = ask.get(path).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_the_page_is_what_its_folder_holds_and_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / ".hidden").write_text("secret")
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "app.js").write_text("let x;")
    ask = Asking(http_api(Settings(model="tiny"), TinyEngine(), page=folder))  # type: ignore[arg-type]
    page = ask.get("/")
    assert (page.status_code, page.text) == (200, "<!doctype html>")
    script = ask.get("/app.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    again = ask.get("/app.js", headers={"If-None-Match": script.headers["ETag"]})
    assert again.status_code == 304
    for path in ("/.hidden", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/other.js"):
        assert ask.get(path).status_code == 404


def test_other_sites_may_ask_only_where_that_was_configured() -> None:
    origin = {"Origin": "https://friend.example"}
    preflight = {**origin, "Access-Control-Request-Method": "POST"}
    closed = Asking(service())
    assert "Access-Control-Allow-Origin" not in closed.get("/healthz", headers=origin).headers
    open_to = Asking(service(cors_origins=("https://friend.example",)))
    allowed = open_to("OPTIONS", "/v1/facets", headers=preflight)
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://friend.example"
    assert "Access-Control-Allow-Credentials" not in allowed.headers
    other = open_to("OPTIONS", "/v1/facets", headers={**preflight, "Origin": "https://x.example"})
    assert "Access-Control-Allow-Origin" not in other.headers
    # A script must be able to read why it was refused.
    refused = open_to.get("/v1/nothing", headers=origin)
    assert refused.headers["Access-Control-Allow-Origin"] == "https://friend.example"


def test_the_document_has_problems_and_security_and_no_foreign_shape(ask: Asking) -> None:
    document = ask.get("/openapi.json").json()
    facets = document["paths"]["/v1/facets"]["get"]
    assert facets["security"] == [{"bearer": []}, {"header": []}]
    for status in ("401", "403", "422", "429", "503", "504"):
        assert PROBLEM in facets["responses"][status]["content"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert "security" not in document["paths"]["/healthz"]["get"]


def test_the_documents_page_needs_no_other_host_and_no_script(ask: Asking) -> None:
    page = ask.get("/docs")
    assert "/v1/admin/reload" in page.text
    assert "<script" not in page.text
    assert "http" not in page.text.replace("<meta http-equiv", "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
