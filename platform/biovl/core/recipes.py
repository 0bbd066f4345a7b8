"""Named, complete configurations we stand behind: one function each, by job.

A recipe is complete but for what only the user knows: where the input is and where the result goes.
"""

from typing import Any

from biovl.core.config import Recipe


def packages() -> dict[str, Any]:
    """PMC packages: folders, archives or tars of many, local or s3:// (needs source.path, out)."""
    return {"source.name": "packages"}


def table() -> dict[str, Any]:
    """A folder of images and a table of captions (needs source.path, out)."""
    return {"source.name": "table"}


def pmc_open_data() -> dict[str, Any]:
    """PMC as it is distributed today: its open-data bucket, all of it (needs out)."""
    return {"source.name": "pmc_open_data"}


def pmc_sample() -> dict[str, Any]:
    """The newest 100 open articles of PMC that a search finds (needs out, and internet)."""
    return {
        "source.name": "pmc_open_data",
        "source.search": "radiography AND open_access[filter]",
        "source.search_limit": 100,
        # A guest: far below what the bucket serves.
        "source.requests_per_s": 20,
        "source.concurrent": 8,
        # So that every core has something to do.
        "packages_per_unit": 8,
    }


HARVEST: dict[str, Recipe] = {
    "packages": packages,
    "table": table,
    "pmc_open_data": pmc_open_data,
    "pmc_sample": pmc_sample,
}


def split_default() -> dict[str, Any]:
    """Compound figures into panels where labels, boxes and caption agree (needs figures, out)."""
    return {}


SPLIT: dict[str, Recipe] = {"default": split_default}


def detector_default() -> dict[str, Any]:
    """A detector of panels at 512 px; hours on one GPU and as many CPUs as can draw (needs out)."""
    return {}


def detector_tiny() -> dict[str, Any]:
    """A detector too small to be of use, in a minute on a CPU: to see that it works (needs out)."""
    return {
        "design.backbone": "mobilenetv4_conv_small_050",
        "design.channels": 16,
        "design.size_px": 128,
        "drawing.strata": ["plain", "no_gutters"],
        "drawing.figures": 64,
        "drawing.steps": 60,
        "optim.steps": 60,
        "optim.batch": 8,
        "optim.warmup_steps": 10,
        "validation_figures": 8,
        "validate_every": 30,
        "save_every": 20,
    }


DETECTOR: dict[str, Recipe] = {"default": detector_default, "tiny": detector_tiny}


def default() -> dict[str, Any]:
    """Every usable, captioned figure of reviewed articles, original bytes (needs figures, out)."""
    return {
        "rules": [
            {"name": "usable_image"},
            {"name": "figure_kinds"},
            {"name": "newest_version"},
            {"name": "not_retracted"},
            {"name": "has_caption"},
            # Thumbnails, spacers and rulers: nothing a model of 224 px could see.
            {"name": "min_side", "px": 64},
            {"name": "max_aspect", "ratio": 10},
        ]
    }


def training() -> dict[str, Any]:
    """The default, its images made small enough to decode at training speed (288 px)."""
    # Enough for models of 224 px, which are all of the papers' but biomedclip_384 (with crops of
    # 0.9 of the area up to 273 px); pretrain refuses larger ones on such a corpus.
    return {**default(), "image.short_side_px": 288}


def long_captions() -> dict[str, Any]:
    """The default with the paragraphs that cite a figure after its caption, as in BMC-LongCLIP."""
    return {**default(), "text": "caption+mentions"}


def commercial() -> dict[str, Any]:
    """The default, only with licences that allow commercial use."""
    rules = [*default()["rules"], {"name": "license_groups", "allowed": ["commercial"]}]
    return {**default(), "rules": rules}


