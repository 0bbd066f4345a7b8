"""The model card, ``README.md``: the model, its training data, scores and usage."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from biovl.assemble.origin import origin
from biovl.core import config as configs
from biovl.core.markdown import percent, table
from biovl.models import hub
from biovl.models.builders.open_clip import Described
from biovl.pretrain.card_sections import (
    data_sections,
    earlier_corpora,
    hub_license,
    lineage_section,
    rollbacks_section,
    scores_section,
)
from biovl.pretrain.config import BatchConfig, OptimConfig, PretrainConfig
from biovl.pretrain.memory import model_info
from biovl.pretrain.mixture import Mixture

PLOTS = "plots"
"""Folder of the plots, next to the card."""

_CAPTIONS_OF_PLOTS = {
    "loss.png": "Loss in training by step, and in validation by epoch",
    "recall.png": "Recall by epoch among the pairs of validation",
    "throughput.png": "Speed, and the use made of time and hardware",
}

_ARTICLES = """* **It has learned what articles print.** Figures are chosen to show a finding; by \
country, language, disease, modality and age the literature is biased, and so is the model. It was \
not tested for differences between groups of patients."""

_OWN_IMAGES = """* **It has learned what its table holds**, and is biased as that is. It was not \
tested for differences between groups of patients, nor on images of other places.
* **Privacy.** It was trained on images and texts that may be private. Nobody tested what it \
reveals of single ones: treat it as you treat them."""

_LIMITS = """## Intended use and limits

For research on biomedical images and text: finding images by text and texts by image, \
classification without training, and as a start for models of a narrower task.

* **Not a medical device.** It was not tested on patients and must not be used for diagnosis or \
treatment.
{data}
* **Texts are captions.** They name what cannot be seen and leave out what can. The model compares \
an image with a text; it does not tell whether the text is true.
* **Scores are of validation** on data like that of training. They say little about images from \
elsewhere, and depend on how many pairs are searched: compare only with the same number.
* **Images of public benchmarks** may be among the training data."""


def model_card(
    config: PretrainConfig,
    model: Described,
    *,
    mixture: Mixture,
    stats: Mapping[str, Any],
    fingerprints: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    scores: Mapping[int, Mapping[str, float]],
    epoch: int,
    plots: Sequence[str],
    code: str,
    hardware: str = "",
    rollbacks: Sequence[Mapping[str, Any]] = (),
    lineage: Sequence[Mapping[str, Any]] = (),
    changed: Sequence[Mapping[str, Any]] = (),
    name: str = "A model of biomedical images and text",
) -> str:
    """Return the text of the model card.

    Args:
        config: Configuration of the run.
        model: Description of the trained model.
        mixture: The corpora.
        stats: ``stats.json`` of the corpora, see ``merged_stats``: ``licenses``,
            ``license_groups``, ``journals`` and ``corpus`` are used.
        fingerprints: Fingerprint of each corpus.
        rows: Rows of ``metrics.jsonl``.
        scores: Scores of ``benchmark.retrieval``, by epoch from 0; may be empty.
        epoch: Epoch of the published weights, from 0.
        plots: File names in ``plots/``.
        code: Name and version of the code.
        hardware: Training hardware, such as ``8 x NVIDIA H200``.
        rollbacks: Rollbacks after divergence; see ``rollback.read_rollbacks``.
        lineage: Checkpoints that the run descends from, the oldest first; see ``fork``.
        changed: Settings that changed during the run; see ``changes``.
        name: Title of the card.
    """
    earlier = earlier_corpora(config, lineage)
    sections = [
        front_matter(stats, name, earlier, base=_initial_weights(config).get("both towers", "")),
        f"# {name}",
        _what(model),
        _loading(model),
        scores_section(scores, epoch, lineage, has_weights=bool(_initial_weights(config))),
        _pictures(plots),
        _training(config, mixture, rows, hardware, code),
        rollbacks_section(rollbacks),
        lineage_section(lineage, changed),
        data_sections(config, mixture, stats, fingerprints, earlier),
        _LIMITS.format(data=_OWN_IMAGES if origin(stats) == "own" else _ARTICLES),
        _settings(config),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def front_matter(
    stats: Mapping[str, Any], name: str, earlier: Sequence[str] = (), *, base: str = ""
) -> str:
    """Return the YAML metadata of a model card, with its delimiters.

    Args:
        stats: ``stats.json`` of the corpus: ``licenses`` and ``license_groups`` are read.
        name: Title of the card.
        earlier: Corpora that the weights were trained on before; see ``earlier_corpora``.
        base: The model that training began with; if it is ``hf-hub:OWNER/NAME``, the Hub links to
            it.
    """
    on_hub = base.startswith("hf-hub:")
    values: dict[str, Any] = {
        "library_name": "open_clip",
        "pipeline_tag": "zero-shot-image-classification",
        "language": ["en"],
        "tags": ["biology", "medical", "clip", "image-text"],
        **hub_license(stats, earlier),
        **({"base_model": hub.split(base)[0]} if on_hub else {}),
        "model_name": name,
    }
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _what(model: Described) -> str:
    cfg = model.model_cfg
    info = model_info(model)
    rows = [
        ["image", _image_tower(cfg["vision_cfg"]), info.image_parameters, f"{model.image_size} px"],
        [
            "text",
            _text_tower(cfg["text_cfg"]),
            info.text_parameters,
            f"{model.context_length} tokens",
        ],
    ]
    return f"""Two towers that put biomedical images and texts into one space of \
{cfg["embed_dim"]} dimensions, where those that belong together are near: a CLIP model with \
{info.parameters:,} parameters.

