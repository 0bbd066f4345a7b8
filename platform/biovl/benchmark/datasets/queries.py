"""A task of ``biovl figure_retrieval``: its figures with the queries of a subset."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.stored_images import Column, hash_of
from biovl.core.artifacts import Folder, fingerprint, read_manifest
from biovl.core.errors import ArtifactError

KIND = "figure_retrieval"
CORPUS = "corpus/test-00000-of-00001.parquet"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: a figure retrieval task."""

    path: str
    """The folder of the task, local or ``s3://``."""
    subset: Literal["caption", "mention"] = "caption"
    """Queries: captions, or sentences that cite the figure."""


def build(config: Config) -> Pairs:
    """Return each figure with its query.

    Raises:
        ArtifactError: If the folder is not a figure retrieval task, or a figure has no query.
    """
    read_manifest(config.path, KIND)
    folder = Folder(config.path)
    ids = _read(folder, CORPUS, "id")["id"].to_pylist()
    queries = _read(folder, f"{config.subset}/queries/test-00000-of-00001.parquet")
    qrels = _read(folder, f"{config.subset}/qrels/test-00000-of-00001.parquet")
    text_of = dict(zip(queries["id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    texts: dict[str, list[str]] = {}
    for query, figure in zip(
        qrels["query-id"].to_pylist(), qrels["corpus-id"].to_pylist(), strict=True
    ):
        texts.setdefault(figure, []).append(text_of[query])
    missing = [figure for figure in ids if figure not in texts]
    if missing:
        raise ArtifactError(f"{folder.described}: {missing[0]} has no {config.subset} query")
    name = hash_of(fingerprint(config.path), "image")
    return selection.pairs(
        name=f"figure_retrieval_{config.subset}",
        images=Column(config.path, ((CORPUS, len(ids)),), "image", name),
        texts=[texts[figure] for figure in ids],
        ids=ids,
    )


def _read(folder: Folder, name: str, *columns: str) -> pa.Table:
    with folder.filesystem.open_input_file(folder.at(name)) as stream:
        return pq.read_table(stream, columns=list(columns) or None)