def concept_filtered() -> dict[str, Any]:
    """BMCA-CLIP_CF: training, without plots, tables and formulae (needs columns with labels)."""
    # Stored as in training: BMCA-CLIP is a ViT-L/14 of 224 px, in its authors' scripts as well.
    # BIOMEDICA, section 6: "only concepts within clinical and scientific imaging, immunoassays,
    # illustrative diagrams, chemical structures, maps, tools and materials, and
    # hand-drawn/screen-based visuals"; 6,602,752 of 24,076,288 pairs. Scientific imaging is
    # microscopy (14.6). A figure that has such a concept beside a plot stays.
    kept = [
        *("Clinical Imaging", "Microscopy", "Immuno Assays", "Illustrative Diagrams"),
        *("Chemical Structures", "Maps", "Tools and Materials"),
        "Hand Drawn and Screen Based Visuals",
    ]
    rule = {"name": "any_of", "column": "global_concepts", "allowed": kept}
    return {**training(), "rules": [*training()["rules"], rule]}


def concept_balanced() -> dict[str, Any]:
    """BMCA-CLIP_CB: training, topics capped so that 8.4 M stay (needs columns with labels)."""
    # BIOMEDICA, section 6. With the counts of its table 16 that is a cap of 1,056,373; smaller
    # corpora are balanced with balance.cap=… or a target of their own.
    return {
        **training(),
        "balance.column": "global_concepts",
        "balance.target": 8_404_992,
    }


def pmc_15m_corpus() -> dict[str, Any]:
    """PMC-15M of BiomedCLIP: training, 9 and 496 of 10,000 articles to val and test."""
    # Section 2: 13.9 M, 13.6 k and 726 k pairs (Zhang et al. 2023, arXiv:2303.00915).
    return {
        **training(),
        "split": {
            "val_permyriad": 9,
            "test_permyriad": 496,
            "least_articles": 0,
            "most_articles": None,
        },
    }


def small() -> dict[str, Any]:
    """The default for a few articles: a tenth of them to val, a tenth to test."""
    return {**default(), "split.val_permyriad": 1_000, "split.test_permyriad": 1_000}


ASSEMBLE: dict[str, Recipe] = {
    "default": default,
    "training": training,
    "long_captions": long_captions,
    "commercial": commercial,
    "concept_filtered": concept_filtered,
    "concept_balanced": concept_balanced,
    "pmc_15m": pmc_15m_corpus,
    "small": small,
}


# BiomedCLIP: supplementary tables 1-9. Table 9 is what PretrainConfig has for defaults. Sizes "4k"
# and "64k" are read as 4,096 and 65,536. Precision is left to the hardware (bf16 where it has it,
# as the paper did). The release's code (open_clip) agrees with the paper; names of towers, pooling
# and projections are those of its open_clip_config.json.
_PUBMEDBERT = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
_PUBMEDBERT_TOWER: dict[str, Any] = {
    "model.text_cfg.hf_model_name": _PUBMEDBERT,
    "model.text_cfg.hf_proj_type": "mlp",
    "model.text_cfg.hf_pooler_type": "cls_last_hidden_state_pooler",
    "model.tokenizer": _PUBMEDBERT,
    "model.text_weights": _PUBMEDBERT,
}
# "GPT/77, 50k general domain": CLIP's own text tower, from scratch.
_GPT_TOWER: dict[str, Any] = {
    "model.text_cfg.width": 512,
    "model.text_cfg.heads": 8,
    "model.text_cfg.layers": 12,
    "model.text_cfg.vocab_size": 49_408,
}


def _timm(name: str, weights: str = "") -> dict[str, Any]:
    return {
        "model.vision_cfg.timm_model_name": name,
        "model.vision_cfg.timm_pool": "",
        "model.vision_cfg.timm_proj": "linear",
        "model.image_weights": weights,
    }


def biomedclip() -> dict[str, Any]:
    """BiomedCLIP: ViT-B/16 at 224 px from ImageNet, PubMedBERT with 256 tokens, 32 epochs of 4k."""
    return {
        "model.name": "open_clip",
        "model.embed_dim": 512,
        **_timm("vit_base_patch16_224", "timm/vit_base_patch16_224.augreg_in21k_ft_in1k"),
        **_PUBMEDBERT_TOWER,
        "model.context_length": 256,
        "batch.pairs": 4_096,
        "epochs": 32,
    }


