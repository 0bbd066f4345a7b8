"""An engine in memory: a few dozen drawn figures, a model that sees colour and shape, and exact
search. All tests of endpoints and of the page use it; it answers as the real ones do.

The "model" needs no weights. An image's vector is made from its colours and a coarse picture of
where its ink is; a text is "embedded" by drawing what it says, so that "red circle" finds red
circles. Words it cannot draw turn the vector a little, so that other texts are other queries.
"""

import asyncio
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image, ImageDraw

from biovl.images.decode import decode_rgb
from biovl.index.query import Filter, Hit, Query, QueryPart, Results
from serve.http.problems import Problem
from serve.search.engine import (
    EmbeddedVectors,
    FigureMetadata,
    ImageFile,
    PreparedImages,
    Size,
    no_index,
)
from serve.search.settings import Settings

COLOURS = {
    "red": (200, 30, 40),
    "green": (40, 150, 60),
    "blue": (40, 80, 200),
    "orange": (240, 150, 30),
    "purple": (140, 50, 160),
    "black": (25, 25, 30),
}
SHAPES = ("circle", "square", "triangle", "ring", "cross", "stripes")
TYPES = {
    "circle": "light microscopy",
    "square": "x-ray",
    "triangle": "plot",
    "ring": "ct",
    "cross": "diagram",
    "stripes": "gel",
}
MODEL_VERSION = "aaaaaaaaaaaa"
INDEX_VERSION = "bbbbbbbbbbbb"
LOGIT_SCALE = 50.0
CONTEXT = 77
"""Words that the model reads."""
SIDE_PX = 32
_GRID = 4
DIM = 3 + _GRID * _GRID
_RRF = 60
"""Of reciprocal rank fusion (Cormack et al. 2009)."""


