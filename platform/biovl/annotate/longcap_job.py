"""Answers of a model on the cluster's own GPUs: vLLM through ``ray.data.llm``, put into the cache.

Figures are taken in waves. In each, what every figure asks next goes through the engine, and its
answers into the cache of the annotator, by the same names as an endpoint's; when no figure asks
any more, ``annotate`` finds all of them there. A wave starts the engine once, streams, and goes on
where a killed one was.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import ray
from ray.data import Dataset

from biovl.annotate import batches
from biovl.annotate.annotators.longcap import EngineConfig, LongCap
from biovl.annotate.batches import Unit
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.longcap.spending import Cache
from biovl.annotate.longcap.steps import Answer, body_of
from biovl.core.tables import Table
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.progress import Progress

Processor = Callable[[Dataset], Dataset]
"""Rows with ``key`` and ``body`` to rows with ``key`` and what the engine generated."""

_ASKED = pa.schema([("key", pa.string()), ("body", pa.string()), ("failed", pa.binary())])
_MOST_WAVES = 6
"""Three steps, each of which may be asked once more."""


def fill(
    config: AnnotateConfig,
    annotator: LongCap,
    table: Table,
    units: list[Unit],
    report: Progress,
    processor: Processor | None = None,
) -> int:
    """Let the engine answer all that figures ask; return how many requests it answered.

    Args:
        config: Of the job.
        annotator: Whose figures they are.
        table: Where they are.
        units: Which of them.
        report: Progress.
        processor: In place of the engine's, for tests.
    """
    run = processor or through_vllm(annotator.config.model, annotator.config.engine)
    answered = 0
    for wave in range(_MOST_WAVES):
        shared = ray.put((config, annotator, table, units))
        numbers = ray.data.from_items(list(range(len(units))), override_num_blocks=len(units))
        asked = numbers.map_batches(
            functools.partial(_asked, shared), batch_size=1, batch_format="pyarrow", num_cpus=1
        )
        kept = run(asked).map(functools.partial(_kept, annotator.config.cache), num_cpus=_LITTLE)
        here = sum(int(raise_task_error(row)["kept"]) for row in kept.iter_rows())
        answered += here
        report.say(f"wave {wave + 1}: {here:,} answers")
        if not here:
            break
    return answered


_LITTLE = 0.1


def through_vllm(model: str, engine: EngineConfig) -> Processor:
    """Return the processor of an engine; its models load when it is run.

    Needs ``ray[llm]`` where the GPUs are.
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
        # A row that fails is asked for again by the next run; the others go on.
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


def _asked(shared: Any, numbers: pa.Table) -> Iterator[pa.Table]:
    """Yield what the figures of a unit ask next."""
    config, annotator, table, units = ray.get(shared)
    (number,) = numbers["item"].to_pylist()
    cache = Cache(annotator.config.cache)
    rows = batches.rows_of(table, units[number], annotator.reads, config.batch)
    while True:

        def work() -> dict[str, Any]:
            row = next(rows, None)
            if row is None:
                return {"over": True}
            return {"next": _next(annotator, cache, {k: cell.as_py() for k, cell in row.items()})}

        step = run_task(config.table, work)
        if step.get("over"):
            return
        if "next" not in step:
            yield pa.Table.from_pylist([step], _ASKED)
            return
        if step["next"] is not None:
            yield pa.Table.from_pylist([step["next"]], _ASKED)


def _next(annotator: LongCap, cache: Cache, row: dict[str, Any]) -> dict[str, Any] | None:
    prepared = annotator.prepare(row)
    if isinstance(prepared, str):
        return None
    _, steps = annotator.begun(prepared)
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


def _kept(uri: str, row: dict[str, Any]) -> dict[str, Any]:
    """Put an answer into the cache."""
    if row.get("failed") is not None:
        return {"kept": 0, "failed": row["failed"]}
    if row.get("__inference_error__") or not row.get("key"):
        return {"kept": 0, "failed": None}
    most = json.loads(row["body"])["max_tokens"]
    output_tokens = int(row["num_generated_tokens"])
    answer = Answer(
        text=row["generated_text"],
        # The engine's rows do not say why it ended.
        finish="length" if output_tokens >= most else "stop",
        input_tokens=int(row["num_input_tokens"]),
        output_tokens=output_tokens,
    )
    return {"failed": None, **run_task(uri, lambda: _put(uri, row["key"], answer))}


def _put(uri: str, key: str, answer: Answer) -> dict[str, Any]:
    Cache(uri).put(key, answer)
    return {"kept": 1}
