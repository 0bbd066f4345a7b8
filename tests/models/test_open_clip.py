"""Settings become the towers they name, and those that could not be loaded again are refused."""

import json

import open_clip as stock
import pytest
import timm.layers
import torch

from biovl.core import config
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin, make
from biovl.models.builders import open_clip
from biovl.pretrain import config as pretrain_config

VISION = {"layers": 2, "width": 64, "head_width": 32, "patch_size": 16, "image_size": 48}
TEXT = {"width": 32, "heads": 2, "layers": 2, "context_length": 16}
PUBMEDBERT = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
MODERNBERT = "thomas-sounack/BioClinical-ModernBERT-base"


def describe(**settings):
    base = (
        {}
        if "architecture" in settings
        else {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT}
    )
    return open_clip.describe(config.build(open_clip.Config, {**base, **settings}))


def of_recipe(name, **changes):
    plugin = pretrain_config.RECIPES[name]().model.settings
    return open_clip.describe(config.build(open_clip.Config, config._merged(plugin, changes)))


def stock_cfg(described, folder, shape):
    """What stock open_clip would pass on after reading our file, its text tower looked up."""
    cfg = json.loads(json.dumps(described.model_cfg))
    cfg.pop("custom_text")
    if "hf_model_name" in cfg["text_cfg"]:
        (folder / "config.json").write_text(json.dumps(shape.to_dict()))
        cfg["text_cfg"] |= {"hf_model_name": str(folder), "hf_model_pretrained": False}
    return cfg


@pytest.mark.parametrize(
    "name", [name for name in pretrain_config.RECIPES if not name.startswith("bmc_long")]
)
def test_stock_open_clip_builds_the_same_tensors_from_what_is_published(name, tmp_path):
    ours = of_recipe(name)
    cfg = stock_cfg(ours, tmp_path, getattr(ours.model.text, "config", None))
    with torch.device("meta"):
        theirs = stock.model.CustomTextCLIP(**cfg)
    shapes = {key: value.shape for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in ours.model.state_dict().items()} == shapes


def test_a_plugin_is_built_from_its_description():
    built = make(
        "models.builders",
        Plugin("open_clip", {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT}),
    )
    assert built.tokenizer.context_length == built.context_length == 16
    assert isinstance(built.model, stock.model.CustomTextCLIP)
    assert built.model.logit_scale.item() == pytest.approx(2.6592600)


def test_settings_replace_what_an_architecture_says():
    described = describe(architecture="ViT-B-16", vision_cfg={"layers": "3"}, image_size="96")
    assert len(described.model.visual.transformer.resblocks) == 3
    assert described.model.visual.image_size == (96, 96)
    assert described.model.visual.conv1.weight.shape == (768, 3, 16, 16)


def test_weights_that_need_other_inputs_are_taken_when_that_is_said():
    laion = {"architecture": "ViT-L-14", "weights": "laion2b_s32b_b82k"}
    with pytest.raises(ConfigError, match=r"image_mean=\[0.5, 0.5, 0.5\]"):
        describe(**laion)
    said = describe(**laion, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    assert said.mean == said.std == (0.5, 0.5, 0.5)


def test_what_the_folder_of_weights_states_of_its_inputs_holds(tmp_path):
    def folder(name, **cfg):
        preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
        model_cfg = {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT, **cfg}
        (tmp_path / name).mkdir()
        (tmp_path / name / "open_clip_config.json").write_text(
            json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess})
        )
        return str(tmp_path / name)

    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    with pytest.raises(ConfigError, match="quick_gelu=True"):
        describe(weights=folder("quick", quick_gelu=True), **half)
    plain = folder("plain")
    with pytest.raises(ConfigError, match="image_mean"):
        describe(weights=plain)
    assert describe(weights=plain, **half).preprocess == {"resize_mode": "squash"}
    file = f"{plain}/open_clip_model.safetensors"
    for setting in ("weights", "image_weights"):
        with pytest.raises(ConfigError, match="image_mean"):
            describe(**{setting: file})
    describe(text_weights=plain)
    for setting in ("image_weights", "text_weights"):
        with pytest.raises(ConfigError, match="quick_gelu=True"):
            describe(**{setting: str(tmp_path / "quick")}, **half)
    # The activation of a timm tower is its own.
    timm = {"timm_model_name": "vit_tiny_patch16_224"}
    describe(image_weights=str(tmp_path / "quick"), vision_cfg=timm, **half)


def test_a_tag_for_a_tower_needs_the_activation_of_the_tag():
    with pytest.raises(ConfigError, match="quick_gelu=True"):
        describe(architecture="ViT-B-32", text_weights="openai")
    describe(architecture="ViT-B-32-quickgelu", text_weights="openai", image_weights="openai")


def test_a_known_text_tower_can_be_made_shallower():
    for name, layers in (("biomedclip", "encoder.layer.2."), ("bmc_longclip_512", "layers.2.")):
        text = of_recipe(name, text_transformer={"num_hidden_layers": "3"}).model.text
        names = [parameter for parameter, _ in text.transformer.named_parameters()]
        assert any(parameter.startswith(layers) for parameter in names)
        assert not any(parameter.startswith(layers.replace("2", "3")) for parameter in names)


def test_patches_are_dropped_by_either_kind_of_image_tower():
    native = describe(patch_dropout=0.25).model.visual
    assert native.patch_dropout.prob == 0.25
    of_timm = of_recipe("biomedclip", patch_dropout=0.5).model.visual.trunk.patch_drop
    assert isinstance(of_timm, timm.layers.PatchDropout)
    assert of_timm.prob == 0.5


