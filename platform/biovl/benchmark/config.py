"""Settings of benchmark: which models are evaluated on which tasks."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from biovl.core.config import REQUIRED, Recipe, Share, is_unfinished
from biovl.core.filesystems import base_name, split_query
from biovl.core.plugins import Plugin
from biovl.core.workers import Precision

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


SCHEME = "wise-ft:"
"""Prefix of the name of an interpolated model, followed by JSON."""


@dataclass(frozen=True, kw_only=True)
class WiseFt:
    """Two models and the coefficients of the interpolations to evaluate."""

    base: str
    """The model before fine-tuning: a folder in open_clip's layout, local or ``s3://``."""
    tuned: str
    """The fine-tuned model, a folder in the same layout."""
    alphas: Annotated[tuple[Share, ...], Field(min_length=1)] = tuple(
        step / 10 for step in range(11)
    )
    """Interpolation coefficients: 0 is ``base``, 1 is ``tuned``."""

    def models(self) -> dict[str, str]:
        """Return the ``wise-ft:`` name that loads each interpolated model, by its report name."""
        return {
            name_of(alpha): SCHEME
            + json.dumps({"alpha": alpha, "base": self.base, "tuned": self.tuned})
            for alpha in sorted(set(self.alphas))
        }


def name_of(alpha: float) -> str:
    """Return the name of an interpolated model in the report."""
    return f"alpha-{alpha:g}"


@dataclass(frozen=True, kw_only=True)
class BenchmarkWorkers:
    """Number and resources of the actors that embed, and of the workers of tasks that train."""

    count: PositiveInt = 1
    """Number of workers, each with a copy of the model. On a single machine without GPUs, 1 embeds
    in the job's own process."""
    cpus: PositiveFloat = 1
    """CPU cores per worker, and threads that decode images."""
    gpus: NonNegativeFloat = 0
    """GPUs per worker; 0 computes on the CPU."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """Settings of a benchmark run: models, tasks and data."""

    out: str
    """Where the report is published, local or ``s3://``."""
    model: str | tuple[str, ...] = ()
    """One model or several: a folder published by pretrain, ``local-dir:FOLDER``, a folder of
    transformers, or an open_clip name with its weights (``ViT-B-32/laion2b_s34b_b79k``)."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Instead of ``model``: models by the name to use in the report, ``{"ours": "DIR", "clip":
    "ViT-B-32/openai"}``."""
    wise_ft: WiseFt | None = None
    """Instead of ``model``: two models, ``{"base": "DIR", "tuned": "DIR"}``; they and their
    interpolations are evaluated."""
    tasks: Mapping[str, Plugin] = field(default_factory=dict)
    """Tasks and their settings by name. Recipes fill this in; ``tasks.NAME.SETTING=…`` changes one
    setting."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks and suites to evaluate, by name; ``--list`` prints them."""
    benchmarks_as: str = "closed_vqa"
    """Task for benchmarks that classify images: ``closed_vqa``, ``zero_shot``, ``linear_probe`` or
    ``fine_tune``."""
    corpus: str = ""
    """A corpus published by assemble, for tasks that read one, local or ``s3://``."""
    data: str | Plugin = ""
    """Data of tasks that do not set their own: a folder, or a dataset plug-in with its settings."""
    index: str = ""
    """An index of the corpus a model was trained on. Near duplicates of benchmark images in it are
    reported: identical files, and, if the index was made with the evaluated model, similar
    embeddings. Empty: no check."""
    figures: str = ""
    """The figures that corpus was made from: near duplicates are also searched by perceptual hash.
    Needs ``index``."""
    data_root: str = ""
    """The folder that contains the data of ``benchmarks``."""
    cache: str = ""
    """A folder that caches embeddings for later runs; empty: ``.benchmark-cache`` next to
    ``out``."""
    resamples: PositiveInt = 1_000
    """Bootstrap resamples of the confidence intervals."""
    seed: NonNegativeInt = 0
    """Seed of the confidence intervals, the order of options and other choices of tasks that have
    no seed of their own: ``vqa`` trains with ``learning.seed``, probes and fine-tuning draw with
    ``seeds``."""
    precision: Precision = "auto"
    """Precision of the towers: ``float32``, ``bfloat16``, or ``auto``: bfloat16 on GPUs that
    support it, otherwise float32. ``vqa`` computes in float32."""
    batch: PositiveInt = 64
    """Images, or texts, per forward pass of a model that embeds them; ``vqa`` and fine-tuning have
    batches of their own."""
    per_unit: PositiveInt = 1_024
    """Images or texts per embedding task: the work that is repeated if a worker fails."""
    workers: BenchmarkWorkers = field(default_factory=BenchmarkWorkers)
    """Number and resources of the workers."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if [bool(self.model), bool(self.models), self.wise_ft is not None].count(True) != 1:
            raise ValueError("set exactly one of model, models and wise_ft")
        if not self.tasks and not self.benchmarks:
            raise ValueError("set tasks or benchmarks")
        if self.figures and not self.index:
            raise ValueError("figures are only compared if index is set: set index")
        for name in (*self.models, *self.tasks):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"names of models and tasks are letters, digits, '.', '_' and '-', not {name!r}"
                )

    def named_models(self) -> dict[str, str]:
        """Return the models by name; an unnamed model is named after the last part of its path."""
        if self.wise_ft is not None:
            return self.wise_ft.models()
        if self.models:
            return dict(self.models)
        named: dict[str, str] = {}
        for uri in (self.model,) if isinstance(self.model, str) else self.model:
            is_name = "://" not in uri and not uri.startswith(("/", ".", "~", "local-dir:"))
            whole = uri.replace("/", "-") if is_name else base_name(uri)
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-.") or "model"
            name, number = stem, 2
            while name in named:
                name, number = f"{stem}-{number}", number + 1
            named[name] = uri
        return named

    def cache_uri(self) -> str:
        """Return the folder of cached embeddings."""
        if self.cache:
            return self.cache
        path, query = split_query(self.out)
        parent = path.rstrip("/").rpartition("/")[0]
        return f"{parent}/.benchmark-cache{query}" if parent else ".benchmark-cache"

    def shared(self) -> dict[str, Any]:
        """Return the settings that tasks inherit by default: corpus, data, resamples and seed."""
        values = {
            "corpus": self.corpus,
            "data": self.data,
            "resamples": self.resamples,
            "seed": self.seed,
        }
        return {name: value for name, value in values.items() if value != ""}


# Visual question answering. The task's default learning rates and fusion module are METER's; epochs
# and batch size are those of M3AE (arXiv:2209.07098), METER with other pretraining, for small sets.
def vqa() -> BenchmarkConfig:
    """Medical VQA with METER's fusion module: VQA-RAD, towers tuned (needs data: VQA-RAD, out)."""
    return _asking("vqa")


