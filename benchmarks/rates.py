"""Measure what one core does a second, for pipelines/plan.py: articles, images, pairs, vectors.

    python benchmarks/rates.py --packages FOLDER [--xml FOLDER_OR_TAR]

CPU seconds of one process without Ray, least of three rounds. The results stand in
platform/biovl/plan/assumptions.yaml with the machine and the date they were taken on.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
from harvest import _articles
from PIL import Image

from biovl.articles.jats import read_article
from biovl.assemble import config as assemble_config
from biovl.assemble import rules, steps
from biovl.assemble.config import AssembleConfig
from biovl.core import config as configs
from biovl.core.artifacts import Draft, read_manifest
from biovl.core.harvests import HarvestPart, open_harvests
from biovl.core.shards import shard_names
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest, job_of, plan_units, read_unit
from biovl.images.decode import decode_rgb
from biovl.images.encode import thumbnail
from biovl.images.transforms import resize_center_crop
from biovl.index import vectors
from biovl.models.tokenization import make

ROUNDS = 3


def main() -> None:
    """Print a line per rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, required=True, help="PMC packages")
    parser.add_argument("--xml", type=Path, help="articles as XML: a folder or a tar")
    given = parser.parse_args()
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        if given.xml:
            reading(list(_articles(given.xml)))
        figures = harvesting(given.packages, Path(scratch))
        looking(figures)
        for recipe in ("default", "training"):
            assembling_pairs(figures, Path(scratch) / recipe, recipe)
        filling()


def row(what: str, seconds: float, count: int, unit: str, more: str = "") -> None:
    """Print one line."""
    print(f"{what:<46} {1e3 * seconds / count:>8.3f} ms/{unit}  {more}", flush=True)


def least(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the CPU seconds of the quickest round."""
    found = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def reading(articles: list[bytes]) -> None:
    """Articles as XML alone."""
    seconds = least(lambda: [read_article(xml) for xml in articles])
    size = sum(map(len, articles)) / len(articles)
    row("read_article", seconds, len(articles), "article", f"{size / 1e3:.0f} kB of XML each")


def harvesting(packages: Path, scratch: Path) -> Path:
    """Whole packages to figures/ and articles/."""
    values = {"source.name": "packages", "source.path": str(packages)}

    def config(number: int) -> HarvestConfig:
        out = str(scratch / f"figures{number}")
        return configs.build(HarvestConfig, {**values, "out": out, "packages_per_unit": 1_000})

    numbers = iter(range(ROUNDS))

    def work() -> None:
        own = config(next(numbers))
        (unit,) = plan_units(own)
        job = job_of(own)
        Draft.begin(own.out, job.kind, job.config, output_format=job.output_format)
        read_unit(own, 0, unit)

    seconds = least(work)
    done = config(0)
    draft = Draft(done.out)
    draft.note("plan", plan_units(done))
    # Nothing is left to do but to publish.
    harvest(done)
    seen = read_manifest(done.out, "figures").counts
    articles, figures = seen["articles"]["seen"], seen["figures"]["seen"]
    folder = Path(done.out)
    sizes = {
        k: sum(f.stat().st_size for f in (folder / k).iterdir()) for k in ("articles", "figures")
    }
    row("harvest", seconds, articles, "article", f"{figures} figures in {articles} articles")
    per_article, per_figure = sizes["articles"] / articles, sizes["figures"] / figures
    print(f"  on disk: {per_article:,.0f} B/article, {per_figure:,.0f} B/figure")
    return folder


def looking(figures: Path) -> None:
    """Images as the index and training look at them."""
    images = [
        data
        for part in (figures / "figures").iterdir()
        for data in pq.read_table(part, columns=["image", "defect"]).to_pylist()
        if data["image"] is not None and data["defect"] is None
    ]
    found = [each["image"] for each in images]
    print(f"  images: {len(found)}, {sum(map(len, found)) / len(found):,.0f} B each")
    decoded = [decode_rgb(data).pixels for data in found]
    good = [
        (data, pixels) for data, pixels in zip(found, decoded, strict=True) if pixels is not None
    ]
    pixels = sum(p.shape[0] * p.shape[1] for _, p in good) / len(good)
    row(
        "decode",
        least(lambda: [decode_rgb(d) for d, _ in good]),
        len(good),
        "image",
        f"{pixels / 1e6:.2f} Mpx",
    )
    row(
        "thumbnail",
        least(lambda: [thumbnail(p, longer_side_px=256) for _, p in good]),
        len(good),
        "image",
    )
    row(
        "resize and crop to 224",
        least(lambda: [resize_center_crop(Image.fromarray(p), 224) for _, p in good]),
        len(good),
        "image",
    )
    sizes = [len(thumbnail(p, longer_side_px=256)) for _, p in good]
    print(f"  thumbnail: {np.mean(sizes):,.0f} B")


def assembling_pairs(figures: Path, out: Path, recipe: str) -> None:
    """All steps of assemble, in one process."""
    values = {**configs.recipe_settings(assemble_config.RECIPES[recipe]()), "figures": str(figures)}
    (harvest,) = open_harvests([str(figures)])
    parts = [HarvestPart(harvest.uri, path, (), (), ()) for path in harvest.parts]
    numbers = iter(range(ROUNDS))

    def work() -> None:
        config = configs.build(AssembleConfig, {**values, "out": f"{out}{next(numbers)}"})
        asked = rules.make_rules(config.rules)
        Draft.begin(config.out, "corpus", {}, [])
        for number in range(len(parts)):
            steps.join_columns(config, parts, number)
        steps.decide(config, asked, len(parts), [])
        for number in range(len(parts)):
            steps.encode(config, parts, number)
        names = shard_names(steps.plan(config, len(parts)))
        for number in range(len(names)):
            steps.shard(config, names, number)

    seconds = least(work)
    shards = [f for f in Path(f"{out}0").rglob("*.tar") if ".draft" not in f.parts]
    texts = sum(1 for f in shards for _ in _members(f, ".txt"))
    size = sum(f.stat().st_size for f in shards)
    row(
        f"assemble {recipe}",
        seconds,
        texts,
        "pair",
        f"{texts} pairs, {size / texts:,.0f} B each in shards",
    )
    if recipe == "default":
        captions = [data.decode() for f in shards for data in _members(f, ".txt")]
        clip = make("", 77)
        row("tokenise (CLIP's BPE)", least(lambda: clip.encode(captions)), len(captions), "caption")


def _members(path: Path, suffix: str) -> list[bytes]:
    import tarfile

    with tarfile.open(path) as archive:
        return [
            archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.name.endswith(suffix)
        ]


def filling() -> None:
    """Vectors into cells found by a graph, 8 bits each: the index of more than a million."""
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((65_536, 512), dtype=np.float32)
    sample /= np.linalg.norm(sample, axis=1, keepdims=True)
    made = faiss.index_factory(512, "IVF8192_HNSW32,SQ8", faiss.METRIC_INNER_PRODUCT)
    made.cp.niter = 1
    made.train(sample)

    row("fill IVF8192_HNSW32,SQ8", least(lambda: made.add(sample), 2), len(sample), "vector")
    print(f"  24 million: {vectors.choose_factory(24_000_000, 512)}")


if __name__ == "__main__":
    main()
