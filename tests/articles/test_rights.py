"""What may be done with a figure, and which licence is known to hold for it."""

from typing import Any

import pytest

from biovl.articles.rights import (
    NO_DERIVATIVES,
    NOT_ALLOWED,
    NOT_STATED,
    OF_OTHERS,
    REASONS,
    RETRACTED,
    Terms,
    reason_to_withhold,
    terms,
)

FREE: dict[str, Any] = {
    "license": "CC-BY-4.0",
    "license_group": "commercial",
    "license_url": "https://creativecommons.org/licenses/by/4.0/",
    "redistributable": True,
    "third_party": False,
    "credit": None,
    "caption": "An axial view.",
    "retracted": None,
}
RESERVED = "LicenseRef-All-Rights-Reserved"
BY = Terms("CC-BY-4.0", "commercial", FREE["license_url"])
NONE_KNOWN = Terms(None, "other", None)


@pytest.mark.parametrize(
    ("changes", "reason", "known"),
    [
        ({}, None, BY),
        ({"retracted": True}, RETRACTED, BY),
        ({"third_party": True}, OF_OTHERS, NONE_KNOWN),
        # A credit is one, whatever was made of it.
        ({"credit": "Reprinted with permission from Elsevier."}, OF_OTHERS, NONE_KNOWN),
        ({"credit": "Fonte: os autores"}, None, BY),
        # Its source says that it was not cleared, whatever the article states.
        ({"redistributable": False}, NOT_ALLOWED, NONE_KNOWN),
        ({"license": RESERVED, "redistributable": False}, NOT_ALLOWED, None),
        ({"license": None, "redistributable": None}, NOT_STATED, None),
        ({"box_px": {"x0": 0}, "derivatives_allowed": False}, NO_DERIVATIVES, BY),
        ({"box_px": None, "derivatives_allowed": False}, None, BY),
        # The licence decides where a table does not state it; without one, none forbids.
        ({"cut_out": True, "derivatives_allowed": None}, None, BY),
        (
            {"cut_out": True, "derivatives_allowed": None, "license": "CC-BY-ND-4.0"},
            *(NO_DERIVATIVES, None),
        ),
        (
            {"cut_out": True, "derivatives_allowed": None, "license": None}
            | {"redistributable": None},
            *(NOT_STATED, None),
        ),
        ({"cut_out": False, "derivatives_allowed": False, "figure_id": "f_pA"}, None, BY),
        # Earlier versions stated only the ids; older ones not even whether changes are allowed.
        (
            {"figure_id": "f_pA", "parent_figure_id": "f", "derivatives_allowed": False},
            *(NO_DERIVATIVES, BY),
        ),
        ({"figure_id": "f_pA", "parent_figure_id": "f_pA", "derivatives_allowed": False}, None, BY),
        ({"figure_id": "f_pA"}, None, BY),
    ],
)
def test_a_figure_is_given_on_unless_something_speaks_against_it(
    changes: dict[str, Any], reason: str | None, known: Terms | None
) -> None:
    row = {**FREE, **changes}
    assert reason_to_withhold(row) == reason
    assert terms(row) == (known or Terms(row["license"], "commercial", FREE["license_url"]))
    assert reason_to_withhold(row, REASONS) is None


def test_older_tables_are_judged_by_licence_credit_and_caption() -> None:
    old = {name: FREE[name] for name in ("license", "license_group", "credit", "caption")}
    assert reason_to_withhold(old) is None
    assert reason_to_withhold({**old, "license": RESERVED}) == NOT_ALLOWED
    assert reason_to_withhold({**old, "license": None}) == NOT_STATED
    assert reason_to_withhold({**old, "credit": "© Springer"}) == OF_OTHERS
    reprinted = "Figure reprinted from Smith et al. with permission."
    assert reason_to_withhold({**old, "caption": reprinted}) == OF_OTHERS
    assert terms({**old, "caption": reprinted}).license is None


def test_the_missing_rights_of_ones_own_panels_are_one_reason_only() -> None:
    own = {**FREE, "license": None, "redistributable": None, "derivatives_allowed": None}
    assert reason_to_withhold({**own, "cut_out": True}, {NOT_STATED}) is None
