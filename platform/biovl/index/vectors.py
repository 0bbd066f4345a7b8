"""Vector indexes (faiss, inner product): chosen by size, built in parts, memory-mapped.

Row numbers are ids. An index is trained once on a sample, filled in any number of parallel parts,
and merged in order. The bytes depend only on the vectors, the factory and the part boundaries, so
an interrupted and resumed build publishes the same file.
"""

import contextlib
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import faiss
import numpy as np

from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.index.cells import Cells, one_thread, transforms_of

# Shapes: N vectors, Q queries, K results of each, D dimensions.

Profile = Literal["default", "low_memory"]

EXACT_BELOW = 20_000
"""Fewer vectors are searched exhaustively: one millisecond at 512 dimensions."""
FP16_UP_TO = 1_000_000
"""Up to this number of vectors, float16 is used: the recall of float32 at half the size."""
GRAPH_FROM = 16_384
"""From this number of cells an HNSW graph finds the nearest cells faster than a full comparison."""
HOT_BYTES = 100
"""Memory per vector in the low-memory profile: codes, factors and ids."""

_FAISS: Any = faiss
"""Without type: its stubs lack the keyword arguments of its Python classes."""
_EF = 64
"""Value of efSearch for the graph of cells, when vectors are assigned to cells."""
_CODES = r"(Flat|SQ[468]|SQfp16|RaBitQ\d?)"
_TAKEN = re.compile(
    rf"((PCAR?|RR)\d+,|OPQ\d+(_\d+)?,)?(IVF\d+(_HNSW\d+)?,(PQ\d+(x\d+)?|{_CODES})|{_CODES})"
    rf"(,RFlat|,Refine\({_CODES}\))?"
)
"""Accepted factories. Others may crash: merging fast-scan codes corrupts memory in faiss 1.15.1."""
_PCA_ROWS = 65_536
"""Number of vectors on which a PCA is trained: 64 and more for each of 1,024 dimensions."""
_PART = struct.Struct("<qq")
"""Header of a part: first row and number of rows."""


def choose_factory(count: int, dim: int, profile: Profile = "default") -> str:
    """Return the faiss factory string for a number of vectors.

    Measured at 0.2 M and 1 M vectors of 512 dimensions: product quantization loses a third of the
    recall of these factories, and graphs (HNSW) cannot be filled in parts or merged.
    """
    if count < EXACT_BELOW:
        return "SQfp16"
    cells = 2 ** round(math.log2(4 * math.sqrt(count)))
    coarse = f"IVF{cells}_HNSW32" if cells >= GRAPH_FROM else f"IVF{cells}"
    if profile == "low_memory":
        # One bit per dimension, two factors of four bytes, and an id of eight bytes.
        bits = (HOT_BYTES - 16) * 8
        fewer = f"PCA{bits // 64 * 64}," if dim > bits else ""
        return f"{fewer}{coarse},RaBitQ,Refine(SQ8)"
    return f"{coarse},SQfp16" if count <= FP16_UP_TO else f"{coarse},SQ8"


def check_factory(factory: str, dim: int) -> None:
    """Reject a factory string that faiss or this package does not support.

    Raises:
        ConfigError: If faiss does not accept it, or such an index does not use the inner product,
            cannot be merged from parts, or cannot be searched within a selection of rows.
    """
    if not _TAKEN.fullmatch(factory):
        raise ConfigError(
            f"factory {factory!r} cannot be used: expected [PCA…, RR… or OPQ…,][IVF…[_HNSW…],]codes"
            "[,Refine(codes)], with codes Flat, SQ4, SQ6, SQ8, SQfp16, RaBitQ… or, in cells, PQ…; "
            "others cannot be filled in parts or searched within a filter"
        )
    # Try it with one cell: only the kind of codes matters, and training needs few vectors.
    small = re.sub(r"IVF\d+(_HNSW\d+)?", "IVF1", factory)
    rng = np.random.default_rng(0)
    sample_ND = rng.standard_normal((max(512, 2 * dim), dim), dtype=np.float32)
    sample_ND /= np.linalg.norm(sample_ND, axis=1, keepdims=True)
    try:
        _made(factory, dim)
        trained = to_bytes(train(small, sample_ND))
        halves = [fill(trained, sample_ND[:256], 0), fill(trained, sample_ND[256:512], 256)]
        index = VectorIndex(merge_parts(trained, halves))
        few = np.zeros(index.count, bool)
        few[::64] = True
        _, rows_QK = index.search(sample_ND[:2], 8, rows=np.packbits(few, bitorder="little"))
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"factory {factory!r} cannot be used: {_reason(error)}") from error
    if sorted(set(rows_QK.ravel())) != list(range(0, 512, 64)):
        raise ConfigError(f"factory {factory!r} cannot be used: it does not search in a selection")


