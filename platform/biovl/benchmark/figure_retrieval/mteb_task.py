"""A published figure retrieval task as a task of MTEB, from its folder or its name on the hub.

    import mteb
    from biovl.benchmark.figure_retrieval.mteb_task import figure_retrieval_task

    mteb.evaluate(model, figure_retrieval_task("figure-retrieval"))

MTEB reads the layout by itself; only the description is needed. Needs the extra ``biovl[mteb]``.
"""

from pathlib import Path
from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from biovl.benchmark.datasets.queries import KIND
from biovl.benchmark.figure_retrieval.files import SUBSETS, TASK
from biovl.core.artifacts import fingerprint, read_manifest


class BiomedicalFigureRetrieval(AbsTaskRetrieval):
    """Captions and citing sentences as queries, figures as corpus."""

    metadata = TaskMetadata(
        name=TASK,
        description="Find the figure of a caption, or of a sentence that cites it.",
        reference=None,
        dataset={"path": "local", "revision": "local"},
        type="Any2AnyMultilingualRetrieval",
        category="t2i",
        modalities=["text", "image"],
        eval_splits=["test"],
        eval_langs={subset: ["eng-Latn"] for subset in SUBSETS},
        main_score="ndcg_at_10",
        date=None,
        domains=["Medical", "Academic"],
        task_subtypes=["Image Text Retrieval"],
        license="multiple",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
    )


def figure_retrieval_task(path: str, revision: str = "") -> Any:
    """Return the task for ``mteb.evaluate``.

    Args:
        path: Local folder of the task, or its data set on the hub, ``USER/NAME``.
        revision: Commit of the data set on the hub; for a folder, its fingerprint is used.

    Raises:
        ArtifactError: If a folder is not a figure retrieval task.
        ValueError: If no revision is given for a data set on the hub: MTEB stores results by
            revision.
    """
    if Path(path).expanduser().is_dir():
        path = str(Path(path).expanduser().resolve())
        read_manifest(path, KIND)
        revision = fingerprint(path)
    elif not revision:
        raise ValueError(f"{path} is not a folder; for a data set on the hub, give its revision")
    dataset = {"path": path, "revision": revision}
    metadata = BiomedicalFigureRetrieval.metadata.model_copy(update={"dataset": dataset})
    task = type(TASK, (BiomedicalFigureRetrieval,), {"metadata": metadata})
    return task()