{table(["tower", "architecture", "parameters", "input"], rows)}

Longer texts are cut to the context, start and end token included."""


def _image_tower(vision: Mapping[str, Any]) -> str:
    if vision.get("timm_model_name"):
        return f"`{vision['timm_model_name']}` (timm)"
    layers = vision.get("layers")
    if isinstance(layers, list | tuple):
        return f"ResNet of {'+'.join(map(str, layers))} blocks (open_clip)"
    return (
        f"ViT of {layers} layers, width {vision.get('width')}, patches of "
        f"{vision.get('patch_size')} px (open_clip)"
    )


def _text_tower(text: Mapping[str, Any]) -> str:
    if text.get("hf_model_name"):
        return f"`{text['hf_model_name']}` (transformers)"
    return f"transformer of {text.get('layers')} layers, width {text.get('width')} (open_clip)"


def _loading(model: Described) -> str:
    text = model.model_cfg["text_cfg"]
    kind = getattr(getattr(model.model.text, "config", None), "model_type", None)
    remarks = []
    if kind == "modernbert":
        remarks.append(
            "open_clip 3.3 cannot build ModernBERT, the text tower of this model: load it with "
            "biovl, or with a later open_clip."
        )
    elif kind is not None:
        remarks.append(
            f"open_clip looks the shape of the text tower up under `{text['hf_model_name']}`, on "
            "the hub or in the local cache. The weights and the tokenizer are in this folder; "
            "biovl needs nothing else."
        )
    stock = """With stock `open_clip`:

```python
import open_clip

model, _, preprocess = open_clip.create_model_and_transforms("local-dir:model")
tokenizer = open_clip.get_tokenizer("local-dir:model")
```"""
    own = """With biovl, from encoded images and texts to unit vectors:

