"""Open and search a published index.

    manifest.json                   kind ``index``; its fields are described below
    images.faiss  captions.faiss    ``vectors.VectorIndex``
    images.f16.npy captions.f16.npy the same unit vectors, float16, shape [N, D]
    table.arrow                     ``metadata``: row i has the metadata of id i
    lookup/                         ``metadata``: from figure id to row
    thumbnails.bin                  concatenated JPEGs; thumbnail_offset, thumbnail_size in table
    filters/                        ``filters.FilterTable``
    words/                          ``words.Words``; absent if the index was built without words

The manifest's ``files`` has the size and checksum of **every** file, by relative path with ``/``:
``{"images.faiss": {"size_bytes": 1048, "sha256": "9f86d0…"}, …}``. Indexes of earlier versions have
no checksums; opening them issues a warning.

Its ``inputs`` are the ``model`` (whose fingerprint is ``Index.model_fingerprint``) and the
``corpus`` (whose shards ``Index.image`` reads; ``corpus.find_corpus`` locates it). Its ``notes``
have at least

    rows        number of figures
    dim         embedding dimension
    factories   {"images": "IVF1024,SQfp16", "captions": …}
    settings    {"images": {"image": {"nprobe": 16}, "text": {"nprobe": 64}}, "captions": {…}}:
                by indexed vectors (``Over``) and modality of the query (``Kind``), as chosen by
                ``recall``; {} for exhaustive search
    recall      {"images": {"image": 0.991, "text": 0.962}, …}: measured with these settings
"""

import json
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from biovl.core.artifacts import MANIFEST, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.filesystems import below
from biovl.core.shards import read_pair
from biovl.index import planner
from biovl.index.copies import copy_to_cache, discard, in_place, is_local, verify_manifest
from biovl.index.corpus import NOTE, find_corpus
from biovl.index.filters import FilterTable, Selection
from biovl.index.mapped import map_array
from biovl.index.metadata import MetadataTable
from biovl.index.query import Hit, Kind, Over, Query, QueryPart, Results
from biovl.index.ranking import Ranking, deepening, fuse_rankings
from biovl.index.vectors import VectorIndex
from biovl.index.words import Words

KIND = "index"
VERSION_DIGITS = 12
"""Number of fingerprint digits that identify an index version in responses."""

_OVERS: tuple[Over, ...] = ("images", "captions")
_LOOKED_FOR = 16
"""Number of evenly spaced rows that are searched by their own vectors when an index is opened."""
_FOUND_SHARE, _FOUND_SHARE_OF_COARSE = 0.75, 0.25
"""Minimum share of them to be found. Coarse codes miss some, misaligned files nearly all."""
_FINE = re.compile(r"(RR\d+,)?(IVF[^,]*,)?(Flat|SQ8|SQfp16)|.*,(RFlat|Refine\(.*\))")