def biomedclip_context_77() -> dict[str, Any]:
    """BiomedCLIP with 77 tokens, 8 epochs (table 1)."""
    return {**biomedclip(), "model.context_length": 77, "epochs": 8}


def biomedclip_gpt() -> dict[str, Any]:
    """BiomedCLIP with CLIP's text tower from scratch, 77 tokens, 8 epochs (table 1)."""
    kept = {k: v for k, v in biomedclip().items() if k not in _PUBMEDBERT_TOWER}
    return {**kept, **_GPT_TOWER, "model.context_length": 77, "epochs": 8}


def biomedclip_vit_s() -> dict[str, Any]:
    """BiomedCLIP with ViT-S/16, 8 epochs (table 2)."""
    tower = _timm("vit_small_patch16_224", "timm/vit_small_patch16_224.augreg_in21k_ft_in1k")
    return {**biomedclip(), **tower, "epochs": 8}


def biomedclip_vit_m() -> dict[str, Any]:
    """BiomedCLIP with ViT-M/16 from scratch, 8 epochs (table 2)."""
    # The paper does not say with which weights; timm has none of ImageNet for this width and size.
    return {**biomedclip(), **_timm("vit_medium_patch16_clip_224"), "epochs": 8}


def biomedclip_random() -> dict[str, Any]:
    """BiomedCLIP with an image tower from scratch (table 3)."""
    return {**biomedclip(), "model.image_weights": ""}


def biomedclip_384() -> dict[str, Any]:
    """BiomedCLIP at 384 px (table 4)."""
    tower = _timm("vit_base_patch16_384", "timm/vit_base_patch16_384.augreg_in21k_ft_in1k")
    return {**biomedclip(), **tower, "model.image_size": 384}


def biomedclip_64k() -> dict[str, Any]:
    """BiomedCLIP, 8 epochs with batches of 4k, then 32 with 64k (table 7)."""
    return {**biomedclip(), "epochs": 40, "batch.later": {"8": 65_536}}


def biomedclip_rn50() -> dict[str, Any]:
    """OpenAI's CLIP with ResNet-50, trained on (table 8)."""
    return {
        "model.name": "open_clip",
        "model.architecture": "RN50-quickgelu",
        "model.weights": "openai",
        "batch.pairs": 4_096,
        "epochs": 32,
    }


def biomedclip_vit_b16_openai() -> dict[str, Any]:
    """OpenAI's CLIP with ViT-B/16, trained on (table 8)."""
    return {**biomedclip_rn50(), "model.architecture": "ViT-B-16-quickgelu"}


def bmca_clip() -> dict[str, Any]:
    """BMCA-CLIP: CommonPool's ViT-L/14 trained on with 24M pairs, 9 epochs of 8k (table 11)."""
    return {
        "model.name": "open_clip",
        "model.architecture": "ViT-L-14",
        # The paper says "commonpool", which is three sets of weights in open_clip. Its training
        # scripts (open_clip_train.main --pretrained) name the one filtered by CLIP score.
        "model.weights": "commonpool_xl_clip_s13b_b90k",
        "model.context_length": 77,
        "batch.pairs": 8_192,
        "epochs": 9,
        "optim.peak_lr": 1e-6,
        "optim.warmup_steps": 1_000,
        # "Adam" with a decay of 0.2 is AdamW in the paper's code, open_clip.
        "optim.betas": [0.9, 0.95],
        "optim.weight_decay": 0.2,
        "optim.clip_grad_norm": 1.0,
        # The paper says FP32, which open_clip computes in TF32; bf16 autocast keeps the weights
        # and their updates in fp32 and is three times as fast (step.precision=fp32 for theirs).
        "step.precision": "auto",
    }


def bmca_clip_balanced() -> dict[str, Any]:
    """BMCA-CLIP on the concept-balanced corpus of 8M pairs, 27 epochs (table 11)."""
    return {**bmca_clip(), "epochs": 27}


