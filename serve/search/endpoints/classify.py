"""POST /v1/classify: zero-shot classification of images."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from biovl.benchmark.prompts import PLACE, PROMPTS, TEMPLATES, fill_template
from serve.http.request_context import Exchange, exchange_in
from serve.http.settings import Limits
from serve.search.answers import NO_STORE, json_answer, refusals
from serve.search.bodies import ParsedRequest, body_documentation, parse_request
from serve.search.context import Context
from serve.search.engine import EmbeddedVectors
from serve.search.messages import ClassifyAnswer, ClassifyRequest
from serve.search.preprocessing import prepare_images
from serve.search.queries import check_text, invalid, one_version, retry_if_stale
from serve.search.uploads import image_of, images_of

# Shapes: N images, C classes, T templates, D embedding.

MAX_PROMPTS = 4_096
"""Maximum prompts of one request: classes times templates."""
_PROMPTS_AT_ONCE = 64


class BenchmarkPrompts(BaseModel):
    """Class names and prompt templates of a published benchmark."""

    name: str
    title: str
    classes: list[str]
    templates: list[str]
    source: str


class BenchmarksAnswer(BaseModel):
    """All benchmarks with built-in prompts, for ``benchmark`` of a request."""

    benchmarks: list[BenchmarkPrompts]


def router(context: Context) -> APIRouter:
    """Return the routes for zero-shot classification."""
    routes = context.router(tags=["classify"], dependencies=[context.needs("search")])
    benchmarks = BenchmarksAnswer.model_validate(
        {"benchmarks": list(PROMPTS.values())}, from_attributes=True
    ).model_dump()

    @routes.get(
        "/v1/classify/benchmarks",
        summary="Classes and templates of the papers' benchmarks",
        response_model=BenchmarksAnswer,
        responses=refusals(),
    )
    async def known() -> Response:
        return json_answer(benchmarks)

    @routes.post(
        "/v1/classify",
        summary="Classify images by class names (zero-shot)",
        response_model=ClassifyAnswer,
        responses=refusals(409),
        openapi_extra=body_documentation(ClassifyRequest),
    )
    async def classify(request: Request) -> Response:
        parsed = await parse_request(request, ClassifyRequest, context.settings.limits)
        return await _answer(context, exchange_in(request.scope), parsed)

    return routes


async def _answer(
    context: Context, exchange: Exchange, parsed: ParsedRequest[ClassifyRequest]
) -> Response:
    message, limits, served = parsed.message, context.settings.limits, context.served
    classes, templates = _classes(message, limits)
    images = _images(parsed, limits)
    prompts = [fill_template(template, name) for name in classes for template in templates]
    exchange.inputs = len(images) + len(prompts)

    async def once() -> tuple[EmbeddedVectors, EmbeddedVectors]:
        return await _embedded(context, exchange, images, prompts)

    image, text = await retry_if_stale(once)
    class_CD = class_vectors(text.rows_ND, len(templates))
    similarity_NC = image.rows_ND @ class_CD.T
    scale = message.logit_scale if message.logit_scale is not None else image.logit_scale
    probability_NC = softmax(similarity_NC.astype(np.float64) * scale)
    of_class = range(0, len(prompts), len(templates))
    is_cut_C = [any(text.truncated[first : first + len(templates)]) for first in of_class]
    results = [
        {"classes": _sorted(classes, probability_C, similarity_C, is_cut_C)}
        for probability_C, similarity_C in zip(probability_NC, similarity_NC, strict=True)
    ]
    return json_answer(
        {
            "request_id": exchange.request_id,
            "model": await served.versioned_name(image.model_version),
            "index": None,
            "results": results,
            "templates": templates,
            "timings_ms": exchange.timings_ms(),
        },
        headers=NO_STORE,
    )


def class_vectors(prompt_PD: np.ndarray, templates: int) -> np.ndarray:
    """Return a unit vector for each class: the normalized mean of its prompt embeddings.

    Args:
        prompt_PD: Unit vectors of the prompts, grouped by class, shape [C * T, D].
        templates: Number of templates T.

    Returns:
        float32, shape [C, D].

    Source:
        ``build_zero_shot_classifier`` of open_clip 3.3; Radford et al. 2021, section 3.1.4.
    """
    mean_CD = prompt_PD.reshape(-1, templates, prompt_PD.shape[1]).mean(axis=1, dtype=np.float64)
    # Opposite prompts have a zero mean: avoid dividing by zero; similarity is then zero.
    length_C1 = np.maximum(np.linalg.norm(mean_CD, axis=1, keepdims=True), 1e-12)
    return np.asarray(mean_CD / length_C1, np.float32)


def softmax(logit_NC: np.ndarray) -> np.ndarray:
    """Return probabilities that sum to 1 in each row, float64, shape [N, C]."""
    odds_NC = np.exp(logit_NC - logit_NC.max(axis=1, keepdims=True))
    return np.asarray(odds_NC / odds_NC.sum(axis=1, keepdims=True))


def _sorted(
    classes: Sequence[str],
    probability_C: np.ndarray,
    similarity_C: np.ndarray,
    is_cut_C: Sequence[bool],
) -> list[dict[str, object]]:
    order = np.argsort(-probability_C, kind="stable")
    return [
        {
            "name": classes[number],
            "probability": float(probability_C[number]),
            "similarity": round(float(similarity_C[number]), 6),
            "truncated": is_cut_C[number],
        }
        for number in order
    ]


def _classes(message: ClassifyRequest, limits: Limits) -> tuple[list[str], list[str]]:
    """Return the validated class names and templates."""
    if (message.classes is None) == (message.benchmark is None):
        raise invalid("classes", "send classes, or the name of a benchmark, and not both")
    if message.benchmark is not None:
        if message.benchmark not in PROMPTS:
            choices = ", ".join(PROMPTS)
            raise invalid("benchmark", f"is not known; choose from {choices}")
        prompts = PROMPTS[message.benchmark]
        classes, default = list(prompts.classes), prompts.templates
    else:
        classes, default = message.classes or [], TEMPLATES
    templates = list(default) if message.templates is None else message.templates
    for name, values, most, least in (
        ("classes", classes, limits.classes_max, 2),
        ("templates", templates, limits.templates_max, 1),
    ):
        if not least <= len(values) <= most:
            raise invalid(name, f"has {len(values):,}, expected {least} to {most:,}")
        for value in values:
            check_text(name, value, limits)
    if len(classes) * len(templates) > MAX_PROMPTS:
        reason = f"times templates are {len(classes) * len(templates):,}, at most {MAX_PROMPTS:,}"
        raise invalid("classes", reason)
    unique: set[str] = set()
    for number, name in enumerate(classes):
        if name.strip() in unique:
            raise invalid("classes", f"number {number} (from 0) is a duplicate")
        unique.add(name.strip())
    for number, template in enumerate(templates):
        if template.count(PLACE) != 1:
            reason = f"number {number} (from 0) must hold {PLACE}, for the class, exactly once"
            raise invalid("templates", reason)
    return classes, templates


def _images(parsed: ParsedRequest[ClassifyRequest], limits: Limits) -> list[bytes]:
    message = parsed.message
    images = list(parsed.files)
    count = len(images) + (message.image is not None) + len(message.images or ())
    if not 1 <= count <= limits.inputs_max:
        raise invalid("images", f"there are {count}, expected 1 to {limits.inputs_max}")
    if message.image is not None:
        images.append(image_of(message.image, limits, ("body", "image")))
    return images + images_of(message.images or [], limits, "images")


async def _embedded(
    context: Context, exchange: Exchange, images: list[bytes], prompts: list[str]
) -> tuple[EmbeddedVectors, EmbeddedVectors]:
    """Return embeddings of images and prompts by the same model version.

    Raises:
        Problem: 409 if the model was replaced in between.
    """
    engine = context.engine
    pixels = await prepare_images(engine, context.pixels, exchange, images)
    with exchange.stage("encode"):
        image = await engine.embed_images(pixels)
        # In portions, so that one request does not fill the shared queue.
        texts = [
            await engine.embed_texts(prompts[start : start + _PROMPTS_AT_ONCE])
            for start in range(0, len(prompts), _PROMPTS_AT_ONCE)
        ]
    one_version(image, *texts)
    rows_ND = np.concatenate([some.rows_ND for some in texts])
    truncated = [is_cut for some in texts for is_cut in some.truncated]
    return image, replace(texts[0], rows_ND=rows_ND, truncated=truncated)
