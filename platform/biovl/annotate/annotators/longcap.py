"""Captions enriched from the article and checked against the image, by a vision-language model.

BIOMEDICA-LongCAP (BMC-LongCLIP, arXiv:2510.03978, appendix A): augment, assess what of it the image
shows, refine, spell acronyms out. A figure for which a step fails keeps its caption and says why.
"""

import base64
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from biovl.annotate.annotators import NO_TEXT, Precision, file_bytes, pixels_of
from biovl.annotate.annotators.context import DEFINES, READS, SAYS, as_json
from biovl.annotate.longcap import prompts as prompt_files
from biovl.annotate.longcap.asking import Enriching
from biovl.annotate.longcap.context import ABSTRACT, CAPTION, acronyms_in, context_of
from biovl.annotate.longcap.endpoint import CHARS_PER_TOKEN, EndpointConfig, estimated_input
from biovl.annotate.longcap.expansion import used
from biovl.annotate.longcap.prompts import Prompts
from biovl.annotate.longcap.spending import Budget, Ledger
from biovl.annotate.longcap.steps import (
    Answer,
    Asking,
    Bounds,
    Sampling,
    Subject,
    body_of,
    enriched,
)
from biovl.core.errors import ConfigError

_JPEG_QUALITY = 90
_FEATURES = (
    "<assessment><feature><text>{draft}</text><rationale>{draft}</rationale>"
    "<label>FEASIBLE</label></feature><feature><text>one</text><rationale/>"
    "<label>NOT_FEASIBLE</label></feature></assessment>"
)
"""As long as the assessment of a draft."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The model on GPUs of the cluster, by vLLM; in place of an endpoint."""

    copies: int = 0
    """How many there are; 0: none, an endpoint is asked."""
    gpus: int = 1
    """Of each."""
    weights: str = ""
    """A folder, or a name on the hub; empty: the model's name."""
    batch: int = 16
    """Requests that are given to a copy at a time."""
    context_tokens: int = 16_384
    """Of a request with its image and its answer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of vLLM's engine."""

    def __post_init__(self) -> None:
        if self.copies < 0 or min(self.gpus, self.batch, self.context_tokens) < 1:
            raise ValueError("gpus, batch and context_tokens must be positive, copies not negative")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which model writes, what it is asked, and how much of that there may be."""

    model: str
    """As the endpoint calls it: ``Qwen/Qwen2-VL-72B-Instruct``."""
    cache: str
    """A folder that keeps every answer that was paid for, local or ``s3://``: none is paid twice,
    whatever is killed, and by whatever job it is wanted again."""
    prompts: str = "v1"
    """A version of ours, or a YAML file of yours, local or ``s3://``."""
    image_px: int = 1_024
    """Larger images are made smaller, to this on their longer side: models charge by pixels."""
    sampling: Sampling = field(default_factory=Sampling)
    bounds: Bounds = field(default_factory=Bounds)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    budget: Budget = field(default_factory=Budget)
    most_failures: float = 0.2
    """The share of figures without a long caption at which the job stops, after 20 of them."""

    @property
    def column(self) -> str:
        """What the column is called."""
        return "long_caption"

    @property
    def files(self) -> dict[str, str]:
        """What the column depends on beside the model."""
        return {} if prompt_files.packaged(self.prompts) else {"prompts": self.prompts}

    elsewhere = ("cache", "endpoint", "engine", "budget", "most_failures")
    """Settings that change nothing but how it comes about."""
    batches_at_once = 4
    """While the last figures of a batch are answered, the next one is asked for."""

    def __post_init__(self) -> None:
        if self.image_px < 28:
            raise ValueError(f"image_px must be 28 or more, got {self.image_px}")
        if not 0 < self.most_failures <= 1:
            raise ValueError(f"most_failures must be in (0, 1], got {self.most_failures}")
        if self.engine.copies and self.endpoint.url:
            raise ValueError("an endpoint.url and an engine contradict each other: give one")