def bmca_clip_filtered() -> dict[str, Any]:
    """BMCA-CLIP on the concept-filtered corpus of 6M pairs, 36 epochs (table 11)."""
    return {**bmca_clip(), "epochs": 36}


def bmc_longclip_512() -> dict[str, Any]:
    """BMC-LongCLIP: DFN's ViT-L/14, BioClinical ModernBERT with 512 tokens, 20 epochs of 8k."""
    text = "thomas-sounack/BioClinical-ModernBERT-base"
    return {
        "model.name": "open_clip",
        # Towers as in the model configuration of the paper's code (open_clip_bmc): embeddings of
        # 768, a projection of two layers (open_clip's default), mean pooling, drop path 0.1.
        "model.embed_dim": 768,
        **_timm("vit_large_patch14_clip_224", "timm/vit_large_patch14_clip_224.dfn2b_s39b"),
        "model.vision_cfg.timm_drop_path": 0.1,
        "model.text_cfg.hf_model_name": text,
        "model.text_cfg.hf_proj_type": "mlp",
        "model.text_cfg.hf_pooler_type": "mean_pooler",
        "model.tokenizer": text,
        "model.text_weights": text,
        "model.context_length": 512,
        "batch.pairs": 8_192,
        "epochs": 20,
        "optim.peak_lr": 5e-4,
        # The paper's appendix F; its code has 2,000.
        "optim.warmup_steps": 1_000,
        "optim.betas": [0.9, 0.95],
        # Only the code says: open_clip's default.
        "optim.weight_decay": 0.2,
        "optim.clip_grad_norm": 1.0,
        # As for bmca_clip: the paper says FP32.
        "step.precision": "auto",
    }


def bmc_longclip_154() -> dict[str, Any]:
    """BMC-LongCLIP with 154 tokens (appendix F)."""
    return {**bmc_longclip_512(), "model.context_length": 154}


def bmc_longclip_77() -> dict[str, Any]:
    """BMC-LongCLIP with 77 tokens (appendix F)."""
    return {**bmc_longclip_512(), "model.context_length": 77}


def bmc_longclip_plus() -> dict[str, Any]:
    """BMC-LongCLIP+: batches of 16k, every other text a long caption if it has one (appendix F)."""
    return {
        **bmc_longclip_512(),
        "batch.pairs": 16_384,
        # BIOMEDICA and LongCAP together: a pair of both sets is met with both of its texts.
        "data.text": {"text": 0.5, "long_caption": 0.5},
    }


def tiny() -> dict[str, Any]:
    """A small CLIP at 64 px from scratch: learns a hundred pairs on two CPU cores in a minute."""
    return {
        "model.name": "open_clip",
        "model.embed_dim": 64,
        "model.vision_cfg": {"layers": 3, "width": 128, "head_width": 32, "patch_size": 16},
        "model.text_cfg": {"layers": 2, "width": 64, "heads": 2},
        "model.image_size": 64,
        "model.context_length": 77,
        "batch.pairs": 32,
        "epochs": 30,
        "optim.peak_lr": 1e-3,
        "optim.warmup_steps": 10,
        # A hundred pairs are learnt by heart unless they look different every time.
        "data.crop_scale": (0.4, 1.0),
        "validation.every_epochs": 10,
    }


PRETRAIN: dict[str, Recipe] = {
    "biomedclip": biomedclip,
    "biomedclip_context_77": biomedclip_context_77,
    "biomedclip_gpt": biomedclip_gpt,
    "biomedclip_vit_s": biomedclip_vit_s,
    "biomedclip_vit_m": biomedclip_vit_m,
    "biomedclip_random": biomedclip_random,
    "biomedclip_384": biomedclip_384,
    "biomedclip_64k": biomedclip_64k,
    "biomedclip_rn50": biomedclip_rn50,
    "biomedclip_vit_b16_openai": biomedclip_vit_b16_openai,
    "bmca_clip": bmca_clip,
    "bmca_clip_balanced": bmca_clip_balanced,
    "bmca_clip_filtered": bmca_clip_filtered,
    "bmc_longclip_77": bmc_longclip_77,
    "bmc_longclip_154": bmc_longclip_154,
    "bmc_longclip_512": bmc_longclip_512,
    "bmc_longclip_plus": bmc_longclip_plus,
    "tiny": tiny,
}


