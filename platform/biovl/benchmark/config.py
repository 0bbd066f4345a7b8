"""Settings of a benchmark run: which models are asked what."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from biovl.benchmark.interpolated import WiseFt
from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.plugins import Plugin
from biovl.models.encoder import Precision

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class BenchmarkWorkers:
    """Who embeds, and who trains where a task does."""

    count: int = 1
    """Copies of a model, each on a worker."""
    cpus: float = 1
    """Of a worker; as many threads decode images."""
    gpus: float = 0
    """Of a worker; 0 computes on CPUs."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.cpus <= 0 or self.gpus < 0:
            raise ValueError("count is at least 1, cpus above 0, gpus not negative")


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """A run: models, and what they are asked."""

    out: str
    """Where the report is published, local or s3://."""
    model: str | tuple[str, ...] = ()
    """A model, or several: a folder of ours, local-dir:FOLDER, a folder of transformers, or a name
    of open_clip with weights (ViT-B-32/laion2b_s34b_b79k)."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Models by the name the table gives them: {"ours": "DIR", "clip": "ViT-B-32/openai"}."""
    wise_ft: WiseFt | None = None
    """In their place two models, of which those between are judged as well:
    {"base": "DIR", "tuned": "DIR"}."""
    tasks: Mapping[str, Plugin] = field(default_factory=dict)
    """What is asked, by name: a task and its settings. Recipes fill this in; tasks.NAME.SETTING=…
    changes a setting of one."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks and suites of the table that --list prints."""
    benchmarks_as: str = "closed_vqa"
    """The task by which benchmarks of images with classes are asked: closed_vqa, zero_shot,
    linear_probe, fine_tune."""
    corpus: str = ""
    """A corpus of ours, for tasks that read one."""
    data: str | Plugin = ""
    """Where the data of a task is, or its description, for tasks that do not say themselves."""
    index: str = ""
    """An index of the corpus a model was trained on: near duplicates among a benchmark's images are
    reported, by file, and by vector if the index is of that model."""
    figures: str = ""
    """What that corpus was made from: near duplicates are found by perceptual hash as well."""
    data_root: str = ""
    """The folder that benchmarks of the table lie in."""
    cache: str = ""
    """Where vectors are kept for other runs; empty is .benchmark-cache beside out."""
    resamples: int = 1_000
    """Of the bootstrap intervals."""
    seed: int = 0
    """Of all draws."""
    precision: Precision = "auto"
    """Of the towers' arithmetic: float32, bfloat16, or auto, which is the latter on GPUs."""
    batch: int = 64
    """Images or texts that a model sees at a time."""
    per_unit: int = 1_024
    """Images or texts embedded by one task: what is lost when a worker is."""
    workers: BenchmarkWorkers = field(default_factory=BenchmarkWorkers)

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if [bool(self.model), bool(self.models), self.wise_ft is not None].count(True) != 1:
            raise ValueError("name what is judged: set one of model, models and wise_ft")
        if not self.tasks and not self.benchmarks:
            raise ValueError("say what is asked: tasks or benchmarks")
        if self.figures and not self.index:
            raise ValueError("figures are looked at for near duplicates beside an index: set index")
        if min(self.resamples, self.batch, self.per_unit) < 1:
            raise ValueError("resamples, batch and per_unit are at least 1")
        for name in (*self.models, *self.tasks):
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"names of models and tasks are letters, digits, '.', '_' and '-', not {name!r}"
                )

    def named_models(self) -> dict[str, str]:
        """Return the models by name; those without one get the last part of where they are."""
        if self.wise_ft is not None:
            return self.wise_ft.models()
        if self.models:
            return dict(self.models)
        found: dict[str, str] = {}
        for uri in (self.model,) if isinstance(self.model, str) else self.model:
            is_name = "://" not in uri and not uri.startswith(("/", ".", "~", "local-dir:"))
            whole = uri.replace("/", "-") if is_name else uri.rstrip("/").rpartition("/")[2]
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-.") or "model"
            name, number = stem, 2
            while name in found:
                name, number = f"{stem}-{number}", number + 1
            found[name] = uri
        return found

    def cache_uri(self) -> str:
        """Return where vectors are kept."""
        if self.cache:
            return self.cache
        parent = self.out.rstrip("/").rpartition("/")[0]
        return f"{parent}/.benchmark-cache" if parent else ".benchmark-cache"

    def shared(self) -> dict[str, Any]:
        """Return what tasks take from here unless they say otherwise."""
        values = {
            "corpus": self.corpus,
            "data": self.data,
            "resamples": self.resamples,
            "seed": self.seed,
        }
        return {name: value for name, value in values.items() if value != ""}


# Medical questions. METER's rates and module are what the task has for defaults; epochs and batches
# for sets this small are M3AE's (arXiv:2209.07098), which is METER with another pretraining.
def vqa() -> BenchmarkConfig:
    """Medical questions as METER: VQA-RAD, towers tuned (needs data: VQA-RAD unpacked, out)."""
    return _asking("vqa")


def vqa_as_published() -> BenchmarkConfig:
    """VQA-RAD as papers with 3,064 and 451: trains on 284 templated questions of test."""
    return _asking("vqa", templated="all", repeated="keep")


def vqa_slake() -> BenchmarkConfig:
    """SLAKE in English as METER, towers tuned (needs data: SLAKE unpacked, out)."""
    return _asking("vqa", learning={"epochs": 15, "batch": 32})


def vqa_frozen() -> BenchmarkConfig:
    """Medical questions by a small module on frozen towers, for CPUs (needs data, out)."""
    fusion = {"layers": 2, "width": 192, "heads": 6}
    # A module this small learns faster; the towers, whose rate it is, do not learn.
    adam = {"lr": 1e-4, "head_times": 10}
    learning = {"towers": "frozen", "epochs": 20, "fusion": fusion, "adam": adam}
    return _asking("vqa", learning=learning)


def retrieval() -> BenchmarkConfig:
    """The text of every image and the image of every text (needs corpus or data, out)."""
    return _asking("retrieval")


def long_retrieval() -> BenchmarkConfig:
    """BMC-LongCLIP's long captions: 1,000 articles of 2025 (needs data: figures/, out)."""
    task = Plugin("retrieval", {"corpus": ""})
    return BenchmarkConfig(out=REQUIRED, tasks={"long_retrieval": task})


def zero_shot() -> BenchmarkConfig:
    """The class whose prompts are nearest to the image (needs data: class folders …, out)."""
    return _asking("zero_shot")


def closed_vqa() -> BenchmarkConfig:
    """The option whose caption is nearest, in two wordings (needs data, out)."""
    return _asking("closed_vqa")


def linear_probe() -> BenchmarkConfig:
    """Logistic regression on vectors of 1, 10 and 100 % of train (needs data with train, out)."""
    return _asking("linear_probe")


def fine_tune() -> BenchmarkConfig:
    """The whole image tower trained with a new head (needs data with train, out; a GPU is wise)."""
    return _asking("fine_tune")


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
    "biomedica": biomedica,
    "microscopy_composition": microscopy_composition,
    "biomedclip": biomedclip_zero_shot,
}
