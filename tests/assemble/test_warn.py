"""Warnings about corpora that are valid and may not serve."""

from typing import Any

import pytest

from biovl.assemble.config import AssembleConfig, commercial, concept_balanced, small
from biovl.assemble.warn import warnings_of


def stats(articles: int, *groups: str) -> dict[str, Any]:
    return {
        "corpus": {"articles": articles, "images": 3 * articles},
        "license_groups": [{"license_group": group} for group in groups],
        "not_applied": {},
        "dropped": {},
        "splits": {"test": {"pairs": 100}},
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


def test_what_the_recipe_of_a_paper_keeps_is_stated() -> None:
    found = {
        "pairs": 1500,
        "default_steps": {"article retracted": 3, "shorter side under 64 px": 0, "same file": 9},
        "any_default_step": 11,
        "also_in_train": {"val": 0, "test": 7},
        "rights": {},
    }
    config = AssembleConfig(figures="f", out="o", retracted="keep")
    warnings = warnings_of(
        config, {**BOTH, "not_applied": found}, {"train": 500, "val": 100, "test": 100}
    )
    retracted, dropped, leaked = warnings
    assert retracted.startswith("retracted articles are kept (retracted=keep): 3 of 1,500 pairs")
    assert dropped.endswith(
        "11 of 1,500 pairs are kept that the recipe default would drop "
        "(article retracted: 3; same file: 9)"
    )
    assert leaked.startswith("7 of 100 images of test are also in train")


def test_a_target_that_a_small_corpus_does_not_reach_is_warned_about() -> None:
    pairs = {"train": 500, "val": 100, "test": 100}
    (warning,) = warnings_of(concept_balanced(), BOTH, pairs)
    assert warning.startswith("no label is capped: balance.target=8,404,992")
    capped = {**BOTH, "dropped": {"over-represented: Plots and Charts": 4}}
    assert warnings_of(concept_balanced(), capped, pairs) == []