def wise_ft() -> dict[str, Any]:
    """One model between two, at the alpha given (needs base, tuned, alpha, out)."""
    return {}


def sweep() -> dict[str, Any]:
    """The best of eleven, by mean R@1 on val pairs (needs base, tuned, corpus, out)."""
    return {"alphas": [step / 10 for step in range(11)]}


MERGE: dict[str, Recipe] = {"wise_ft": wise_ft, "sweep": sweep}


def every_figure() -> dict[str, Any]:
    """Images and captions of all splits, the index by their number (needs model, corpus, out)."""
    return {}


def low_memory() -> dict[str, Any]:
    """The same in at most 100 bytes of memory a vector, the rest on disk (from a million on)."""
    return {"profile": "low_memory"}


def on_gpus() -> dict[str, Any]:
    """The default, embedded by a GPU with 8 cores; set workers.count to how many there are."""
    return {"workers": {"count": 1, "gpus": 1, "cpus": 8}, "batch": 256}


INDEX: dict[str, Recipe] = {
    "default": every_figure,
    "low_memory": low_memory,
    "on_gpus": on_gpus,
}


def dinov2() -> dict[str, Any]:
    """DINOv2 ViT-L/14 distilled, as in BIOMEDICA; weights by name or folder (needs table)."""
    return {"annotator.name": "dinov2", "weights": "facebook/dinov2-large"}


def dinov2_small() -> dict[str, Any]:
    """DINOv2 ViT-S/14: 384 numbers for 1,024, a fourteenth of the work (needs table)."""
    return {**dinov2(), "weights": "facebook/dinov2-small"}


def dinov2_base() -> dict[str, Any]:
    """DINOv2 ViT-B/14: 768 numbers (needs table)."""
    return {**dinov2(), "weights": "facebook/dinov2-base"}


def dinov2_giant() -> dict[str, Any]:
    """DINOv2 ViT-g/14: 1,536 numbers (needs table)."""
    return {**dinov2(), "weights": "facebook/dinov2-giant"}


def clip() -> dict[str, Any]:
    """Images by a model of ours, or captions with annotator.of=text (needs table, weights)."""
    return {"annotator.name": "clip"}


def image_type() -> dict[str, Any]:
    """The nearest keyword of a taxonomy, by a model of ours, and a chart (needs table, weights)."""
    return {"annotator.name": "image_type"}


def context() -> dict[str, Any]:
    """Caption, citing sentences and the abstract's, and acronyms: no model (needs table)."""
    return {"annotator.name": "context"}


# The model and its endpoint: annotator.endpoint.url, with a key in OPENAI_API_KEY if it wants one.
def longcap() -> dict[str, Any]:
    """LongCAP as in the paper, Qwen2-VL-72B (needs table, annotator.endpoint.url, …cache)."""
    return {
        "annotator.name": "longcap",
        "annotator.model": "Qwen/Qwen2-VL-72B-Instruct",
        # Batches are asked for at once: of so many figures the last ones are few.
        "batch": 256,
    }


def longcap_on_gpus() -> dict[str, Any]:
    """The same on four GPUs of the cluster by vLLM (needs table, annotator.cache; ray[llm])."""
    return {**longcap(), "annotator.engine": {"copies": 1, "gpus": 4}}


def longcap_small() -> dict[str, Any]:
    """The same by a model for one GPU, Qwen2.5-VL-7B (needs what longcap needs)."""
    return {**longcap(), "annotator.model": "Qwen/Qwen2.5-VL-7B-Instruct"}


