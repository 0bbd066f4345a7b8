"""The table of open_clip's flags: all of them, and settings that exist."""

import argparse
import math
import re
from pathlib import Path
from unittest import mock

import pytest
import torch
from open_clip_train import params

from biovl.core import config as configs
from biovl.core.plugins import Plugin
from biovl.models.builders import open_clip
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.models import build, complete_model

PAGE = Path(__file__).parents[2] / "docs/pretrain.md"


def flags() -> set[str]:
    """The flags of the installed open_clip."""
    with mock.patch.object(argparse.ArgumentParser, "parse_args", autospec=True) as parse:
        parse.side_effect = StopIteration
        with pytest.raises(StopIteration):
            params.parse_args([])
    (parser, _), _ = parse.call_args
    return {option for action in parser._actions for option in action.option_strings}


def rows() -> list[tuple[str, str]]:
    """The two columns of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("## Coming from open_clip\n")[2]
    section = section.partition("\n## ")[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| (.+?) \| (.+) \|$", section, re.M)]


def test_every_flag_of_open_clip_is_in_the_table_once() -> None:
    listed = [flag for left, _ in rows() for flag in re.findall(r"`(--[a-z0-9-]+)`", left)]
    assert len(listed) == len(set(listed))
    assert set(listed) == flags() - {"-h", "--help"}


def test_the_settings_of_the_table_exist() -> None:
    paths = list(configs.defaults(PretrainConfig))
    # Settings, and the sections that hold them.
    known = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    known |= {f"model.{name}" for (name,) in configs.defaults(open_clip.Config)}
    known |= {"batch.pairs"}
    named = {
        name
        for _, right in rows()
        for name in re.findall(r"`([a-z]+\.[a-z_]+)(?=[=`.])", right)
        if not name.endswith((".json", ".jsonl"))
    }
    assert len(named) > 30
    assert named <= known


SMALL = {
    "embed_dim": 8,
    "vision_cfg": {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"layers": 1, "width": 16, "heads": 2},
    "image_size": 16,
    "context_length": 8,
}


def initial(model: dict = SMALL, **changes: object) -> tuple[float, float | None]:
    """Scale and bias of the similarities before the first step."""
    values = {"corpus": "c", "out": "o", "batch.pairs": 4, "model": {"name": "open_clip", **model}}
    config = complete_model(configs.build(PretrainConfig, {**values, **changes}))
    built = build(config.model, with_weights=True).model
    bias = built.logit_bias
    return built.logit_scale.exp().item(), None if bias is None else bias.item()


def test_siglip_begins_with_the_scale_and_bias_of_open_clip() -> None:
    assert initial(**{"step.loss": "siglip"}) == pytest.approx((10, -10))
    assert initial()[1] is None


def test_a_scale_and_a_bias_that_are_set_stay() -> None:
    loss = {"step.loss": "siglip"}
    scale = {**SMALL, "init_logit_scale": math.log(20)}
    assert initial(scale, **loss) == pytest.approx((20, -10))
    # A bias that is set made a complete model before: published ones stay what they are.
    bias = {**SMALL, "init_logit_bias": -5.0}
    assert initial(bias, **loss) == pytest.approx((1 / 0.07, -5))


def test_weights_bring_their_scale_and_the_bias_that_they_have(tmp_path: Path) -> None:
    saved = build(Plugin("open_clip", {**SMALL, "init_logit_bias": -3.0}), with_weights=True)
    saved.model.logit_scale.data.fill_(math.log(50))
    state = saved.model.state_dict()
    torch.save(state, tmp_path / "siglip.pt")
    del state["logit_bias"]
    torch.save(state, tmp_path / "clip.pt")
    for name, bias in (("siglip", -3), ("clip", -10)):
        model = {**SMALL, "weights": str(tmp_path / f"{name}.pt")}
        assert initial(model, **{"step.loss": "siglip"}) == pytest.approx((50, bias))