def drawn(colour: str, shape: str, *, side_px: int = 96) -> Image.Image:
    """Return a shape of a colour on white."""
    image = Image.new("RGB", (side_px, side_px), "white")
    draw = ImageDraw.Draw(image)
    ink, low, high = COLOURS[colour], side_px // 5, side_px * 4 // 5
    if shape == "circle":
        draw.ellipse((low, low, high, high), fill=ink)
    elif shape == "square":
        draw.rectangle((low, low, high, high), fill=ink)
    elif shape == "triangle":
        draw.polygon([(side_px // 2, low), (high, high), (low, high)], fill=ink)
    elif shape == "ring":
        draw.ellipse((low, low, high, high), outline=ink, width=side_px // 8)
    elif shape == "cross":
        draw.line((low, low, high, high), fill=ink, width=side_px // 8)
        draw.line((low, high, high, low), fill=ink, width=side_px // 8)
    else:
        for left in range(low, high, side_px // 6):
            draw.rectangle((left, 0, left + side_px // 12, side_px), fill=ink)
    return image


def png(image: Image.Image) -> bytes:
    """Return an image's PNG file."""
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def jpeg(image: Image.Image) -> bytes:
    """Return an image's JPEG file."""
    written = io.BytesIO()
    image.save(written, "JPEG", quality=90)
    return written.getvalue()


def image_vector(pixels: np.ndarray) -> np.ndarray:
    """Return what the model sees: mean ink colour, and how much ink there is in each cell."""
    ink = 1 - pixels.astype(np.float64) / 255
    amount = ink.mean(axis=2)
    cells = amount.reshape(_GRID, SIDE_PX // _GRID, _GRID, SIDE_PX // _GRID).mean(axis=(1, 3))
    colour = ink.mean(axis=(0, 1)) / (amount.mean() + 1e-6)
    vector = np.concatenate([2 * (colour - colour.mean()), (cells - cells.mean()).ravel(), []])
    return _unit(vector + 1e-6)


def text_vector(text: str) -> np.ndarray:
    """Return the mean vector of what a text could be a picture of."""
    words = re.findall(r"\w+", text.lower())
    # "circles" and "circular" are other words; this is no language model.
    colours = [name for name in COLOURS if name in words] or list(COLOURS)
    shapes = [name for name in SHAPES if name in words] or list(SHAPES)
    seen = [image_vector(_prepared(drawn(c, s))) for c in colours for s in shapes]
    others = " ".join(word for word in words if word not in COLOURS and word not in SHAPES)
    digest = hashlib.blake2b(others.encode(errors="replace")).digest()
    noise = np.random.default_rng(int.from_bytes(digest[:8], "little")).normal(size=DIM)
    return _unit(np.mean(seen, axis=0) + 0.05 * _unit(noise))


def _unit(vector: np.ndarray) -> np.ndarray:
    unit: np.ndarray = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _prepared(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR))


def figure(number: int) -> dict[str, Any]:
    """Return the columns of figure ``number`` of the small index."""
    colour, shape = list(COLOURS)[number // len(SHAPES)], SHAPES[number % len(SHAPES)]
    article = f"PMC{1_000 + number // 3}"
    finding = ("with pneumonia", "without pneumonia", "no sign of pneumonia; a nodule")[number % 3]
    commercial = number % 2 == 0
    return {
        "figure_id": f"{article}_F{number % 3 + 1}",
        "article_id": article,
        "figure_label": f"Figure {number % 3 + 1}",
        "caption": f"A {colour} {shape} {finding}. Scale bar, {number + 1} µm.",
        "title": f"On {colour} shapes",
        "journal": ("Journal of Shapes", "Annals of Colour")[number % 2],
        "year": 2010 + number % 12,
        "published": f"{2010 + number % 12}-03",
        "license": "CC-BY-4.0" if commercial else "CC-BY-NC-4.0",
        "license_group": "commercial" if commercial else "noncommercial",
        "license_url": "https://creativecommons.org/licenses/by/4.0/" if commercial else None,
        "citation": f"Shapes {article}.",
        "doi": None,
        "pmid": str(20_000 + number // 3),
        "kind": "figure",
        "image_type": TYPES[shape],
        "concepts": [colour, shape],
        "mesh_terms": ["Humans"] if number % 2 else [],
        "labels": [f"finding={'nodule' if number % 3 else 'none'}"],
        "width_px": 96,
        "height_px": 96,
        "split": "train",
        "url": f"https://pmc.ncbi.nlm.nih.gov/articles/{article}/",
        "_colour": colour,
        "_shape": shape,
    }


class SmallEngine:
    """``serve.search.engine.Engine`` over figures in memory."""

    def __init__(self, *, with_index: bool = True, stale_searches: int = 0) -> None:
        """Draw the figures.

        Args:
            with_index: Without, search answers that there is no index.
            stale_searches: So many searches are told that their vectors are of another model.
        """
        self.with_index = with_index
        self.stale_searches = stale_searches
        self.index_version = INDEX_VERSION
        """Another one from now on, as after a reload."""
        self.plan = "exact"
        """How the index is searched; ``ivf`` is not exact."""
        self.queries: list[Query] = []
        """What was searched, for tests to look at."""
        count = len(COLOURS) * len(SHAPES)
        self.rows = [figure(number) for number in range(count)]
        self.images = [drawn(row["_colour"], row["_shape"]) for row in self.rows]
        self.row_of = {row["figure_id"]: number for number, row in enumerate(self.rows)}
        self.vectors_ND = {
            "images": np.stack([image_vector(_prepared(image)) for image in self.images]),
            "captions": np.stack([text_vector(row["caption"]) for row in self.rows]),
        }

    async def prepare(self, images: Sequence[bytes]) -> PreparedImages:
        """Decode on a thread, as the real ones do."""
        pixels = await asyncio.to_thread(lambda: [self._pixels(n, d) for n, d in enumerate(images)])
        return PreparedImages(pixels=pixels, model_version=MODEL_VERSION)

    def _pixels(self, number: int, data: bytes) -> np.ndarray:
        decoded = decode_rgb(data)
        if decoded.pixels is None:
            raise Problem(422, "invalid-image", f"image {number}: {decoded.defect}")
        return _prepared(Image.fromarray(decoded.pixels))

    async def embed_images(self, prepared: PreparedImages) -> EmbeddedVectors:
        return self._embedded([image_vector(one) for one in prepared.pixels])

    async def embed_texts(self, texts: Sequence[str]) -> EmbeddedVectors:
        embedded = self._embedded([text_vector(text) for text in texts])
        return replace(embedded, truncated=[len(text.split()) > CONTEXT for text in texts])

    def _embedded(self, rows: list[np.ndarray]) -> EmbeddedVectors:
        rows_ND = np.stack(rows) if rows else np.empty((0, DIM), np.float32)
        return EmbeddedVectors(
            rows_ND=rows_ND, model_version=MODEL_VERSION, logit_scale=LOGIT_SCALE
        )

    async def search(self, query: Query, *, model_version: str | None = None) -> Results:
        self.queries.append(query)
        self._need_index()
        if self.stale_searches:
            self.stale_searches -= 1
            raise Problem(409, "stale-model", "the vectors are of another model; embed again")
        matching = [n for n, row in enumerate(self.rows) if _fits(row, query.filter)]
        # Who looks for figures like one does not mean that one.
        only_figures = all(part.figure_id is not None for part in query.parts)
        own = {self._row(part.figure_id) for part in query.parts if part.figure_id is not None}
        fits = [n for n in matching if not (only_figures and n in own)]
        vector = self._query_vector(query.parts) if query.parts else None
        rankings: dict[str, list[tuple[int, float]]] = {}
        if vector is not None:
            for over in query.over:
                scores = self.vectors_ND[over][fits] @ vector
                order = np.argsort(-scores, kind="stable")
                rankings[over] = [(fits[i], float(scores[i])) for i in order]
        if query.words is not None:
            wanted = set(re.findall(r"\w+", query.words.lower()))
            held = {n: _overlap(wanted, self.rows[n]["caption"]) for n in fits}
            found = sorted((n for n in fits if held[n]), key=lambda n: -held[n])
            rankings["words"] = [(n, float(held[n])) for n in found]
        ranked = _joined(rankings)
        page = ranked[query.offset : query.offset + query.k]
        hits = [
            Hit(
                figure_id=self.rows[n]["figure_id"],
                rank=query.offset + place + 1,
                score=score,
                matched=matched,
                about=_about(self.rows[n]),
            )
            for place, (n, score, matched) in enumerate(page)
        ]
        return Results(
            hits=hits,
            matching=len(matching),
            plan=f"{self.plan} over {len(fits)} rows",
            index_version=self.index_version,
            timings_ms={"search": 0.1, "metadata": 0.1},
        )

    def _query_vector(self, parts: Sequence[QueryPart]) -> np.ndarray:
        total = np.zeros(DIM)
        for part in parts:
            vector = part.vector_D
            if part.figure_id is not None:
                vector = self.vectors_ND["images"][self._row(part.figure_id)]
            assert vector is not None
            total += part.weight * vector
        if not np.linalg.norm(total) > 0:
            raise Problem(422, "invalid-query", "the parts of the query cancel out")
        return _unit(total)

    def _need_index(self) -> None:
        if not self.with_index:
            raise no_index()

    def _row(self, figure_id: str) -> int:
        if figure_id not in self.row_of:
            raise Problem(404, "unknown-figure", "there is no such figure in the index")
        return self.row_of[figure_id]

    async def figures(self, figure_ids: Sequence[str]) -> FigureMetadata:
        self._need_index()
        return FigureMetadata(
            figures=[
                _about(self.rows[self.row_of[one]]) if one in self.row_of else None
                for one in figure_ids
            ],
            index_version=self.index_version,
            model_version=MODEL_VERSION,
        )

    async def image(self, figure_id: str, size: Size) -> ImageFile:
        self._need_index()
        image = self.images[self._row(figure_id)]
        if size == "thumbnail":
            data, media_type = jpeg(image.resize((48, 48))), "image/jpeg"
        else:
            data, media_type = png(image), "image/png"
        etag = hashlib.sha256(data).hexdigest()[:16]
        return ImageFile(data=data, media_type=media_type, etag=etag, size=size)

    async def facets(self) -> Mapping[str, Mapping[str, int]]:
        self._need_index()
        fields = {
            "license_group": "license_group",
            "license": "license",
            "image_type": "image_type",
            "kind": "kind",
            "journal": "journal",
            "article_id": "article_id",
            "split": "split",
            "concept": "concepts",
            "mesh_term": "mesh_terms",
            "label": "labels",
        }
        return {
            name: dict(Counter(value for row in self.rows for value in _values(row[column])))
            for name, column in fields.items()
        } | {"year": dict(sorted(Counter(str(row["year"]) for row in self.rows).items()))}

    async def about(self) -> Mapping[str, Any]:
        model = {
            "name": "small",
            "version": MODEL_VERSION,
            "dim": DIM,
            "image_size": SIDE_PX,
            "context_length": CONTEXT,
            "logit_scale": LOGIT_SCALE,
            "licenses": {},
        }
        recall = {"images": {"text": 0.96, "image": 0.99}}
        index = {
            "version": self.index_version,
            "figures": len(self.rows),
            "recall": recall,
            "settings": {},
            "license_groups": dict(Counter(row["license_group"] for row in self.rows)),
        }
        return {
            "model": model,
            "index": index if self.with_index else None,
            "ready": True,
            "reasons": [],
        }

    async def reload(
        self, *, model: str | None = None, index: str | None = None
    ) -> Mapping[str, Any]:
        if model is not None or index is not None:
            raise Problem(422, "cannot-serve", "this engine has no other folders")
        return await self.about()


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _fits(row: Mapping[str, Any], wanted: Filter) -> bool:
    columns = {"concept": "concepts", "mesh_term": "mesh_terms", "label": "labels"}
    for name, values in vars(wanted).items():
        if name == "year" or not values:
            continue
        if not set(values) & set(_values(row[columns.get(name, name)])):
            return False
    years = wanted.year
    if years is None:
        return True
    low = -np.inf if years.gte is None else years.gte
    high = np.inf if years.lte is None else years.lte
    return bool(low <= row["year"] <= high)


def _overlap(wanted: set[str], caption: str) -> int:
    return len(wanted & set(re.findall(r"\w+", caption.lower())))


def _joined(
    rankings: Mapping[str, Sequence[tuple[int, float]]],
) -> list[tuple[int, float, tuple[str, ...]]]:
    """Return rows with score and what found them; of several rankings by reciprocal rank."""
    if len(rankings) == 1:
        ((name, ranking),) = rankings.items()
        return [(row, score, (name,)) for row, score in ranking]
    total: Counter[int] = Counter()
    by: dict[int, tuple[str, ...]] = {}
    for name, ranking in rankings.items():
        for place, (row, _) in enumerate(ranking, start=1):
            total[row] += 1 / (_RRF + place)  # type: ignore[assignment]
            by[row] = (*by.get(row, ()), name)
    order = sorted(total, key=lambda row: (-total[row], row))
    return [(row, float(total[row]), by[row]) for row in order]


def make_app(engine: SmallEngine | None = None, **settings: Any) -> FastAPI:
    """Return the application over this engine; settings as of ``serve.search.settings.Settings``."""
    from serve.search.api import http_api

    return http_api(Settings(**{"model": "memory", **settings}), engine or SmallEngine())


@contextmanager
def make_client(engine: SmallEngine | None = None, **settings: Any) -> Iterator[TestClient]:
    """Yield a client of that application; an exception in the application is an answer of 500."""
    app = make_app(engine, **settings)
    # Without keys only the own machine is answered.
    own = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50_000)}
    with TestClient(app, raise_server_exceptions=False, **own) as client:
        yield client
