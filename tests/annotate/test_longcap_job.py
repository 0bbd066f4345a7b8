"""Long captions as a job: counted, killed and run again without paying twice, estimated before."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray

from biovl.annotate import batches, longcap_job, selection
from biovl.annotate import config as annotate_config
from biovl.annotate.annotators.longcap import LongCap
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.estimate import SAMPLE, dry_run_text, shares
from biovl.annotate.job import annotate
from biovl.core import config as configs
from biovl.core.artifacts import read_manifest
from biovl.core.errors import BiovlError
from biovl.core.tables import open_table
from biovl.runtime.progress import Progress
from tests.annotate.longcap.figures import mention, write_figures
from tests.annotate.longcap.scripted_endpoint import KEY, Scripted, good, serving, text_of
from tests.annotate.small_models import png, scene

ROOT = Path(__file__).parents[2]
FIGURES = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {
            "image": png(scene(number)) if number % 8 != 7 else b"GIF89a nothing",
            "figure_label": f"Figure {number}",
            "caption": f"A bright square by MRI, number {number}.",
            "source_uri": "a",
            "mentions": [mention(f"It is bright (Fig. {number}).", f"Fig. {number}")],
        }
        for number in range(FIGURES)
    ]
    return write_figures(tmp_path / "figures", rows, {"a": "magnetic resonance imaging (MRI)"})


def settings(folder: Path, script: Scripted, **more: Any) -> dict[str, Any]:
    return {
        **configs.recipe_settings(annotate_config.RECIPES["longcap"]()),
        "table": str(folder),
        "annotator.cache": str(folder.parent / "cache"),
        "annotator.endpoint.url": script.url,
        "annotator.endpoint.first_wait_s": 0.01,
        "batch": 4,
        "rows_per_task": 8,
        **more,
    }


def config_of(values: dict[str, Any]) -> AnnotateConfig:
    return configs.build(AnnotateConfig, configs.nested(values))


def test_where_and_how_fast_is_asked_is_no_part_of_what_columns_are(folder: Path) -> None:
    with serving(Scripted(good)) as script:
        values = settings(folder, script)
    faster = {"annotator.endpoint.concurrent": 2, "annotator.most_failures": 1.0}
    found = config_of(values).settings()
    assert config_of(values | faster | {"annotator.cache": "elsewhere"}).settings() == found
    assert {"model", "prompts", "image_px", "sampling", "bounds"} <= found.keys()
    assert {"endpoint", "cache", "budget", "most_failures"}.isdisjoint(found)


def driver(values: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    sets = [f"--set={name}={json.dumps(value)}" for name, value in values.items()]
    command = [sys.executable, str(ROOT / "pipelines" / "annotate.py"), "longcap", *sets]
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    with log.open("wb") as stream:
        return subprocess.Popen(
            command, stdout=stream, stderr=stream, env=environment, start_new_session=True
        )


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_killed_and_run_again_repeats_no_request_that_was_answered(
    folder: Path, tmp_path: Path
) -> None:
    with serving(Scripted(good, latency_s=0.15)) as script:
        values = settings(folder, script, **{"annotator.endpoint.concurrent": 2})
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        try:
            process = driver(values, tmp_path / "log")
            deadline = time.monotonic() + 600
            while len(script.bodies) < 10 and process.poll() is None:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            # Its workers go a moment later.
            while script.at_once or time.monotonic() - script.times[-1] < 3:
                time.sleep(0.1)
            before = len(script.bodies)
            assert before < 2 * 21
            kept = len(list((folder.parent / "cache" / "answers").rglob("*.json")))
        finally:
            del os.environ["RAY_ADDRESS"]
        counts = annotate(config_of(values)).counts
    asked = Counter(json.dumps(body, sort_keys=True) for body in script.bodies)
    assert len(asked) == 2 * 21
    # But for those that nobody waited for any more.
    assert asked.total() - len(asked) == before - kept <= 2
    assert KEY.encode() not in (tmp_path / "log").read_bytes()
    assert (counts["rows"], counts["annotated"], counts["defective"]) == (24, 21, 3)
    assert counts["long_caption_status"] == {"ok": 21}
    assert counts["long_caption_input_tokens"] == 2 * 21 * 100
    out = folder / "columns" / "long_caption"
    captions = pq.read_table(out / "part-000000-000.parquet")["long_caption"].to_pylist()
    assert captions[3] == (
        "A bright square by magnetic resonance imaging (MRI), number 3. The bright square is on "
        "the left of a dark field."
    )
    assert len(read_manifest(str(out), "columns").notes["prompts_sha256"]) == 64


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_a_larger_selection_pays_for_what_it_adds_alone(folder: Path, tmp_path: Path) -> None:
    with serving(Scripted(good)) as script:

        def run(rows: int) -> dict[str, Any]:
            # Rows that are not selected are no failures, of which none are allowed here.
            chosen = {"select.rows": rows, "annotator.most_failures": 0.01}
            values = settings(folder, script, **chosen, out=str(tmp_path / f"rows-{rows}"))
            assert f"{rows} rows selected, {FIGURES - rows} not" in dry_run_text(config_of(values))
            return dict(annotate(config_of(values), progress=io.StringIO()).counts)

        few, paid = run(8), len(script.bodies)
        many = run(16)
    assert few["long_caption_status"] == {"not selected": 16, "ok": few["annotated"]}
    assert few["annotated"] + few["defective"] == few["selected"] == 8
    assert paid == 2 * few["annotated"]
    assert len(script.bodies) == 2 * many["annotated"]
    first, second = (
        pq.read_table(tmp_path / f"rows-{rows}" / "part-000000-000.parquet").to_pylist()
        for rows in (8, 16)
    )
    for before, after in zip(first, second, strict=True):
        if before["long_caption_status"] != "not selected":
            assert before == after
    left = [row for row in second if row["long_caption_defect"] == "not selected"]
    assert len(left) == FIGURES - 16
    assert {row["long_caption_status"] for row in left} == {"not selected"}


def through_nothing(asked: ray.data.Dataset) -> ray.data.Dataset:
    """Stand in for the engine: answer in its columns, and fail for one figure."""

    def answered(row: dict[str, Any]) -> dict[str, Any]:
        given = longcap_job._for_engine(row)
        body = json.loads(row["body"])
        error = "out of memory" if "number 5" in text_of(body["messages"][1]) else ""
        said = {"generated_text": good(body), "num_input_tokens": 90, "num_generated_tokens": 10}
        return {**longcap_job._from_engine({**given, **said}), "__inference_error__": error}

    return asked.map(answered)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_an_engine_on_gpus_answers_in_waves(folder: Path) -> None:
    values = settings(folder, Scripted(good))
    del values["annotator.endpoint.url"]
    config, progress = config_of(values), Progress("annotate", io.StringIO())
    annotator, table = config.make(), open_table(str(folder))
    assert isinstance(annotator, LongCap)
    units = batches.plan(table, 8)
    # A request for each step of 20 figures; the one that fails is left to be asked again.
    assert longcap_job.fill(config, annotator, table, units, progress, through_nothing) == 40
    assert longcap_job.fill(config, annotator, table, units, progress, through_nothing) == 0
    prepared = [
        annotator.prepare({name: cell.as_py() for name, cell in row.items()})
        for row in batches.rows_of(table, units[0], annotator.reads, 8)
    ]
    usable = np.array([data for data in prepared if isinstance(data, bytes)], object)
    found = annotator.load("cpu", "float32")(usable)["long_caption_status"]
    assert found == ["ok"] * 5 + ["not in the cache: augment"] + ["ok"]


def test_an_engine_is_asked_for_selected_figures_alone(folder: Path, tmp_path: Path) -> None:
    values = settings(folder, Scripted(good), **{"select.rows": 9}, out=str(tmp_path / "out"))
    del values["annotator.endpoint.url"]
    config, table = config_of(values), open_table(str(folder))
    annotator = config.make()
    assert isinstance(annotator, LongCap)
    selection.store(config, table, 0)
    assert selection.decide(config, table)["selected"] == 9
    asked = [
        row["caption"].as_py()
        for unit in batches.plan(table, 8)
        for row in longcap_job._selected_rows(config, annotator, table, unit)
    ]
    assert len(asked) == len(set(asked)) == 9


@pytest.mark.parametrize("rows", [[5], [3, 0, 9], [10] * 100, [1000, 10, 500], [1] * 64, [], [0]])
def test_sampled_rows_are_spread_over_a_table_by_the_size_of_its_units(rows: list[int]) -> None:
    taken = shares(rows)
    count = min(SAMPLE, sum(rows))
    assert (len(taken), sum(taken)) == (len(rows), count)
    for got, size in zip(taken, rows, strict=True):
        assert got <= size
        assert abs(got - size * count / max(sum(rows), 1)) < 1
    # The last units are sampled as well as the first.
    if len(rows) > SAMPLE:
        assert sum(taken[SAMPLE:]) > 0


def test_what_it_will_take_is_said_before_anything_is_asked(folder: Path) -> None:
    with serving(Scripted(good)) as script:
        prices = {
            "annotator.budget.dollars_per_million_input": 1.0,
            "annotator.budget.dollars_per_million_output": 2.0,
        }
        told = dry_run_text(config_of(settings(folder, script) | prices))
        assert not script.bodies
    assert "21 figures" in told.replace("about ", "")
    assert "$" in told
    with pytest.raises(BiovlError, match="dry-run"):
        dry_run_text(config_of({"table": str(folder), "annotator.name": "context"}))