```python
from pathlib import Path

from biovl.models.encoder import load

encoder = load("model")
image_ND = encoder.embed_images([Path("figure.jpg").read_bytes()])
text_ND = encoder.embed_texts(["chest radiograph", "haematoxylin and eosin stain"])
similarity = image_ND @ text_ND.T
```"""
    examples = [own] if kind == "modernbert" else [stock, own]
    return "\n\n".join(["## Loading", *remarks, "`model` is this folder.", *examples])


def _pictures(plots: Sequence[str]) -> str:
    shown = [(_CAPTIONS_OF_PLOTS[name], name) for name in _CAPTIONS_OF_PLOTS if name in plots]
    return "\n\n".join(f"![{caption}]({PLOTS}/{name})" for caption, name in shown)


def _initial_weights(config: PretrainConfig) -> dict[str, str]:
    """Return the sources of the initial weights, by what they are for."""
    settings = config.model.settings
    names = {
        "both towers": "weights",
        "the image tower": "image_weights",
        "the text tower": "text_weights",
    }
    return {what: settings[name] for what, name in names.items() if settings.get(name)}


def _training(
    config: PretrainConfig,
    mixture: Mixture,
    rows: Sequence[Mapping[str, Any]],
    hardware: str,
    code: str,
) -> str:
    start = _initial_weights(config)
    began = ", ".join(f"{what} from `{source}`" for what, source in start.items())
    batches = [f"{config.batch.pairs:,} pairs"]
    batches += [f"{n:,} from epoch {e + 1}" for e, n in sorted(config.batch.later.items())]
    loss = {"infonce": "symmetric InfoNCE (CLIP)", "siglip": "sigmoid (SigLIP)"}[config.step.loss]
    distill = config.step.distill
    if distill.weight:
        loss += (
            f", {distill.weight:.0%} of it towards a teacher (`{distill.image}`, "
            f"`{distill.text}`, temperature {distill.temperature:g})"
        )
    optim = config.optim
    facts = [
        ["start", began or "random weights"],
        ["pairs of train", f"{mixture.pairs['train']:,}"],
        ["epochs", str(config.epochs)],
        ["batch", ", ".join(batches)],
        ["loss", loss],
        ["optimiser", _optimizer(optim)],
        ["learning rate", _learning_rate(optim)],
        *_measured(rows),
    ]
    if hardware:
        facts.append(["hardware", hardware])
    return f"## Training\n\nBy {code}.\n\n{table(['', ''], facts)}"


def _optimizer(optim: OptimConfig) -> str:
    if optim.name == "adamw":
        name = f"AdamW, betas {optim.betas[0]:g} and {optim.betas[1]:g}"
    else:
        settings = [f"{name}={json.dumps(value)}" for name, value in optim.settings.items()]
        name = ", ".join([f"`{optim.name}`", *settings])
    return f"{name}, decay {optim.weight_decay:g}"


def _learning_rate(optim: OptimConfig) -> str:
    shape: str = optim.schedule
    if optim.cooldown_epochs is not None:
        shape = f"constant, cooled down in the last {optim.cooldown_epochs} epochs"
    end = f" to {optim.final_lr:g}" if optim.final_lr else ""
    factors = "".join(
        f", times {factor:g} in the {tower} tower"
        for tower, factor in (("image", optim.image_lr_factor), ("text", optim.text_lr_factor))
        if factor != 1
    )
    warmup = f"{optim.warmup_steps:,} steps of warm-up"
    return f"{optim.peak_lr:g} after {warmup}, {shape}{end}{factors}"


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a summary of the training log, with medians over the steps."""

    def median(name: str) -> float | None:
        values = [row[name] for row in rows if row.get(name) is not None]
        return float(np.median(values)) if values else None

    facts = []
    # At most a tenth of the steps, and of one batch size: losses of others are not comparable.
    of_steps = [row for row in rows if row.get("loss") is not None]
    last = [
        row["loss"]
        for row in of_steps[-max(1, min(100, len(of_steps) // 10)) :]
        if row.get("pairs") == of_steps[-1].get("pairs")
    ]
    if last:
        facts.append(["training loss at the end", f"{sum(last) / len(last):.3f}"])
    seconds = sum(row.get("step_s") or 0.0 for row in rows)
    if seconds:
        facts.append(["time of all steps", f"{seconds / 3600:,.2f} h"])
    for name, what in (("pairs_per_s", "pairs/s"), ("tokens_per_s", "tokens/s without padding")):
        value = median(name)
        if value is not None:
            facts.append([what, f"{value:,.0f}"])
    for name, what in (("mfu", "model FLOPs utilisation"), ("wait_share", "waiting for data")):
        value = median(name)
        if value is not None:
            facts.append([what, percent(value)])
    return facts


def _settings(config: PretrainConfig) -> str:
    plain = configs.to_plain(config)
    usual = PretrainConfig(
        corpus=config.corpus,
        out=config.out,
        from_=config.from_,
        model=config.model,
        batch=BatchConfig(pairs=config.batch.pairs),
        profile=config.profile,
    )
    changed = configs.differences(configs.to_plain(usual), plain)
    rows = [line.partition(": ")[::2] for line in changed]
    cells = [[f"`{name}`", *change.split(" -> ")] for name, change in rows]
    # Local paths are private and are omitted from the card; a profile is not part of the model.
    hidden = ["corpus", "out", "from", "profile"]
    if isinstance(config.corpus, str):
        hidden.append("mixture")
    shown = {name: value for name, value in plain.items() if name not in hidden}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip()
    differing = table(["setting", "default", "here"], cells) if cells else "None."
    return f"""## Settings

Those that differ from the defaults:

{differing}

All of them:

```yaml
{text}
```"""
