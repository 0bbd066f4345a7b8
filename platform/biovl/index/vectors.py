"""Indexes of unit vectors (faiss, inner product): chosen by size, filled in parts, opened by map.

Row numbers are ids. An index is trained once on a sample, filled in any number of parts at once,
and the parts are joined in order; the bytes depend on nothing but the vectors, the factory and
where the parts begin, so a build that was killed and resumed publishes the same file.
"""

import contextlib
import math
import os
import re
import struct
from collections.abc import Iterable
from typing import Any, Literal

import faiss
import numpy as np

from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.index.cells import Cells, one_thread

# Shapes: N vectors, Q queries, K results of each, D dimensions.

Profile = Literal["default", "low_memory"]

EXACT_BELOW = 20_000
"""So few vectors are all compared: a millisecond at 512 dimensions."""
FP16_UP_TO = 1_000_000
"""Up to here two bytes per dimension are affordable, and recall is that of float32."""
GRAPH_FROM = 16_384
"""With so many cells a graph finds the nearest of them sooner than comparing with all."""
HOT_BYTES = 100
"""Per vector, what the low-memory profile keeps in memory: codes, factors and ids."""

_FAISS: Any = faiss
"""Its type stubs do not know the keywords that its Python classes take."""
_EF = 64
"""Of the graph over the cells: how widely it is searched for the cell of a vector."""
_CODES = r"(Flat|SQ[468]|SQfp16|RaBitQ\d?)"
_TAKEN = re.compile(
    rf"((PCAR?|RR)\d+,|OPQ\d+(_\d+)?,)?(IVF\d+(_HNSW\d+)?,(PQ\d+(x\d+)?|{_CODES})|{_CODES})"
    rf"(,RFlat|,Refine\({_CODES}\))?"
)
"""Others end the process: joining fast-scan codes corrupts memory in faiss 1.15.1."""
_PART = struct.Struct("<qq")
"""First row and count, in front of the bytes of a part."""


def choose_factory(count: int, dim: int, profile: Profile = "default") -> str:
    """Return the faiss factory string for so many vectors.

    Measured at 0.2 M and 1 M vectors of 512 dimensions: product quantisation loses a third of the
    recall that these keep, and graphs (HNSW) cannot be filled in parts or joined.
    """
    if count < EXACT_BELOW:
        return "SQfp16"
    cells = 2 ** round(math.log2(4 * math.sqrt(count)))
    coarse = f"IVF{cells}_HNSW32" if cells >= GRAPH_FROM else f"IVF{cells}"
    if profile == "low_memory":
        # A bit per dimension, two factors of four bytes and an id of eight.
        bits = (HOT_BYTES - 16) * 8
        fewer = f"PCA{bits // 64 * 64}," if dim > bits else ""
        return f"{fewer}{coarse},RaBitQ,Refine(SQ8)"
    return f"{coarse},SQfp16" if count <= FP16_UP_TO else f"{coarse},SQ8"


def check_factory(factory: str, dim: int) -> None:
    """Refuse a factory string that cannot be searched here.

    Raises:
        ConfigError: If faiss does not know it, or such an index does not compare by inner product,
            cannot be joined from parts or cannot be searched within a selection of rows.
    """
    if not _TAKEN.fullmatch(factory):
        raise ConfigError(
            f"factory {factory!r} cannot be used: expected [PCA…, RR… or OPQ…,][IVF…[_HNSW…],]codes"
            "[,Refine(codes)], with codes Flat, SQ4, SQ6, SQ8, SQfp16, RaBitQ… or, in cells, PQ…; "
            "others cannot be filled in parts or searched within a filter"
        )
    # The same with one cell: what decides is the kind of codes, and that trains on few vectors.
    small = re.sub(r"IVF\d+(_HNSW\d+)?", "IVF1", factory)
    rng = np.random.default_rng(0)
    sample_ND = rng.standard_normal((max(512, 2 * dim), dim), dtype=np.float32)
    sample_ND /= np.linalg.norm(sample_ND, axis=1, keepdims=True)
    try:
        _made(factory, dim)
        empty = _made(small, dim)
        empty.train(sample_ND)
        trained = _bytes(empty)
        halves = [fill(trained, sample_ND[:256], 0), fill(trained, sample_ND[256:512], 256)]
        index = VectorIndex(merged(trained, halves))
        few = np.zeros(index.count, bool)
        few[::64] = True
        _, rows_QK = index.search(sample_ND[:2], 8, rows=np.packbits(few, bitorder="little"))
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"factory {factory!r} cannot be used: {_reason(error)}") from error
    if sorted(set(rows_QK.ravel())) != list(range(0, 512, 64)):
        raise ConfigError(f"factory {factory!r} cannot be used: it does not search in a selection")


def cells_of(factory: str) -> int:
    """Return how many cells an index of this factory has; 0 if it compares with every vector."""
    found = re.search(r"IVF(\d+)", factory)
    return int(found[1]) if found else 0


