"""The recipes are the papers' models and hyper-parameters, and build without a network."""

import dataclasses

import open_clip as stock
import pytest

from biovl.core import config
from biovl.core.errors import ConfigError
from biovl.models.builders import open_clip
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import OptimConfig, PretrainConfig
from biovl.sweep.spaces import SPACES

BIOMEDCLIP = [name for name in pretrain_config.RECIPES if name.startswith("biomedclip")]
BMCA = [name for name in pretrain_config.RECIPES if name.startswith("bmca")]
LONG = [name for name in pretrain_config.RECIPES if name.startswith("bmc_long")]


def run(name):
    values = {
        **config.recipe_settings(pretrain_config.RECIPES[name]()),
        "corpus": ["corpus", "longcap"] if name == "bmc_longclip_plus" else "corpus",
        "out": "out",
    }
    return config.build(PretrainConfig, values)


def described(name):
    return open_clip.describe(config.build(open_clip.Config, run(name).model.settings))


def millions(module):
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


# The papers' numbers. Timm's "ViT-S 22M" counts a classifier of 1,000 classes, which is no part
# of a tower, hence half a million of tolerance.
IMAGE_MILLIONS = {
    "biomedclip_vit_s": 22,
    "biomedclip_vit_m": 39,
    "biomedclip": 86,
    "biomedclip_384": 86,
    "bmca_clip": 304,
    "bmc_longclip_512": 304,
}


@pytest.mark.parametrize("name", IMAGE_MILLIONS)
def test_image_towers_have_the_papers_sizes(name):
    visual = described(name).model.visual
    assert millions(getattr(visual, "trunk", visual)) == pytest.approx(
        IMAGE_MILLIONS[name], abs=0.85
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [("biomedclip", 108.89), ("bmc_longclip_512", 149.01), ("biomedclip_gpt", 63.43)],
)
def test_text_towers_have_the_papers_sizes(name, size):
    text = described(name).model.text
    # BERT base (109.48 with its pooler, which is not used), ModernBERT base, and CLIP's text tower
    # as in ViT-B/16: "110M", "150M" and "63M".
    assert millions(text.transformer if name != "biomedclip_gpt" else text) == pytest.approx(
        size, abs=0.01
    )


@pytest.mark.parametrize("name", pretrain_config.RECIPES)
def test_every_recipe_builds_without_network_or_memory(name):
    model = described(name).model
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert {name.split(".")[0] for name, _ in model.named_parameters()} >= {"visual", "text"}


def test_contexts_images_and_embeddings_are_the_papers():
    found = {name: described(name) for name in pretrain_config.RECIPES}
    contexts = {name: model.context_length for name, model in found.items() if name != "tiny"}
    long = {"bmc_longclip_154": 154, "bmc_longclip_512": 512, "bmc_longclip_plus": 512}
    of_256 = {"", "_vit_s", "_vit_m", "_random", "_384", "_64k"}
    expected = dict.fromkeys(contexts, 77) | long | {f"biomedclip{end}": 256 for end in of_256}
    assert contexts == expected
    sizes = {name: model.image_size for name, model in found.items() if name != "tiny"}
    assert sizes == dict.fromkeys(sizes, 224) | {"biomedclip_384": 384}
    # Supplementary table 9 of BiomedCLIP; the others use the same.
    assert {model.mean for model in found.values()} == {(0.48145466, 0.4578275, 0.40821073)}
    assert {model.std for model in found.values()} == {(0.26862954, 0.26130258, 0.27577711)}


@pytest.mark.parametrize("name", BIOMEDCLIP)
def test_biomedclip_is_optimised_as_in_supplementary_table_9(name):
    table = {"peak_lr": 5e-4, "weight_decay": 0.2, "betas": (0.9, 0.98), "eps": 1e-6}
    table |= {"warmup_steps": 2_000, "schedule": "cosine", "clip_grad_norm": None}
    optim = dataclasses.asdict(run(name).optim)
    assert {key: optim[key] for key in table} == table
    assert run(name).seed == 0
    assert run(name).validation.every_epochs == 1


def test_biomedclips_epochs_and_batches_are_those_of_its_tables():
    epochs = {name: run(name).epochs for name in BIOMEDCLIP}
    eight = {"biomedclip_context_77", "biomedclip_gpt", "biomedclip_vit_s", "biomedclip_vit_m"}
    assert epochs == dict.fromkeys(BIOMEDCLIP, 32) | dict.fromkeys(eight, 8) | {
        "biomedclip_64k": 40
    }
    assert {run(name).batch.pairs for name in BIOMEDCLIP} == {4_096}
    growing = run("biomedclip_64k").batch
    assert [growing.of_epoch(epoch) for epoch in (0, 7, 8, 39)] == [4_096, 4_096, 65_536, 65_536]