ANNOTATE: dict[str, Recipe] = {
    "dinov2": dinov2,
    "dinov2_small": dinov2_small,
    "dinov2_base": dinov2_base,
    "dinov2_giant": dinov2_giant,
    "clip": clip,
    "image_type": image_type,
    "context": context,
    "longcap": longcap,
    "longcap_on_gpus": longcap_on_gpus,
    "longcap_small": longcap_small,
}


def clusters_of_the_paper() -> dict[str, Any]:
    """BIOMEDICA: 25 principal components of DINOv2, 2,000 clusters (needs table, out)."""
    return {"components": 25, "clusters": 2_000}


def clusters_by_variance() -> dict[str, Any]:
    """As many components as keep 99 % of the variance, 2,000 clusters (needs table, out)."""
    return {"components": 0.99, "clusters": 2_000}


CLUSTER: dict[str, Recipe] = {
    "default": clusters_of_the_paper,
    "by_variance": clusters_by_variance,
}


def resolve_default() -> dict[str, Any]:
    """Labels by most of the votes, names as in BIOMEDICA (needs concepts, votes, out)."""
    return {}


RESOLVE: dict[str, Recipe] = {"default": resolve_default}


def demo() -> dict[str, Any]:
    """The embedded sample: minutes on two cores (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "harvest.packages_per_unit": 8,
        "assemble.recipe": "small",
        "pretrain.recipe": "tiny",
        # A hundred pairs are learnt by heart after a few epochs more.
        "pretrain.epochs": 16,
        "pretrain.validation.every_epochs": 8,
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def laptop() -> dict[str, Any]:
    """Some hundred articles of your own and a small CLIP, on CPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        "assemble.recipe": "small",
        # Decoded in every epoch, and looked at in 64 px.
        "assemble.image.short_side_px": 288,
        "pretrain.recipe": "tiny",
        "index.recipe": "default",
        "benchmark.recipe": "retrieval",
    }


def pmc() -> dict[str, Any]:
    """PMC on a cluster: BiomedCLIP as published, on 16 GPUs (needs folder, source.path)."""
    return {
        "harvest.recipe": "packages",
        # A receipt per unit: of nine million articles 18,000.
        "harvest.packages_per_unit": 512,
        "assemble.recipe": "pmc_15m",
        "pretrain.recipe": "biomedclip",
        "pretrain.workers": {"count": 16, "gpus": 1, "cpus": 4},
        "pretrain.validation.gpus": 1,
        "index.recipe": "on_gpus",
        "index.workers.count": 8,
        "benchmark.recipe": "retrieval",
        "benchmark.workers": {"count": 8, "gpus": 1, "cpus": 4},
    }


def fine_grained() -> dict[str, Any]:
    """Panels with captions of their own, for figures, and a model of them, on 16 GPUs."""
    return {**pmc(), "split.recipe": "default"}


def concepts() -> dict[str, Any]:
    """Figures to clusters for people to name; with their votes on to pairs filtered by concept."""
    return {
        "harvest.recipe": "packages",
        "annotate.recipe": "dinov2",
        "cluster.recipe": "default",
        # The votes are there when people have given them: resolve.recipe=default
        # resolve.votes=votes.csv, and assemble.recipe=concept_filtered.
        "resolve.recipe": None,
        "assemble.recipe": None,
    }


CHAIN: dict[str, Recipe] = {
    "demo": demo,
    "laptop": laptop,
    "pmc": pmc,
    "fine_grained": fine_grained,
    "concepts": concepts,
}
"""Of the whole chain, by step: its ``recipe``, and settings that replace those of it."""


def whole_pmc() -> dict[str, Any]:
    """All of PMC in September 2026, 9.1 M articles and 24 M figures; BiomedCLIP on 16 A100."""
    return {
        **_ON_AWS,
        "corpus.articles": 9_129_850,
        # 24 million figures; as many an article as in BIOMEDICA would be 36 million.
        "assume.figures_per_article": [2.2, 2.63, 3.98],
        "pretrain.recipe": "biomedclip",
        "train": {"instance": "p4d.24xlarge", "count": 2},
    }