def cells_of(factory: str) -> int:
    """Return the number of cells of a factory; 0 for an exhaustive index."""
    match = re.search(r"IVF(\d+)", factory)
    return int(match[1]) if match else 0


def least_vectors(factory: str) -> int:
    """Return the minimum number of vectors needed to train a factory."""
    # Product quantization with 8 bits needs 256 vectors; so do rotations trained for it.
    codes = [2 ** int(bits or 8) for bits in re.findall(r"PQ\d+(?:_\d+)?(?:x(\d+))?", factory)]
    return int(max(1, cells_of(factory), *codes))


def sample_rows(factory: str, count: int) -> int:
    """Return the number of vectors, of ``count``, on which a factory is trained."""
    cells = cells_of(factory)
    per_cell = 100 if cells < GRAPH_FROM else 50
    return min(count, max(EXACT_BELOW, per_cell * cells))


def train(factory: str, sample_ND: np.ndarray) -> Any:
    """Return an empty ``faiss.Index``, trained on a sample.

    Args:
        factory: A faiss factory string.
        sample_ND: Unit vectors, float; see ``sample_rows``. At least as many as cells.

    Raises:
        ConfigError: If faiss cannot create or train it.
    """
    sample_ND = _float32(sample_ND)
    try:
        index = _made(factory, sample_ND.shape[1])
        _train_cells(*_train_transforms(index, sample_ND))
        # Inserting into a graph with several threads is not deterministic.
        with one_thread() if "HNSW" in factory else contextlib.nullcontext():
            index.train(sample_ND)
    except RuntimeError as error:
        raise ConfigError(
            f"factory {factory!r} cannot be trained on {len(sample_ND)} vectors: {_reason(error)}"
        ) from error
    return index


def to_bytes(index: Any) -> bytes:
    """Return an index serialized by faiss."""
    data: bytes = faiss.serialize_index(index).tobytes()
    return data


def fill(trained: bytes, vectors_ND: np.ndarray, first_row: int) -> bytes:
    """Return a part of an index for ``merge_parts``, serialized: encoded vectors.

    Args:
        trained: Serialized output of ``train``.
        vectors_ND: Unit vectors, float16 or float32.
        first_row: Row number of the first vector in the whole index.
    """
    index = _read(trained)
    for start in range(0, len(vectors_ND), 65_536):
        index.add(_float32(vectors_ND[start : start + 65_536]))
    return _PART.pack(first_row, len(vectors_ND)) + to_bytes(index)


def merge_parts(trained: bytes, parts: Iterable[bytes | str | os.PathLike[str]]) -> Any:
    """Return the complete ``faiss.Index`` from its parts (bytes or files), in order.

    Raises:
        ArtifactError: If a part is corrupt or does not continue the previous one.
    """
    whole = _read(trained)
    for given in parts:
        data = given
        if not isinstance(data, bytes):
            with open(data, "rb") as file:
                data = file.read()
        if len(data) < _PART.size:
            raise ArtifactError(f"a part of an index has {len(data)} bytes: it is truncated")
        first_row, count = _PART.unpack_from(data)
        if first_row != whole.ntotal:
            raise ArtifactError(f"a part begins at row {first_row}, expected {whole.ntotal}")
        part = _read(data[_PART.size :])
        if part.ntotal != count:
            raise ArtifactError(f"a part holds {part.ntotal} vectors, expected {count}")
        _append(whole, part)
    return whole


