"""Synthetic stand-ins for the size ``small``: packages, benchmark data, votes of reviewers.

Images are synthetic: the colour of a shape encodes its class, and captions name both. Scores on
them show that every step runs, not how good a model is.
"""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

from biovl.benchmark.benchmark_table import BENCHMARKS, Benchmark
from biovl.benchmark.prompts import PROMPTS
from biovl.concepts import clusters
from biovl.concepts.taxonomy import load_taxonomy
from biovl.concepts.votes import ReviewVote, write_votes
from biovl.core.artifacts import Manifest
from biovl.core.config import REQUIRED, Recipe
from biovl.core.errors import ConfigError
from biovl.runtime.job import Job
from biovl.sample import make_packages

NOTE = "synthetic: drawn images stand in for the data"
_SIDE_PX = 72


@dataclass(frozen=True, kw_only=True)
class StandInsConfig:
    """Settings of the stand-ins."""

    out: str
    """The folder to publish, on a local disk."""
    articles: int = 24
    """Number of synthetic articles."""
    images: int = 24
    """Number of images of each data set."""
    seed: int = 0
    """Seed of all that is drawn."""


@dataclass(frozen=True, kw_only=True)
class VotesConfig:
    """Settings of synthetic votes."""

    concepts: str
    """The clusters to vote on."""
    out: str
    """The folder to publish."""


def _default() -> StandInsConfig:
    """Packages of 24 articles, and 24 images for each data set of the papers (needs out)."""
    return StandInsConfig(out=REQUIRED)


def _votes() -> VotesConfig:
    """A vote on each cluster, by its number (needs concepts, out)."""
    return VotesConfig(concepts=REQUIRED, out=REQUIRED)


RECIPES: dict[str, Recipe[StandInsConfig]] = {"default": _default}
VOTES: dict[str, Recipe[VotesConfig]] = {"default": _votes}