def least_vectors(factory: str) -> int:
    """Return of how many vectors, at least, an index of this factory can learn cells and codes."""
    # What is quantised by products of 8 bits is one of 256 codes; so are rotations found for it.
    codes = [2 ** int(bits or 8) for bits in re.findall(r"PQ\d+(?:_\d+)?(?:x(\d+))?", factory)]
    return int(max(1, cells_of(factory), *codes))


def sample_rows(factory: str, count: int) -> int:
    """Return how many vectors of so many an index is trained on."""
    cells = cells_of(factory)
    per_cell = 100 if cells < GRAPH_FROM else 50
    return min(count, max(EXACT_BELOW, per_cell * cells))


def train(factory: str, sample_ND: np.ndarray) -> Any:
    """Return an empty ``faiss.Index`` that has learned its cells and codes.

    Args:
        factory: A faiss factory string.
        sample_ND: Unit vectors, float; see ``sample_rows``. Fewer than cells is an error.

    Raises:
        ConfigError: If faiss cannot make or train it.
    """
    sample_ND = _float32(sample_ND)
    try:
        index = _made(factory, sample_ND.shape[1])
        _train_cells(index, sample_ND)
        # A graph is another one each time when several threads insert into it.
        with one_thread() if "HNSW" in factory else contextlib.nullcontext():
            index.train(sample_ND)
    except RuntimeError as error:
        raise ConfigError(
            f"factory {factory!r} cannot be trained on {len(sample_ND)} vectors: {_reason(error)}"
        ) from error
    return index


def to_bytes(index: Any) -> bytes:
    """Return an index as the bytes of its file."""
    return _bytes(index)


def fill(trained: bytes, vectors_ND: np.ndarray, first_row: int) -> bytes:
    """Return a part of an index: some vectors encoded, for ``merged``.

    Args:
        trained: ``to_bytes`` of what ``train`` returned.
        vectors_ND: Unit vectors, float16 or float32.
        first_row: The row of the first of them in the whole index.
    """
    index = _read(trained)
    for start in range(0, len(vectors_ND), 65_536):
        index.add(_float32(vectors_ND[start : start + 65_536]))
    return _PART.pack(first_row, len(vectors_ND)) + _bytes(index)


def merged(trained: bytes, parts: Iterable[bytes | str | os.PathLike[str]]) -> Any:
    """Return the whole ``faiss.Index`` from its parts (bytes, or files of them) in order.

    Raises:
        ArtifactError: If a part is damaged or does not begin where the one before ended.
    """
    whole = _read(trained)
    for given in parts:
        data = given
        if not isinstance(data, bytes):
            with open(data, "rb") as file:
                data = file.read()
        if len(data) < _PART.size:
            raise ArtifactError(f"a part of an index has {len(data)} bytes: it was cut short")
        first_row, count = _PART.unpack_from(data)
        if first_row != whole.ntotal:
            raise ArtifactError(f"a part begins at row {first_row}, expected {whole.ntotal}")
        part = _read(data[_PART.size :])
        if part.ntotal != count:
            raise ArtifactError(f"a part holds {part.ntotal} vectors, expected {count}")
        _append(whole, part)
    return whole


