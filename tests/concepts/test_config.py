"""Settings that cannot be meant are refused in the user's words."""

from typing import Any

import pytest

from biovl.concepts import cluster_config
from biovl.concepts.cluster_config import ClusterConfig
from biovl.core import config as configs
from biovl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("components", 2.5, r"components .*2\.5\b"),
        ("components", 0, r"components .* 0\b"),
        ("clusters", 0, r"clusters: .* 0\b"),
        ("tolerance", 1, r"tolerance: .* 1\b"),
        ("workers.count", 0, r"workers\.count: .* 0\b"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configs.build(ClusterConfig, {"table": "t", "out": "o", name: value})


def test_recipes_are_complete_but_for_where_things_are() -> None:
    for recipe in cluster_config.RECIPES.values():
        assert configs.override(recipe(), {"table": "t", "out": "o"}).seed == 0


def test_components_are_a_number_or_a_share() -> None:
    given = {"table": "t", "out": "o"}
    assert configs.build(ClusterConfig, {**given, "components": 25}).components == 25
    assert configs.build(ClusterConfig, {**given, "components": 0.99}).components == 0.99
