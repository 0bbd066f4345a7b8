import copy

import numpy as np
import open_clip
import pytest
import timm
import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.model import CustomTextCLIP
from torch import nn
from transformers import BertConfig, ModernBertConfig, ModernBertModel

from biovl.pretrain import hardware
from biovl.pretrain.flops import (
    ForwardCost,
    TextCost,
    Window,
    forward_cost,
    seen_pairs,
    structure,
    text_cost,
    training_flops,
)

GIGA = 1e9


def clip(name: str, **vision) -> CustomTextCLIP:
    config = copy.deepcopy(open_clip.get_model_config(name))
    config["vision_cfg"].update(vision)
    with torch.device("meta"):
        return CustomTextCLIP(**config)


def bert() -> nn.Module:
    with torch.device("meta"):
        tower = HFTextEncoder(
            "ignored",
            512,
            config=BertConfig(vocab_size=30_522),
            pooler_type="cls_last_hidden_state_pooler",
            proj_type="mlp",
        )
    # open_clip builds the tower of a released model without this layer, which CLIP does not use.
    tower.transformer.pooler = None
    return tower


def modern_bert() -> nn.Module:
    with torch.device("meta"):
        tower = HFTextEncoder(
            "ignored",
            512,
            config=BertConfig(num_hidden_layers=1),
            pooler_type="mean_pooler",
            proj_type="linear",
        )
        tower.config = ModernBertConfig()
        tower.transformer = ModernBertModel(tower.config)
    return tower


# The numbers of open_clip's docs/model_profile.csv; patch dropout leaves 98 of 196 patches.
@pytest.mark.parametrize(
    ("name", "patch_dropout", "image", "text_77"),
    [
        ("ViT-B-16", 0.0, 35.13, 5.96),
        ("ViT-B-16", 0.5, 17.41, 5.96),
        ("ViT-L-14", 0.0, 162.03, 13.30),
    ],
)
def test_the_towers_of_openai_cost_what_open_clip_publishes(
    name: str, patch_dropout: float, image: float, text_77: float
) -> None:
    cost = forward_cost(clip(name, patch_dropout=patch_dropout))
    assert cost.image / GIGA == pytest.approx(image, abs=0.01)
    assert cost.text([77])[0] / GIGA == pytest.approx(text_77, abs=0.01)


def test_a_timm_tower_costs_the_same_as_open_clips_own() -> None:
    model = clip(
        "ViT-B-16", timm_model_name="vit_base_patch16_224", timm_pool="", timm_proj="linear"
    )
    assert forward_cost(model).image / GIGA == pytest.approx(35.13, abs=0.02)


def test_a_residual_network_is_counted_too() -> None:
    assert forward_cost(clip("RN50")).image / GIGA == pytest.approx(12.22, abs=0.01)


def test_bert_at_256_tokens() -> None:
    # 12 layers of 24 L d² + 4 L² d, and the projection 768 -> 640 -> 512 of one token.
    layers = 12 * (24 * 256 * 768**2 + 4 * 256**2 * 768)
    projection = 2 * (768 * 640 + 640 * 512)
    assert text_cost(bert())([256])[0] == pytest.approx(layers + projection, rel=1e-9)


def test_modern_bert_pays_for_its_windows_only() -> None:
    counted = text_cost(modern_bert())([512])[0]
    # d 768, MLP 1152 with a gate; 8 layers see all, 14 see 64 tokens on either side.
    matrices = 22 * 512 * 2 * (4 * 768**2 + 3 * 768 * 1152)
    near = sum(abs(i - j) <= 64 for i in range(512) for j in range(512))
    attention = 4 * 768 * (8 * 512**2 + 14 * near)
    assert counted == pytest.approx(matrices + attention + 2 * 768 * 512, rel=1e-9)
    assert counted / GIGA == pytest.approx(122, abs=0.5)


def test_the_law_holds_between_the_lengths_it_was_counted_at() -> None:
    law = text_cost(clip("ViT-B-16").text.train())
    width, layers = 512, 12
    for length in (1, 7, 50, 77):
        by_hand = layers * (24 * length * width**2 + 4 * length**2 * width) + 2 * width * 512
        assert law([length])[0] == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("reach", [1, 3, 64])
def test_seen_pairs_are_those_of_a_double_loop(reach: int) -> None:
    for tokens in (0, 1, 2, 5, 70):
        loop = sum(abs(i - j) <= reach for i in range(tokens) for j in range(tokens))
        assert seen_pairs(np.array([tokens]), reach)[0] == loop


def test_training_costs_three_forward_passes() -> None:
    # Image 100; a caption of 2 tokens costs 1 + 2·10 + 4·3 + 4 pairs·5 = 53, of 1 token 19.
    cost = ForwardCost(100, TextCost(1, 10, 3, (Window(1, 5),)))
    assert training_flops(cost, [2, 1]) == 3 * (200 + 53 + 19)


def test_counting_leaves_a_model_with_weights_as_it_is() -> None:
    tower = timm.create_model("vit_tiny_patch16_224", num_classes=0, depth=1)
    text = clip("ViT-B-32").text
    model = nn.Module()
    model.visual, model.text = tower.eval(), text
    tower.image_size = 224
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    forward_cost(model)
    assert not tower.training
    assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("driver_says", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA A100-PCIE-40GB", "A100-40"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-32GB", "V100-32"),
    ],
)
def test_accelerators_are_known_by_their_drivers_name(driver_says: str, name: str) -> None:
    found = hardware.find_accelerator(driver_says)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("driver_says", ["NVIDIA A100-SXM4-80GB MIG 1g.10gb", "Some GPU"])
def test_the_peak_of_an_unknown_accelerator_is_not_guessed(driver_says: str) -> None:
    assert hardware.find_accelerator(driver_says) is None


def test_a_cpu_is_no_accelerator() -> None:
    assert hardware.detect(torch.device("cpu")) is None


def test_a_v100_has_no_bfloat16() -> None:
    v100 = hardware.find_accelerator("Tesla V100-SXM2-32GB")
    assert v100 is not None
    assert v100.peak_flops("bf16") is None
    assert v100.peak_flops("fp32") == 15.7e12


def test_a_structure_is_that_of_any_other_weights_and_of_no_other_settings() -> None:
    def block(**changes) -> nn.Module:
        return nn.TransformerEncoderLayer(**{"d_model": 16, "nhead": 2, "dropout": 0.1, **changes})

    known = structure(block())
    assert structure(block()) == structure(block().to("meta")) == known
    locked, half = block(), block().bfloat16()
    locked.linear1.weight.requires_grad_(False)
    others = [
        # No size of a tensor differs in the first three.
        *(block(nhead=4), block(dropout=0.2), block().eval()),
        *(block(dim_feedforward=64), locked, half),
    ]
    assert len({structure(other) for other in others} | {known}) == len(others) + 1


def test_structures_of_transformers_differ_by_their_configuration() -> None:
    towers = [bert(), bert()]
    assert structure(towers[0]) == structure(towers[1])
    towers[1].transformer.config.hidden_dropout_prob = 0.3
    assert structure(towers[0]) != structure(towers[1])


def test_the_cost_of_a_model_is_that_of_its_own_structure() -> None:
    large, small = (forward_cost(clip(name)) for name in ("ViT-B-16", "ViT-B-32"))
    assert large == forward_cost(clip("ViT-B-16"))
    assert large.image > 3 * small.image
    assert large.text == small.text