def pmc_15m() -> dict[str, Any]:
    """BiomedCLIP's paper: 4.4 M articles, 13.9 M training pairs, 32 epochs on 16 A100."""
    return {
        **_ON_AWS,
        "corpus.articles": 4_400_000,
        # 13.9 M + 13.6 k + 726 k pairs.
        "assume.figures_per_article": 14_639_600 / 4_400_000,
        "pretrain.recipe": "biomedclip",
        "pretrain.pairs": 13_900_000,
        "train": {"instance": "p4d.24xlarge", "count": 2},
        "paper": "biomedclip",
    }


def biomedica_24m() -> dict[str, Any]:
    """BMCA-CLIP's paper: 6.04 M articles, 24.1 M pairs, 9 epochs on 4 H100."""
    return {
        **_ON_AWS,
        "corpus.articles": 6_042_494,
        "assume.figures_per_article": 24_076_288 / 6_042_494,
        "pretrain.recipe": "bmca_clip",
        "pretrain.pairs": 24_076_288,
        "train": {"instance": "p5.48xlarge", "gpus": 4},
        "paper": "bmca_clip",
    }


def biomedica_6m() -> dict[str, Any]:
    """BMC-LongCLIP's paper: BIOMEDICA-6M, context 512, 20 epochs on 8 H200; its corpus as well."""
    return {
        **biomedica_24m(),
        "pretrain.recipe": "bmc_longclip_512",
        # Concept filtering leaves 6,602,752 (BIOMEDICA), which this paper calls 6M.
        "pretrain.pairs": 6_602_752,
        "assume.caption_tokens": [115, 127, 140],
        "train": {"instance": "p5en.48xlarge"},
        "paper": "bmc_longclip",
    }


def plan_one_gpu() -> dict[str, Any]:
    """A hundred thousand articles and BiomedCLIP on one H100."""
    return {
        **_ON_AWS,
        "corpus.articles": 100_000,
        "pretrain.recipe": "biomedclip",
        "cpu": {"instance": "m7i.8xlarge"},
        "embed": {"instance": "g6.4xlarge"},
        "train": {"instance": "p5.4xlarge"},
    }


def plan_laptop() -> dict[str, Any]:
    """A hundred articles and a tiny model on a laptop of your own."""
    own = {"instance": "laptop"}
    return {
        "corpus.articles": 100,
        "corpus.train_share": 0.8,
        "harvest.recipe": "packages",
        "pretrain.recipe": "tiny",
        "cpu": own,
        "embed": own,
        "train": own,
        "serve.fleet": own,
        "serve.queries_per_s": 1,
        # Files are local, and nothing boots.
        "assume.s3_wait_ms": 0.1,
        "assume.start_minutes": 0.5,
        "assume.annotate_gflop": 11,
    }


_ON_AWS: dict[str, Any] = {
    # What cluster.yaml orders, and the most that it does.
    "cpu": {"instance": "m7i.8xlarge", "count": 20, "buy": "spot"},
    "embed": {"instance": "g6.4xlarge", "count": 8},
    "serve.fleet": {"instance": "g6.4xlarge"},
}

PLAN: dict[str, Recipe] = {
    "whole_pmc": whole_pmc,
    "pmc_15m": pmc_15m,
    "bmca_clip": biomedica_24m,
    "bmc_longclip": biomedica_6m,
    "one_gpu": plan_one_gpu,
    "laptop": plan_laptop,
}


# Medical questions. METER's rates and module are what the task has for defaults; epochs and batches
# for sets this small are M3AE's (arXiv:2209.07098), which is METER with another pretraining.
def vqa() -> dict[str, Any]:
    """Medical questions as METER: VQA-RAD, towers tuned (needs data: VQA-RAD unpacked, out)."""
    return {"tasks": {"vqa": {"name": "vqa"}}}


def vqa_as_published() -> dict[str, Any]:
    """VQA-RAD as papers with 3,064 and 451: trains on 284 templated questions of test."""
    return {"tasks": {"vqa": {"name": "vqa", "templated": "all", "repeated": "keep"}}}


