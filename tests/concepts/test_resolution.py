"""Which votes count, and what they come to: tables made by hand."""

from dataclasses import replace

import pytest

from biovl.concepts.resolution import Resolved, countable, resolve
from biovl.concepts.taxonomy import load_taxonomy
from biovl.concepts.votes import ReviewVote
from tests.concepts.ballots import PLOTS, vote

ASSAYS = "biomedical imaging and assays"


def of(*concepts: str) -> Resolved:
    """Resolve votes for single panels that name these."""
    votes = [vote(f"reviewer {number}", named) for number, named in enumerate(concepts)]
    (resolved,) = resolve(votes, load_taxonomy())
    return resolved


def tied(resolved: Resolved) -> dict[str, str]:
    return {tie.field: tie.reason for tie in resolved.ties}


@pytest.mark.parametrize(
    ("subtypes", "wins"),
    [
        ([None], (None,)),
        ([PLOTS, PLOTS, None], (PLOTS,)),
        ([None, PLOTS], ()),
        ([None, PLOTS, ASSAYS], ()),
        ([PLOTS, PLOTS, None, ASSAYS], ()),
        ([PLOTS, PLOTS, PLOTS, None, ASSAYS], (PLOTS,)),
    ],
)
def test_panels_are_what_more_than_half_say(
    subtypes: list[str | None], wins: tuple[str | None, ...]
) -> None:
    votes = [vote(f"r{number}", "Maps", subtype) for number, subtype in enumerate(subtypes)]
    (resolved,) = resolve(votes, load_taxonomy())
    assert resolved.is_labelled == bool(wins)
    if wins:
        assert resolved.panel_subtype == wins[0]
        assert resolved.panel_type == ("multiple" if wins[0] else "single")
    else:
        assert (resolved.panel_type, list(tied(resolved))) == (None, ["panel"])


@pytest.mark.parametrize(
    ("concepts", "global_concepts", "local_concepts"),
    [
        (["Maps/map"], ["Maps"], ["map"]),
        (["Maps", "Maps", "Tables"], ["Maps"], []),
        (["Maps, Tables", "Maps, Tables", "Maps"], ["Tables", "Maps"], []),
        (["Maps, Tables", "Maps", "Maps"], ["Maps"], []),
        # Local concepts: two of three; and two of three who name none.
        (["PCR/qPCR", "PCR/RT PCR/qPCR", "PCR/RT PCR"], ["PCR"], ["qPCR", "RT PCR"]),
        (["PCR/qPCR", "PCR", "PCR"], ["PCR"], []),
        # Written differently, the same.
        (["pcr/rt-pcr", "PCR/RTPCR"], ["PCR"], ["RT PCR"]),
    ],
)
def test_concepts_are_those_that_more_than_half_name(
    concepts: list[str], global_concepts: list[str], local_concepts: list[str]
) -> None:
    resolved = of(*concepts)
    assert resolved.is_labelled
    assert [*resolved.global_concepts] == global_concepts
    assert [*resolved.local_concepts] == local_concepts


@pytest.mark.parametrize(
    ("concepts", "ties"),
    [
        (["Maps", "Tables"], {"global_concepts": "Maps: 1 of 2, Tables: 1 of 2"}),
        (
            ["Maps", "Tables", "PCR"],
            {"global_concepts": "Maps: 1 of 3, PCR: 1 of 3, Tables: 1 of 3"},
        ),
        # One wins, and exactly half name a further one.
        (["Maps, PCR", "Maps"], {"global_concepts": "Maps: 2 of 2, PCR: 1 of 2"}),
        (["PCR/qPCR", "PCR/RT PCR"], {"local_concepts": "RT PCR: 1 of 2, qPCR: 1 of 2"}),
        (["PCR/qPCR", "PCR"], {"local_concepts": "(none): 1 of 2, qPCR: 1 of 2"}),
        (
            ["PCR/qPCR", "PCR/RT PCR", "PCR"],
            {"local_concepts": "(none): 1 of 3, RT PCR: 1 of 3, qPCR: 1 of 3"},
        ),
        # Two of three name Maps, and two of three a drawing, but of different kinds.
        (
            ["Illustrative Diagrams/drawing", "Screen Based Visuals/drawing, Maps", "Maps"],
            {"local_concepts": "most named drawing, but not the concept above it"},
        ),
    ],
)
def test_what_has_no_majority_is_a_tie_and_no_label(
    concepts: list[str], ties: dict[str, str]
) -> None:
    resolved = of(*concepts)
    assert not resolved.is_labelled
    assert tied(resolved) == ties
    for field in ties:
        assert getattr(resolved, field) == ()


def test_every_cluster_is_resolved_for_itself_in_order() -> None:
    votes = [vote("ann", "Maps", cluster_id=7), vote("bob", "PCR"), vote("ann", "PCR")]
    first, second = resolve(votes, load_taxonomy())
    assert (first.cluster_id, [given.reviewer for given in first.votes]) == (0, ["ann", "bob"])
    assert (second.cluster_id, second.global_concepts) == (7, ("Maps",))
    assert resolve([], load_taxonomy()) == []


def test_votes_with_names_that_the_taxonomy_lacks_decide_nothing_but_are_votes() -> None:
    old = [vote("ann", "Old name"), vote("bob", "Old name")]
    (one,) = resolve([*old, vote("cat", "Maps")], load_taxonomy())
    assert one.global_concepts == ()
    assert tied(one)["global_concepts"] == "(refused): 2 of 3, Maps: 1 of 3"
    (one,) = resolve([old[0], vote("bob", "Maps"), vote("cat", "Maps")], load_taxonomy())
    assert (one.global_concepts, one.ties) == (("Maps",), ())
    # Who has voted again is no second voter.
    again = replace(vote("ann", "Maps"), created="2030-01-01T00:00:00Z")
    (one,) = resolve([old[0], again], load_taxonomy())
    assert (one.global_concepts, one.ties) == (("Maps",), ())


@pytest.mark.parametrize(
    ("refused", "kind", "reason"),
    [
        (vote("bob", "PCR", practice=True), "practice", "practice"),
        (vote("bob", "PCR", cluster_id=9), "unknown cluster", "no cluster 9, only 0 to 1"),
        (vote("bob", "PCR", key="k1"), "cluster changed", "its key is k0 now"),
        (vote("bob", "PCB"), "outside the taxonomy or contradictory", "nearest: PCR"),
        (
            vote("ann", "PCR", created="2025-03-01T13:00:00+02:00"),
            "superseded",
            "voted again: 2025-03-01T12:00:00Z",
        ),
        (vote("ann", "PCR", created=""), "superseded", "voted again"),
        (vote(" Ann", "PCR", created=""), "superseded", "voted again"),
    ],
)
@pytest.mark.parametrize("comes_first", [True, False])
def test_votes_that_do_not_count_are_told_with_the_reason(
    refused: ReviewVote, kind: str, reason: str, comes_first: bool
) -> None:
    good = vote("ann", "Maps")
    votes = [refused, good] if comes_first else [good, refused]
    counted, (found,) = countable(votes, load_taxonomy(), {0: "k0", 1: "k1"})
    assert counted == [good]
    assert (found.vote, found.kind) == (refused, kind)
    assert reason in found.reason


def test_of_two_votes_at_one_moment_the_one_further_down_counts() -> None:
    counted, _ = countable([vote("ann", "Maps"), vote("ann", "PCR")], load_taxonomy())
    assert counted == [vote("ann", "PCR")]
