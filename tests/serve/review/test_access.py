"""Who may review, what the log keeps, and the votes from the command line."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from biovl.core.errors import ConfigError
from serve.review.app import build, main, settings_of
from serve.review.concepts import ReviewConcepts
from tests.serve.review.small_review import Reviewer, key_of, publish_concepts, review

TOKENS = {"ann": "token-of-ann", "boss": "token-of-boss", "searcher": "token-of-searcher"}
SCOPES = {"ann": ["review"], "boss": ["review", "admin"], "searcher": ["search"]}


@pytest.fixture(scope="module")
def concepts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_concepts(tmp_path_factory.mktemp("clusters") / "concepts", clusters=4, side=24)


@pytest.fixture
def reviewers(tmp_path: Path) -> str:
    path = tmp_path / "reviewers.yaml"
    keys = [
        {
            "name": name,
            "sha256": hashlib.sha256(token.encode()).hexdigest(),
            "scopes": SCOPES[name],
        }
        for name, token in TOKENS.items()
    ]
    path.write_text(yaml.safe_dump({"keys": keys}))
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(
    ("name", "token", "method", "path", "status"),
    [
        ("ann", "token-of-ann", "GET", "/v1/review", 200),
        ("", "token-of-ann", "GET", "/v1/review", 200),
        ("ANN", "token-of-ann", "GET", "/v1/review", 200),
        ("ann", "", "GET", "/v1/review", 401),
        ("ann", "token-of-eve", "GET", "/v1/review", 401),
        ("boss", "token-of-ann", "GET", "/v1/review", 403),
        ("searcher", "token-of-searcher", "GET", "/v1/review", 403),
        ("ann", "token-of-ann", "GET", "/v1/votes.csv", 403),
        ("ann", "token-of-ann", "POST", "/v1/votes.csv", 403),
        ("boss", "token-of-boss", "GET", "/v1/votes.csv", 200),
    ],
)
def test_reviewers_are_known_by_their_tokens(
    concepts: Path,
    reviewers: str,
    tmp_path: Path,
    name: str,
    token: str,
    method: str,
    path: str,
    status: int,
) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    app = review(concepts, database=database, reviewers_file=reviewers)
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    answer = Reviewer(app, name, **sent)(method, path)
    assert answer.status_code == status
    if status == 401:
        assert "token-of" not in answer.text


def test_without_a_file_of_reviewers_a_name_is_needed_and_the_own_machine(
    concepts: Path, tmp_path: Path
) -> None:
    app = review(concepts, database=f"sqlite:///{tmp_path / 'review.db'}")
    assert Reviewer(app, "")("GET", "/v1/review").json()["type"] == "urn:biovl:problem:no-name"
    assert Reviewer(app, "a b")("GET", "/v1/review").status_code == 401
    strange = Reviewer(app, "ann", Host="review.example.org")("GET", "/v1/review")
    assert strange.status_code == 421
    assert "reviewers_file" in strange.json()["detail"]


def test_a_name_in_other_letters_is_the_same_reviewer(concepts: Path, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    app = review(concepts, database=database)
    first = Reviewer(app, "Ann")
    sheet = first.take()
    # Also before there is a vote: the place is hers.
    again = Reviewer(app, "ann ")
    assert again("GET", "/v1/review").json()["reviewer"] == "Ann"
    assert again.take()["cluster_id"] == sheet["cluster_id"]
    assert again.vote(sheet).status_code == 200
    assert Reviewer(app, "ANN").vote(sheet).json()["progress"]["overall"]["votes"] == 1
    (row,) = first("GET", "/v1/votes.csv").text.splitlines()[1:]
    assert row.split(",")[2] == "Ann"


def test_a_key_is_of_the_reviewer_whose_name_it_has_in_other_letters(
    concepts: Path, reviewers: str, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    before = Reviewer(review(concepts, database=database), "Ann")
    sheet = before.take()
    before.vote(sheet)
    keyed = review(concepts, database=database, reviewers_file=reviewers)
    after = Reviewer(keyed, "", Authorization="Bearer token-of-ann")
    own = after("GET", "/v1/review").json()
    assert (own["reviewer"], own["progress"]["own"]["votes"]) == ("Ann", 1)
    assert after.vote(sheet).json()["progress"]["overall"]["votes"] == 1


def test_who_was_brought_by_csv_goes_on_in_the_same_name(concepts: Path, tmp_path: Path) -> None:
    app = review(concepts, database=f"sqlite:///{tmp_path / 'review.db'}")
    head = "cluster_id,key,reviewer,panel_type,panel_subtype,global_concepts,local_concepts,"
    row = (
        f"1,{key_of(1)}, Zoë-Ann ,single,,Maps,,false,\n2,{key_of(2)}, Ben ,single,,Maps,,false,\n"
    )
    body = f"{head}practice,created\n{row}".encode()
    ben = Reviewer(app, "ben")
    ben("POST", "/v1/votes.csv", content=body, headers={"Content-Type": "text/csv"})
    assert ben("GET", "/v1/review").json()["progress"]["own"]["votes"] == 1
    rows = ben("GET", "/v1/votes.csv").text.splitlines()[1:]
    assert [one.split(",")[2] for one in rows] == ["Zoë-Ann", "Ben"]


def test_votes_of_practice_alone_are_imported(concepts: Path, tmp_path: Path) -> None:
    first, second = (
        Reviewer(review(concepts, database=f"sqlite:///{tmp_path / name}.db", practice=1), "ann")
        for name in "ab"
    )
    assert first.vote(first.take()).status_code == 200
    votes = first("GET", "/v1/votes.csv").content
    assert b"true" in votes.splitlines()[1]
    answer = second("POST", "/v1/votes.csv", content=votes, headers={"Content-Type": "text/csv"})
    assert answer.json()["saved"] == 1


def test_the_log_has_neither_tokens_nor_answers(
    concepts: Path, reviewers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    app = review(concepts, database=database, reviewers_file=reviewers)
    ann = Reviewer(app, "ann", Authorization="Bearer token-of-ann")
    assert ann.vote(ann.take()).status_code == 200
    Reviewer(app, "ann", Authorization="Bearer token-of-eve")("GET", "/v1/review")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["key"] for line in lines] == ["ann", "ann", None]
    assert not re.search("token-of|Microscopy", json.dumps(lines))


def test_votes_are_exported_and_imported_from_the_command_line(
    concepts: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    first, second = (f"sqlite:///{tmp_path / name}" for name in ("first.db", "second.db"))
    app = review(concepts, database=first)
    ann = Reviewer(app, "ann")
    for _ in range(4):
        assert ann.vote(ann.take()).status_code == 200
    main(["export", "--database", first])
    exported = capsysbinary.readouterr().out
    assert len(exported.splitlines()) == 5
    votes = tmp_path / "votes.csv"
    votes.write_bytes(exported + f"9,{key_of(9)},ann,single,,Maps,,false,\r\n".encode())
    main(["import", "--database", second, "--concepts", str(concepts), str(votes)])
    told = capsysbinary.readouterr()
    assert told.out == b"saved 4, unchanged 0, refused 1\n"
    assert b"cluster 9 of ann: there is no cluster 9" in told.err
    main(["export", "--database", second])
    assert capsysbinary.readouterr().out == exported
    # Reasons are told for 1,000 rows; all are counted.
    votes.write_bytes(exported + b"x,,,\r\n" * 1_500)
    main(["import", "--database", second, "--concepts", str(concepts), str(votes)])
    told = capsysbinary.readouterr()
    assert told.out == b"saved 0, unchanged 4, refused 1500\n"
    assert told.err.count(b"4 cells, expected 9") == 1_000
    assert told.err.endswith(b"  and 500 more\n")
    with pytest.raises(SystemExit):
        main(["export", "--database", f"sqlite:///{tmp_path / 'none.db'}"])
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"concepts": "nowhere"}, "nowhere"),
        ({"votes_per_cluster": "0"}, "votes_per_cluster"),
        ({"surprise": "1"}, "surprise"),
        ({"database": "nonsense"}, "database"),
        ({"reviewers_file": "nowhere.yaml"}, "reviewers_file"),
        ({"taxonomy": "nowhere.yaml"}, "nowhere.yaml"),
        ({"ties": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_a_review_that_cannot_be_is_refused_before_it_starts(
    concepts: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    with pytest.raises(ConfigError, match=said):
        build({"concepts": str(concepts), "database": database, **changes})


def test_paths_are_absolute_where_replicas_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = settings_of({"concepts": "concepts", "votes_per_cluster": "2", "rate.per_s": "5"})
    assert own.concepts == str(tmp_path / "concepts")
    assert own.database == f"sqlite:///{tmp_path / 'review.db'}"
    assert (own.votes_per_cluster, own.rate.per_s) == (2, 5.0)
    assert settings_of({"concepts": "s3://b/c"}).concepts == "s3://b/c"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    at_home = settings_of({"concepts": "~/c", "database": "sqlite:///~/votes.db"})
    assert at_home.concepts == str(tmp_path / "home" / "c")
    assert at_home.database == f"sqlite:///{tmp_path / 'home' / 'votes.db'}"
    password = settings_of({"concepts": "c", "database": "postgresql://u:p@h/d"})
    assert password.database == "postgresql://u:p@h/d"


def test_a_sheet_reads_the_row_group_of_its_cluster_alone(
    concepts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    opened = ReviewConcepts(str(concepts))
    read: list[list[int]] = []
    whole = pq.ParquetFile.read_row_groups

    def watched(self: Any, groups: list[int], columns: list[str]) -> Any:
        read.append(groups)
        return whole(self, groups, columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", watched)
    assert len(opened.sheet(2)) == 30
    assert len(opened.sheet(2)) == 30
    assert read == [[2]]
