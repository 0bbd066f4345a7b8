import hashlib
import re
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from biovl.core.errors import ConfigError
from serve.auth import Keys, main, new_key
from serve.http.problems import Problem
from serve.http.settings import Auth
from tests.serve.search.tiny_service import Asking, TinyEngine, service

SEARCH, ADMIN, BARE = "biovl_search", "biovl_admin", "biovl_bare"


def line(name: str, key: str, scopes: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"  - {{name: {name}, sha256: {digest}, scopes: [{scopes}]}}\n"


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(
        "keys:\n"
        + line("ward-7", SEARCH, "search, embed")
        + line("operator", ADMIN, "search, embed, admin, metrics")
        + line("bare", BARE, "")
    )
    path.chmod(0o600)
    return path


@pytest.fixture
def ask(keys_file: Path) -> Asking:
    return Asking(service(auth={"keys_file": str(keys_file)}), address="203.0.113.7")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(""),
        bearer("x" * 5_000),
        {"Authorization": SEARCH},
        {"Authorization": "Basic " + SEARCH},
        {"X-API-Key": "wrong"},
        {"X-API-Key": hashlib.sha256(SEARCH.encode()).hexdigest()},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
)
def test_without_a_known_key_there_is_no_answer(ask: Asking, headers: dict[str, str]) -> None:
    answer = ask.get("/v1/facets", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("headers", [bearer(SEARCH), {"X-API-Key": SEARCH}])
def test_a_key_opens_what_its_scopes_name(ask: Asking, headers: dict[str, str]) -> None:
    assert ask.get("/v1/facets", headers=headers).status_code == 200
    refused = ask("POST", "/v1/admin/reload", headers=headers)
    assert refused.status_code == 403
    assert "admin" in refused.json()["detail"]


def test_reload_and_metrics_need_their_scopes(ask: Asking) -> None:
    assert ask("POST", "/v1/admin/reload", headers=bearer(ADMIN)).status_code == 200
    assert ask.get("/metrics", headers=bearer(ADMIN)).status_code == 200
    assert ask.get("/metrics", headers=bearer(SEARCH)).status_code == 403
    assert ask.get("/metrics").status_code == 401
    assert ask.get("/v1/facets", headers=bearer(BARE)).status_code == 403


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_probes_and_documents_are_open(ask: Asking, path: str) -> None:
    assert ask.get(path).status_code == 200


@pytest.mark.parametrize("name", ["api_key", "key", "access_token", "X-API-Key"])
def test_a_key_in_the_url_is_refused_even_if_it_is_right(ask: Asking, name: str) -> None:
    answer = ask.get(f"/v1/facets?a=b&{name}={SEARCH}", headers=bearer(SEARCH))
    assert answer.status_code == 400
    assert SEARCH not in answer.text


def test_a_key_is_asked_for_before_a_body_is_read(ask: Asking) -> None:
    class Unread:
        def __aiter__(self) -> "Unread":
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("the body was read")

    # What is not there is not told to strangers either.
    assert ask("POST", "/v1/admin/reload", content=Unread()).status_code == 401
    assert ask.get("/v1/there-is-no-such-path").status_code == 401


def test_keys_are_read_again_when_their_file_changes(keys_file: Path) -> None:
    now = [0.0]
    keys = Keys(Auth(keys_file=str(keys_file)), clock=lambda: now[0])
    before = keys.digests()
    keys_file.write_text("keys:\n" + line("new", "biovl_new", "search"))
    now[0] = 2.0
    assert _name(keys, "biovl_new") == "new"
    assert _name(keys, SEARCH) is None
    assert keys.digests() != before
    # Half-written: what was known stays known.
    keys_file.write_text("keys:\n  - {name: new, sha")
    now[0] = 4.0
    assert _name(keys, "biovl_new") == "new"


def test_the_last_key_is_revoked(keys_file: Path) -> None:
    now = [0.0]
    keys = Keys(Auth(keys_file=str(keys_file)), clock=lambda: now[0])
    assert _name(keys, SEARCH) is not None
    keys_file.write_text("keys: []")
    now[0] = 2.0
    assert _name(keys, SEARCH) is None


def test_a_file_that_could_not_be_read_is_read_later_though_it_does_not_change(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    keys = Keys(Auth(keys_file=str(keys_file)), clock=lambda: now[0])
    keys_file.write_text("keys:\n" + line("new", "biovl_new", "search"))

    def refuse(self: Path, **_: object) -> str:
        raise PermissionError("not yours")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", refuse)
        for now[0] in (2.0, 4.0):
            assert _name(keys, SEARCH) is not None
    assert caplog.text.count("not yours") == 1
    now[0] = 6.0
    assert _name(keys, SEARCH) is None
    assert _name(keys, "biovl_new") == "new"


@pytest.mark.parametrize("text", [None, "keys:\n  - {name: new, sha"])
def test_keys_end_a_minute_after_their_file_and_come_back_with_it(
    keys_file: Path, text: str | None
) -> None:
    now, before = [0.0], keys_file.read_bytes()
    keys = Keys(Auth(keys_file=str(keys_file)), clock=lambda: now[0])
    # A long time without requests is no time without the file.
    now[0] = 10_000.0
    keys_file.unlink()
    if text is not None:
        keys_file.write_text(text)
    assert _name(keys, SEARCH) == "ward-7"
    assert len(keys.warnings()) == 1
    now[0] += 59
    assert _name(keys, SEARCH) == "ward-7"
    now[0] += 2
    for key in (SEARCH, "biovl_unknown"):
        with pytest.raises(Problem) as refused:
            keys.caller({"query_string": b""}, Headers({"x-api-key": key}))
        assert (refused.value.status, refused.value.slug) == (503, "keys-unreadable")
    keys_file.write_bytes(before)
    now[0] += 2
    assert _name(keys, SEARCH) == "ward-7"
    assert keys.warnings() == []


def test_a_disk_that_comes_back_with_the_same_file_ends_the_minute(keys_file: Path) -> None:
    now = [0.0]
    keys = Keys(Auth(keys_file=str(keys_file)), clock=lambda: now[0])
    away = keys_file.parent.rename(keys_file.parent.with_name("unmounted"))
    now[0] = 50.0
    assert _name(keys, SEARCH) == "ward-7"
    away.rename(keys_file.parent)
    now[0] = 100.0
    assert _name(keys, SEARCH) == "ward-7"
    away = keys_file.parent.rename(away)
    # The minute begins anew.
    for now[0] in (150.0, 209.0):
        assert _name(keys, SEARCH) == "ward-7"
    now[0] = 211.0
    assert _name(keys, SEARCH) is None


def test_a_service_without_its_key_file_is_not_ready(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.auth._LOOK_AGAIN_S", 0.0)
    ask = Asking(service(auth={"keys_file": str(keys_file)}), address="203.0.113.7")
    assert ask.get("/readyz").json()["warnings"] == []
    keys_file.unlink()
    during = ask.get("/readyz")
    assert (during.status_code, len(during.json()["warnings"])) == (200, 1)
    assert str(keys_file) not in during.text
    monkeypatch.setattr("serve.auth._GRACE_S", -1.0)
    for path in ("/readyz", "/v1/facets"):
        after = ask.get(path, headers=bearer(SEARCH))
        assert (after.status_code, after.headers["Retry-After"]) == (503, "5")
        assert str(keys_file) not in after.text
    assert ask.get("/healthz").status_code == 200


def _name(keys: Keys, key: str) -> str | None:
    try:
        return keys.caller({"query_string": b""}, Headers({"x-api-key": key})).name
    except Problem:
        return None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("keys: [", "line 1"),
        ("keys: []", "keys"),
        ("other: 1", "other"),
        ("- a", "file"),
        ("", "file"),
        ("keys:\n  - {name: a, sha256: secret, scopes: []}", "keys.0.sha256"),
        (f"keys:\n  - {{name: a b, sha256: {'0' * 64}, scopes: []}}", "keys.0.name"),
        (f"keys:\n  - {{name: a, sha256: {'0' * 64}, scopes: [root]}}", "root"),
        (f"keys:\n  - {{name: a, sha256: {'0' * 64}, scopes: [], extra: 1}}", "keys.0.extra"),
        ("keys:\n" + line("a", "x", "") + line("a", "y", ""), "keys.1.name"),
        ("keys:\n" + line("a", "x", "") + line("b", "x", ""), "keys.1.sha256"),
        ("keys:\n" + line("a", "x", "") + "keys:\n" + line("b", "y", ""), "line 3"),
        ("keys: !!python/object/apply:os.system ['true']", "line 1"),
    ],
)
def test_a_file_that_is_none_of_keys_is_refused_by_field(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        Keys(Auth(keys_file=str(path)))
    assert named in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"auth\.keys_file.*none\.yaml"):
        Keys(Auth(keys_file=str(tmp_path / "none.yaml")))


def test_a_file_that_others_can_read_is_warned_of(
    keys_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Keys(Auth(keys_file=str(keys_file)))
    assert not caplog.records
    keys_file.chmod(0o644)
    Keys(Auth(keys_file=str(keys_file)))
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize("name", ["ward-7", "7", "007", "no", "null", ".5", "2024-01-01"])
def test_a_new_key_and_its_line_fit_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    main(["new", name, "--scopes", "search,embed"])
    printed = capsys.readouterr().out
    key = re.search(r"biovl_\S+", printed)
    assert key
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n" + printed[printed.index("  - {") :])
    path.chmod(0o600)
    assert _name(Keys(Auth(keys_file=str(path))), key.group()) == name


class TestWithoutKeys:
    def test_the_own_machine_may_do_everything(self) -> None:
        engine = TinyEngine()
        ask = Asking(service(engine))
        assert ask.json("/v1/admin/reload", b'{"model": "other"}').status_code == 200
        assert engine.reloaded == [("other", None)]
        assert ask.get("/metrics").status_code == 200

    @pytest.mark.parametrize("address", ["203.0.113.7", "10.0.0.5", "::ffff:10.0.0.5", "unix"])
    def test_other_machines_are_told_how_to_make_keys(self, address: str) -> None:
        answer = Asking(service(), address=address).get("/v1/facets")
        assert answer.status_code == 401
        assert "python -m serve.auth new" in answer.json()["detail"]

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
    def test_loopback_has_many_addresses(self, address: str) -> None:
        assert Asking(service(), address=address).get("/v1/facets").status_code == 200

    def test_a_proxy_on_this_machine_does_not_lend_its_address(self) -> None:
        headers = {"X-Forwarded-For": "127.0.0.1, 203.0.113.7"}
        assert Asking(service()).get("/v1/facets", headers=headers).status_code == 401

    @pytest.mark.parametrize(
        "headers",
        [
            {"X-Real-IP": "203.0.113.7"},
            {"Forwarded": "for=127.0.0.1;proto=http, for=203.0.113.7"},
            {"Forwarded": 'For="[2001:db8::1]:4711"'},
            {"Forwarded": "for=unknown"},
        ],
    )
    def test_proxies_name_whom_they_ask_for_in_several_ways(self, headers: dict) -> None:
        assert Asking(service()).get("/v1/facets", headers=headers).status_code == 401

    def test_a_page_of_this_machine_behind_a_proxy_on_it_is_answered(self) -> None:
        headers = {"X-Real-IP": "127.0.0.1", "Forwarded": 'for="[::1]:4711";proto=http'}
        assert Asking(service()).get("/v1/facets", headers=headers).status_code == 200

    @pytest.mark.parametrize("host", ["attacker.example", "attacker.example:8000", "", "[::bad"])
    def test_a_name_bound_to_loopback_by_a_stranger_is_refused(self, host: str) -> None:
        answer = Asking(service()).get("/v1/facets", headers={"Host": host})
        assert answer.status_code == 421

    @pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
    def test_names_of_the_own_machine_are_answered(self, host: str) -> None:
        assert Asking(service()).get("/v1/facets", headers={"Host": host}).status_code == 200

    @pytest.mark.parametrize("origin", ["https://attacker.example", "null"])
    def test_a_page_of_another_site_cannot_reload(self, origin: str) -> None:
        engine = TinyEngine()
        ask = Asking(service(engine))
        answer = ask("POST", "/v1/admin/reload", headers={"Origin": origin})
        assert answer.status_code == 403
        assert engine.reloaded == []


def test_keys_may_be_among_the_settings_and_an_empty_list_refuses_everybody() -> None:
    key = new_key()
    entry = {
        "name": "alice",
        "sha256": hashlib.sha256(key.encode()).hexdigest(),
        "scopes": ["search"],
    }
    own = {"Authorization": f"Bearer {key}"}
    for keys, status in (([entry], 200), ([], 401)):
        ask = Asking(service(auth={"keys": keys}))
        assert ask.get("/v1/facets", headers=own).status_code == status
        assert ask.get("/v1/facets").status_code == 401
        assert ask.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"keys": [{"name": "a", "sha256": "biovl_secret", "scopes": []}]}, r"keys\.0\.sha256"),
        ({"keys": [], "keys_file": "keys.yaml"}, r"auth\.keys_file.*auth\.keys"),
    ],
)
def test_wrong_keys_among_the_settings_are_refused(auth: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Keys(Auth(**auth))
    assert "biovl_secret" not in str(caught.value)
