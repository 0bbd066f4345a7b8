"""A small folder of clusters, each of 30 drawn images, and a review of it."""

import asyncio
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import FastAPI
from PIL import Image, ImageDraw, ImageFont

from biovl.core.artifacts import Draft, Manifest
from serve.review.actions import open_desk
from serve.review.api import review_api
from serve.review.settings import ReviewSettings

CLUSTERS = 24
MEMBERS = 30
CAPTIONS = (
    "Axial slice through the upper abdomen; the arrow points at the lesion.",
    "Section stained with haematoxylin and eosin, scale bar 50 µm.",
    "Mean of three replicates; bars show the standard deviation.",
)


def key_of(cluster_id: int, edition: str = "") -> str:
    return hashlib.blake2b(f"{edition}{cluster_id}".encode(), digest_size=8).hexdigest()


def publish_concepts(
    folder: Path, *, clusters: int = CLUSTERS, edition: str = "", side: int = 96, caption: str = ""
) -> Path:
    """Publish clusters; those of another edition have other keys."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = list(range(clusters))
    table = pa.table(
        {
            "cluster_id": pa.array(ids, pa.int32()),
            "key": [key_of(one, edition) for one in ids],
            "size": pa.array([100 + one for one in ids], pa.int64()),
            "cohesion": pa.array([0.5 + one / 100 for one in ids], pa.float32()),
        }
    )
    pq.write_table(table, folder / "clusters.parquet")
    with pq.ParquetWriter(folder / "members.parquet", _members(0, side, caption).schema) as writer:
        for one in ids:
            writer.write_table(_members(one, side, caption))
    Draft(str(folder)).publish(Manifest(kind="concepts", config={"edition": edition}, counts={}))
    return folder


def review(folder: Path, **settings: Any) -> FastAPI:
    """Return a review of published clusters; its database lies beside them."""
    database = f"sqlite:///{folder.parent / 'review.db'}"
    values = {"concepts": str(folder), "database": database, "practice": 0, **settings}
    desk = open_desk(ReviewSettings.model_validate(values))
    desk.recount_votes()
    return review_api(desk)


def an_answer(sheet: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a vote for a cluster that was given."""
    return {
        "cluster_id": sheet["cluster_id"],
        "key": sheet["key"],
        "practice": sheet["kind"] == "practice",
        "panel_type": "single",
        "panel_subtype": None,
        "global_concepts": ["Microscopy"],
        "local_concepts": ["light microscopy"],
        **changes,
    }


class Reviewer:
    """Asks a review in a name, as from the own machine."""

    def __init__(self, app: FastAPI, name: str, **headers: str) -> None:
        self.app, self.headers = app, {"X-Reviewer": name, **headers}

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, **options))

    def next(self, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self("POST", "/v1/next", json=body).json()
        return answer

    def take(self, **body: Any) -> dict[str, Any]:
        """Return the cluster that is given next."""
        sheet: dict[str, Any] = self.next(**body)["cluster"]
        return sheet

    def vote(self, sheet: dict[str, Any], **changes: Any) -> httpx.Response:
        return self("POST", "/v1/votes", json=an_answer(sheet, **changes))

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 50_000))
        headers = {**self.headers, **options.pop("headers", {})}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers, **options)


def _members(cluster_id: int, side: int, caption: str) -> pa.Table:
    draw = (_scan, _cells, _bars)[cluster_id % 3]
    rng = np.random.default_rng(cluster_id)
    images = [_jpeg(draw(rng, side)) for _ in range(MEMBERS)]
    caption = caption or CAPTIONS[cluster_id % 3]
    return pa.table(
        {
            "cluster_id": pa.array([cluster_id] * MEMBERS, pa.int32()),
            "rank": pa.array(range(MEMBERS), pa.int32()),
            "row_id": [f"PMC{cluster_id:03}_{rank}" for rank in range(MEMBERS)],
            "caption": [f"{caption} ({cluster_id}-{rank})" for rank in range(MEMBERS)],
            "distance": pa.array(np.sort(rng.random(MEMBERS)), pa.float32()),
            "width_px": pa.array([640] * MEMBERS, pa.int32()),
            "height_px": pa.array([480] * MEMBERS, pa.int32()),
            "thumbnail": pa.array(images, pa.binary()),
        }
    )


Draw = Callable[[np.random.Generator, int], Image.Image]


def _scan(rng: np.random.Generator, side: int) -> Image.Image:
    image = Image.new("L", (side, side), 8)
    draw = ImageDraw.Draw(image)
    edge = side // 8 + int(rng.integers(0, side // 12))
    draw.ellipse((edge, edge, side - edge, side - edge), fill=int(rng.integers(70, 110)))
    for _ in range(int(rng.integers(3, 7))):
        x, y = rng.integers(edge * 2, side - edge * 2, 2)
        r = int(rng.integers(side // 24, side // 9))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=int(rng.integers(30, 235)))
    return image.convert("RGB")


def _cells(rng: np.random.Generator, side: int) -> Image.Image:
    image = Image.new("RGB", (side * 4 // 3, side), (244, 216, 232))
    draw = ImageDraw.Draw(image)
    for _ in range(60):
        x, y = rng.integers(0, side * 4 // 3), rng.integers(0, side)
        r = int(rng.integers(side // 40 + 2, side // 14 + 3))
        tone = int(rng.integers(60, 140))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=(tone + 40, tone // 2, tone + 60))
    return image


def _bars(rng: np.random.Generator, side: int) -> Image.Image:
    image = Image.new("RGB", (side * 3 // 2, side), "white")
    draw = ImageDraw.Draw(image)
    width, font = side * 3 // 2, ImageFont.load_default(max(8, side // 10))
    for number in range(5):
        x = width * (number + 1) // 7
        top = int(rng.integers(side // 6, side * 3 // 4))
        draw.rectangle((x, top, x + width // 10, side * 7 // 8), fill=(40 + 35 * number, 90, 140))
    draw.line((width // 10, side * 7 // 8, width * 9 // 10, side * 7 // 8), fill="black")
    draw.text((width // 3, 2), "n = 3", fill="black", font=font)
    return image


def _jpeg(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=80)
    return stream.getvalue()
