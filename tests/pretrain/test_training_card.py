import functools
from dataclasses import replace

import pytest
import yaml

from biovl.core.artifacts import Manifest
from biovl.core.plugins import Plugin
from biovl.models.builders.open_clip import Config, Described, describe
from biovl.pretrain.card import model_card
from biovl.pretrain.config import BatchConfig, OptimConfig, PretrainConfig
from biovl.pretrain.mixture import SAME_ARTICLE, CorpusShare, Mixture

CONFIG = PretrainConfig(
    corpus="s3://bucket/corpus",
    out="s3://bucket/model",
    model=Plugin("open_clip", {"architecture": "ViT-B-32", "image_weights": "s3://bucket/vit.pt"}),
    epochs=2,
    batch=BatchConfig(pairs=64, later={1: 128}),
    optim=OptimConfig(peak_lr=1e-4),
)

TINY = {"layers": 2, "width": 64}


@functools.cache
def described(**text) -> Described:
    return describe(
        Config(
            embed_dim=32,
            vision_cfg={**TINY, "image_size": 64, "patch_size": 32, "head_width": 32},
            text_cfg=text or {**TINY, "context_length": 77, "heads": 2},
            **({"text_transformer": SMALL_BERT} if text else {}),
        )
    )


SMALL_BERT = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}


def stats(*licenses: tuple[str | None, str, int]) -> dict:
    rows = [
        {"license": spdx, "license_group": group, "articles": 1, "images": images}
        for spdx, group, images in licenses
    ]
    groups: dict[str, int] = {}
    for _, group, images in licenses:
        groups[group] = groups.get(group, 0) + images
    return {
        "licenses": rows,
        "license_groups": [
            {"license_group": group, "articles": 1, "images": images}
            for group, images in groups.items()
        ],
        "journals": {"top": [{"journal": "eLife"}], "articles_without": 0},
        "corpus": {"images": sum(images for *_, images in licenses), "articles": len(licenses)},
    }


BY = ("CC-BY-4.0", "commercial", 60)
ZERO = ("CC0-1.0", "commercial", 20)
NC_ND = ("CC-BY-NC-ND-4.0", "noncommercial", 30)
RESERVED = (None, "other", 10)


def scores(recall: float) -> dict[str, float]:
    found = {f"{way}_recall_at_1": recall for way in ("image_to_text", "text_to_image")}
    chance = {"chance_recall_at_1": 0.001, "chance_loss": 6.908, "loss_block": 1000}
    return {**found, **chance, "loss": 1.5, "pairs": 1000}


def share(uri: str, *, train: int, draws: int | None = None, left_out: int = 0) -> CorpusShare:
    pairs = {"train": train + left_out, "val": 10, "test": 10}
    return CorpusShare(
        uri=uri,
        manifest=Manifest(kind="corpus", config={}, counts={"pairs": pairs}),
        pairs=train,
        draws=draws or train,
        left_out={SAME_ARTICLE: left_out} if left_out else {},
    )


def card(**changes) -> str:
    usual = {
        "config": CONFIG,
        "model": described(),
        "mixture": Mixture((share("s3://bucket/corpus", train=80),)),
        "stats": stats(BY, NC_ND, RESERVED),
        "fingerprints": ["ab" * 32],
        "rows": [
            *({"step": n, "loss": 9.0, "pairs": 64} for n in range(1, 29)),
            {"step": 29, "loss": 4.0, "pairs": 128, "pairs_per_s": 100.0, "step_s": 36.0},
            {
                **{"step": 30, "loss": 2.0, "pairs": 128, "pairs_per_s": 300.0},
                **{"step_s": 36.0, "mfu": 0.25},
            },
        ],
        "scores": {0: scores(0.25), 1: scores(0.5)},
        "epoch": 1,
        "plots": ["loss.png", "recall.png"],
        "code": "biovl 0.1.0",
    }
    return model_card(**{**usual, **changes})


def front_matter(text: str) -> dict:
    _, values, _ = text.split("---\n", 2)
    return yaml.safe_load(values)


@pytest.mark.parametrize(
    ("licenses", "spdx", "name"),
    [
        ([ZERO], "cc0-1.0", None),
        ([ZERO, BY], "cc-by-4.0", None),
        ([BY, ("CC-BY-SA-4.0", "commercial", 1)], "other", "data-of-several-licences"),
        ([BY, NC_ND], "other", "data-in-part-noncommercial"),
        ([BY, NC_ND, RESERVED], "other", "data-in-part-all-rights-reserved-or-custom"),
    ],
)
def test_the_licence_is_no_freer_than_the_data(licenses, spdx, name) -> None:
    found = front_matter(card(stats=stats(*licenses)))
    assert (found["license"], found.get("license_name")) == (spdx, name)
    # On the Hub it is LICENSE, LICENSE.md or a URL.
    assert "license_link" not in found
    assert found["library_name"] == "open_clip"
    assert found["pipeline_tag"] == "zero-shot-image-classification"