def vqa_as_published() -> BenchmarkConfig:
    """VQA-RAD as in papers, 3,064 and 451 questions: trains on 284 templated test questions."""
    return _asking("vqa", templated="all", repeated="keep")


def vqa_slake() -> BenchmarkConfig:
    """SLAKE in English with METER's fusion module, towers tuned (needs data: SLAKE, out)."""
    return _asking("vqa", learning={"epochs": 15, "batch": 32})


def vqa_frozen() -> BenchmarkConfig:
    """Medical VQA with a small fusion module on frozen towers, for CPUs (needs data, out)."""
    fusion = {"layers": 2, "width": 192, "heads": 6}
    # A higher learning rate for a small module; towers, for which lr is defined, are frozen.
    adam = {"lr": 1e-4, "head_times": 10}
    learning = {"towers": "frozen", "epochs": 20, "fusion": fusion, "adam": adam}
    return _asking("vqa", learning=learning)


def retrieval() -> BenchmarkConfig:
    """Image-to-text and text-to-image retrieval (needs corpus or data, out)."""
    return _asking("retrieval")


def long_retrieval() -> BenchmarkConfig:
    """BMC-LongCLIP's long captions: 1,000 articles of 2025 (needs data: figures/, out)."""
    task = Plugin("retrieval", {"corpus": ""})
    return BenchmarkConfig(out=REQUIRED, tasks={"long_retrieval": task})


def zero_shot() -> BenchmarkConfig:
    """Zero-shot classification by the nearest class prompt (needs data: class folders …, out)."""
    return _asking("zero_shot")


def closed_vqa() -> BenchmarkConfig:
    """Closed VQA: the option whose caption is nearest, in two wordings (needs data, out)."""
    return _asking("closed_vqa")


def linear_probe() -> BenchmarkConfig:
    """Logistic regression on embeddings of 1, 10, 100 % of train (needs data with train, out)."""
    return _asking("linear_probe")


def fine_tune() -> BenchmarkConfig:
    """Fine-tune the image tower with a new head (needs data with train, out; better on a GPU)."""
    return _asking("fine_tune")


def proxy() -> BenchmarkConfig:
    """BiomedCLIP's figure 5: findings by nearest images (tasks.proxy.private, .public, .seeds)."""
    return _asking("proxy")


def biomedica() -> BenchmarkConfig:
    """The 40 tasks of BIOMEDICA's table 12, as closed VQA and retrieval (needs data_root, out)."""
    return BenchmarkConfig(out=REQUIRED, benchmarks=("biomedica",))


def microscopy_composition() -> BenchmarkConfig:
    """The four tasks of BIOMEDICA's table 5 (needs data_root, out)."""
    return BenchmarkConfig(out=REQUIRED, benchmarks=("microscopy_composition",))


def biomedclip_zero_shot() -> BenchmarkConfig:
    """BiomedCLIP's five benchmarks with the prompts of its table 10 (needs data_root, out)."""
    return BenchmarkConfig(out=REQUIRED, benchmarks=("biomedclip",), benchmarks_as="zero_shot")


def _asking(task: str, **settings: Any) -> BenchmarkConfig:
    return BenchmarkConfig(out=REQUIRED, tasks={task: Plugin(task, settings)})


RECIPES: dict[str, Recipe[BenchmarkConfig]] = {
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
    "proxy": proxy,
    "biomedica": biomedica,
    "microscopy_composition": microscopy_composition,
    "biomedclip": biomedclip_zero_shot,
}
