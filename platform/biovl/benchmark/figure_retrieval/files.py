"""Files of the task, in MTEB's layout (Parquet, with images) and in BEIR's (JSON lines, TSV).

corpus/test-00000-of-00001.parquet        id, image
caption/queries/test-….parquet            id, text;    mention/queries/…
caption/qrels/test-….parquet              query-id, corpus-id, score
credits.parquet                           article, citation and licence of each figure
images/ID.jpg                             the published files
beir/caption/{corpus,queries}.jsonl, qrels/test.tsv;    beir/mention/…
eval.yaml                                 tasks, for the hub's leaderboards
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from biovl.benchmark.datasets.queries import CORPUS, qrels_path, queries_path
from biovl.benchmark.datasets.reports import drawn_key
from biovl.benchmark.figure_retrieval.candidates import Candidate
from biovl.benchmark.prepare.writer import schema_of
from biovl.core.folders import Folder
from biovl.core.tables import open_part

SUBSETS = ("caption", "mention")
TASK = "BiomedicalFigureRetrieval"
"""Name of the task in MTEB's form."""
CREDITS = "credits.parquet"
_ROW_GROUP = 32
_CORPUS = schema_of({})


def image_name(one: Candidate) -> str:
    """Return the path of a figure's image file."""
    return f"images/{one.figure_id}.{one.suffix}"


def write_task(
    folder: Folder, source: Folder, drawn: Sequence[Candidate], *, seed: int, description: str
) -> dict[str, dict[str, int]]:
    """Write all files but the card and the manifest.

    Args:
        folder: Folder of the task.
        source: The harvest, from which images are read.
        drawn: Figures of the task, in the order of the corpus.
        seed: Seed of the order of queries, which is not that of the corpus.
        description: What the task is, for ``eval.yaml``.

    Returns:
        Rows and size in bytes of the Parquet files.
    """
    with folder.writer(CORPUS) as stream, pq.ParquetWriter(stream, _CORPUS) as writer:
        batch: list[dict[str, Any]] = []
        for one, data in zip(drawn, _images(source, drawn), strict=True):
            folder.write(image_name(one), data)
            path = image_name(one).rpartition("/")[2]
            batch.append({"id": one.figure_id, "image": {"bytes": data, "path": path}})
            if len(batch) == _ROW_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, _CORPUS))
                batch = []
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, _CORPUS))
    tables = {CREDITS: pa.Table.from_pylist([{"id": d.figure_id, **d.credits} for d in drawn])}
    for subset in SUBSETS:
        asked = sorted(drawn, key=lambda one: drawn_key(f"{subset}/{one.figure_id}", seed + 1))
        ids = [f"{subset}-{one.figure_id}" for one in asked]
        texts = [one.caption if subset == "caption" else one.mention for one in asked]
        answers = [one.figure_id for one in asked]
        tables[queries_path(subset)] = pa.table({"id": ids, "text": texts})
        tables[qrels_path(subset)] = pa.table(
            {"query-id": ids, "corpus-id": answers, "score": pa.array([1] * len(ids), pa.int32())}
        )
        _write_beir(folder, f"beir/{subset}", drawn, ids, texts, answers)
    for name, table in tables.items():
        with folder.writer(name) as stream:
            pq.write_table(table, stream)
    folder.write("eval.yaml", _eval_yaml(description).encode())
    return {
        name: {
            "rows": len(drawn),
            "size_bytes": folder.filesystem.get_file_info(folder.at(name)).size,
        }
        for name in (CORPUS, *tables)
    }


def _images(source: Folder, drawn: Sequence[Candidate]) -> Iterator[bytes]:
    """Yield the published image of each figure, in order; row groups are read once in a row."""
    read: tuple[str, int] | None = None
    images: list[bytes] = []
    for one in drawn:
        with open_part(source, one.part) as file:
            row, group = one.row, 0
            while row >= file.metadata.row_group(group).num_rows:
                row -= file.metadata.row_group(group).num_rows
                group += 1
            if read != (one.part, group):
                images = file.read_row_group(group, columns=["image"])["image"].to_pylist()
                read = (one.part, group)
        yield images[row]


def _write_beir(
    folder: Folder,
    place: str,
    drawn: Sequence[Candidate],
    ids: Sequence[str],
    texts: Sequence[str],
    answers: Sequence[str],
) -> None:
    """Write a subset in BEIR's layout; documents are images, named in their metadata."""
    documents = [
        {
            **{"_id": one.figure_id, "title": "", "text": ""},
            "metadata": {"image": image_name(one), **one.credits},
        }
        for one in drawn
    ]
    queries = [
        {"_id": name, "text": text, "metadata": {}} for name, text in zip(ids, texts, strict=True)
    ]
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        folder.write(f"{place}/{name}.jsonl", lines.encode())
    judged = "".join(f"{q}\t{a}\t1\n" for q, a in zip(ids, answers, strict=True))
    folder.write(f"{place}/qrels/test.tsv", f"query-id\tcorpus-id\tscore\n{judged}".encode())


def _eval_yaml(description: str) -> str:
    """Return the definition of the tasks for the hub's leaderboards, named as by MTEB."""
    values = {
        "name": TASK,
        "description": description,
        "evaluation_framework": "mteb",
        "tasks": [
            {"id": f"{TASK}_{subset}_test", "config": subset, "split": "test"} for subset in SUBSETS
        ],
    }
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000))