def vqa_slake() -> dict[str, Any]:
    """SLAKE in English as METER, towers tuned (needs data: SLAKE unpacked, out)."""
    return {"tasks": {"vqa": {"name": "vqa", "learning": {"epochs": 15, "batch": 32}}}}


def vqa_frozen() -> dict[str, Any]:
    """Medical questions by a small module on frozen towers, for CPUs (needs data, out)."""
    fusion = {"layers": 2, "width": 192, "heads": 6}
    # A module this small learns faster; the towers, whose rate it is, do not learn.
    adam = {"lr": 1e-4, "head_times": 10}
    learning = {"towers": "frozen", "epochs": 20, "fusion": fusion, "adam": adam}
    return {"tasks": {"vqa": {"name": "vqa", "learning": learning}}}


def retrieval() -> dict[str, Any]:
    """The text of every image and the image of every text (needs corpus or data, out)."""
    return {"tasks": {"retrieval": {"name": "retrieval"}}}


def long_retrieval() -> dict[str, Any]:
    """BMC-LongCLIP's long captions: 1,000 articles of 2025 (needs data: figures/, out)."""
    return {"tasks": {"long_retrieval": {"name": "retrieval", "corpus": ""}}}


def zero_shot() -> dict[str, Any]:
    """The class whose prompts are nearest to the image (needs data: class folders …, out)."""
    return {"tasks": {"zero_shot": {"name": "zero_shot"}}}


def closed_vqa() -> dict[str, Any]:
    """The option whose caption is nearest, in two wordings (needs data, out)."""
    return {"tasks": {"closed_vqa": {"name": "closed_vqa"}}}


def linear_probe() -> dict[str, Any]:
    """Logistic regression on vectors of 1, 10 and 100 % of train (needs data with train, out)."""
    return {"tasks": {"linear_probe": {"name": "linear_probe"}}}


def fine_tune() -> dict[str, Any]:
    """The whole image tower trained with a new head (needs data with train, out; a GPU is wise)."""
    return {"tasks": {"fine_tune": {"name": "fine_tune"}}}


def biomedica() -> dict[str, Any]:
    """The 40 tasks of BIOMEDICA's table 12, as closed VQA and retrieval (needs data_root, out)."""
    return {"benchmarks": ["biomedica"]}


def microscopy_composition() -> dict[str, Any]:
    """The four tasks of BIOMEDICA's table 5 (needs data_root, out)."""
    return {"benchmarks": ["microscopy_composition"]}


def biomedclip_zero_shot() -> dict[str, Any]:
    """BiomedCLIP's five benchmarks with the prompts of its table 10 (needs data_root, out)."""
    return {"benchmarks": ["biomedclip"], "benchmarks_as": "zero_shot"}


BENCHMARK: dict[str, Recipe] = {
    "retrieval": retrieval,
    "long_retrieval": long_retrieval,
    "zero_shot": zero_shot,
    "closed_vqa": closed_vqa,
    "linear_probe": linear_probe,
    "fine_tune": fine_tune,
    "vqa": vqa,
    "vqa_as_published": vqa_as_published,
    "vqa_slake": vqa_slake,
    "vqa_frozen": vqa_frozen,
    "biomedica": biomedica,
    "microscopy_composition": microscopy_composition,
    "biomedclip": biomedclip_zero_shot,
}


def entrez() -> dict[str, Any]:
    """What PubMed knows of articles, and who cites them (needs articles)."""
    return {}


def entrez_records() -> dict[str, Any]:
    """The same without who cites them: half the requests (needs articles)."""
    return {"citations": False}


ENRICH: dict[str, Recipe] = {"entrez": entrez, "entrez_records": entrez_records}


def hub() -> dict[str, Any]:
    """A repository at the Hugging Face hub, private unless told otherwise (needs folder, repo)."""
    return {}


PUBLISH: dict[str, Recipe] = {"hub": hub}
