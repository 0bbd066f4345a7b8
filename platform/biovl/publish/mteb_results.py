"""Result files of MTEB for the only task that we share with MTEB: zero-shot PatchCamelyon.

A file is written only if the protocol of the report is MTEB's: the same images, classes and prompt.
Scores are computed from the predictions by MTEB itself, which must be installed.

Source:
    mteb 2.26, ``tasks/zeroshot_classification/eng/patch_camelyon.py``: the test split of
    ``mteb/wds_vtab-pcam``, one prompt, ``histopathology image of {}``, for ``lymph node`` and
    ``lymph node containing metastatic tumor tissue``; main score accuracy.
"""

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from biovl.benchmark.prompts import PROMPTS
from biovl.benchmark.public_scores import PublicScore
from biovl.benchmark.report_files import predictions
from biovl.core.folders import Folder
from biovl.core.tables import read_table
from biovl.publish.config import HubData

TASK = "PatchCamelyonZeroShot"
PCAM = "pcam_mteb"
"""Our benchmark and prompts with MTEB's protocol."""
IMAGES = 32_768
"""Images of PatchCamelyon's test split."""
DATA = HubData(
    id="mteb/wds_vtab-pcam",
    revision="6544d35f2235ed00e2ac8494c09ff107f8af353c",
    task_id=TASK,
    score="accuracy",
)


_SCALE = 100
"""Scale of similarities in MTEB, whatever the model's own."""


def difference(item: PublicScore) -> str | None:
    """Return how a task differs from the task of MTEB on the same data; None if it does not."""
    if item.task != PCAM:
        return f"MTEB has no task with this data and protocol; for PatchCamelyon run {PCAM}"
    known, words = PROMPTS[PCAM], item.notes.get("words") or {}
    if item.protocol != "zero_shot" or list(item.notes.get("templates", ())) != [*known.templates]:
        return f"its prompts are not MTEB's, {known.templates[0]!r}"
    if sorted(words.values()) != sorted(known.classes):
        return f"its classes are not MTEB's, {' and '.join(known.classes)}"
    count = item.scores[0]["count"]
    if count != IMAGES:
        return f"it has {count:,} images, and MTEB's test split {IMAGES:,}"
    return None


def hub_tasks(scores: Sequence[PublicScore]) -> dict[str, HubData]:
    """Return the data sets of MTEB on the hub by task, for tasks with the same protocol."""
    return {item.task: DATA for item in scores if difference(item) is None}


def results(scores: Sequence[PublicScore]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return MTEB's result files by name, and the reasons why other tasks have none."""
    files, reasons = dict[str, bytes](), dict[str, str]()
    for item in scores:
        reason = difference(item)
        if reason is None and importlib.util.find_spec("mteb") is None:
            reason = "mteb is not installed: pip install 'biovl[mteb]'"
        if reason is None:
            files[f"{TASK}.json"] = _result(item)
        else:
            reasons[item.task] = reason
    return files, reasons


def _result(item: PublicScore) -> bytes:
    folder = Folder(item.report)
    rows = read_table(folder, predictions(item.model, item.task), ["label", "similarity"])
    # In the order of the data's classes; JSON sorts those of ``words``.
    words = list(item.notes["classes"])
    order = [words.index(name) for name in PROMPTS[PCAM].classes]
    similarity_N2 = np.array(rows["similarity"].to_pylist(), np.float64)[:, order]
    labels = [order.index(label) for label in rows["label"].to_pylist()]
    return result_json(labels, similarity_N2, item.date)


def result_json(labels: Sequence[int], similarity_N2: np.ndarray, date: str) -> bytes:
    """Return MTEB's result file of zero-shot PatchCamelyon.

    Args:
        labels: Class of each image, 1 with a metastasis. [N].
        similarity_N2: Cosine similarity of each image to both prompts.
        date: Day of the evaluation, ISO 8601.
    """
    import mteb
    from mteb.results import TaskResult

    task: Any = mteb.get_task(TASK)
    # MTEB's ``similarity_functions.similarity``: a softmax at a fixed scale.
    probability_N2 = softmax(_SCALE * similarity_N2, axis=1)
    scores: Mapping[str, float] = task._calculate_scores(list(labels), probability_N2)
    row = {**scores, "main_score": scores[task.metadata.main_score]}
    result = TaskResult(
        dataset_revision=task.metadata.dataset["revision"],
        task_name=TASK,
        mteb_version=mteb.__version__,
        scores={"test": [{**row, "hf_subset": "default", "languages": ["eng-Latn"]}]},
        evaluation_time=None,
        date=datetime.fromisoformat(date),
    )
    with tempfile.TemporaryDirectory(prefix="biovl-mteb-") as scratch:
        result.to_disk(Path(scratch, "result.json"))
        return Path(scratch, "result.json").read_bytes()
