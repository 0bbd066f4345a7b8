"""Captions enriched from the article and checked against the image, by a vision-language model.

BIOMEDICA-LongCAP (BMC-LongCLIP, arXiv:2510.03978, appendix A): augment, assess what the image
shows, refine, spell out acronyms. If a step fails, the figure keeps its caption, with the reason.
"""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from PIL import Image
from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.annotate.annotators import NO_TEXT, Precision, file_bytes, pixels_of
from biovl.annotate.annotators.context import DEFINES, READS, SAYS, texts_as_json
from biovl.annotate.longcap import prompts as prompt_files
from biovl.annotate.longcap.captioner import LongCaptioner
from biovl.annotate.longcap.context import ABSTRACT, CAPTION, acronyms_in, context_of
from biovl.annotate.longcap.endpoint import CHARS_PER_TOKEN, EndpointConfig, estimate_input_tokens
from biovl.annotate.longcap.expansion import acronyms_used
from biovl.annotate.longcap.prompts import PromptTemplates
from biovl.annotate.longcap.spending import Budget, Ledger
from biovl.annotate.longcap.steps import (
    Bounds,
    CaptionSteps,
    ModelAnswer,
    Sampling,
    Subject,
    body_of,
    enrich_steps,
)
from biovl.core.errors import ConfigError

if TYPE_CHECKING:
    from biovl.annotate.batches import Unit
    from biovl.annotate.config import AnnotateConfig
    from biovl.core.tables import Table
    from biovl.runtime.progress import Progress

_JPEG_QUALITY = 90
_FEATURES = (
    "<assessment><feature><text>{draft}</text><rationale>{draft}</rationale>"
    "<label>FEASIBLE</label></feature><feature><text>one</text><rationale/>"
    "<label>NOT_FEASIBLE</label></feature></assessment>"
)
"""Template of a text as long as the expected assessment of a draft."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The model on GPUs of the cluster, through vLLM; replaces an endpoint."""

    copies: NonNegativeInt = 0
    """Number of model copies; 0: no engine, requests go to the endpoint."""
    gpus: PositiveInt = 1
    """Number of GPUs per copy of the model."""
    weights: str = ""
    """A folder, or a name on the Hugging Face Hub; empty: the model's name."""
    batch: PositiveInt = 16
    """Requests per batch of a copy."""
    context_tokens: PositiveInt = 16_384
    """Maximum tokens of a request, with its image and its answer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Additional arguments of vLLM's engine."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The model, its prompts, and the limits on requests."""

    model: str
    """Model name of the endpoint: ``Qwen/Qwen2-VL-72B-Instruct``."""
    cache: str
    """A folder that caches all paid answers, local or ``s3://``. Jobs and resumed runs that share
    it pay for each request only once."""
    prompts: str = "v1"
    """Version of the built-in prompts, or a YAML file, local or ``s3://``."""
    image_px: Annotated[int, Field(ge=28)] = 1_024
    """Maximum longer side of an image; larger images are resized, since models charge by pixels."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling parameters of the model."""
    bounds: Bounds = field(default_factory=Bounds)
    """Limits on the generated captions."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """The endpoint and its rate limits."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """The model on GPUs of the cluster, instead of an endpoint."""
    budget: Budget = field(default_factory=Budget)
    """Limits on the cost."""
    most_failures: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Maximum share of figures without a long caption: above it the job stops. Checked after the
    first 20 figures."""

    @property
    def column(self) -> str:
        """Name of the main column."""
        return "long_caption"

    @property
    def files(self) -> dict[str, str]:
        """Files that the column depends on, in addition to the model."""
        return {} if prompt_files.read_builtin(self.prompts) else {"prompts": self.prompts}

    elsewhere = ("cache", "endpoint", "engine", "budget", "most_failures")
    """Names of settings that do not affect the columns."""
    batches_at_once = 4
    """Batches processed concurrently: the next ones start while a batch waits for its last
    answers."""

    def __post_init__(self) -> None:
        if self.engine.copies and self.endpoint.url:
            raise ValueError("endpoint.url and engine are mutually exclusive: set one")


def build(config: Config) -> "LongCap":
    """Return the annotator for a configuration.

    Raises:
        ConfigError: If the prompts do not exist, or are invalid.
    """
    data = prompt_files.read_builtin(config.prompts) or file_bytes("prompts", config.prompts)
    try:
        return LongCap(config, prompt_files.parse_templates(data))
    except ValueError as error:
        raise ConfigError(f"prompts: {config.prompts}: {error}") from error


