"""Batch inference on the cluster's GPUs: vLLM through ``ray.data.llm``, filling the cache.

Figures are processed in waves. Each wave sends the next request of every figure through the engine
and stores the answers in the annotator's cache, under the same keys as an endpoint's. When no
figure has a request left, ``annotate`` finds all answers in the cache. A wave starts the engine
once, streams, and resumes after an interruption.
"""

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import ray
from ray.data import Dataset

from biovl.annotate import batches, selection
from biovl.annotate.annotators.longcap import EngineConfig, LongCap
from biovl.annotate.batches import Unit
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.longcap.spending import AnswerCache
from biovl.annotate.longcap.steps import ModelAnswer, body_of
from biovl.core.tables import Table
from biovl.runtime.failures import raise_task_error, run_steps, run_task
from biovl.runtime.progress import Progress

Processor = Callable[[Dataset], Dataset]
"""Maps rows with ``key`` and ``body`` to rows with ``key`` and the generated answer."""

_ASKED = pa.schema([("key", pa.string()), ("body", pa.string()), ("failed", pa.binary())])
_MOST_WAVES = 6
"""Three steps, each of which may be repeated once."""


def fill(
    config: AnnotateConfig,
    annotator: LongCap,
    table: Table,
    units: list[Unit],
    report: Progress,
    processor: Processor | None = None,
) -> int:
    """Run the requests of all figures through the engine; return the number of answers.

    Args:
        config: Configuration of the job.
        annotator: The annotator that builds requests.
        table: The table of figures.
        units: Units of the table to process.
        report: Progress of the job.
        processor: Replaces the engine's, for tests.
    """
    run = processor or through_vllm(annotator.config.model, annotator.config.engine)
    answered = 0
    for wave in range(_MOST_WAVES):
        shared = ray.put((config, annotator, table, units))
        numbers = ray.data.from_items(list(range(len(units))), override_num_blocks=len(units))
        requests = numbers.map_batches(
            functools.partial(_next_requests, shared),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
        )
        answers = run(requests).map(
            functools.partial(_store_answer, annotator.config.cache), num_cpus=_LITTLE
        )
        here = sum(int(raise_task_error(row)["kept"]) for row in answers.iter_rows())
        answered += here
        report.say(f"wave {wave + 1}: {here:,} answers")
        if not here:
            break
    return answered


_LITTLE = 0.1


def through_vllm(model: str, engine: EngineConfig) -> Processor:
    """Return the processor of an engine; its models load when it runs.

    Needs ``ray[llm]`` on the machines with GPUs.
    """
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    config = vLLMEngineProcessorConfig(
        model_source=engine.weights or model,
        engine_kwargs={
            "tensor_parallel_size": engine.gpus,
            "max_model_len": engine.context_tokens,
            "limit_mm_per_prompt": {"image": 1},
            **engine.options,
        },
        batch_size=engine.batch,
        concurrency=engine.copies,
        # A failed row is requested again by the next run; the others continue.
        should_continue_on_error=True,
        prepare_multimodal_stage={"enabled": True},
        chat_template_stage={"enabled": True},
        tokenize_stage={"enabled": False},
        detokenize_stage={"enabled": False},
    )
    built: Processor = build_processor(config, preprocess=_for_engine, postprocess=_from_engine)
    return built


def _for_engine(row: dict[str, Any]) -> dict[str, Any]:
    body = json.loads(row["body"])
    names = ("max_tokens", "temperature", "top_p", "seed")
    return {
        "key": row["key"],
        "body": row["body"],
        "messages": body["messages"],
        "sampling_params": {name: body[name] for name in names},
    }


def _from_engine(row: dict[str, Any]) -> dict[str, Any]:
    names = ("key", "body", "generated_text", "num_input_tokens", "num_generated_tokens")
    return {name: row[name] for name in names}


def _next_requests(shared: Any, numbers: pa.Table) -> Iterator[pa.Table]:
    """Yield the next requests of the figures of a unit."""
    config, annotator, table, units = ray.get(shared)
    (number,) = numbers["item"].to_pylist()
    cache = AnswerCache(annotator.config.cache)

    def following() -> Iterator[dict[str, Any]]:
        for row in _selected_rows(config, annotator, table, units[number]):
            request = _next(annotator, cache, {name: cell.as_py() for name, cell in row.items()})
            if request is not None:
                yield request

    for row in run_steps(config.table, following):
        yield pa.Table.from_pylist([row], _ASKED)


def _selected_rows(
    config: AnnotateConfig, annotator: LongCap, table: Table, unit: Unit
) -> Iterator[dict[str, Any]]:
    rows = batches.rows_of(table, unit, annotator.reads, config.batch)
    selected = selection.is_selected(config, unit)
    return rows if selected is None else itertools.compress(rows, selected)


def _next(annotator: LongCap, cache: AnswerCache, row: dict[str, Any]) -> dict[str, Any] | None:
    prepared = annotator.prepare(row)
    if isinstance(prepared, str):
        return None
    _, steps = annotator.start(prepared)
    ask = next(steps)
    while True:
        body = body_of(ask, annotator.config.model, annotator.config.sampling)
        key = cache.key(body)
        known = cache.get(key)
        if known is None:
            return {"key": key, "body": json.dumps(body)}
        try:
            ask = steps.send(known)
        except StopIteration:
            return None


def _store_answer(uri: str, row: dict[str, Any]) -> dict[str, Any]:
    """Store an answer in the cache."""
    if row.get("failed") is not None:
        return {"kept": 0, "failed": row["failed"]}
    if row.get("__inference_error__") or not row.get("key"):
        return {"kept": 0, "failed": None}
    most = json.loads(row["body"])["max_tokens"]
    output_tokens = int(row["num_generated_tokens"])
    answer = ModelAnswer(
        text=row["generated_text"],
        # The engine's rows do not include the finish reason.
        finish="length" if output_tokens >= most else "stop",
        input_tokens=int(row["num_input_tokens"]),
        output_tokens=output_tokens,
    )
    return {"failed": None, **run_task(uri, lambda: _put(uri, row["key"], answer))}


def _put(uri: str, key: str, answer: ModelAnswer) -> dict[str, Any]:
    AnswerCache(uri).put(key, answer)
    return {"kept": 1}
