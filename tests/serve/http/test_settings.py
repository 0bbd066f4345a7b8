"""Settings of the services: read as those of jobs are."""

from typing import Any

import pytest

from biovl.core.errors import ConfigError
from serve.http.settings import read_settings
from serve.search.settings import Settings


def test_strings_of_a_command_line_are_read_where_they_are_json() -> None:
    settings = read_settings(
        Settings,
        {"model": "2024_01", "limits.k_max": "7", "replicas.http": "[1,3]", "index": "null"},
    )
    assert (settings.model, settings.index) == ("2024_01", None)
    assert (settings.limits.k_max, settings.replicas.http) == (7, (1, 3))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "m", "limits.k_maks": 3}, r"limits\.k_maks: .*did you mean limits\.k_max\?"),
        ({"modle": "m"}, r"modle: .*did you mean model\?"),
        ({"model": "m", "limits": "[1"}, r"limits: '\[1' is not JSON"),
    ],
)
def test_what_is_no_setting_is_refused_with_the_nearest(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_settings(Settings, values)


@pytest.mark.parametrize(
    "name", ["rate.per_s", "rate.burst", "limits.timeout_s", "limits.concurrent_requests"]
)
@pytest.mark.parametrize("value", [0, -5])
def test_a_limit_that_no_request_can_keep_is_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        read_settings(Settings, {"model": "m", name: value})