class VectorIndex:
    """An index to search. Searching changes nothing in it, so threads may share one."""

    def __init__(self, index: Any) -> None:
        self._index = index
        ivf = faiss.try_extract_index_ivf(_base(index))
        self.cells: int = ivf.nlist if ivf is not None else 0
        """0: every vector is compared."""
        self.refines = isinstance(index, faiss.IndexRefine)
        """Whether candidates are compared again with a better copy (``k_factor``)."""
        self.by_cell = Cells(_base(index)) if ivf is not None else None
        """To search some cells of."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "VectorIndex":
        """Map an index file into memory: in milliseconds, its pages shared between processes.

        Raises:
            ArtifactError: If it is no index of inner products.
        """
        try:
            # Not IO_FLAG_MMAP, which searches at 2.8 times the CPU.
            index = faiss.read_index(os.fspath(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise ArtifactError(f"{path} is no vector index: {_reason(error)}") from error
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise ArtifactError(f"{path} does not compare by inner product")
        return cls(index)

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Of what length they are."""
        return int(self._index.d)

    def search(
        self,
        query_QD: np.ndarray,
        k: int,
        *,
        nprobe: int | None = None,
        k_factor: int | None = None,
        rows: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of the largest inner products with each query, largest first.

        Args:
            query_QD: Shape [D] or [Q, D], float.
            k: How many of each.
            nprobe: How many cells are looked into; 1 by default.
            k_factor: How many candidates are compared again, in tens; 1 by default. At least
                ``2 * k`` are, so that what is chosen for ten results serves more.
            rows: Those that may be found: a bitmap, uint8, row i being bit ``i % 8`` of byte
                ``i // 8``.

        Returns:
            Scores, float32, and rows, int64, of shape [Q, K] with ``K = min(k, N)``. Where fewer
            were found rows are -1 and scores -inf.

        Raises:
            BiovlError: If a query is not finite or not of this length.
        """
        query_QD = checked_queries(query_QD, self.dim)
        k = min(k, self.count)
        if k <= 0:
            return np.empty((len(query_QD), 0), np.float32), np.empty((len(query_QD), 0), np.int64)
        candidates = self.candidates(k, k_factor)
        selector = None if rows is None else _FAISS.IDSelectorBitmap(rows)
        parameters = _parameters(self._index, nprobe or 1, candidates / k, selector)
        with one_thread():
            scores_QK, rows_QK = self._index.search(query_QD, k, params=parameters)
        scores_QK[rows_QK < 0] = -np.inf
        return scores_QK, rows_QK

    def candidates(self, k: int, k_factor: int | None) -> int:
        """Return how many are compared again for ``k`` results; see ``search``."""
        return min(max(10 * (k_factor or 1), 2 * k), self.count)

    def scored_again(self, query_D: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
        """Return inner products of rows by the better copy, float32, shape [K]."""
        copy = faiss.downcast_index(self._index.refine_index)
        scores_K: np.ndarray = copy.reconstruct_batch(rows_K) @ query_D
        return scores_K


def compared(vectors_ND: np.ndarray, query_QD: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest inner products with every vector, and whose they are.

    Three times as fast as through NumPy, which takes 0.8 µs to make 512 halves floats.

    Args:
        vectors_ND: float16.
        query_QD: float32.
        k: 1 <= k <= N.

    Returns:
        Scores, float32, and rows, int64, of shape [Q, K], the largest first.
    """
    kind = faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexScalarQuantizer(vectors_ND.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    index.add_sa_codes(np.ascontiguousarray(vectors_ND, np.float16).view(np.uint8))
    with one_thread():
        scores_QK, rows_QK = index.search(query_QD, k)
    return scores_QK, rows_QK


def checked_queries(query_QD: np.ndarray, dim: int) -> np.ndarray:
    """Return queries as float32 of shape [Q, D].

    Raises:
        BiovlError: If they are not finite or not of this length.
    """
    query_QD = np.atleast_2d(_float32(query_QD))
    if query_QD.ndim != 2 or query_QD.shape[1] != dim:
        raise BiovlError(f"a query has shape {query_QD.shape[1:]}, the index has {dim} dimensions")
    if not np.isfinite(query_QD).all():
        raise BiovlError("a query holds numbers that are not finite (NaN or infinity)")
    return query_QD


def _parameters(index: Any, nprobe: int, k_factor: float, selector: Any) -> Any:
    """Return search parameters for an index and those it is made of."""
    if isinstance(index, faiss.IndexRefine):
        base = _parameters(faiss.downcast_index(index.base_index), nprobe, 1, selector)
        return _FAISS.IndexRefineSearchParameters(k_factor=k_factor, base_index_params=base)
    if isinstance(index, faiss.IndexPreTransform):
        inner = _parameters(faiss.downcast_index(index.index), nprobe, 1, selector)
        return _FAISS.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexIVF):
        return _FAISS.SearchParametersIVF(nprobe=min(nprobe, index.nlist), sel=selector)
    return _FAISS.SearchParameters(sel=selector)


def _base(index: Any) -> Any:
    return faiss.downcast_index(index.base_index) if isinstance(index, faiss.IndexRefine) else index


def _append(whole: Any, part: Any) -> None:
    if isinstance(whole, faiss.IndexRefine):
        # faiss does not join these; what they are made of it does.
        for name in ("base_index", "refine_index"):
            inner = faiss.downcast_index(getattr(whole, name))
            _append(inner, faiss.downcast_index(getattr(part, name)))
        whole.ntotal = whole.base_index.ntotal
        return
    # Lists of cells hold ids, which go on where the whole ended; others hold none.
    has_ids = faiss.try_extract_index_ivf(whole) is not None
    whole.merge_from(part, whole.ntotal if has_ids else 0)


def _train_cells(index: Any, sample_ND: np.ndarray) -> None:
    """Find the cells of an index whose cells are found by a graph, with all threads."""
    ivf = _base(index)
    if not isinstance(ivf, faiss.IndexIVF):
        return
    quantizer = faiss.downcast_index(ivf.quantizer)
    if not isinstance(quantizer, faiss.IndexHNSW):
        return
    clustering = faiss.Clustering(ivf.d, ivf.nlist, ivf.cp)
    clustering.train(sample_ND, faiss.IndexFlatIP(ivf.d))
    centroids_CD = faiss.vector_to_array(clustering.centroids).reshape(ivf.nlist, ivf.d)
    quantizer.hnsw.efSearch = _EF
    with one_thread():
        quantizer.add(centroids_CD)


def _made(factory: str, dim: int) -> Any:
    return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)


def _bytes(index: Any) -> bytes:
    data: bytes = faiss.serialize_index(index).tobytes()
    return data


def _read(data: bytes) -> Any:
    try:
        return faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError as error:
        raise ArtifactError(f"these bytes are no vector index: {_reason(error)}") from error


def _float32(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _reason(error: Exception) -> str:
    """Return what faiss says, without where in its sources."""
    return str(error).strip().split("\n")[0].rpartition(": ")[2][:200]
