"""Embeddings of images and texts: computed once per model and cached for all tasks.

    CACHE/<key>/
      vectors.npy      float32, unit rows; NaN for unreadable images
      manifest.json    model and source; unreadable rows with their reasons

The key is a hash of the model, the source, the precision and the batch size.
"""

import hashlib
import json
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.fs as pafs

from biovl.benchmark import encoders
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import Images
from biovl.benchmark.encoders import BenchmarkModel, ModelDescription
from biovl.benchmark.stored_images import Chosen, parts_of
from biovl.benchmark.tasks import EmbeddedBenchmark
from biovl.core.artifacts import MANIFEST, Draft, Input, Manifest, find_manifest, to_json
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.filesystems import below, canonical_location
from biovl.core.folders import Folder
from biovl.core.workers import Precision

# Shapes: N images or texts, D embedding.

KIND = "embeddings"

VECTORS = "vectors.npy"

PREPARED = 5
"""Version of the preprocessing. Increase it when equal files give different embeddings; cached ones
of earlier versions are then ignored."""

_READ_AT_ONCE = 64
_KEPT_MODELS = 2


@dataclass(frozen=True)
class Texts:
    """Texts to embed, as a source of embeddings."""

    texts: tuple[str, ...]
    """Texts in their order."""
    fingerprint: str = field(init=False)
    """Hash of the texts."""

    def __post_init__(self) -> None:
        known = hashlib.blake2b(digest_size=16)
        for text in self.texts:
            data = text.encode("utf-8", "surrogatepass")
            known.update(len(data).to_bytes(8, "little"))
            known.update(data)
        object.__setattr__(self, "fingerprint", known.hexdigest())

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, kw_only=True)
class EmbeddingTask:
    """A source to embed, the model, and the folder of the cache."""

    model: ModelDescription
    """Model that embeds them."""
    source: Images | Texts
    """The images or texts."""
    cache: str
    """Folder of the cache, local or ``s3://``."""
    precision: Precision = "auto"
    """Precision of the model."""
    batch: int = 64
    """Images or texts per forward pass."""
    per_unit: int = 1_024
    """Images or texts per unit of a job."""
    place: str = field(init=False)
    """Where the images lie, however their path was typed. Resolved once, since links and working
    directories of other machines may differ."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", _place_of(self.source))

    @property
    def uri(self) -> str:
        """Folder of these embeddings in the cache."""
        key = hashlib.blake2b(json.dumps(self.plain, sort_keys=True).encode(), digest_size=16)
        return below(self.cache, key.hexdigest())

    @property
    def plain(self) -> dict[str, Any]:
        """Values that the embeddings depend on, JSON-serialisable; their hash is the cache key."""
        return {
            "prepared": PREPARED,
            "model": self.model.fingerprint,
            "kind": self.model.kind,
            "source": self.source.fingerprint,
            "uri": self.place,
            "of": "texts" if isinstance(self.source, Texts) else "images",
            "rows": len(self.source),
            "precision": self.precision,
            "batch": self.batch,
            "per_unit": self.per_unit,
        }

    @property
    def units(self) -> int:
        """Number of units that the source is divided into."""
        return -(-len(self.source) // self.per_unit)

    def published(self) -> bool:
        """Return whether the embeddings are in the cache."""
        found = find_manifest(self.uri)
        return found is not None and found.kind == KIND


def _place_of(source: Images | Texts) -> str:
    """Return where the images lie.

    Their fingerprint is of names, sizes and times, which two folders of uncompressed images can
    have in common.
    """
    while isinstance(source, Chosen):
        source = source.images
    uri = getattr(source, "uri", "")
    return "://".join(canonical_location(uri)) if uri else ""


def embed_unit(
    task: EmbeddingTask, model: BenchmarkModel, number: int, threads: int
) -> dict[str, Any]:
    """Embed one unit into the draft of its folder, and return the receipt."""
    start = number * task.per_unit
    stop = min(start + task.per_unit, len(task.source))
    unreadable: dict[int, str] = {}
    if isinstance(task.source, Texts):
        rows_ND = embed_texts(model, task.source.texts[start:stop], task.batch)
    else:
        rows_ND, unreadable = embed_images(
            model, task.source, start, stop, batch=task.batch, threads=threads
        )
    draft = Draft(task.uri)
    draft.folder.write(_unit(number), rows_ND.tobytes())
    facts = {"dim": model.dim, "logit_scale": model.logit_scale, "context": model.context}
    reasons = {str(row): why for row, why in unreadable.items()}
    receipt = {"rows": stop - start, "unreadable": reasons, "facts": facts}
    draft.note(f"embedded/{number:06d}", receipt)
    return receipt


def embed_images(
    model: BenchmarkModel, images: Images, start: int, stop: int, *, batch: int, threads: int
) -> tuple[np.ndarray, dict[int, str]]:
    """Return unit embeddings of a range of images, and the reason for each unreadable image.

    Args:
        model: The model.
        images: The images.
        start: First row of the range.
        stop: Row after the last one.
        batch: Images per forward pass.
        threads: Threads that decode.

    Returns:
        float32, [stop - start, D]; rows of unreadable images are NaN. Keys of the reasons are row
        indices in ``images``.

    Raises:
        ArtifactError: If an embedding of a readable image is not finite.
    """
    unreadable: dict[int, str] = {}
    rows_ND = np.full((stop - start, model.dim), np.nan, np.float32)
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[tuple[int, np.ndarray]] = []
        for row, pixels in _pixels(images, model, start, stop, pool):
            if isinstance(pixels, str):
                unreadable[row] = pixels
                continue
            waiting.append((row - start, pixels))
            if len(waiting) == batch:
                _embed_waiting(model, waiting, rows_ND)
        _embed_waiting(model, waiting, rows_ND)
    return rows_ND, unreadable


def _pixels(
    images: Images, model: BenchmarkModel, start: int, stop: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[int, np.ndarray | str]]:
    """Yield row and preprocessed pixels of each image, or the reason why it is unreadable."""

    def look(data: bytes) -> np.ndarray | str:
        try:
            return encoders.prepare(model, data)
        except BiovlError as error:
            return str(error)

    for first in range(start, stop, _READ_AT_ONCE):
        data = images.read(first, min(first + _READ_AT_ONCE, stop))
        yield from enumerate(pool.map(look, data), first)


def _embed_waiting(
    model: BenchmarkModel, waiting: list[tuple[int, np.ndarray]], rows_ND: np.ndarray
) -> None:
    if waiting:
        at = [row for row, _ in waiting]
        rows_ND[at] = _finite(model.embed_pixels(np.stack([pixels for _, pixels in waiting])))
        waiting.clear()


def embed_texts(model: BenchmarkModel, texts: Sequence[str], batch: int) -> np.ndarray:
    """Return unit embeddings of texts, ``batch`` at a time. float32, [M, D].

    Raises:
        ArtifactError: If an embedding is not finite.
    """
    # Sorted by length, since a batch is padded to its longest text.
    rows_ND = np.zeros((len(texts), model.dim), np.float32)
    order = np.argsort([len(text) for text in texts], kind="stable")
    for first in range(0, len(order), batch):
        some = order[first : first + batch]
        rows_ND[some] = _finite(model.embed_texts([texts[row] for row in some]))
    return rows_ND


def _finite(rows_BD: np.ndarray) -> np.ndarray:
    if not np.isfinite(rows_BD).all():
        raise ArtifactError(
            "the model gives embeddings that are not finite (NaN or infinite): its training has "
            "diverged, or its weights are damaged. No score of it would mean anything"
        )
    return rows_BD


def _unit(number: int) -> str:
    return f".draft/units/{number:06d}.bin"


def publish(task: EmbeddingTask) -> Manifest:
    """Join the finished units of a draft, and publish the embeddings."""
    draft = Draft(task.uri)
    receipts: list[Any] = [
        draft.read_note(f"embedded/{number:06d}") for number in range(task.units)
    ]
    facts = receipts[0]["facts"]
    with draft.folder.writer(VECTORS) as stream:
        _write_header(stream, len(task.source), facts["dim"])
        for number in range(task.units):
            stream.write(draft.folder.read(_unit(number)))
    unreadable = {row: why for receipt in receipts for row, why in receipt["unreadable"].items()}
    return draft.publish(_manifest(task, facts, unreadable))


def _manifest(
    task: EmbeddingTask, facts: Mapping[str, Any], unreadable: Mapping[str, str]
) -> Manifest:
    return Manifest(
        kind=KIND,
        config=task.plain,
        inputs=inputs(task),
        counts={"rows": len(task.source), "unreadable": len(unreadable)},
        notes={**facts, "unreadable": unreadable},
    )


def inputs(task: EmbeddingTask) -> list[Input]:
    """Return the inputs of the embeddings, for the manifest."""
    known = task.model
    return [Input(name="model", uri=known.fingerprint, fingerprint=known.fingerprint)]


def _write_header(stream: Any, rows: int, dim: int) -> None:
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
    )


def vectors(uri: str) -> np.ndarray:
    """Return cached embeddings, memory-mapped; those in a bucket are copied to a temporary file."""
    folder = Folder(uri)
    if isinstance(folder.filesystem, pafs.LocalFileSystem):
        mapped: np.ndarray = np.load(folder.at(VECTORS), mmap_mode="r", allow_pickle=False)
        return mapped
    with (
        tempfile.NamedTemporaryFile(suffix=".npy") as local,
        folder.filesystem.open_input_stream(folder.at(VECTORS)) as stream,
    ):
        shutil.copyfileobj(stream, local)
        local.flush()
        # The mapping stays valid after the file is deleted.
        copied: np.ndarray = np.load(local.name, mmap_mode="r", allow_pickle=False)
        return copied


def cached_embeddings(name: str, parts: Sequence[EmbeddingTask]) -> EmbeddedBenchmark:
    """Return cached embeddings of images, with access to the model's text tower.

    Args:
        name: Name of the model in the report.
        parts: Parts of the images in their order, all embedded by one model.

    Raises:
        BiovlError: If the embeddings of a part are no longer in the cache.
    """
    known, facts = parts[0].model, dict[str, Any]()
    unreadable: dict[int, str] = {}
    rows, first = [], 0
    for part in parts:
        manifest = find_manifest(part.uri)
        if manifest is None:
            raise BiovlError(f"the vectors at {part.uri} are gone: run the same command again")
        facts = dict(manifest.notes)
        rows.append(vectors(part.uri))
        unreadable |= {first + int(row): why for row, why in facts["unreadable"].items()}
        first += len(part.source)

    def text(texts: Sequence[str]) -> np.ndarray:
        if not known.has_text:
            raise BiovlError(f"{name} has no text tower: it cannot embed texts")
        return _kept_texts(parts[0], texts)

    def truncated(texts: Sequence[str]) -> np.ndarray:
        return open_model(known, parts[0].precision).truncated(texts)

    return EmbeddedBenchmark(
        image_ND=rows[0] if len(rows) == 1 else np.concatenate(rows),
        unreadable=unreadable,
        text=text,
        logit_scale=facts["logit_scale"],
        model=name,
        has_text=known.has_text,
        context=facts["context"],
        truncated=truncated if known.has_text else None,
    )


def tasks_of(
    config: BenchmarkConfig, model: ModelDescription, source: Images | Texts
) -> list[EmbeddingTask]:
    """Return a task for each part of joined images; one for other images and for texts."""
    return [
        EmbeddingTask(
            model=model,
            source=part,
            cache=config.cache_uri(),
            precision=config.precision,
            batch=config.batch,
            per_unit=config.per_unit,
        )
        for part in ([source] if isinstance(source, Texts) else parts_of(source))
    ]


def text_task(like: EmbeddingTask, texts: Sequence[str]) -> EmbeddingTask:
    """Return a task that embeds texts with the same model and settings as another one."""
    return replace(like, source=Texts(tuple(texts)))


def _kept_texts(like: EmbeddingTask, texts: Sequence[str]) -> np.ndarray:
    """Return embeddings of texts, from the cache or computed now and cached."""
    task = text_task(like, texts)
    if task.published():
        return vectors(task.uri)
    model = open_model(task.model, task.precision)
    rows_MD = embed_texts(model, list(texts), task.batch)
    folder = Folder(task.uri)
    with folder.writer(VECTORS) as stream:
        _write_header(stream, *rows_MD.shape)
        stream.write(rows_MD.tobytes())
    facts = {"dim": model.dim, "logit_scale": model.logit_scale, "context": model.context}
    manifest = _manifest(task, facts, {})
    # No draft is needed: concurrent tasks write the same bytes.
    folder.write(MANIFEST, to_json({**manifest.__dict__, "inputs": []}))
    return rows_MD


_opened: OrderedDict[tuple[str, Precision], BenchmarkModel] = OrderedDict()


def open_model(known: ModelDescription, precision: Precision) -> BenchmarkModel:
    """Return a model on the CPU; each process keeps the last two in memory."""
    # Not by its URI: another model may have been published there since.
    key = (known.fingerprint, precision)
    if key not in _opened:
        _opened[key] = encoders.load(known, precision=precision)
        while len(_opened) > _KEPT_MODELS:
            _opened.popitem(last=False)
    _opened.move_to_end(key)
    return _opened[key]
