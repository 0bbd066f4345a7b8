"""The card of published figures."""

import pytest
from huggingface_hub import DatasetCard

from biovl.publish.figures import card


@pytest.mark.parametrize("name", ["figures-2024", "2024", "on", "1e5"])
def test_the_name_of_a_repository_is_text_for_the_hub(name: str) -> None:
    found = DatasetCard(card("figures", name, ["cc-by-4.0", "other"]).decode()).data
    assert (found.pretty_name, found.license) == (name, ["cc-by-4.0", "other"])
    assert [each["config_name"] for each in found.to_dict()["configs"]] == ["figures", "articles"]
