"""Settings of finetune's optimizer in the run of pretrain."""

import pytest

from biovl.finetune.config import FinetuneOptim, default, locked_text
from biovl.pretrain.config import OptimConfig


def test_the_run_of_pretrain_has_the_same_settings() -> None:
    assert default().optim.in_pretrain(205) == OptimConfig(
        peak_lr=1e-5, warmup_steps=20, weight_decay=0.2, clip_grad_norm=1.0, layer_decay=0.75
    )
    assert locked_text().optim.in_pretrain(10).locked == "text"
    optim = FinetuneOptim(
        name="timm/lion",
        settings={"betas": (0.9, 0.95)},
        locked="both",
        image_unlocked_groups=2,
        text_unlocked_layers=0,
        text_lr_factor=0.1,
        layer_decay=(0.7, 0.9),
    )
    run = optim.in_pretrain(0)
    assert (run.name, run.settings) == ("timm/lion", {"betas": (0.9, 0.95)})
    assert (run.locked, run.image_unlocked_groups, run.text_unlocked_layers) == ("both", 2, 0)
    assert (run.text_lr_factor, run.layer_decays) == (0.1, (0.7, 0.9))


def test_settings_that_pretrain_refuses_are_refused() -> None:
    with pytest.raises(ValueError, match="text_unlocked_layers"):
        FinetuneOptim(text_unlocked_layers=1)
