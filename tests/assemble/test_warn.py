"""Warnings about corpora that are valid and may not serve."""

from typing import Any

import pytest

from biovl.assemble.config import AssembleConfig, commercial, small
from biovl.assemble.warn import warnings_of


def stats(articles: int, *groups: str) -> dict[str, Any]:
    return {
        "corpus": {"articles": articles, "images": 3 * articles},
        "license_groups": [{"license_group": group} for group in groups],
    }


BOTH = stats(500, "commercial", "noncommercial")


@pytest.mark.parametrize(
    ("val", "test", "begins"),
    [
        (100, 100, []),
        (99, 100, ["val has 99 pairs: scores on it are uncertain by up to 10 points"]),
        (100, 12, ["test has 12 pairs: scores on it are uncertain by up to 28 points"]),
        (1, 0, ["val has 1 pair: no model can be scored", "test has 0 pairs: no model can be"]),
    ],
)
def test_splits_too_small_to_compare_models_are_warned_about(
    val: int, test: int, begins: list[str]
) -> None:
    found = warnings_of(small(), BOTH, {"train": 500, "val": val, "test": test})
    assert len(found) == len(begins)
    for warning, beginning in zip(found, begins, strict=True):
        assert warning.startswith(beginning)


def test_a_split_that_was_not_requested_is_not_warned_about() -> None:
    config = small()
    split = type(config.split)(val_permyriad=1_000, test_permyriad=0)
    alone = AssembleConfig(figures="f", out="o", split=split)
    assert warnings_of(alone, BOTH, {"train": 500, "val": 100, "test": 0}) == []
    (nothing,) = warnings_of(alone, BOTH, {"train": 1, "val": 100, "test": 0})
    assert nothing == "train has 1 pair: nothing can be learnt"


def test_a_single_licence_group_is_warned_about_unless_a_rule_selects_it() -> None:
    pairs = {"train": 500, "val": 100, "test": 100}
    (warning,) = warnings_of(small(), stats(20, "other"), pairs)
    assert warning.startswith("all 60 pairs of 20 articles are of one licence group, other")
    assert warnings_of(small(), stats(19, "other"), pairs) == []
    assert warnings_of(commercial(), stats(500, "commercial"), pairs) == []
    assert warnings_of(small(), BOTH, pairs) == []