def test_scores_say_if_initial_weights_may_have_been_trained_on_their_pairs() -> None:
    but = "; what the initial weights were trained on was not compared."
    assert but in card()
    scratch = Plugin("open_clip", {"architecture": "ViT-B-32", "image_weights": ""})
    text = card(config=replace(CONFIG, model=scratch))
    assert "Pairs share no article and no group with those of training." in text


def test_the_licence_of_a_fork_is_no_freer_than_the_data_of_the_runs_before() -> None:
    entry = {
        **{"run": "s3://bucket/first", "step": 20, "pairs": 640, "checkpoint_sha256": "c" * 64},
        **{
            "changed": [],
            "seen_val": 0,
            "corpora": ["s3://bucket/corpus", "s3://KEY:SECRET@old/private?region=eu"],
        },
    }
    own = {**entry, "corpora": ["s3://bucket/corpus", "s3://bucket//corpus/"]}
    assert front_matter(card(stats=stats(BY), lineage=[own]))["license"] == "cc-by-4.0"
    text = card(stats=stats(BY), lineage=[entry])
    assert front_matter(text)["license"] == "other"
    assert "trained on `private` before, whose terms hold, too" in text
    assert "SECRET" not in text
    assert "region=eu" not in text


def test_the_hub_links_to_initial_weights_that_it_has() -> None:
    given = {"architecture": "hf-hub:owner/name", "weights": "hf-hub:owner/name@abc"}
    text = card(config=replace(CONFIG, model=Plugin("open_clip", given)))
    assert front_matter(text)["base_model"] == "owner/name"
    assert "base_model" not in front_matter(card())


def test_data_that_is_not_free_is_named_plainly() -> None:
    text = card()
    assert "* 30 (30.0%) may be used for **noncommercial purposes only**." in text
    assert "* 30 (30.0%) are under licences that allow **no derivatives**." in text
    assert "* 10 (10.0%) are under **custom, reserved or no stated terms**." in text
    assert "| CC-BY-NC-ND-4.0 | noncommercial | 1 | 30 |" in text
    assert "| none stated | other | 1 | 10 |" in text
    assert "noncommercial" not in card(stats=stats(BY, ZERO))


def test_scores_stand_beside_the_pairs_they_were_found_among_and_chance() -> None:
    text = card()
    assert "| epoch | pairs | loss | image → text R@1 | text → image R@1 |" in text
    assert "| 1 | 1,000 | 1.500 | 25.0% | 25.0% |" in text
    assert "| 2 (this model) | 1,000 | 1.500 | 50.0% | 50.0% |" in text
    assert "| by chance | 1,000 | 6.908 | 0.1% | 0.1% |" in text
    assert "It was not validated" in card(scores={})


def test_what_it_is_and_how_it_was_trained() -> None:
    text = card(hardware="8 x NVIDIA H200")
    model = described().model
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in text
    assert "| image | ViT of 2 layers, width 64, patches of 32 px (open_clip) |" in text
    assert "| start | the image tower from `s3://bucket/vit.pt` |" in text
    assert "| batch | 64 pairs, 128 from epoch 2 |" in text
    assert "| training loss at the end | 3.000 |" in text
    assert "| time of all steps | 0.02 h |" in text
    assert "| pairs/s | 200 |" in text
    assert "| model FLOPs utilisation | 25.0% |" in text
    assert "| hardware | 8 x NVIDIA H200 |" in text
    assert "ab" * 32 in text


def test_settings_that_were_changed_stand_out() -> None:
    text = card()
    assert "| `optim.peak_lr` | 0.0005 | 0.0001 |" in text
    assert "| `epochs` | 32 | 2 |" in text
    settings = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    assert settings["optim"]["peak_lr"] == 1e-4
    # The folders are named in the manifest.
    assert "corpus" not in settings
    assert card(config=replace(CONFIG, profile=4)) == text


def test_a_model_with_a_tower_of_transformers_says_what_open_clip_needs() -> None:
    text = card(
        model=described(hf_model_name="some/bert", hf_pooler_type="cls_last_hidden_state_pooler")
    )
    assert "under `some/bert`, on the hub or in the local cache" in text
    assert 'create_model_and_transforms("local-dir:model")' in text
    assert "on the hub" not in card()


def test_curves_that_are_there_are_shown() -> None:
    text = card()
    assert "](plots/loss.png)" in text
    assert "](plots/throughput.png)" not in text


def test_random_weights_are_called_so() -> None:
    started = replace(CONFIG, model=Plugin("open_clip", {}))
    assert "| start | random weights |" in card(config=started)


def test_several_corpora_are_listed_by_the_names_of_their_folders() -> None:
    parts = (
        share("s3://private/biomedica", train=60),
        share("s3://private/longcap", train=20, draws=40, left_out=3),
    )
    text = card(
        config=replace(CONFIG, corpus=tuple(part.uri for part in parts)),
        mixture=Mixture(parts),
        fingerprints=["ab" * 32, "cd" * 32],
    )
    assert "| longcap | 20 | 3 | 40 (40.0%) | `" + "cd" * 32 in text
    assert "Scores are of val of the first one" in text
    assert "private" not in text.split("## Settings")[0]