def test_text_dropout_is_of_hidden_states_and_never_of_attention():
    own, without = (
        of_recipe("biomedclip", **c).model.text.config for c in ({}, {"text_dropout": 0})
    )
    assert (own.hidden_dropout_prob, own.attention_probs_dropout_prob) == (0.1, 0.0)
    assert (without.hidden_dropout_prob, without.attention_probs_dropout_prob) == (0.0, 0.0)
    modern = of_recipe("bmc_longclip_512", text_dropout=0.2).model.text.config
    assert (modern.mlp_dropout, modern.embedding_dropout, modern.attention_dropout) == (0.2, 0.2, 0)


def test_a_sigmoid_model_has_a_bias():
    model = describe(init_logit_bias=-10, init_logit_scale=2.3).model
    assert model.logit_bias.shape == ()
    assert describe().model.logit_bias is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"architecture": "ViT-Q-7"}, "ViT-Q-7"),
        ({"architecture": "coca_ViT-B-32"}, "coca_ViT-B-32"),
        ({"architecture": "ViT-B-16-SigLIP"}, "text_cfg: "),
        ({"architecture": "ViT-B-16", "weights": "openai"}, "quick_gelu=True"),
        ({"architecture": "RN50", "patch_dropout": 0.5}, "patch_dropout: "),
        (
            {"vision_cfg": {"timm_model_name": "vit_base_patch16_224"}, "image_size": 96},
            "224 px",
        ),
        ({"vision_cfg": {"timm_model_name": "vit_of_nobody"}}, "vit_of_nobody"),
        ({"vision_cfg": {**VISION, "image_size": [48, 32]}}, r"image_size .*48, 32"),
        ({"text_cfg": {**TEXT, "pool_type": "last"}}, "padded"),
        ({"text_cfg": {**TEXT, "no_causal_mask": True}}, "padded"),
        ({"text_transformer": {"model_type": "bert"}}, "hf_model_name"),
        ({"text_cfg": {"hf_model_name": PUBMEDBERT}, "context_length": 600}, r"\b512\b"),
        ({"text_cfg": {"hf_model_name": "x"}, "text_transformer": {"model_type": "gpt2"}}, "gpt2"),
        ({"text_cfg": {}}, "architecture.*embed_dim, vision_cfg.*text_cfg"),
        ({"patch_dropout": 1}, "patch_dropout"),
        ({"text_cfg": {**TEXT, "heads": 3}}, "must be divisible by num_heads"),
        ({"vision_cfg": {**VISION, "head_width": 256}}, "num_heads must be greater than 0"),
        (
            {
                "text_cfg": {"hf_model_name": "x"},
                "text_transformer": {"model_type": "bert", "num_attention_heads": 7},
            },
            "not a multiple of the number of attention heads",
        ),
        ({"image_size": 8}, "smaller than its patches"),
        ({"image_std": [0.5, 0, 0.5]}, r"image_std\.1: .*greater than 0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        describe(**settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_cfg": {"vision_cfg": VISION, "text_cfg": TEXT}},
        {"preprocess_cfg": None},
        {"preprocess_cfg": {"mean": [0.5]}},
        {"preprocess_cfg": {"std": 0.5}},
    ],
)
def test_a_configuration_that_is_none_of_open_clip_is_named(changes, tmp_path):
    whole = {"model_cfg": {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(whole))
    of_folder = config.build(open_clip.Config, {"architecture": str(tmp_path)})
    assert open_clip.describe(of_folder).model_cfg["embed_dim"] == 24
    (tmp_path / "open_clip_config.json").write_text(json.dumps({**whole, **changes}))
    with pytest.raises(ArtifactError, match="is not an open_clip configuration"):
        open_clip.describe(of_folder)


def test_a_shape_nobody_knows_is_asked_for(tmp_path):
    with pytest.raises(ArtifactError, match="set text_transformer"):
        describe(text_cfg={"hf_model_name": str(tmp_path / "absent")})


def test_roberta_reads_two_tokens_fewer_than_it_has_positions():
    shape = {"model_type": "roberta", "max_position_embeddings": 42, "pad_token_id": 1}
    settings = {"text_cfg": {"hf_model_name": "x"}, "text_transformer": shape}
    assert describe(**settings, context_length=40).context_length == 40
    with pytest.raises(ConfigError, match=r"\b40\b"):
        describe(**settings, context_length=41)


def test_modernberts_of_before_transformers_5_keep_their_pattern_of_attention(tmp_path):
    old = {"model_type": "modernbert", "num_hidden_layers": 4, "global_attn_every_n_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(old))
    text = describe(text_cfg={"hf_model_name": str(tmp_path)}).model.text
    assert text.config.layer_types == ["full_attention", "sliding_attention"] * 2


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(95))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    shape = {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2}
    shape |= {"num_hidden_layers": 1, "intermediate_size": 8}
    for changes, reason in (
        ({"vocab_size": 99}, r"\b100 .* 99\b"),
        ({"vocab_size": 100, "pad_token_id": 1}, r" 0, .* 1\b"),
    ):
        settings = {
            **{"embed_dim": 24, "vision_cfg": VISION, "text_cfg": {"hf_model_name": "x"}},
            **{"text_transformer": {**shape, **changes}, "tokenizer": str(tmp_path)},
        }
        with pytest.raises(ConfigError, match=reason):
            open_clip.build(config.build(open_clip.Config, settings))
