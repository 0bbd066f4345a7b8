"""The card of a fine-tuned model."""

import pytest
from huggingface_hub import ModelCard

from biovl.core.artifacts import Manifest
from biovl.core.plugins import Plugin
from biovl.finetune.card import model_card
from biovl.finetune.config import FinetuneConfig

TEST = {"before": 0.1, "after": 0.2, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.01}


@pytest.mark.parametrize(
    ("spdx", "group", "expected"),
    [
        ("CC-BY-4.0", "commercial", ("cc-by-4.0", None)),
        ("CC-BY-NC-4.0", "noncommercial", ("other", "data-in-part-noncommercial")),
    ],
)
def test_the_hub_reads_the_licence_of_the_data(spdx, group, expected) -> None:
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
        model="given",
        corpus="corpus",
        out="out",
        retained={"kinds": Plugin("zero_shot", {"data": "d"})},
    )
    stats = {"licenses": [{"license": spdx}], "license_groups": [{"license_group": group}]}
    found = ModelCard(model_card(manifest, config, stats))
    assert (found.data.license, found.data.license_name) == expected
    assert found.data.library_name == "open_clip"
    assert found.text.lstrip().startswith("# Fine-tuned model")
