"""Filtered search in an IVF index, restricted to cells that contain matching rows."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import faiss
import numpy as np

from biovl.index.filters import Selection

# Shapes: N rows, C cells, H cells with matching rows, D dimensions, K results.

_FAISS: Any = faiss
"""Without type: its stubs lack the keyword arguments of its Python classes."""
_COUNTED = 1_000_000
"""Matching rows per cell are counted on an even sample if there are more rows: at most 0.1 s."""


def transforms_of(index: Any) -> list[Any]:
    """Return the vector transforms of a faiss ``IndexPreTransform``; [] for other indexes."""
    if not isinstance(index, faiss.IndexPreTransform):
        return []
    chain: Any = index.chain
    return [faiss.downcast_VectorTransform(chain.at(n)) for n in range(chain.size())]


@dataclass(frozen=True, eq=False)
class MatchingCells:
    """Cells that contain rows of a selection. H cells."""

    cells_H: np.ndarray
    fits_H: np.ndarray
    """Number of matching rows in each cell."""
    sizes_H: np.ndarray
    """Number of rows in each cell."""


@dataclass(frozen=True, eq=False)
class NearestCells:
    """Cells with matching rows, sorted by distance from a query. H cells."""

    cells_H: np.ndarray
    products_H: np.ndarray
    """Inner products of the query and the centroids, float32."""
    fits_H: np.ndarray
    """Number of matching rows in each cell and all nearer ones, int64."""
    seen_H: np.ndarray
    """Number of rows in each cell and all nearer ones, int64."""


class Cells:
    """Search in single cells of an IVF index. Thread-safe."""

    def __init__(self, index: Any) -> None:
        self._transforms = transforms_of(index)
        self._ivf = _FAISS.downcast_index(faiss.try_extract_index_ivf(index))
        self._keeps_alive = index
        # The quantizer may be a graph, which stores the centroids.
        quantizer: Any = faiss.downcast_index(self._ivf.quantizer)
        if isinstance(quantizer, faiss.IndexHNSW):
            quantizer = faiss.downcast_index(quantizer.storage)
        centres = faiss.rev_swig_ptr(quantizer.get_xb(), self._ivf.nlist * self._ivf.d)
        # Unaligned in a mapped file: NumPy would copy them for every product.
        self._centres_CD = np.require(centres, requirements="A").reshape(self._ivf.nlist, -1)
        self._lock = threading.Lock()
        self._sizes_C: np.ndarray | None = None
        self._cell_N = np.empty(0, np.uint16)
        self._held: WeakKeyDictionary[Selection, MatchingCells] = WeakKeyDictionary()

    def holding(self, selection: Selection) -> MatchingCells:
        """Return the cells with rows of a selection, cached; large selections are sampled."""
        with self._lock:
            known = self._held.get(selection)
            if known is None:
                known = self._held[selection] = self._computed(selection)
        return known

    def nearest(self, query_D: np.ndarray, held: MatchingCells) -> NearestCells:
        """Return cells ordered by distance from a query, a float32 vector [D]."""
        # If only few cells contain matching rows, read only their centroids.
        few = len(held.cells_H) * 8 < len(self._centres_CD)
        query_1D = self._transformed(query_D[None])
        if few:
            products_H = self._centres_CD[held.cells_H] @ query_1D[0]
        else:
            products_H = (self._centres_CD @ query_1D[0])[held.cells_H]
        order = np.argsort(-products_H, kind="stable")
        return NearestCells(
            held.cells_H[order],
            products_H[order],
            np.cumsum(held.fits_H[order]),
            np.cumsum(held.sizes_H[order]),
        )

    def search(
        self,
        query_D: np.ndarray,
        k: int,
        within: NearestCells,
        first: int,
        end: int,
        selection: Selection,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and rows of the ``k`` nearest matching vectors in a range of cells.

        Fewer are returned if the cells contain fewer.

        Args:
            query_D: Query vector, float32.
            k: Number of results.
            within: Cells with matching rows, nearest first.
            first: First position in ``within`` to search.
            end: Position in ``within`` at which the search stops (excluded).
            selection: Rows that match the filter.
        """
        selector = _FAISS.IDSelectorBitmap(selection.bitmap)
        parameters = _FAISS.SearchParametersIVF(nprobe=end - first, sel=selector)
        # The array wrapper of faiss does not accept search parameters.
        scores_K, rows_K = np.empty(k, np.float32), np.empty(k, np.int64)
        cells = np.ascontiguousarray(within.cells_H[first:end])
        products = np.ascontiguousarray(within.products_H[first:end], np.float32)
        query_1D = np.ascontiguousarray(self._transformed(query_D[None]))
        at = faiss.swig_ptr
        with one_thread():
            self._ivf.search_preassigned_c(
                1,
                at(query_1D),
                k,
                at(cells),
                at(products),
                at(scores_K),
                at(rows_K),
                False,
                parameters,
            )
        is_found = rows_K >= 0
        return scores_K[is_found], rows_K[is_found]

    def _transformed(self, query_1D: np.ndarray) -> np.ndarray:
        for transform in self._transforms:
            query_1D = transform.apply(query_1D)
        return query_1D

    def _computed(self, selection: Selection) -> MatchingCells:
        if self._sizes_C is None:
            self._sizes_C = self._look()
        step = max(1, selection.count // _COUNTED)
        rows_M = selection.rows(step)
        fits_C = self._sizes_C
        if rows_M is not None:
            fits_C = step * np.bincount(self._cell_N[rows_M], minlength=self._ivf.nlist)
        cells_H = np.flatnonzero(fits_C)
        return MatchingCells(cells_H, fits_C[cells_H], self._sizes_C[cells_H])

    def _look(self) -> np.ndarray:
        """Store the cell of each row; return the sizes of the cells."""
        lists = self._ivf.invlists
        small = self._ivf.nlist <= 1 << 16
        self._cell_N = np.zeros(self._ivf.ntotal, np.uint16 if small else np.int32)
        sizes_C = np.array([lists.list_size(cell) for cell in range(self._ivf.nlist)], np.int64)
        for cell in np.flatnonzero(sizes_C).tolist():
            self._cell_N[faiss.rev_swig_ptr(lists.get_ids(cell), int(sizes_C[cell]))] = cell
        return sizes_C


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Restrict OpenMP to one thread in the block, for the calling thread."""
    # A query is too small to be parallelized; requests run concurrently instead. The setting is
    # local to the calling thread and to the OpenMP runtime of faiss; PyTorch has its own.
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
