"""The review of clusters: who is given what, what is saved, and what is refused."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI

from biovl.concepts.votes import write_votes
from serve.review.app import main
from serve.review.ties import read_ties
from tests.concepts.ballots import vote
from tests.serve.review.small_review import (
    CLUSTERS,
    Reviewer,
    an_answer,
    key_of,
    publish_concepts,
    review,
)


@pytest.fixture(scope="module")
def concepts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_concepts(tmp_path_factory.mktemp("clusters") / "concepts")


@pytest.fixture
def make(concepts: Path, tmp_path: Path) -> Any:
    """Make a review with a database of its own."""

    def made(**settings: Any) -> FastAPI:
        return review(concepts, database=f"sqlite:///{tmp_path / 'review.db'}", **settings)

    return made


def test_a_cluster_comes_with_its_30_members_and_their_captions(make: Any) -> None:
    sheet = Reviewer(make(), "ann").take()
    assert [one["rank"] for one in sheet["members"]] == list(range(30))
    number = sheet["cluster_id"]
    assert [one["caption"].rpartition("(")[2] for one in sheet["members"][:2]] == [
        f"{number}-0)",
        f"{number}-1)",
    ]
    assert sheet["members"][0]["thumbnail"].startswith("data:image/jpeg;base64,/9j/")
    assert (sheet["size"], sheet["key"]) == (100 + number, key_of(number))


def test_a_vote_is_saved_and_the_next_cluster_is_another(make: Any) -> None:
    app = make()
    ann = Reviewer(app, "ann")
    first = ann.take()
    answer = ann.vote(first, global_concepts=["microscopy"], local_concepts=["Light-Microscopy"])
    assert answer.status_code == 200
    assert answer.json()["progress"]["own"]["votes"] == 1
    again = ann.take()
    assert again["cluster_id"] != first["cluster_id"]
    place = f"/v1/clusters/{first['cluster_id']}?cluster_key={first['key']}"
    # As the taxonomy writes them.
    assert ann("GET", place).json()["answers"] == {
        "panel_type": "single",
        "panel_subtype": None,
        "global_concepts": ["Microscopy"],
        "local_concepts": ["light microscopy"],
    }
    # What others said is not shown.
    assert Reviewer(app, "ben")("GET", place).json()["answers"] is None


def test_the_same_cluster_is_given_until_it_is_answered(make: Any) -> None:
    ann = Reviewer(make(), "ann")
    assert ann.take()["cluster_id"] == ann.take()["cluster_id"]


def test_clusters_with_the_fewest_votes_come_first(make: Any) -> None:
    app = make(votes_per_cluster=2)
    ann, ben = Reviewer(app, "ann"), Reviewer(app, "ben")
    firsts = set()
    for _ in range(CLUSTERS // 2):
        for one in (ann, ben):
            sheet = one.take()
            firsts.add(sheet["cluster_id"])
            assert one.vote(sheet).status_code == 200
    # Nobody saw one twice before every one was seen once.
    assert firsts == set(range(CLUSTERS))
    for _ in range(CLUSTERS // 2):
        for one in (ann, ben):
            assert one.vote(one.take()).status_code == 200
    overall = ann.next()["progress"]["overall"]
    assert overall == {"clusters": 24, "complete": 24, "votes": 48, "wanted": 48, "ties": 0}
    assert ann.next()["cluster"] is None
    assert Reviewer(app, "cat").next()["cluster"] is None


def test_the_last_place_of_a_cluster_is_for_one_of_two_who_ask_at_once(make: Any) -> None:
    app = make(votes_per_cluster=1)
    names = [f"reviewer-{number}" for number in range(CLUSTERS + 2)]
    given = [Reviewer(app, name).next()["cluster"] for name in names]
    ids = [one["cluster_id"] for one in given if one]
    assert sorted(ids) == list(range(CLUSTERS))


def test_a_place_that_was_not_used_goes_to_another(make: Any) -> None:
    app = make(votes_per_cluster=1, reservation_s=0.001)
    ann, ben = Reviewer(app, "ann"), Reviewer(app, "ben")
    sheet = ann.take()
    assert ben.take()["cluster_id"] == sheet["cluster_id"]
    assert ben.vote(sheet).status_code == 200
    late = ann.vote(sheet)
    assert (late.status_code, late.json()["type"]) == (409, "urn:biovl:problem:no-place-left")


def test_a_place_is_kept_for_whoever_still_uses_it(make: Any) -> None:
    app = make(votes_per_cluster=1, reservation_s=60)
    ann = Reviewer(app, "ann")
    sheet = ann.take()
    place = {"cluster_id": sheet["cluster_id"], "key": sheet["key"]}
    assert ann("POST", "/v1/hold", json=place).json() == {"held": True}
    assert Reviewer(app, "ben")("POST", "/v1/hold", json=place).json() == {"held": False}


def test_a_place_that_ran_out_is_taken_again_while_it_is_free(make: Any) -> None:
    app = make(votes_per_cluster=1, reservation_s=0.001)
    ann = Reviewer(app, "ann")
    sheet = ann.take()
    place = {"cluster_id": sheet["cluster_id"], "key": sheet["key"]}
    assert ann("POST", "/v1/hold", json=place).json() == {"held": True}
    # With the time it was renewed for, nobody else is given it.
    kept = make(votes_per_cluster=1, reservation_s=60)
    assert Reviewer(kept, "ann")("POST", "/v1/hold", json=place).json() == {"held": True}
    ben = Reviewer(kept, "ben")
    assert ben.take()["cluster_id"] != sheet["cluster_id"]
    assert ben("POST", "/v1/hold", json=place).json() == {"held": False}


def test_a_place_that_somebody_else_filled_is_not_held(make: Any) -> None:
    app = make(votes_per_cluster=1, reservation_s=0.001)
    ann, ben = Reviewer(app, "ann"), Reviewer(app, "ben")
    sheet = ann.take()
    ben.vote(ben.take())
    place = {"cluster_id": sheet["cluster_id"], "key": sheet["key"]}
    assert ann("POST", "/v1/hold", json=place).json() == {"held": False}


def test_no_place_is_held_beyond_the_clusters_of_a_reviewer(make: Any) -> None:
    app = make(clusters_per_reviewer=1)
    ann = Reviewer(app, "ann")
    ann.vote(ann.take())
    other = Reviewer(app, "ben").take()
    place = {"cluster_id": other["cluster_id"], "key": other["key"]}
    assert ann("POST", "/v1/hold", json=place).json() == {"held": False}


def test_what_is_skipped_comes_again_at_the_end(make: Any) -> None:
    ann = Reviewer(make(), "ann")
    first = ann.take()
    place = {"cluster_id": first["cluster_id"], "key": first["key"]}
    seen = [ann.take(skip=place)]
    while len(seen) < CLUSTERS:
        ann.vote(seen[-1])
        seen.append(ann.take())
    assert [one["cluster_id"] for one in seen].index(first["cluster_id"]) == CLUSTERS - 1


def test_practice_comes_first_and_does_not_count(make: Any) -> None:
    app = make(practice=3)
    ann = Reviewer(app, "ann")
    practice = []
    for number in range(3):
        sheet = ann.take()
        assert sheet["kind"] == "practice"
        practice.append(sheet["cluster_id"])
        counted = ann.vote(sheet, practice=False)
        assert counted.json()["type"].endswith("practice-first")
        progress = ann.vote(sheet).json()["progress"]
        assert (progress["own"]["practised"], progress["own"]["votes"]) == (number + 1, 0)
        assert progress["overall"]["votes"] == 0
    assert ann.take()["kind"] == "vote"
    # The same ones for everybody.
    assert Reviewer(app, "ben").take()["cluster_id"] == practice[0]
    export = ann("GET", "/v1/votes.csv").text
    assert export.count(",true,") == 3


def test_practice_is_at_most_half_of_all_clusters(make: Any, tmp_path: Path) -> None:
    folder = publish_concepts(tmp_path / "few", clusters=3)
    ann = Reviewer(review(folder, practice=20), "ann")
    kinds = []
    for _ in range(4):
        sheet = ann.take()
        kinds.append(sheet["kind"])
        assert ann.vote(sheet).status_code == 200
    assert kinds == ["practice", "vote", "vote", "vote"]


def test_practice_that_was_skipped_comes_again_at_its_end(make: Any) -> None:
    ann = Reviewer(make(practice=3), "ann")
    order = []
    sheet = ann.take()
    for _ in range(6):
        order.append(sheet["cluster_id"])
        place = {name: sheet[name] for name in ("cluster_id", "key")}
        answer = ann.next(skip={**place, "practice": True})
        assert answer["progress"]["own"]["practised"] == 0
        sheet = answer["cluster"]
    assert order == order[:3] * 2
    assert len(set(order)) == 3
    for number in range(3):
        assert (sheet["kind"], sheet["cluster_id"]) == ("practice", order[number])
        ann.vote(sheet)
        sheet = ann.take()
    assert sheet["kind"] == "vote"


def test_a_reviewer_is_asked_for_no_more_than_agreed(make: Any) -> None:
    ann = Reviewer(make(clusters_per_reviewer=2), "ann")
    for _ in range(2):
        ann.vote(ann.take())
    answer = ann.next()
    assert answer["cluster"] is None
    assert answer["progress"]["own"] == {"practised": 0, "practice": 0, "votes": 2, "most": 2}
    direct = an_answer({"cluster_id": 0, "key": key_of(0), "kind": "vote"})
    answers = [
        ann("POST", "/v1/votes", json={**direct, "cluster_id": one, "key": key_of(one)})
        for one in range(3)
    ]
    assert {one.status_code for one in answers} >= {409}


def votes_that_tie(app: FastAPI, *names: str) -> dict[str, Any]:
    """Let two reviewers disagree on the only cluster."""
    panels = ({}, {"panel_type": "multiple", "panel_subtype": "biomedical imaging and plots"})
    for name, changes in zip(names, panels, strict=True):
        one = Reviewer(app, name)
        sheet = one.take()
        assert one.vote(sheet, **changes).status_code == 200
    return sheet


def test_a_cluster_whose_votes_tie_is_given_to_another_reviewer(tmp_path: Path) -> None:
    app = review(publish_concepts(tmp_path / "concepts", clusters=1), votes_per_cluster=2)
    votes_that_tie(app, "ann", "ben")
    cat = Reviewer(app, "cat")
    answer = cat.next()
    assert answer["progress"]["overall"]["ties"] == 1
    assert (answer["cluster"]["kind"], answer["cluster"]["ties"]) == ("again", ["panel"])
    assert cat.vote(answer["cluster"]).json()["progress"]["overall"]["ties"] == 0
    assert cat.next()["cluster"] is None
    assert Reviewer(app, "ann").next()["cluster"] is None


def test_where_nobody_else_is_left_those_who_tied_look_once_more(tmp_path: Path) -> None:
    app = review(publish_concepts(tmp_path / "concepts", clusters=1), votes_per_cluster=2)
    votes_that_tie(app, "ann", "ben")
    ann = Reviewer(app, "ann")
    sheet = ann.take()
    assert (sheet["kind"], sheet["answers"]["panel_type"]) == ("again", "single")
    # Ben cannot have it at the same time; Ann stays with what she said.
    assert Reviewer(app, "ben").next()["cluster"] is None
    ann.vote(sheet)
    assert ann.next()["cluster"] is None
    ben = Reviewer(app, "ben")
    assert ben.vote(ben.take()).json()["progress"]["overall"]["ties"] == 0


@pytest.mark.parametrize("first", ["", "sep=,\r\n"])
@pytest.mark.parametrize("fields", [["panel", ""], ["", "panel"]])
def test_a_tie_without_a_field_is_about_all_in_any_order(
    tmp_path: Path, fields: list[str], first: str
) -> None:
    listed = tmp_path / "ties.csv"
    lines = ["cluster_id,key,field", *(f"5,k,{name}" for name in fields)]
    listed.write_text(first + "\n".join(lines))
    cluster: Any = SimpleNamespace(cluster_id=5, key="k")
    found = read_ties(str(listed), {5: cluster}).fields
    assert found == {5: ("panel", "global_concepts", "local_concepts")}


def test_a_list_of_ties_is_looked_at_again(concepts: Path, tmp_path: Path) -> None:
    listed = tmp_path / "ties.csv"
    listed.write_text(f"cluster_id,key,field\n5,{key_of(5)},local_concepts\n6,changed,panel\n")
    database = f"sqlite:///{tmp_path / 'review.db'}"
    app = review(concepts, database=database, ties=str(listed), votes_per_cluster=1)
    ann = Reviewer(app, "ann")
    assert ann.next()["progress"]["overall"]["ties"] == 1
    sheet = ann("GET", f"/v1/clusters/5?cluster_key={key_of(5)}").json()
    assert (sheet["kind"], sheet["ties"]) == ("again", ["local_concepts"])
    assert ann.vote(sheet).json()["progress"]["overall"]["ties"] == 0


@pytest.mark.parametrize("way", ["service", "command line"])
def test_imported_votes_that_settle_a_listed_tie_end_it(
    concepts: Path, tmp_path: Path, way: str
) -> None:
    listed = tmp_path / "ties.csv"
    listed.write_text(f"cluster_id,key,field\n5,{key_of(5)},panel\n")
    database = f"sqlite:///{tmp_path / 'review.db'}"
    app = review(concepts, database=database, ties=str(listed), votes_per_cluster=2)
    ann = Reviewer(app, "ann")
    assert ann.next()["progress"]["overall"]["ties"] == 1
    given = [vote(name, "Maps", cluster_id=5, key=key_of(5)) for name in ("bob", "cat")]
    if way == "service":
        csv = {"content": write_votes(given), "headers": {"Content-Type": "text/csv"}}
        assert ann("POST", "/v1/votes.csv", **csv).json()["saved"] == 2
    else:
        votes = tmp_path / "votes.csv"
        votes.write_bytes(write_votes(given))
        options = ["--database", database, "--concepts", str(concepts), "--ties", str(listed)]
        main(["import", *options, str(votes)])
    assert ann.next()["progress"]["overall"]["ties"] == 0


def test_a_listed_tie_whose_votes_are_imported_is_still_asked_for(tmp_path: Path) -> None:
    folder, listed = publish_concepts(tmp_path / "concepts", clusters=1), tmp_path / "ties.csv"
    listed.write_text(f"cluster_id,key,field\n0,{key_of(0)},global_concepts\n")
    app = review(folder, ties=str(listed), votes_per_cluster=2)
    said = {"bob": "Maps", "cat": "Microscopy"}
    given = [vote(name, one, cluster_id=0, key=key_of(0)) for name, one in said.items()]
    csv = {"content": write_votes(given), "headers": {"Content-Type": "text/csv"}}
    assert Reviewer(app, "ann")("POST", "/v1/votes.csv", **csv).json()["saved"] == 2
    bob = Reviewer(app, "bob")
    assert bob.next()["progress"]["overall"]["ties"] == 1
    assert bob.take()["kind"] == "again"


def test_a_listed_tie_of_few_votes_is_asked_of_each_who_voted(tmp_path: Path) -> None:
    folder, listed = publish_concepts(tmp_path / "concepts", clusters=1), tmp_path / "ties.csv"
    listed.write_text(f"cluster_id,key,field\n0,{key_of(0)},panel\n")
    # Two reviewers, and three votes a cluster by default: it never has enough.
    app = review(folder, ties=str(listed), votes_per_cluster=3)
    panels = {"bob": None, "cat": "biomedical imaging and plots"}
    given = [
        vote(name, "Microscopy/light microscopy", panel, cluster_id=0, key=key_of(0))
        for name, panel in panels.items()
    ]
    csv = {"content": write_votes(given), "headers": {"Content-Type": "text/csv"}}
    assert Reviewer(app, "ann")("POST", "/v1/votes.csv", **csv).json()["saved"] == 2
    bob, cat = Reviewer(app, "bob"), Reviewer(app, "cat")
    assert bob.vote(bob.take()).json()["progress"]["overall"]["ties"] == 1
    sheet = cat.take()
    assert (sheet["kind"], sheet["ties"]) == ("again", ["panel"])
    assert cat.vote(sheet).json()["progress"]["overall"]["ties"] == 0


def test_an_import_with_another_taxonomy_counts_nothing_again(tmp_path: Path) -> None:
    folder = publish_concepts(tmp_path / "concepts", clusters=1)
    own, votes = tmp_path / "own.yaml", tmp_path / "votes.csv"
    own.write_text("concepts: {Charts of land: [atlas], PCR: [gel]}")
    app = review(folder, votes_per_cluster=2, taxonomy=str(own))
    for name in ("ann", "bob"):
        one = Reviewer(app, name)
        one.vote(one.take(), global_concepts=["PCR"], local_concepts=["gel"])
    votes.write_bytes(write_votes([vote("cat", "Maps", cluster_id=7, key="k")]))
    database = f"sqlite:///{tmp_path / 'review.db'}"
    main(["import", "--database", database, "--concepts", str(folder), str(votes)])
    assert Reviewer(app, "ann").next()["progress"]["overall"]["complete"] == 1


def test_another_taxonomy_makes_ties_of_the_names_that_it_lacks(tmp_path: Path) -> None:
    folder = publish_concepts(tmp_path / "concepts", clusters=1)
    for name in ("ann", "bob"):
        one = Reviewer(review(folder, votes_per_cluster=2), name)
        done = one.vote(one.take(), global_concepts=["Maps"], local_concepts=["map"]).json()
    assert done["progress"]["overall"]["ties"] == 0
    own = tmp_path / "own.yaml"
    own.write_text("concepts: {Charts of land: [atlas], PCR: [gel]}")
    app = review(folder, votes_per_cluster=2, taxonomy=str(own))
    for name, ties in (("cat", 0), ("dan", 1)):
        one = Reviewer(app, name)
        done = one.vote(one.take(), global_concepts=["PCR"], local_concepts=["gel"]).json()
        # Two of four name it: no majority.
        assert done["progress"]["overall"]["ties"] == ties
    one = Reviewer(app, "eve")
    done = one.vote(one.take(), global_concepts=["PCR"], local_concepts=["gel"]).json()
    assert done["progress"]["overall"]["ties"] == 0


def test_a_vote_whose_names_the_taxonomy_lost_is_asked_for_again(tmp_path: Path) -> None:
    folder = publish_concepts(tmp_path / "concepts", clusters=1)
    names = ("ann", "bob")
    for name in names:
        one = Reviewer(review(folder, votes_per_cluster=2), name)
        one.vote(one.take(), global_concepts=["Maps"], local_concepts=["map"])
    own = tmp_path / "own.yaml"
    own.write_text("concepts: {Charts of land: [atlas], PCR: [gel]}")
    app = review(folder, votes_per_cluster=2, taxonomy=str(own), clusters_per_reviewer=1)
    for name in names:
        one = Reviewer(app, name)
        sheet = one.take()
        assert (sheet["kind"], sheet["answers"]["global_concepts"]) == ("vote", ["Maps"])
        done = one.vote(sheet, global_concepts=["PCR"], local_concepts=["gel"]).json()
        assert one.next()["cluster"] is None
    assert done["progress"]["overall"]["complete"] == 1


def test_a_vote_whose_names_the_taxonomy_lost_is_changed_where_others_have_voted(
    tmp_path: Path,
) -> None:
    folder = publish_concepts(tmp_path / "concepts", clusters=1)
    ann = Reviewer(review(folder, votes_per_cluster=2), "ann")
    sheet = ann.take()
    ann.vote(sheet, global_concepts=["Maps"], local_concepts=["map"])
    own = tmp_path / "own.yaml"
    own.write_text("concepts: {PCR: [gel]}")
    app = review(folder, votes_per_cluster=2, taxonomy=str(own))
    new = {"global_concepts": ["PCR"], "local_concepts": ["gel"]}
    for name in ("bob", "cat"):
        one = Reviewer(app, name)
        one.vote(one.take(), **new)
    assert Reviewer(app, "ann").vote(sheet, **new).status_code == 200


def test_a_tie_that_outlived_a_second_look_is_asked_for_again_where_a_list_has_it(
    tmp_path: Path,
) -> None:
    folder = publish_concepts(tmp_path / "concepts", clusters=1)
    app = review(folder)
    said = {
        "ann": {},
        "ben": {"panel_type": "multiple", "panel_subtype": "biomedical imaging and plots"},
        "cat": {"panel_type": "multiple", "panel_subtype": "non-biomedical imaging"},
    }
    # The second time, nobody changes their mind.
    for name in (*said, *said):
        one = Reviewer(app, name)
        assert one.vote(one.take(), **said[name]).status_code == 200
    answers = [Reviewer(app, name).next() for name in said]
    assert [one["cluster"] for one in answers] == [None] * 3
    assert answers[0]["progress"]["overall"]["ties"] == 1
    listed = tmp_path / "ties.csv"
    listed.write_text(f"cluster_id,key,field\n0,{key_of(0)},panel\n")
    ann = Reviewer(review(folder, ties=str(listed)), "ann")
    sheet = ann.take()
    assert (sheet["kind"], sheet["ties"]) == ("again", ["panel"])
    assert ann.vote(sheet, **said["ann"]).status_code == 200
    # Once for each list, also where the service was started again with the same one.
    app = review(folder, ties=str(listed))
    ann, ben, cat = (Reviewer(app, name) for name in said)
    assert ann.next()["cluster"] is None
    assert ben.vote(ben.take(), **said["ann"]).json()["progress"]["overall"]["ties"] == 0
    assert cat.next()["cluster"] is None


def test_the_same_reviewer_again_replaces_the_vote(make: Any) -> None:
    ann = Reviewer(make(), "ann")
    sheet = ann.take()
    ann.vote(sheet)
    progress = ann.vote(sheet, global_concepts=["Maps"], local_concepts=["map"]).json()["progress"]
    assert progress["overall"]["votes"] == progress["own"]["votes"] == 1
    lines = ann("GET", "/v1/votes.csv").text.splitlines()
    assert len(lines) == 2
    assert ",Maps,map,false," in lines[1]


@pytest.mark.parametrize(
    ("changes", "status", "slug", "said"),
    [
        ({"cluster_id": 999}, 404, "unknown-cluster", "there is no cluster 999"),
        ({"key": "f" * 16}, 409, "cluster-changed", "clustered again"),
        ({"global_concepts": ["Microscop"]}, 422, "invalid-vote", "nearest: Microscopy"),
        ({"local_concepts": ["map"]}, 422, "invalid-vote", "without its global"),
        ({"global_concepts": []}, 422, "invalid-vote", "no global concept"),
        ({"panel_subtype": "plots"}, 422, "invalid-vote", "panels cannot be"),
        ({"panel_type": 3}, 422, "invalid-request", "panel_type"),
        ({"surprise": 1}, 422, "invalid-request", "surprise"),
        ({"practice": True}, 409, "not-for-practice", "not in the practice round"),
    ],
)
def test_a_vote_that_cannot_be_saved_is_refused_in_words(
    make: Any, changes: dict[str, Any], status: int, slug: str, said: str
) -> None:
    ann = Reviewer(make(), "ann")
    answer = ann.vote(ann.take(), **changes)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:biovl:problem:{slug}")
    assert said in answer.json()["detail"]
    assert len(ann("GET", "/v1/votes.csv").text.splitlines()) == 1


def test_a_vote_for_a_cluster_that_changed_since_is_told(concepts: Path, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'review.db'}"
    ann = Reviewer(review(concepts, database=database), "ann")
    old = ann.take()
    ann.vote(old)
    anew = publish_concepts(tmp_path / "anew", edition="second")
    ann = Reviewer(review(anew, database=database), "ann")
    assert ann.vote(old).json()["type"] == "urn:biovl:problem:cluster-changed"
    # Votes for the clusters of before are kept, and not counted.
    assert ann.next()["progress"]["overall"]["votes"] == 0
    assert len(ann("GET", "/v1/votes.csv").text.splitlines()) == 2


def test_votes_go_out_and_in_as_csv_with_a_reason_for_each_row_refused(
    make: Any, concepts: Path, tmp_path: Path
) -> None:
    ann = Reviewer(make(), "ann")
    for _ in range(3):
        ann.vote(ann.take())
    exported = ann("GET", "/v1/votes.csv")
    assert exported.headers["content-type"] == "text/csv; charset=utf-8"
    bad = [
        f"999,{key_of(0)},ann,single,,Microscopy,,false,2026-01-01T00:00:00Z",
        "1,changed,ann,single,,Microscopy,,false,2026-01-01T00:00:00Z",
        f"1,{key_of(1)},ann,single,,Mircoscopy,,false,2026-01-01T00:00:00Z",
        "x,,,",
    ]
    body = exported.text + "\r\n".join(bad)
    other = Reviewer(review(concepts, database=f"sqlite:///{tmp_path / 'other.db'}"), "ben")
    csv = {"Content-Type": "text/csv"}
    answer = other("POST", "/v1/votes.csv", content=body.encode(), headers=csv).json()
    assert (answer["saved"], answer["unchanged"]) == (3, 0)
    reasons = sorted(row["reason"] for row in answer["refused"])
    assert [reason[:30] for reason in reasons] == [
        "4 cells, expected 9",
        "cluster 1 has changed: the vot",
        "there is no cluster 999",
        "there is no global concept 'Mi",
    ]
    assert other("GET", "/v1/votes.csv").text == exported.text
    answer = other("POST", "/v1/votes.csv", content=exported.content, headers=csv).json()
    assert answer == {"saved": 0, "unchanged": 3, "refused": [], "refused_total": 0}
    answer = other("POST", "/v1/votes.csv", content=b"\xff\xfe", headers=csv)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:biovl:problem:no-votes")
    assert other("POST", "/v1/votes.csv", json={}).status_code == 415


def test_a_brought_vote_is_that_of_the_reviewer_however_the_name_is_spelled(make: Any) -> None:
    ann = Reviewer(make(), "Ann")
    ann.vote(ann.take())
    exported = ann("GET", "/v1/votes.csv").text
    csv = {"Content-Type": "text/csv"}
    brought = exported.replace("Ann", "aNN").encode()
    answer = ann("POST", "/v1/votes.csv", content=brought, headers=csv).json()
    assert (answer["saved"], answer["unchanged"]) == (0, 1)
    assert ann("GET", "/v1/votes.csv").text == exported


def test_of_rows_without_a_time_the_one_further_down_stands(make: Any) -> None:
    ann = Reviewer(make(), "ann")
    head = "cluster_id,key,reviewer,panel_type,panel_subtype,global_concepts,local_concepts,"
    head += "practice,created\n"

    def bring(*concepts: str) -> tuple[int, int]:
        rows = [f"1,{key_of(1)},cat,single,,{name},,false,\n" for name in concepts]
        csv = {"Content-Type": "text/csv"}
        answer = ann("POST", "/v1/votes.csv", content="".join([head, *rows]), headers=csv).json()
        return answer["saved"], answer["unchanged"]

    def stands() -> str:
        (row,) = ann("GET", "/v1/votes.csv").text.splitlines()[1:]
        return row.split(",")[5]

    # What a later row of the same file replaces is not saved.
    assert (bring("Maps", "Microscopy"), stands()) == ((1, 1), "Microscopy")
    # The same file again changes nothing; a corrected one does.
    assert (bring("Maps", "Microscopy"), stands()) == ((0, 2), "Microscopy")
    assert (bring("Tables"), stands()) == ((1, 0), "Tables")


def test_the_page_is_guarded_as_the_search_is(make: Any) -> None:
    ann = Reviewer(make(), "ann")
    page = ann("GET", "/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    for name in set(re.findall(r'(?:src|href)="([\w.-]+\.(?:js|css|svg))"', page.text)):
        assert ann("GET", f"/{name}").status_code == 200, name
    assert (
        ann("POST", "/v1/votes", content=b"{", headers={"Content-Type": "application/json"})
        .json()["type"]
        .endswith("bad-json")
    )
    assert ann("GET", "/nothing").status_code == 404
    assert ann("POST", "/v1/votes", content=b"x" * (6 << 20)).status_code == 413