class LongCap:
    """Computes long captions of figures with a vision-language model."""

    reads = ("image", "figure_label", *READS)
    writes = pa.schema(
        [
            pa.field("long_caption", pa.string()),
            pa.field("long_caption_status", pa.string()),
            pa.field("long_caption_steps", pa.binary()),
            pa.field("long_caption_input_tokens", pa.int64()),
            pa.field("long_caption_output_tokens", pa.int64()),
        ]
    )
    counted = ("long_caption_status",)

    def __init__(self, config: Config, prompts: PromptTemplates) -> None:
        self.config, self._prompts = config, prompts
        self.name = config.column
        self.notes: dict[str, Any] = {
            "model": config.model,
            "prompts_sha256": prompts.sha256,
            "long_caption_steps": "JSON of each request's answer, compressed with zstd",
        }

    def prepare(self, row: Mapping[str, Any]) -> bytes | str:
        """Return a figure and its article's texts as JSON, with a resized image; or a defect."""
        texts = texts_as_json(row, READS)
        if texts is None or not json.loads(texts)["caption"].strip():
            return NO_TEXT
        pixels_HWC = pixels_of(row["image"])
        if isinstance(pixels_HWC, str):
            return pixels_HWC
        label = row["figure_label"]
        added = {
            "figure_label": label if isinstance(label, str) else None,
            "image": data_url(pixels_HWC, self.config.image_px),
        }
        return json.dumps({**json.loads(texts), **added}).encode()

    def load(self, device: str, precision: Precision) -> "LongCaptioner":
        """Return an object that computes long captions with the configured model."""
        config = self.config
        return LongCaptioner(
            begin=self.start,
            body=lambda ask: body_of(ask, config.model, config.sampling),
            cache=config.cache,
            endpoint=config.endpoint,
            budget=config.budget,
            most_failures=config.most_failures,
        )

    def start(self, prepared: bytes) -> tuple[str, CaptionSteps]:
        """Return the caption of a prepared figure, and the generator of its steps."""
        subject = subject_of(json.loads(prepared))
        steps = enrich_steps(subject, self._prompts, self.config.sampling, self.config.bounds)
        return subject.caption, steps

    def expected(self, prepared: bytes) -> Counter[str]:
        """Return the expected requests and tokens of a figure, without retries or failed steps."""
        config, total = self.config, Counter[str]()
        _, steps = self.start(prepared)
        # A draft of the requested length; features repeat it, with a rationale for each.
        draft = "word " * config.bounds.draft_words
        said = (
            f"<caption>{draft}</caption>",
            _FEATURES.format(draft=draft),
            f"<caption>{draft}</caption>",
        )
        ask = next(steps)
        for text in said:
            body = body_of(ask, config.model, config.sampling)
            output = min(ask.max_tokens, len(text) / CHARS_PER_TOKEN)
            total += Counter(
                {
                    "requests": 1,
                    "input_tokens": estimate_input_tokens(body),
                    "output_tokens": int(output),
                }
            )
            try:
                ask = steps.send(ModelAnswer(text=text))
            except StopIteration:
                break
        return total

    def prefetch_answers(
        self, config: "AnnotateConfig", table: "Table", units: "list[Unit]", report: "Progress"
    ) -> None:
        """Run the requests of all figures through the engine, if there is one."""
        # Imported here: workers that only send requests do not need Ray's engine.
        from biovl.annotate import longcap_job

        if self.config.engine.copies:
            longcap_job.fill(config, self, table, units, report)

    def spent(self) -> str:
        """Return the tokens and cost of all jobs that share the cache, as text."""
        total = Ledger(self.config.cache, self.config.budget).described()
        return f"spent with the cache {self.config.cache}: {total}"

    def price(self, tokens: Counter[str]) -> str:
        """Return the price of some tokens, and the duration at the configured rates."""
        budget, endpoint = self.config.budget, self.config.endpoint
        dollars = budget.cost(tokens["input_tokens"], tokens["output_tokens"])
        parts = [
            f"${dollars:,.2f}"
            if dollars
            else "set annotator.budget.dollars_per_million_input and _output to estimate the price"
        ]
        both = tokens["input_tokens"] + tokens["output_tokens"]
        rates = [(endpoint.requests_per_minute, tokens["requests"])]
        rates += [(endpoint.tokens_per_minute, both)]
        minutes = [count / rate for rate, count in rates if rate]
        if minutes:
            parts.append(f"{max(minutes) / 60:,.1f} hours at the rates that are set")
        for limit, count, name in (
            (budget.dollars, dollars, "dollars"),
            (budget.tokens, both, "tokens"),
        ):
            if limit is not None and count > limit:
                parts.append(
                    f"more than budget.{name} ({limit:,}): the job will stop before its end"
                )
        return "\n".join(parts)


def subject_of(row: Mapping[str, Any]) -> Subject:
    """Return a prepared figure as input of the steps."""
    pieces = context_of(*(row[name] for name in SAYS))
    caption = pieces[0].text if pieces and pieces[0].source == CAPTION else row["caption"]
    known = acronyms_in(*(row[name] for name in DEFINES))
    citing = " ".join(piece.text for piece in pieces if piece.source not in (CAPTION, ABSTRACT))
    abstract = row["article.abstract"] or ""
    return Subject(
        caption=caption,
        citing=citing,
        abstract=abstract,
        label=row["figure_label"],
        acronyms=tuple(acronyms_used(f"{caption} {citing} {abstract}", known)),
        image=row["image"],
    )


def data_url(pixels_HWC: np.ndarray, longest_px: int) -> str:
    """Return an image as a JPEG data URL, resized to a maximum longer side."""
    image = Image.fromarray(pixels_HWC)
    image.thumbnail((longest_px, longest_px), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