class VectorIndex:
    """A searchable vector index. Thread-safe."""

    def __init__(self, index: Any) -> None:
        self._index = index
        ivf = faiss.try_extract_index_ivf(_base(index))
        self.cells: int = ivf.nlist if ivf is not None else 0
        """0: every vector is compared."""
        self.refines = isinstance(index, faiss.IndexRefine)
        """Whether candidates are compared again with a better copy (``k_factor``)."""
        self.is_exact: bool = isinstance(index, faiss.IndexFlat) or (
            isinstance(index, faiss.IndexScalarQuantizer)
            and index.sq.qtype == faiss.ScalarQuantizer.QT_fp16
        )
        """Whether it compares every vector with its float16 values or better."""
        self.by_cell = Cells(_base(index)) if ivf is not None else None
        """To search some cells of."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "VectorIndex":
        """Memory-map an index file. Takes milliseconds; processes share its pages.

        Raises:
            ArtifactError: If it is not an index with inner products.
        """
        try:
            # Not IO_FLAG_MMAP, with which a search takes 2.8 times as much CPU.
            index = faiss.read_index(os.fspath(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise ArtifactError(f"{path} is not a faiss index: {_reason(error)}") from error
        if index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise ArtifactError(f"{path} does not compare by inner product")
        # Earlier versions subtracted the mean: without it queries have their order of vectors.
        _remove_means(index)
        return cls(index)

    @property
    def count(self) -> int:
        """Number of vectors in the index."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Embedding dimension."""
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
        """Return the vectors with the largest inner products for each query, in descending order.

        Args:
            query_QD: Shape [D] or [Q, D], float.
            k: Number of results per query.
            nprobe: Number of cells to search; 1 by default.
            k_factor: ``10 * k_factor`` candidates are refined; 1 by default. At least ``2 * k`` are
                refined, so that settings chosen for ten results also suit larger ``k``.
            rows: Selection of rows as a bitmap, uint8; row i is bit ``i % 8`` of byte ``i // 8``.

        Returns:
            Scores, float32, and rows, int64, of shape [Q, K] with ``K = min(k, N)``. Missing
            results have row -1 and score -inf.

        Raises:
            BiovlError: If a query is not finite or has another dimension.
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
        """Return the number of candidates to refine for ``k`` results; see ``search``."""
        return min(max(10 * (k_factor or 1), 2 * k), self.count)

    def scored_again(self, query_D: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
        """Return the refined inner products of rows, float32, shape [K]."""
        copy = faiss.downcast_index(self._index.refine_index)
        scores_K: np.ndarray = copy.reconstruct_batch(rows_K) @ query_D
        return scores_K


def exact_search(
    vectors_ND: np.ndarray, query_QD: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest inner products by exhaustive search, and their rows.

    Three times as fast as NumPy, which needs 0.8 µs to convert 512 values from float16 to float32.

    Args:
        vectors_ND: Unit vectors, float16.
        query_QD: Unit vectors, float32.
        k: 1 <= k <= N.

    Returns:
        Scores, float32, and rows, int64, of shape [Q, K], in descending order.
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
        BiovlError: If they are not finite or have another dimension.
    """
    query_QD = np.atleast_2d(_float32(query_QD))
    if query_QD.ndim != 2 or query_QD.shape[1] != dim:
        raise BiovlError(f"a query has shape {query_QD.shape[1:]}, the index has {dim} dimensions")
    if not np.isfinite(query_QD).all():
        raise BiovlError("a query holds numbers that are not finite (NaN or infinity)")
    return query_QD


def _parameters(index: Any, nprobe: int, k_factor: float, selector: Any) -> Any:
    """Return search parameters for an index and its sub-indexes."""
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
        # faiss cannot merge these wrappers, only their sub-indexes.
        for name in ("base_index", "refine_index"):
            inner = faiss.downcast_index(getattr(whole, name))
            _append(inner, faiss.downcast_index(getattr(part, name)))
        whole.ntotal = whole.base_index.ntotal
        return
    # Inverted lists store ids, which continue those of the merged index; others store none.
    has_ids = faiss.try_extract_index_ivf(whole) is not None
    whole.merge_from(part, whole.ntotal if has_ids else 0)


def _train_transforms(index: Any, sample_ND: np.ndarray) -> tuple[Any, np.ndarray]:
    """Train what is applied to vectors before encoding; return the index behind it, and its sample.

    faiss' PCA subtracts the mean of the sample. The product of two centred vectors is not that of
    the vectors: with a large common mean, as CLIP's have, its order is another one.
    """
    base = _base(index)
    if not isinstance(base, faiss.IndexPreTransform):
        return base, sample_ND
    for transform in transforms_of(base):
        if isinstance(transform, faiss.PCAMatrix):
            few_ND = sample_ND[:: -(-len(sample_ND) // _PCA_ROWS)]
            # Their mean is zero: the components are those of the products, not of the variance.
            transform.train(np.concatenate([few_ND, -few_ND]))
        elif not transform.is_trained:
            transform.train(sample_ND)
    _remove_means(index)
    for transform in transforms_of(base):
        sample_ND = transform.apply(sample_ND)
    return faiss.downcast_index(base.index), sample_ND


def subtracts_mean(index: Any) -> bool:
    """Return whether vectors are centred before they are encoded, as in earlier versions."""
    return any(_means(index))


def _remove_means(index: Any) -> None:
    for transform in _means(index):
        transform.have_bias = False


def _means(index: Any) -> Iterator[Any]:
    """Yield the transforms that subtract a mean."""
    transforms = transforms_of(_base(index))
    yield from (each for each in transforms if getattr(each, "have_bias", False))


def _train_cells(ivf: Any, sample_ND: np.ndarray) -> None:
    """Train the cells of an index whose quantizer is a graph, with all threads."""
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


def _read(data: bytes) -> Any:
    try:
        return faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError as error:
        raise ArtifactError(f"these bytes are not a faiss index: {_reason(error)}") from error


def _float32(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _reason(error: Exception) -> str:
    """Return the error message of faiss, without source locations."""
    return str(error).strip().split("\n")[0].rpartition(": ")[2][:200]
