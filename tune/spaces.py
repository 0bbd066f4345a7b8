"""Search spaces: the ablation tables of the papers, with their columns and published scores.

A space is a recipe of the sweep job: rows (``settings``), the settings that all rows share
(``base``), and the columns of results. To add one, write a function and add it to ``SPACES``.

Sources:
    BiomedCLIP: Zhang et al., NEJM AI 2025, supplementary tables 1-9, on 13.6 k pairs of PMC-15M's
        val split. BMC-LongCLIP: Sun et al. 2025, table 1. BIOMEDICA: Lozano et al. 2025, section
        15.
"""

from collections.abc import Sequence
from typing import Any

from biovl.core.config import REQUIRED, Recipe
from biovl.sweep.config import Setting, SweepConfig

_LOSS_AND_RECALL = ("loss", "img2txt R@1", "txt2img R@1")
_RECALL = _LOSS_AND_RECALL[1:]
_BIOMEDCLIP = "BiomedCLIP, supplementary table {}: trained on PMC-15M, scored on its val split."


def grid() -> SweepConfig:
    """A grid of any settings: set base.recipe and grid.NAME=[values]."""
    return SweepConfig(corpus=REQUIRED, out=REQUIRED, base={})


def context_length() -> SweepConfig:
    """BMC-LongCLIP, table 1, panel A: context of 77, 154, 512 tokens (on PMC's long captions)."""
    columns = ("T2I R@1", "T2I R@5", "T2I R@10", "I2T R@1")
    paper = {
        77: (37.2, 59.8, 66.4, 42.5),
        154: (44.2, 64.9, 72.5, 48.8),
        512: (68.9, 84.3, 89.3, 71.2),
    }
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "bmc_longclip_512"},
        settings=tuple(
            Setting(
                shown={"context": context},
                changes={"model.context_length": context},
                paper=dict(zip(columns, scores, strict=True)),
            )
            for context, scores in paper.items()
        ),
        columns=columns,
        source="BMC-LongCLIP, table 1, panel A, batches of 8k, on its benchmark of 1,000 long "
        "captions of PMC articles of 2025; ours are pairs of val. Its CXR benchmark is MIMIC's.",
    )


def batch_size() -> SweepConfig:
    """BiomedCLIP, table 6: batches of 2k and 4k."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "biomedclip"},
        settings=(
            _row({"batch size": "2k"}, {"batch.pairs": 2_048}, _RECALL, (79.69, 78.43)),
            _row({"batch size": "4k"}, {"batch.pairs": 4_096}, _RECALL, (82.90, 81.86)),
        ),
        columns=_RECALL,
        source=_BIOMEDCLIP.format(6),
    )


def context_x_batch() -> SweepConfig:
    """Every context of 77, 154, 256, 512 tokens with batches of 2k, 4k, 8k, 16k."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "bmc_longclip_512"},
        grid={
            "model.context_length": [77, 154, 256, 512],
            "batch.pairs": [2_048, 4_096, 8_192, 16_384],
        },
    )


def batch_schedule() -> SweepConfig:
    """BiomedCLIP, table 7: 40 epochs with batches of 4k, or of 64k after the first 8."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "biomedclip", "epochs": 40},
        settings=(
            _row({"batch size": "4k → 4k"}, {}, _RECALL, (83.98, 82.71)),
            _row(
                {"batch size": "4k → 64k"}, {"batch.later": {"8": 65_536}}, _RECALL, (87.32, 86.66)
            ),
        ),
        columns=_RECALL,
        source=_BIOMEDCLIP.format(7),
    )


def text_encoder() -> SweepConfig:
    """BiomedCLIP, table 1: CLIP's text tower or PubMedBERT, 77 or 256 tokens, 8 epochs."""
    rows = (
        ("biomedclip_gpt", "GPT", "50k general domain", 77, (0.6626, 64.53, 63.56)),
        (
            *("biomedclip_context_77", "PubMedBERT", "30k domain specific", 77),
            (0.5776, 69.03, 67.41),
        ),
        ("biomedclip", "PubMedBERT", "30k domain specific", 256, (0.4807, 73.50, 72.26)),
    )
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={},
        settings=tuple(
            Setting(
                shown={"text encoder": name, "vocab": vocab, "context length": context},
                recipe=recipe,
                changes={"epochs": 8},
                paper=dict(zip(_LOSS_AND_RECALL, scores, strict=True)),
            )
            for recipe, name, vocab, context, scores in rows
        ),
        source=_BIOMEDCLIP.format(1),
    )


def vit_size() -> SweepConfig:
    """BiomedCLIP, table 2: ViT-S, ViT-M and ViT-B, 8 epochs."""
    rows = (
        ("biomedclip_vit_s", "ViT-S/16", "22M", 384, (0.5342, 69.45, 68.02)),
        ("biomedclip_vit_m", "ViT-M/16", "39M", 512, (0.5063, 71.85, 70.22)),
        ("biomedclip", "ViT-B/16", "86M", 768, (0.4807, 73.50, 72.26)),
    )
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={},
        settings=tuple(
            Setting(
                shown={"vision encoder": n, "trainable params": size, "hidden dim": width},
                recipe=recipe,
                changes={"epochs": 8},
                paper=dict(zip(_LOSS_AND_RECALL, scores, strict=True)),
            )
            for recipe, n, size, width, scores in rows
        ),
        source=_BIOMEDCLIP.format(2),
    )