class Index:
    """A published index, open for search. Immutable, so it is thread-safe."""

    def __init__(
        self,
        uri: str,
        folder: Path,
        manifest: Manifest,
        version: str,
        corpus: str | None = None,
    ) -> None:
        self.uri = uri
        self.manifest = manifest
        self._corpus = corpus
        self.version = version
        """The first digits of the fingerprint of its manifest."""
        self._table = MetadataTable.open(folder)
        # Open for as long as the other files are mapped: another index may take their folder.
        self._thumbnails = os.open(folder / "thumbnails.bin", os.O_RDONLY)
        weakref.finalize(self, os.close, self._thumbnails)
        self._filters = FilterTable.open(folder / "filters")
        self._words = Words.open(folder / "words") if (folder / "words").is_dir() else None
        self._indexes: dict[Over, VectorIndex] = {}
        self._vectors: dict[Over, np.ndarray] = {}
        for over in _OVERS:
            if over in manifest.notes["factories"]:
                self._indexes[over] = VectorIndex.open(folder / f"{over}.faiss")
                self._vectors[over] = _vectors(folder / f"{over}.f16.npy")
        self._check()

    @classmethod
    def open(cls, uri: str, cache_folder: str | None = None, corpus: str | None = None) -> "Index":
        """Open an index and verify that its files are consistent.

        Args:
            uri: A local folder, which is memory-mapped, or ``s3://…``, which is copied first.
            cache_folder: Folder for copies, by fingerprint; without it every call copies to a
                temporary folder.
            corpus: Location of the corpus; by default the one in the manifest.

        Raises:
            ArtifactError: If it is not an index, or its files are damaged or inconsistent.
        """
        manifest = read_manifest(uri, KIND)
        verify_manifest(uri, manifest)
        print_ = fingerprint(uri)
        notes = manifest.notes
        missing = [n for n in ("rows", "dim", "factories", "settings", "recall") if n not in notes]
        if missing:
            raise ArtifactError(f"{uri}/{MANIFEST} lacks the notes {', '.join(missing)}")
        version = print_[:VERSION_DIGITS]
        if is_local(uri):
            return cls(uri, in_place(uri, manifest), manifest, version, corpus)
        cache = Path(cache_folder or tempfile.mkdtemp(prefix="biovl-index-"))
        copy = copy_to_cache(uri, manifest, print_, cache)
        try:
            index = cls(uri, copy, manifest, version, corpus)
        except ArtifactError:
            # The cached copy is corrupt: copy again. A second failure is an error of the bucket.
            discard(copy)
            again = copy_to_cache(uri, manifest, print_, cache)
            index = cls(uri, again, manifest, version, corpus)
        if cache_folder is None:
            weakref.finalize(index, shutil.rmtree, cache, ignore_errors=True)
        return index

    @property
    def model_fingerprint(self) -> str:
        """Fingerprint of the model that computed the vectors; queries must be of the same model."""
        return str(self._input("model").fingerprint)

    @property
    def dim(self) -> int:
        """Embedding dimension."""
        return int(self.manifest.notes["dim"])

    def __len__(self) -> int:
        return len(self._table)

    def vectors(self, over: Over) -> np.ndarray:
        """Return all unit vectors of images or captions, float16, memory-mapped.

        Shape [N, D]; [0, D] if there are none.
        """
        return self._vectors.get(over, np.empty((0, self.dim), np.float16))

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of ``metadata.IndexedFigure`` for all rows, memory-mapped."""
        return self._table.column(name)

    def search(self, query: Query) -> Results:
        """Return the best matching figures of a query.

        Raises:
            BiovlError: If the query is empty, a figure does not exist, the parts sum to zero, or a
                vector is not finite or has another dimension.
        """
        clock = _Clock()
        if query.k < 1 or query.offset < 0:
            raise BiovlError(
                f"k must be positive and offset not negative, got {query.k} and {query.offset}"
            )
        with clock("filter"):
            selection = self._filters.select(query.filter)
        with clock("search"):
            ways, plans = self._ways(query, selection)
            depth = query.offset + query.k
            found_by: dict[int, tuple[str, ...]] = {}

            def rank(level: int) -> Ranking:
                rankings = {name: way(level) for name, way in ways.items()}
                whole = fuse_rankings(rankings) if len(rankings) > 1 else rankings[next(iter(ways))]
                whole = whole.cut(0, level)
                rows = {name: set(ranking.rows_K.tolist()) for name, ranking in rankings.items()}
                # Of the level that a score is of, so that pages of any size are the same.
                for row in whole.rows_K.tolist():
                    found_by.setdefault(row, tuple(name for name in ways if row in rows[name]))
                return whole

            page = deepening(rank, depth).cut(query.offset, depth)
        with clock("metadata"):
            rows = self._table.rows(page.rows_K)
            hits = [
                Hit(
                    figure_id=about["figure_id"],
                    rank=query.offset + place + 1,
                    score=float(score),
                    matched=found_by[int(row)],
                    about=about,
                )
                for place, (row, score, about) in enumerate(
                    zip(page.rows_K, page.scores_K, rows, strict=True)
                )
            ]
        return Results(
            hits=hits,
            matching=selection.count,
            plan="; ".join(f"{name}: {plan}" for name, plan in plans.items())
            if len(plans) > 1
            else next(iter(plans.values())),
            index_version=self.version,
            timings_ms=clock.ms,
        )

    def recall(self, over: Over, kind: Kind) -> float | None:
        """Return the recall@10 in the manifest; None if it was not measured."""
        measured = self.manifest.notes["recall"].get(over, {}).get(kind)
        return None if measured is None else float(measured)

    def figures(self, figure_ids: Sequence[str]) -> list[Mapping[str, Any] | None]:
        """Return the metadata of figures, in order; None for unknown ids."""
        rows = [self._table.row_of(figure_id) for figure_id in figure_ids]
        known = iter(self._table.rows([row for row in rows if row is not None]))
        return [None if row is None else next(known) for row in rows]

    def thumbnail(self, figure_id: str) -> bytes | None:
        """Return the thumbnail of a figure as JPEG; None if it does not exist."""
        (about,) = self.figures([figure_id])
        if about is None or about["thumbnail_offset"] is None:
            return None
        return os.pread(self._thumbnails, about["thumbnail_size"], about["thumbnail_offset"])

    @cached_property
    def corpus_uri(self) -> str:
        """The corpus folder from which full images are read."""
        return find_corpus(
            self.uri,
            self._input("corpus"),
            noted=self.manifest.notes.get(NOTE),
            override=self._corpus,
        )

    def images_problem(self) -> str | None:
        """Return the reason why full images cannot be read; None if three test images can."""
        if not len(self):
            return None
        rows = sorted({0, len(self) // 2, len(self) - 1})
        for about in self._table.rows(rows, ["figure_id"]):
            try:
                self.image(about["figure_id"])
            except (BiovlError, OSError, KeyError) as error:
                return str(error)
        return None

    def image(
        self,
        figure_id: str,
        size: Literal["thumbnail", "full"] = "full",
        corpus_uri: str | None = None,
    ) -> bytes:
        """Return the image of a figure, in full size or as a thumbnail.

        Args:
            figure_id: Id of the figure.
            size: ``full`` reads the byte range of the image from its shard.
            corpus_uri: Location of the corpus; by default ``Index.corpus_uri``.

        Raises:
            ArtifactError: If the figure does not exist, its image cannot be read, or the shard
                contains another figure at its position.
        """
        (about,) = self.figures([figure_id])
        if about is None:
            raise ArtifactError(f"there is no figure {figure_id!r:.100} in {self.uri}")
        if size == "thumbnail":
            thumbnail = self.thumbnail(figure_id)
            if thumbnail is None:
                raise ArtifactError(f"{self.uri} keeps no thumbnail of {figure_id}")
            return thumbnail
        corpus = corpus_uri or self.corpus_uri
        shard = PurePosixPath(about["shard"])
        if shard.is_absolute() or ".." in shard.parts:
            raise ArtifactError(f"{self.uri}: the shard of {figure_id} is not in the corpus")
        files = read_pair(below(corpus, about["shard"]), about["offset"], about["size"])
        if not _is_of(figure_id, files.get("json", b"{}")):
            raise ArtifactError(
                f"{corpus}, {about['shard']} holds another figure in the place of {figure_id}: the "
                "corpus was rebuilt since it was indexed"
            )
        others = ("txt", "json", "npy")
        images = [data for kind, data in files.items() if not kind.endswith(others)]
        if len(images) != 1:
            raise ArtifactError(
                f"{corpus}/{about['shard']} holds {len(images)} images of {figure_id}, expected 1"
            )
        return images[0]

    def facets(self) -> dict[str, dict[str, int]]:
        """Return the most frequent values of each ``Filter`` field, with figure counts."""
        return self._filters.facets()

    def _ways(
        self, query: Query, selection: Selection
    ) -> tuple[dict[str, Callable[[int], Ranking]], dict[str, str]]:
        """Return the ranking functions of a query by name, and a dict of how each searched."""
        ways: dict[str, Callable[[int], Ranking]] = {}
        plans: dict[str, str] = {}
        if query.parts:
            query_D = self._query_vector(query.parts)
            parts = [part for part in query.parts if part.weight]
            kind: Kind = "image"
            if any(
                part.kind == "text" and part.figure_id is None and part.weight > 0 for part in parts
            ):
                kind = "text"
            only_figures = all(part.figure_id is not None for part in parts)
            own = [self._row(part.figure_id) for part in parts if part.figure_id]
            left_out = np.array(own if only_figures else [], np.int64)
            for over in dict.fromkeys(query.over):
                ways[over] = self._near(over, query, query_D, kind, selection, left_out, plans)
            if not ways:
                raise BiovlError("over names neither images nor captions")
        if query.words is not None:
            words, text = self._words, query.words
            if words is None:
                raise BiovlError(f"{self.uri} was built without words")

            def by_words(depth: int) -> Ranking:
                plans["words"] = "BM25"
                scores_K, rows_K = words.search(text, depth, selection)
                return Ranking(rows_K, scores_K)

            ways["words"] = by_words
        if not ways:
            raise BiovlError("nothing to search for: a query needs parts or words")
        return ways, plans

    def _near(
        self,
        over: Over,
        query: Query,
        query_D: np.ndarray,
        kind: Kind,
        selection: Selection,
        left_out: np.ndarray,
        plans: dict[str, str],
    ) -> Callable[[int], Ranking]:
        if over not in self._indexes:
            raise BiovlError(
                f"{self.uri} has no {over} to search; it has {', '.join(self._indexes)}"
            )
        chosen = self.manifest.notes["settings"].get(over, {}).get(kind, {})
        settings = {**chosen, **query.settings}

        def near(depth: int) -> Ranking:
            ranking, plans[over] = planner.nearest(
                self._indexes[over],
                self._vectors[over],
                query_D,
                depth + len(left_out),
                selection,
                settings=settings,
                exact=query.exact,
            )
            is_new = ~np.isin(ranking.rows_K, left_out)
            # With quantized codes the product of unit vectors may exceed 1.
            cosines_K = ranking.scores_K[is_new].clip(-1, 1)
            return Ranking(ranking.rows_K[is_new], cosines_K).cut(0, depth)

        return near

    def _query_vector(self, parts: Sequence[QueryPart]) -> np.ndarray:
        """Return the normalized weighted sum of the parts. Shape [D], float32."""
        total_D = np.zeros(self.dim, np.float64)
        for part in parts:
            if (part.vector_D is None) == (part.figure_id is None):
                raise BiovlError("a part of a query is either a vector or the id of a figure")
            if not np.isfinite(part.weight):
                raise BiovlError(f"a weight must be finite, got {part.weight}")
            if part.figure_id is not None:
                vector_D = self._vectors[self._own_vectors()][self._row(part.figure_id)]
            else:
                vector_D = np.asarray(part.vector_D)
            if vector_D.shape != (self.dim,):
                raise BiovlError(
                    f"a vector has shape {vector_D.shape}, those of this index are {(self.dim,)}: "
                    "it is of another model"
                )
            if not np.isfinite(vector_D).all():
                raise BiovlError("a vector holds numbers that are not finite (NaN or infinity)")
            total_D += part.weight * vector_D.astype(np.float64)
        length = float(np.linalg.norm(total_D))
        if length < 1e-6:
            raise BiovlError(
                "the weighted sum of the parts of the query is zero: change their weights"
            )
        return (total_D / length).astype(np.float32)

    def _own_vectors(self) -> Over:
        """Return which vectors represent figures: those of images, or else of captions."""
        return "images" if "images" in self._vectors else "captions"

    def _row(self, figure_id: str) -> int:
        row = self._table.row_of(figure_id)
        if row is None:
            raise BiovlError(f"there is no figure {figure_id!r:.100} in the index")
        return row

    def _input(self, name: str) -> Any:
        for read in self.manifest.inputs:
            if read.name == name:
                return read
        raise ArtifactError(f"{self.uri}/{MANIFEST} does not say which {name} it was made from")

    def _check(self) -> None:
        """Reject inconsistent files: an index that is off by one row would return wrong figures."""
        notes = self.manifest.notes
        counts = {"table.arrow": len(self._table), "filters": self._filters.count}
        if self._words is not None:
            counts["words"] = self._words.count
        for over, index in self._indexes.items():
            counts[f"{over}.faiss"] = index.count
            counts[f"{over}.f16.npy"] = len(self._vectors[over])
            dims = {index.dim, self._vectors[over].shape[1]}
            if dims != {notes["dim"]}:
                raise ArtifactError(
                    f"{self.uri}: {over} have {sorted(dims)} dimensions, expected {notes['dim']}"
                )
        wrong = [f"{name} has {n}" for name, n in counts.items() if n != notes["rows"]]
        if wrong:
            raise ArtifactError(
                f"{self.uri}: expected {notes['rows']} rows, but {', '.join(wrong)}"
            )
        for over, index in self._indexes.items():
            if index.count:
                self._check_own(over, index)

    def _check_own(self, over: Over, index: VectorIndex) -> None:
        vectors_ND = self._vectors[over]
        rows = np.unique(np.linspace(0, index.count - 1, _LOOKED_FOR).astype(np.int64))
        hits = 0
        for row in rows:
            vector_D = vectors_ND[row].astype(np.float32)
            ranking, _ = planner.nearest(
                index, vectors_ND, vector_D, 10, Selection(index.count), settings={"nprobe": 8}
            )
            # Any of several equal vectors may be found.
            near_KD = vectors_ND[ranking.rows_K].astype(np.float32)
            hits += bool((near_KD @ vector_D).max() >= vector_D @ vector_D - 1e-3)
        is_fine = _FINE.fullmatch(self.manifest.notes["factories"][over])
        if hits < (_FOUND_SHARE if is_fine else _FOUND_SHARE_OF_COARSE) * len(rows):
            raise ArtifactError(
                f"{self.uri}: a search in {over}.faiss finds {hits} of {len(rows)} vectors of "
                f"{over}.f16.npy: they are not of the same build"
            )


class _Clock:
    """Stopwatch: duration of each step, in milliseconds."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.ms[name] = round(1_000 * (time.perf_counter() - begun), 3)


def _vectors(path: Path) -> np.ndarray:
    vectors_ND = map_array(path, "f", (None, None))
    if vectors_ND.dtype != np.float16:
        raise ArtifactError(f"{path} holds {vectors_ND.dtype}, expected float16")
    return vectors_ND


def _is_of(figure_id: str, about: bytes) -> bool:
    """Return whether the ``.json`` next to an image has this figure's id, or has no id."""
    try:
        record = json.loads(about)
    except ValueError:
        return False
    own_id = record.get("figure_id") if isinstance(record, dict) else None
    # The id of a panel is that of its figure, "_p" and its label.
    return own_id is None or figure_id == own_id or figure_id.startswith(f"{own_id}_p")
