"""Search spaces: the ablation tables of the papers, with their columns and published scores.

A space is a recipe of the sweep job: rows (``settings``), the settings that all rows share
(``base``), and the columns of results. To add one, write a function and add it to ``SPACES``.

Sources:
    BiomedCLIP: Zhang et al., NEJM AI 2025, supplementary tables 1-9, on 13.6 k pairs of PMC-15M's
        val split. BMC-LongCLIP: Sun et al. 2025, table 1. BIOMEDICA: Lozano et al. 2025, section
        15.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from biovl.core.config import REQUIRED, Recipe
from biovl.sweep.config import Setting, SweepConfig

_LOSS_AND_RECALL = ("loss", "img2txt R@1", "txt2img R@1")
_RECALL = _LOSS_AND_RECALL[1:]
_BIOMEDCLIP = (
    "BiomedCLIP, supplementary table {}: trained on PMC-15M, scored on 13.6 thousand pairs of its "
    "val split. Recall and loss depend on the number of pairs, and the paper does not say in which "
    "batches it computed the loss: ours is that of blocks of 1,024."
)


def grid() -> SweepConfig:
    """A grid of any settings: set base.recipe and grid.NAME=[values]."""
    return SweepConfig(corpus=REQUIRED, out=REQUIRED, base={})


def context_length() -> SweepConfig:
    """BMC-LongCLIP, table 1, panel A: context of 77, 154, 512 tokens (on PMC's long captions)."""
    return _table(
        ["context"],
        ("", {"model.context_length": 77}, [77], 37.2, 59.8, 66.4, 42.5),
        ("", {"model.context_length": 154}, [154], 44.2, 64.9, 72.5, 48.8),
        ("", {"model.context_length": 512}, [512], 68.9, 84.3, 89.3, 71.2),
        base={"recipe": "bmc_longclip_512"},
        columns=("T2I R@1", "T2I R@5", "T2I R@10", "I2T R@1"),
        source="BMC-LongCLIP, table 1, panel A, batches of 8k, on its benchmark of 1,000 long "
        "captions of PMC articles of 2025; ours are pairs of val. Its CXR benchmark is MIMIC's.",
    )


def batch_size() -> SweepConfig:
    """BiomedCLIP, supplementary table 6: batches of 2k and 4k."""
    return _table(
        ["batch size"],
        ("", {"batch.pairs": 2_048}, ["2k"], 79.69, 78.43),
        ("", {"batch.pairs": 4_096}, ["4k"], 82.90, 81.86),
        base={"recipe": "biomedclip"},
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
    """BiomedCLIP, supplementary table 7: 40 epochs with batches of 4k, or 64k after the first 8."""
    return _table(
        ["batch size"],
        ("", {}, ["4k → 4k"], 83.98, 82.71),
        ("", {"batch.later": {"8": 65_536}}, ["4k → 64k"], 87.32, 86.66),
        base={"recipe": "biomedclip", "epochs": 40},
        columns=_RECALL,
        source=_BIOMEDCLIP.format(7),
    )


def text_encoder() -> SweepConfig:
    """BiomedCLIP, supplementary table 1: CLIP's text tower or PubMedBERT, 77 or 256 tokens."""
    epochs, bert = {"epochs": 8}, ("PubMedBERT", "30k domain specific")
    return _table(
        ["text encoder", "vocab", "context length"],
        ("biomedclip_gpt", epochs, ["GPT", "50k general domain", 77], 0.6626, 64.53, 63.56),
        ("biomedclip_context_77", epochs, [*bert, 77], 0.5776, 69.03, 67.41),
        ("biomedclip", epochs, [*bert, 256], 0.4807, 73.50, 72.26),
        source=_BIOMEDCLIP.format(1),
    )


def vit_size() -> SweepConfig:
    """BiomedCLIP, supplementary table 2: ViT-S, ViT-M and ViT-B, 8 epochs."""
    epochs = {"epochs": 8}
    return _table(
        ["vision encoder", "trainable params", "hidden dim"],
        ("biomedclip_vit_s", epochs, ["ViT-S/16", "22M", 384], 0.5342, 69.45, 68.02),
        ("biomedclip_vit_m", epochs, ["ViT-M/16", "39M", 512], 0.5063, 71.85, 70.22),
        ("biomedclip", epochs, ["ViT-B/16", "86M", 768], 0.4807, 73.50, 72.26),
        source=_BIOMEDCLIP.format(2),
    )


def initialisation() -> SweepConfig:
    """BiomedCLIP, supplementary table 3: an image tower from scratch or from ImageNet."""
    return _table(
        ["vision encoder", "initialization"],
        ("biomedclip_random", {}, ["ViT-B/16", "random initialization"], 0.3814, 83.15, 81.75),
        ("biomedclip", {}, ["ViT-B/16", "pretrained on ImageNet"], 0.3819, 82.90, 81.86),
        source=_BIOMEDCLIP.format(3),
    )


def image_size() -> SweepConfig:
    """BiomedCLIP, supplementary table 4: 224 or 384 px (table 5 has benchmarks of these models)."""
    return _table(
        ["image size"],
        ("biomedclip", {}, ["224px"], 1.00, 0.3819, 82.90, 81.86),
        ("biomedclip_384", {}, ["384px"], 1.92, 0.3406, 84.63, 83.56),
        columns=("training time", *_LOSS_AND_RECALL),
        source=_BIOMEDCLIP.format(4),
    )


def base_model() -> SweepConfig:
    """BiomedCLIP, supplementary table 8, trained on PMC-15M: OpenAI's CLIP or ImageNet/PubMed."""
    wit, own = "WIT-400M → PMC-15M", "ImageNet/PubMed → PMC-15M"
    return _table(
        ["config", "data"],
        ("biomedclip_rn50", {}, ["ResNet-50-224-GPT/77", wit], 81.17, 80.17),
        ("biomedclip_vit_b16_openai", {}, ["ViT-B/16-224-GPT/77", wit], 81.57, 80.89),
        ("biomedclip", {}, ["ViT-B/16-224-BERT/256", own], 82.90, 81.86),
        columns=_RECALL,
        source=_BIOMEDCLIP.format(8),
    )


def learning_rate() -> SweepConfig:
    """BIOMEDICA, section 15: learning rates of 1e-6, 1e-7, 1e-8; the paper chose the largest."""
    return _table(
        ["learning rate"],
        *(("", {"optim.peak_lr": rate}, [f"{rate:.0e}"]) for rate in (1e-6, 1e-7, 1e-8)),
        base={"recipe": "bmca_clip"},
        source="BIOMEDICA, section 15.2, gives no numbers: 1e-6 was the largest that trained "
        "stably.",
    )


def base_weights() -> SweepConfig:
    """BIOMEDICA, table 10: pretrained models of open_clip with 224 px and 77 tokens."""
    # The paper reports zero-shot accuracy; a sweep fine-tunes each model and reports retrieval.
    # "commonpool" is several sets of weights in open_clip: of ViT-L-14 the one that bmca_clip
    # starts from; of ViT-B-32 the paper does not say which, and this is the unfiltered one.
    rows = (
        ("ViT-L-14", "commonpool", "commonpool_xl_clip_s13b_b90k"),
        ("ViT-B-32", "laion2b", "laion2b_s34b_b79k"),
        ("ViT-L-14", "laion2b", "laion2b_s32b_b82k"),
        ("ViT-L-14", "datacomp", "datacomp_xl_s13b_b90k"),
        ("RN50-quickgelu", "openai", "openai"),
        ("ViT-B-32", "commonpool", "commonpool_m_s128m_b4k"),
        ("ViT-B-32", "datacomp", "datacomp_xl_s13b_b90k"),
        ("ViT-B-16", "laion2b", "laion2b_s34b_b88k"),
    )
    # The only models not trained with CLIP's image normalization.
    halves = {"model.image_mean": [0.5] * 3, "model.image_std": [0.5] * 3}
    own = {"laion2b_s32b_b82k": halves}
    return _table(
        ["model", "pretraining dataset"],
        *(
            (
                "",
                {"model.architecture": model, "model.weights": weights, **own.get(weights, {})},
                [model, data],
            )
            for model, data, weights in rows
        ),
        base={"recipe": "bmca_clip"},
        source="BIOMEDICA, table 10, scores base models without training, by accuracy on five "
        "classification tasks (ViT-L-14 of commonpool first, 38.5); so none of its numbers stands "
        "beside ours.",
    )


def _table(
    shown: Sequence[str],
    *rows: tuple[Any, ...],
    source: str,
    columns: Sequence[str] = _LOSS_AND_RECALL,
    base: Mapping[str, Any] | None = None,
) -> SweepConfig:
    """Return a table of a paper.

    Args:
        shown: Names of the values that identify a row.
        rows: The recipe, changed settings, values of ``shown``, and the scores, if there are any.
        source: Source of the scores.
        columns: Names of the scores.
        base: Settings that all rows share.
    """
    settings = [
        Setting(
            shown=dict(zip(shown, values, strict=True)),
            recipe=recipe,
            changes=changes,
            paper=dict(zip(columns, scores, strict=bool(scores))),
        )
        for recipe, changes, values, *scores in rows
    ]
    return SweepConfig(
        corpus=REQUIRED,
        out=REQUIRED,
        base=base or {},
        settings=tuple(settings),
        columns=tuple(columns),
        source=source,
    )


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
