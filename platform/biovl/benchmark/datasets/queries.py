"""A task of ``biovl figure_retrieval``: its figures with the queries of a subset."""

from dataclasses import dataclass
from typing import Literal

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.stored_images import Column, hash_of
from biovl.core.artifacts import fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.tables import read_table

KIND = "figure_retrieval"
CORPUS = "corpus/test-00000-of-00001.parquet"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: a figure retrieval task."""

    path: str
    """The folder of the task, local or ``s3://``."""
    subset: Literal["caption", "mention"] = "caption"
    """Queries: captions, or sentences that cite the figure."""


def queries_path(subset: str) -> str:
    """Return the path of the queries of a subset."""
    return f"{subset}/queries/test-00000-of-00001.parquet"


def qrels_path(subset: str) -> str:
    """Return the path of the relevance judgements of a subset."""
    return f"{subset}/qrels/test-00000-of-00001.parquet"


def build(config: Config) -> Pairs:
    """Return each figure with its query.

    Raises:
        ArtifactError: If the folder is not a figure retrieval task, or a figure has no query.
    """
    read_manifest(config.path, KIND)
    folder = Folder(config.path)
    ids = read_table(folder, CORPUS, ["id"])["id"].to_pylist()
    queries = read_table(folder, queries_path(config.subset))
    qrels = read_table(folder, qrels_path(config.subset))
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