@pytest.mark.parametrize("name", BMCA)
def test_bmca_clip_is_optimised_as_in_table_11(name):
    assert run(name).batch.pairs == 1024 * 4 * 2
    assert run(name).optim == OptimConfig(
        peak_lr=1e-6, betas=(0.9, 0.95), weight_decay=0.2, warmup_steps=1_000, clip_grad_norm=1.0
    )
    assert [run(name).epochs for name in BMCA] == [9, 27, 36]


@pytest.mark.parametrize("name", LONG)
def test_bmc_longclip_is_optimised_as_in_appendix_f(name):
    assert run(name).batch.pairs == 1024 * (16 if name == "bmc_longclip_plus" else 8)
    assert run(name).epochs == 20
    assert run(name).optim == OptimConfig(
        peak_lr=5e-4, betas=(0.9, 0.95), warmup_steps=1_000, clip_grad_norm=1.0
    )


def test_towers_start_from_the_papers_weights():
    settings = {name: run(name).model.settings for name in pretrain_config.RECIPES}
    assert settings["biomedclip"]["image_weights"].endswith(".augreg_in21k_ft_in1k")
    assert settings["biomedclip_random"]["image_weights"] == ""
    assert settings["biomedclip_random"]["text_weights"] == settings["biomedclip"]["text_weights"]
    assert settings["biomedclip_rn50"]["weights"] == "openai"
    assert described("biomedclip_rn50").model_cfg["quick_gelu"]
    # --pretrained in the scripts of BIOMEDICA's authors; all three start from the same.
    bmca = {settings[name]["weights"] for name in BMCA}
    assert bmca == {"commonpool_xl_clip_s13b_b90k"}
    assert "dfn2b_s39b" in settings["bmc_longclip_512"]["image_weights"]
    assert not any(key.endswith("weights") for key in settings["tiny"])


def test_open_clip_has_the_weights_that_recipes_and_sweeps_name():
    named = [run(name).model.settings for name in pretrain_config.RECIPES]
    for space in SPACES.values():
        for row in space().settings:
            found = config.nested(row.changes).get("model", {})
            named += [found] if "weights" in found else []
    pairs = {(model["architecture"], model["weights"]) for model in named if model.get("weights")}
    # Eight of the sweep base_weights, two of which recipes start from, and OpenAI's ViT-B/16.
    assert len(pairs) == 9
    published = set(stock.list_pretrained())
    for architecture, tag in pairs:
        plain = architecture.removesuffix("-quickgelu")
        assert {(architecture, tag), (plain, tag)} & published, (architecture, tag)


def test_the_sweep_over_base_weights_holds_what_bmca_clip_starts_from():
    rows = [row.changes for row in SPACES["base_weights"]().settings]
    own = run("bmca_clip").model.settings
    found = [(row["model.architecture"], row["model.weights"]) for row in rows]
    assert (own["architecture"], own["weights"]) in found


def test_a_text_tower_is_pooled_and_projected_as_published():
    biomed, long = described("biomedclip").model, described("bmc_longclip_512").model
    assert type(biomed.text.pooler).__name__ == "ClsLastHiddenStatePooler"
    assert [layer.weight.shape for layer in biomed.text.proj[::2]] == [(640, 768), (512, 640)]
    assert type(long.text.pooler).__name__ == "MeanPooler"
    assert biomed.text.transformer.pooler is None
    assert {name.split(".")[0] for name, _ in long.text.named_parameters()} == {
        "transformer",
        "proj",
    }


def test_tiny_builds_with_values_and_its_tokenizer():
    built = open_clip.build(config.build(open_clip.Config, run("tiny").model.settings))
    assert built.tokenizer.encode(["a"])[0].tolist() == [49406, 320, 49407]
    assert millions(built.model) < 8


def test_bmc_longclip_plus_refuses_a_single_corpus():
    plus = config.recipe_settings(pretrain_config.RECIPES["bmc_longclip_plus"]())
    with pytest.raises(ConfigError, match="list 2 corpora"):
        config.build(PretrainConfig, {**plus, "corpus": "corpus", "out": "out"})
