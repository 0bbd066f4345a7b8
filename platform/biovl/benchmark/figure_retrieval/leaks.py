"""Find candidates that are in the training data, or whose image or caption another article has."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark.figure_retrieval.candidates import (
    Candidate,
    looks_of_harvest,
    readable_caption,
    title_key,
)
from biovl.benchmark.figure_retrieval.queries import without_label
from biovl.benchmark.image_hashes import LOOKS, Hashes
from biovl.core.artifacts import Manifest, read_manifest
from biovl.core.folders import Folder
from biovl.core.tables import open_part, parts_of
from biovl.index.search import Index

# Shapes: N candidates.

IMAGE, CAPTION = "image also in another article", "caption also in another article"
KNOWN_ARTICLE, KNOWN_TITLE = "article in the training data", "title in the training data"
KNOWN_IMAGE = "image in the training data"
KINDS = ("figures", "panels", "corpus", "index")
"""Kinds of folders that may be training data."""

_ARTICLE_IDS = ("article_id", "doi", "pmid")


def find_repeated(
    candidates: Sequence[Candidate], folder: Folder, manifest: Manifest
) -> tuple[dict[int, str], dict[int, set[int]]]:
    """Find candidates whose image or caption is also in another article of the harvest.

    Returns:
        Two mappings by index of the candidate: the reason, if the other figure is not a candidate;
        and the indices of the candidates in other articles with the same image or caption.
    """
    row_of = {one.figure_id: row for row, one in enumerate(candidates)}
    captions: dict[str, list[int]] = {}
    for row, one in enumerate(candidates):
        captions.setdefault(_plain(one.caption), []).append(row)
    hashes = Hashes(_looks(candidates))
    reasons: dict[int, str] = {}
    same: dict[int, set[int]] = {}

    def note(row: int, figure_id: str, article_id: str, reason: str) -> None:
        if article_id == candidates[row].article_id:
            return
        if figure_id in row_of:
            same.setdefault(row, set()).add(row_of[figure_id])
            same.setdefault(row_of[figure_id], set()).add(row)
        else:
            reasons.setdefault(row, reason)

    for rows in looks_of_harvest(folder, manifest):
        ids, articles = rows["figure_id"].to_pylist(), rows["article_id"].to_pylist()
        article_of = dict(zip(ids, articles, strict=True))
        for row, figure_id in _near(hashes, rows):
            note(row, figure_id, article_of[figure_id], IMAGE)
        texts = map(
            readable_caption, rows["caption"].to_pylist(), rows["caption_superscripts"].to_pylist()
        )
        for figure_id, article_id, caption in zip(ids, articles, texts, strict=True):
            for row in captions.get(_plain(without_label(caption)), []):
                note(row, figure_id, article_id, CAPTION)
    return reasons, same


def find_trained_on(candidates: Sequence[Candidate], training: Iterable[str]) -> dict[int, str]:
    """Return the candidates in the training data, by row, with the match: article, title or image.

    Raises:
        ArtifactError: If a folder does not contain figures, panels, a corpus or an index.
    """
    ids: dict[str, list[int]] = {}
    titles: dict[str, list[int]] = {}
    for row, one in enumerate(candidates):
        for key in {one.credits[name] for name in _ARTICLE_IDS} - {""}:
            ids.setdefault(key.lower(), []).append(row)
        titles.setdefault(title_key(one.credits["title"]), []).append(row)
    titles.pop("", None)
    hashes = Hashes(_looks(candidates))
    reasons: dict[int, str] = {}
    for uri in training:
        for rows in _training_rows(uri):
            for name in _ARTICLE_IDS:
                for key in _distinct(rows, name):
                    reasons |= dict.fromkeys(ids.get(key.lower(), []), KNOWN_ARTICLE)
            for title in _distinct(rows, "title"):
                for row in titles.get(title_key(title), []):
                    reasons.setdefault(row, KNOWN_TITLE)
            if "image_sha256" in rows.column_names:
                for row, _ in _near(hashes, rows):
                    reasons.setdefault(row, KNOWN_IMAGE)
    return reasons


def _training_rows(uri: str) -> Iterator[pa.Table]:
    """Yield identifiers, titles and hashes of articles and images, as far as a folder has them."""
    manifest, folder = read_manifest(uri, *KINDS), Folder(uri)
    names = ["index.parquet"]
    if manifest.kind != "corpus":
        articles = [f"articles/{name}" for name in folder.names("articles", ".parquet")]
        names = [*articles, *parts_of(manifest)]
    wanted = (*_ARTICLE_IDS, "title", "figure_id", *("image_sha256", "phash"), *LOOKS.names[3:])
    if manifest.kind == "index":
        index = Index.open(uri)
        # An index has no perceptual hashes.
        own = [name for name in wanted if name != "phash"]
        yield pa.table({name: index.column(name) for name in own})
        return
    for name in names:
        with open_part(folder, name) as file:
            present = [column for column in wanted if column in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=present)


def _near(hashes: Hashes, rows: pa.Table) -> Iterator[tuple[int, str]]:
    """Yield candidates, by row, and the figures that show the same image."""
    sources = ("figure_id", "image_sha256", "phash", "width_px", "height_px")
    columns = {
        name: rows[source] if source in rows.column_names else pa.nulls(len(rows))
        for name, source in zip(LOOKS.names, sources, strict=True)
    }
    for near in hashes.near(pa.table(columns).cast(LOOKS)):
        yield from zip(near.row_P.tolist(), near.corpus_ids, strict=True)


def _looks(candidates: Sequence[Candidate]) -> pa.Table:
    return pa.Table.from_pylist([dict(one.look) for one in candidates], LOOKS)


def _distinct(rows: pa.Table, name: str) -> list[str]:
    if name not in rows.column_names:
        return []
    values: list[str] = pc.unique(rows[name].drop_null().cast(pa.string())).to_pylist()
    return values


def _plain(text: str) -> str:
    """Return a text as it is compared: without case, and without the mark of powers.

    Articles with the same caption may differ in its markup, ``10<sup>5</sup>`` and ``105``.
    """
    return " ".join(text.casefold().replace("^", "").split())


def draw(
    candidates: Sequence[Candidate],
    order: np.ndarray,
    same: dict[int, set[int]],
    left_out: dict[int, str],
    articles: int,
) -> list[int]:
    """Return the rows of drawn candidates: one per article, without repeated images or texts.

    Args:
        candidates: All candidates.
        order: Rows in the order of the draw.
        same: By row, the rows of candidates with the same image or caption.
        left_out: By row, why a candidate is excluded; extended in place by this draw.
        articles: Number of articles; 0: all.
    """
    drawn: list[int] = []
    used: set[str] = set()
    texts: set[str] = set()
    taken: set[int] = set()
    for row in order.tolist():
        one = candidates[row]
        queries = {_plain(one.caption), _plain(one.mention)}
        if row in left_out:
            continue
        if one.article_id in used:
            left_out[row] = "one figure of each article is drawn"
        elif taken & same.get(row, set()) or texts & queries:
            left_out[row] = "image or text of another figure of the task"
        elif articles and len(drawn) == articles:
            left_out[row] = "enough articles are drawn"
        else:
            drawn.append(row)
            taken.add(row)
            used.add(one.article_id)
            texts |= queries
    return drawn
