"""The four steps of BMC-LongCLIP's appendix A for one figure, as a generator of requests.

augment, assess, refine, expand. The caller sends each yielded request and passes the answer back:
over HTTP each figure continues as soon as it is answered; an engine on GPUs takes the requests of
many figures at a time. Requests depend only on the figure and on earlier answers.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveInt

from biovl.annotate.longcap import answers
from biovl.annotate.longcap.answers import Feature, Malformed, read_caption, read_features
from biovl.annotate.longcap.expansion import expand_acronyms
from biovl.annotate.longcap.prompts import PromptTemplates
from biovl.articles.acronyms import Acronym

OK = "ok"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters of the model."""

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature; 0: greedy decoding."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: int = 0
    """Seed of sampling; endpoints without support ignore it."""
    caption_tokens: Annotated[int, Field(ge=16)] = 1_024
    """Maximum tokens of a caption."""
    assessment_tokens: Annotated[int, Field(ge=16)] = 4_096
    """Maximum tokens of an assessment."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Length limits of captions, in words."""

    least_words: PositiveInt = 5
    most_words: int = 400
    draft_words: int = 250
    """Requested length of a caption, in words: about 323 tokens, LongCAP's mean."""

    def __post_init__(self) -> None:
        if not self.least_words <= self.draft_words <= self.most_words:
            raise ValueError("least_words <= draft_words <= most_words is required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A figure as input of the steps."""

    caption: str
    citing: str
    """Sentences of the article that cite the figure."""
    abstract: str
    label: str | None
    acronyms: tuple[Acronym, ...]
    image: str
    """The image as a data URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to the model for one step of a figure."""

    step: str
    messages: list[dict[str, Any]]
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's answer to a request, with its number of tokens."""

    text: str = ""
    finish: str = "stop"
    """Reason why generation ended: ``stop``, ``length`` (truncated), ``content_filter``, or
    ``failed``: then ``text`` is the reason."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class LongCaption:
    """Result of the steps for one figure."""

    caption: str
    """The long caption, or the original one if a step failed."""
    status: str = OK
    """``ok``, or the reason and the step that failed: ``malformed: assess``."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Record of every request: step, answer, finish reason, tokens."""

    def tokens(self, name: str) -> int:
        """Return the tokens of all answers; ``name`` is ``input_tokens`` or ``output_tokens``."""
        return sum(step[name] for step in self.steps)


class _Failed(Exception):
    pass


CaptionSteps = Generator[ModelRequest, ModelAnswer, LongCaption]
_Step = Generator[ModelRequest, ModelAnswer, Any]


def enrich_steps(
    subject: Subject, prompts: PromptTemplates, sampling: Sampling, bounds: Bounds
) -> CaptionSteps:
    """Request a long caption step by step; return it, or the original caption and the reason.

    Args:
        subject: The figure and its context in the article.
        prompts: Prompt templates.
        sampling: Sampling parameters.
        bounds: Length limits of captions.
    """
    made = LongCaption(caption=subject.caption)
    try:
        caption = yield from _written(made, subject, prompts, sampling, bounds)
    except _Failed as failed:
        made.status = str(failed)
        return made
    made.caption = expand_acronyms(caption, subject.acronyms)
    return made


def _written(
    made: LongCaption,
    subject: Subject,
    prompts: PromptTemplates,
    sampling: Sampling,
    bounds: Bounds,
) -> _Step:
    acronyms = "; ".join(f"{item.short}: {item.long}" for item in subject.acronyms)
    least = min(bounds.least_words, len(subject.caption.split()))
    augment = prompts.fill(
        "augment",
        caption=subject.caption,
        citing=subject.citing,
        abstract=subject.abstract,
        acronyms=acronyms,
        least_words=least,
        most_words=bounds.draft_words,
    )
    most = sampling.caption_tokens
    draft = yield from _read(made, "augment", prompts, _user(augment), most, read_caption)
    if answers.is_refusal(draft):
        raise _Failed(f"{answers.REFUSED}: augment")
    assess = _user(prompts.fill("assess", draft=draft), subject.image)
    features: list[Feature] = yield from _read(
        made, "assess", prompts, assess, sampling.assessment_tokens, read_features
    )
    feasible = [feature.text for feature in features if feature.feasible]
    removed = [feature.text for feature in features if not feature.feasible]
    if not feasible:
        raise _Failed(answers.NOTHING_FEASIBLE)
    refined = draft
    if removed:
        refine = prompts.fill(
            "refine", draft=draft, feasible="\n".join(feasible), not_feasible="\n".join(removed)
        )
        refined = yield from _read(made, "refine", prompts, _user(refine), most, read_caption)
    reason = answers.rejection_reason(
        refined,
        own_label=subject.label,
        known=subject.caption,
        least_words=least,
        most_words=bounds.most_words,
    ) or (answers.inconsistent(refined, draft, features) if removed else None)
    if reason:
        raise _Failed(reason)
    return refined


def _read(
    made: LongCaption,
    step: str,
    prompts: PromptTemplates,
    question: dict[str, Any],
    max_tokens: int,
    read: Any,
) -> _Step:
    """Send a request and parse the answer; repeat once if it is malformed."""
    messages = [{"role": "system", "content": prompts.fill("system")}, question]
    for name in (step, f"repair {step}"):
        answer: ModelAnswer = yield ModelRequest(
            step=name, messages=messages, max_tokens=max_tokens
        )
        made.steps.append(
            {
                "step": name,
                "answer": answer.text,
                "finish": answer.finish,
                "input_tokens": answer.input_tokens,
                "output_tokens": answer.output_tokens,
            }
        )
        if answer.finish == "failed":
            raise _Failed(f"{answer.text}: {name}")
        if answer.finish == "length":
            raise _Failed(f"{answers.TRUNCATED}: {name}")
        if answer.finish == "content_filter":
            raise _Failed(f"{answers.REFUSED}: {name}")
        try:
            return read(answer.text)
        except Malformed as malformed:
            # Refusals are plain text.
            if answers.is_refusal(answer.text):
                raise _Failed(f"{answers.REFUSED}: {name}") from malformed
            repair = _user(prompts.fill("repair", problem=str(malformed)))
            messages = [*messages, {"role": "assistant", "content": answer.text}, repair]
    raise _Failed(f"{answers.MALFORMED}: {step}")


def _user(text: str, image: str = "") -> dict[str, Any]:
    if not image:
        return {"role": "user", "content": text}
    picture = {"type": "image_url", "image_url": {"url": image}}
    return {"role": "user", "content": [picture, {"type": "text", "text": text}]}


def body_of(ask: ModelRequest, model: str, sampling: Sampling) -> dict[str, Any]:
    """Return the body of a chat request; its content is the cache key."""
    return {
        "model": model,
        "messages": ask.messages,
        "max_tokens": ask.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
    }