def initialisation() -> SweepConfig:
    """BiomedCLIP, table 3: an image tower from scratch or from ImageNet."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={},
        settings=tuple(
            Setting(
                shown={"vision encoder": "ViT-B/16", "initialization": words},
                recipe=recipe,
                paper=dict(zip(_LOSS_AND_RECALL, scores, strict=True)),
            )
            for recipe, words, scores in (
                ("biomedclip_random", "random initialization", (0.3814, 83.15, 81.75)),
                ("biomedclip", "pretrained on ImageNet", (0.3819, 82.90, 81.86)),
            )
        ),
        source=_BIOMEDCLIP.format(3),
    )


def image_size() -> SweepConfig:
    """BiomedCLIP, table 4: 224 or 384 px (its table 5 scores the same models on benchmarks)."""
    columns = ("training time", *_LOSS_AND_RECALL)
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={},
        settings=tuple(
            Setting(
                shown={"image size": size},
                recipe=recipe,
                paper=dict(zip(columns, scores, strict=True)),
            )
            for recipe, size, scores in (
                ("biomedclip", "224px", (1.00, 0.3819, 82.90, 81.86)),
                ("biomedclip_384", "384px", (1.92, 0.3406, 84.63, 83.56)),
            )
        ),
        columns=columns,
        source=_BIOMEDCLIP.format(4),
    )


def base_model() -> SweepConfig:
    """BiomedCLIP, table 8: fine-tuning of OpenAI's CLIP or of BiomedCLIP (trained rows only)."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={},
        settings=tuple(
            Setting(
                shown={"config": words, "data": data},
                recipe=recipe,
                paper=dict(zip(_RECALL, scores, strict=True)),
            )
            for recipe, words, data, scores in (
                (
                    *("biomedclip_rn50", "ResNet-50-224-GPT/77", "WIT-400M → PMC-15M"),
                    (81.17, 80.17),
                ),
                (
                    *("biomedclip_vit_b16_openai", "ViT-B/16-224-GPT/77", "WIT-400M → PMC-15M"),
                    (81.57, 80.89),
                ),
                (
                    *("biomedclip", "ViT-B/16-224-BERT/256", "ImageNet/PubMed → PMC-15M"),
                    (82.90, 81.86),
                ),
            )
        ),
        columns=_RECALL,
        source=_BIOMEDCLIP.format(8),
    )


def learning_rate() -> SweepConfig:
    """BIOMEDICA, section 15: learning rates of 1e-6, 1e-7, 1e-8; the paper chose the largest."""
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "bmca_clip"},
        settings=tuple(
            Setting(shown={"learning rate": f"{rate:.0e}"}, changes={"optim.peak_lr": rate})
            for rate in (1e-6, 1e-7, 1e-8)
        ),
        source="BIOMEDICA, section 15.2, gives no numbers: 1e-6 was the largest that trained "
        "stably.",
    )


def base_weights() -> SweepConfig:
    """BIOMEDICA, table 10: pretrained models of open_clip with 224 px and 77 tokens."""
    # The paper reports zero-shot accuracy; a sweep fine-tunes each model and reports retrieval.
    # "commonpool" is several sets of weights in open_clip: of ViT-L-14 the one that bmca_clip
    # starts from; of ViT-B-32 the paper does not say which, and this is the unfiltered one.
    rows = (
        ("ViT-L-14", "commonpool", "ViT-L-14", "commonpool_xl_clip_s13b_b90k"),
        ("ViT-B-32", "laion2b", "ViT-B-32", "laion2b_s34b_b79k"),
        ("ViT-L-14", "laion2b", "ViT-L-14", "laion2b_s32b_b82k"),
        ("ViT-L-14", "datacomp", "ViT-L-14", "datacomp_xl_s13b_b90k"),
        ("RN50-quickgelu", "openai", "RN50-quickgelu", "openai"),
        ("ViT-B-32", "commonpool", "ViT-B-32", "commonpool_m_s128m_b4k"),
        ("ViT-B-32", "datacomp", "ViT-B-32", "datacomp_xl_s13b_b90k"),
        ("ViT-B-16", "laion2b", "ViT-B-16", "laion2b_s34b_b88k"),
    )
    halves = {"model.image_mean": [0.5] * 3, "model.image_std": [0.5] * 3}
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base={"recipe": "bmca_clip"},
        settings=tuple(
            Setting(
                shown={"model": model, "pretraining dataset": data},
                changes={
                    "model.architecture": architecture,
                    "model.weights": weights,
                    # The only models not trained with CLIP's image normalization.
                    **(halves if weights == "laion2b_s32b_b82k" else {}),
                },
            )
            for model, data, architecture, weights in rows
        ),
        source="BIOMEDICA, table 10, scores base models without training, by accuracy on five "
        "classification tasks (ViT-L-14 of commonpool first, 38.5); so none of its numbers stands "
        "beside ours.",
    )


def _row(
    shown: dict[str, Any],
    changes: dict[str, Any],
    columns: Sequence[str],
    scores: Sequence[float],
) -> Setting:
    return Setting(shown=shown, changes=changes, paper=dict(zip(columns, scores, strict=True)))


SPACES: dict[str, Recipe[SweepConfig]] = {
    "grid": grid,
    "context_length": context_length,
    "batch_size": batch_size,
    "context_x_batch": context_x_batch,
    "batch_schedule": batch_schedule,
    "text_encoder": text_encoder,
    "vit_size": vit_size,
    "initialisation": initialisation,
    "image_size": image_size,
    "base_model": base_model,
    "learning_rate": learning_rate,
    "base_weights": base_weights,
}