def draw(config: StandInsConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Publish synthetic article packages and benchmark data.

    out/
      packages/          articles in PMC's format
      pcam/ ubench/ …    data of the benchmarks, in the layout expected below ``data_root``

    Raises:
        ConfigError: If ``out`` is not a local folder.
    """
    job = Job.of(config, "stand_ins", output_format=1)
    published = job.find_published()
    if published is not None:
        return published
    if "://" in config.out:
        raise ConfigError(f"out: stand-ins are drawn on a local disk, got {config.out}")
    with job.begin() as draft:
        folder = draft.folder
        folder.delete_folder("packages")
        make_packages(Path(folder.at("packages")), articles=config.articles, seed=config.seed)
        for location in dict.fromkeys(item.location for item in BENCHMARKS.values()):
            own = [item for item in BENCHMARKS.values() if item.location == location]
            for name, data in _files(own, config):
                folder.write(name, data)
        return draft.publish(
            job.manifest(
                counts={"articles": config.articles, "data_sets": len(BENCHMARKS)},
                notes={"synthetic": NOTE},
            )
        )


def vote(config: VotesConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Publish ``votes.csv``, one vote on each cluster."""
    found = clusters.open_concepts(config.concepts)
    job = Job.of(config, "votes", [found.as_input()], output_format=1)
    published = job.find_published()
    if published is not None:
        return published
    concepts = list(load_taxonomy().concepts)
    votes = [
        ReviewVote(
            cluster_id=number,
            key=key,
            reviewer="synthetic",
            panel_type="single",
            panel_subtype=None,
            global_concepts=(concepts[number % len(concepts)],),
            local_concepts=(),
            created="2025-01-01T00:00:00Z",
        )
        for number, key in enumerate(found.keys)
    ]
    with job.begin() as draft:
        draft.folder.write("votes.csv", write_votes(votes))
        return draft.publish(job.manifest(counts={"votes": len(votes)}, notes={"synthetic": NOTE}))


def _files(own: Sequence[Benchmark], config: StandInsConfig) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a data set, each with its name below ``data_root``."""
    first, count = own[0], config.images
    layout = first.settings.get("name", "")
    if first.location.endswith(".npz"):
        yield first.location, _npz(first, count)
    elif layout == "vqa":
        yield from _questions(first.location, count)
    elif layout == "reports":
        for number in range(count):
            stem = f"{first.location}/p10/s{number:04}"
            finding = _FINDINGS[number % len(_FINDINGS)]
            report = f"FINDINGS: {finding}. {_sentence(number, 5)}. IMPRESSION: {finding}."
            yield f"{stem}.txt", report.encode()
            yield f"{stem}/view.png", _png(number % 5, number)
    elif first.task == "retrieval" and layout != "long_captions":
        lines = ["image,caption"]
        # More than the k of recall at 100.
        for number in range(max(count, 110)):
            yield f"{first.location}/{number:04}.png", _png(number % 5, number)
            lines.append(f"{number:04}.png,{_sentence(number, 5)}")
        yield f"{first.location}/captions.csv", "\n".join(lines).encode()
    elif layout == "table":
        yield f"{first.location}/test-00000-of-00001.parquet", _table(own, count)
    elif layout != "long_captions":
        folders = first.settings.get("folders") or _classes(first)
        for split in ("train", "test"):
            for number in range(count):
                label = number % len(folders)
                # Class folders alone are test; benchmarks that are probed have train as well.
                inner = f"{split}/" if first.name in _PROBED else ""
                if inner or split == "test":
                    name = f"{first.location}/{inner}{folders[label]}/{number:04}.png"
                    yield name, _png(label, number + 1_000 * (split == "train"))


def _classes(item: Benchmark) -> list[str]:
    """Return names for the classes of a benchmark: those of its prompts, if there are any."""
    if item.prompts:
        return list(PROMPTS[item.prompts].classes)
    return [f"class {letter}" for letter in "abcdefgh"[: item.classes or 2]]


_PROBED = ("pcam", "rsna")
"""Benchmarks of BiomedCLIP's figure 3 C and D."""

_FINDINGS = ("Atelectasis", "Cardiomegaly", "Lung opacity", "Pleural effusion", "Pneumothorax")
_COLOURS = ("red", "green", "blue", "gold", "purple", "cyan", "orange", "grey")
_SHAPES = ("circle", "square", "bar")


def _sentence(number: int, classes: int) -> str:
    colour, shape = _COLOURS[number % classes], _SHAPES[number % len(_SHAPES)]
    return f"Synthetic image {number} of a {colour} {shape} on noise"


def _image(label: int, number: int) -> Image.Image:
    rng = np.random.default_rng(number)
    noise = rng.integers(0, 80, (_SIDE_PX, _SIDE_PX, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    left, top = (int(x) for x in rng.integers(4, 28, 2))
    box = (left, top, left + 36, top + 36 if number % len(_SHAPES) < 2 else top + 12)
    canvas = ImageDraw.Draw(image)
    colour = _COLOURS[label % len(_COLOURS)]
    if number % len(_SHAPES) == 0:
        canvas.ellipse(box, fill=colour)
    else:
        canvas.rectangle(box, fill=colour)
    return image


def _png(label: int, number: int) -> bytes:
    stream = io.BytesIO()
    _image(label, number).save(stream, "PNG")
    return stream.getvalue()


def _npz(item: Benchmark, count: int) -> bytes:
    arrays: dict[str, Any] = {}
    for shift, split in enumerate(("train", "val", "test")):
        label_N = np.arange(count) % (item.classes or 2)
        arrays[f"{split}_images"] = np.stack(
            [np.asarray(_image(int(label), shift * 1_000 + n)) for n, label in enumerate(label_N)]
        )
        arrays[f"{split}_labels"] = label_N[:, None].astype(np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _table(own: Sequence[Benchmark], count: int) -> bytes:
    """Return a table with rows for each benchmark that selects some, and columns of labels."""
    labels = {item.settings["label"]: item.classes or 2 for item in own}
    rows: list[dict[str, Any]] = []
    for item in own:
        for number in range(count if item.settings.get("where") else 0):
            values = {
                column: f"{column} {chr(97 + number % classes)}"
                for column, classes in labels.items()
            }
            values["label_name"] = f"class {chr(97 + number % (item.classes or 2))}"
            image = {"bytes": _png(number % (item.classes or 2), number), "path": None}
            rows.append({"image": image, **values, **item.settings["where"]})
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


def _questions(folder: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield a data set in SLAKE's layout, or in that of VQA-RAD's split."""
    is_slake = folder == "slake"
    splits = ("train", "validate", "test") if is_slake else ("trainset", "testset")
    images = "imgs" if is_slake else "images"
    serial = 0
    for split in splits:
        rows = []
        for number in range(count):
            label = number % 3
            name = f"{split}{number:03}.png"
            yield f"{folder}/{images}/{name}", _png(label, serial)
            asked = {
                "open": (f"Which colour has shape {number % 3}?", _COLOURS[label]),
                "closed": (f"Is shape {number % 3} red?", "yes" if label == 0 else "no"),
            }["open" if number % 2 else "closed"]
            kind = "OPEN" if number % 2 else "CLOSED"
            rows.append(
                {
                    **{"qid": serial, "question": asked[0], "answer": asked[1]},
                    **{"answer_type": kind, "q_lang": "en"},
                    ("img_name" if is_slake else "image_name"): name,
                }
            )
            serial += 1
        yield f"{folder}/{split}.json", json.dumps(rows).encode()
