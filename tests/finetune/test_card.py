"""The card of a fine-tuned model."""

import pytest
from huggingface_hub import ModelCard

from biovl.core.artifacts import Manifest
from biovl.core.plugins import Plugin
from biovl.finetune.card import model_card
from biovl.finetune.config import FinetuneConfig

TEST = {"before": 0.1, "after": 0.2, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.01}


def card(model: str, spdx: str = "CC0-1.0", group: str = "commercial") -> ModelCard:
    """Return the card of a model, as the Hub reads it."""
    manifest = Manifest(
        kind="model",
        config={},
        counts={
            "pairs": {"train": 50, "val": 10, "test": 10},
            **{"verdict": "better", "alpha": 0.5, "published_epoch": 1, "epochs": 2},
        },
        notes={"test": TEST, "scores": [], "selection": "it gains"},
    )
    config = FinetuneConfig(
        model=model,
        corpus="corpus",
        out="out",
        retained={"kinds": Plugin("zero_shot", {"data": "d"})},
    )
    stats = {"licenses": [{"license": spdx}], "license_groups": [{"license_group": group}]}
    return ModelCard(model_card(manifest, config, stats))


@pytest.mark.parametrize(
    ("spdx", "group", "expected"),
    [
        ("CC-BY-4.0", "commercial", ("cc-by-4.0", None)),
        ("CC-BY-NC-4.0", "noncommercial", ("other", "data-in-part-noncommercial")),
    ],
)
def test_the_hub_reads_the_licence_of_the_data(spdx, group, expected) -> None:
    found = card("given", spdx, group)
    assert (found.data.license, found.data.license_name) == expected
    assert found.data.library_name == "open_clip"
    assert found.text.lstrip().startswith("# Fine-tuned model")


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("hf-hub:owner/name", "owner/name"),
        ("hf-hub:owner/name@abc", "owner/name"),
        ("ViT-B-32/openai", None),
        ("runs/local", None),
    ],
)
def test_the_hub_links_to_a_given_model_that_it_has(model, base) -> None:
    assert card(model).data.base_model == base