def build(config: Config) -> "LongCap":
    """Return the annotator.

    Raises:
        ConfigError: If there are no such prompts, or they are not what is needed.
    """
    data = prompt_files.packaged(config.prompts) or file_bytes("prompts", config.prompts)
    try:
        return LongCap(config, prompt_files.parsed(data))
    except ValueError as error:
        raise ConfigError(f"prompts: {config.prompts}: {error}") from error


class LongCap:
    """Figures to long captions."""

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

    def __init__(self, config: Config, prompts: Prompts) -> None:
        self.config, self._prompts = config, prompts
        self.name = config.column
        self.notes: dict[str, Any] = {
            "model": config.model,
            "prompts_sha256": prompts.sha256,
            "long_caption_steps": "JSON of each request's answer, compressed with zstd",
        }

    def prepare(self, row: Mapping[str, Any]) -> bytes | str:
        """Return what the steps need of a figure, as JSON, its image made smaller."""
        texts = as_json(row, READS)
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

    def load(self, device: str, precision: Precision) -> "Enriching":
        """Return what asks the model."""
        config = self.config
        return Enriching(
            begin=self.begun,
            body=lambda ask: body_of(ask, config.model, config.sampling),
            cache=config.cache,
            endpoint=config.endpoint,
            budget=config.budget,
            most_failures=config.most_failures,
        )

    def begun(self, prepared: bytes) -> tuple[str, Asking]:
        """Return the caption of a figure that was prepared, and its steps."""
        subject = subject_of(json.loads(prepared))
        steps = enriched(subject, self._prompts, self.config.sampling, self.config.bounds)
        return subject.caption, steps

    def expected(self, prepared: bytes) -> Counter[str]:
        """Return what a figure will take where every step is asked once."""
        config, total = self.config, Counter[str]()
        _, steps = self.begun(prepared)
        # A draft as long as it was asked for; features say it again, with a reason for each.
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
                    "input_tokens": estimated_input(body),
                    "output_tokens": int(output),
                }
            )
            try:
                ask = steps.send(Answer(text=text))
            except StopIteration:
                break
        return total

    def spent(self) -> str:
        """Return what was spent by all who share the cache, for a person."""
        return Ledger(self.config.cache, self.config.budget).described()

    def price(self, tokens: Counter[str]) -> str:
        """Return what so many tokens cost, and how long they take at the rates that are set."""
        budget, endpoint = self.config.budget, self.config.endpoint
        dollars = budget.cost(tokens["input_tokens"], tokens["output_tokens"])
        told = [
            f"${dollars:,.2f}"
            if dollars
            else "set annotator.budget.dollars_per_million_input and _output to know the price"
        ]
        both = tokens["input_tokens"] + tokens["output_tokens"]
        rates = [(endpoint.requests_per_minute, tokens["requests"])]
        rates += [(endpoint.tokens_per_minute, both)]
        minutes = [count / rate for rate, count in rates if rate]
        if minutes:
            told.append(f"{max(minutes) / 60:,.1f} hours at the rates that are set")
        for limit, count, name in (
            (budget.dollars, dollars, "dollars"),
            (budget.tokens, both, "tokens"),
        ):
            if limit is not None and count > limit:
                told.append(
                    f"more than budget.{name} ({limit:,}): the job will stop before its end"
                )
        return "\n".join(told)


def subject_of(row: Mapping[str, Any]) -> Subject:
    """Return a figure that was prepared, as the steps see it."""
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
        acronyms=tuple(used(f"{caption} {citing} {abstract}", known)),
        image=row["image"],
    )


def data_url(pixels_HWC: np.ndarray, longest_px: int) -> str:
    """Return an image as a data URL, JPEG, at most so long on its longer side."""
    image = Image.fromarray(pixels_HWC)
    image.thumbnail((longest_px, longest_px), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
