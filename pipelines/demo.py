"""Run the main jobs on the embedded sample, serve what came out, and say where things are.

make demo
make demo SERVE=1            goes on serving, with a page to search in
python pipelines/demo.py demo [--serve]
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import demo_service
import pyarrow.parquet as pq

from biovl import config as configs
from biovl import recipes
from biovl.curation.config import AssembleConfig
from biovl.jobs.assemble import assemble
from biovl.jobs.cluster import connected
from biovl.jobs.harvest import HarvestConfig, harvest
from biovl.jobs.index import index
from biovl.jobs.pretrain import pretrain
from biovl.retrieval.config import IndexConfig
from biovl.sample import make_damaged_packages, make_packages
from biovl.training.config import PretrainConfig


def main() -> None:
    """Make packages, harvest and assemble them, train on them, and print what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo"))
    parser.add_argument("--articles", type=int, default=48)
    parser.add_argument("--serve", action="store_true", help="go on serving until Ctrl-C")
    given = parser.parse_args()
    folder: Path = given.folder
    started = time.monotonic()
    if not (folder / "packages" / ".made").exists():
        print(f"Drawing {given.articles} articles of our own, and damaging a few …")
        shutil.rmtree(folder / "packages", ignore_errors=True)
        make_packages(folder / "packages", articles=given.articles)
        make_damaged_packages(folder / "packages")
        (folder / "packages" / ".made").touch()
    with connected():
        harvested = harvest(
            configs.build(
                HarvestConfig,
                {
                    **recipes.packages(),
                    "source.path": str(folder / "packages"),
                    "out": str(folder / "figures"),
                    "packages_per_unit": 8,
                },
            )
        )
        corpus = assemble(
            configs.build(
                AssembleConfig,
                {
                    **recipes.small(),
                    "figures": str(folder / "figures"),
                    "out": str(folder / "corpus"),
                },
            )
        )
        print("Training a small CLIP on it …", flush=True)
        model = pretrain(
            configs.build(
                PretrainConfig,
                {
                    **recipes.tiny(),
                    "corpus": str(folder / "corpus"),
                    "out": str(folder / "model"),
                },
            )
        )
        indexed = index(
            configs.build(
                IndexConfig,
                {
                    **recipes.every_figure(),
                    "model": str(folder / "model"),
                    "corpus": str(folder / "corpus"),
                    "out": str(folder / "index"),
                },
            )
        )
    print(f"\nDone in {time.monotonic() - started:.0f} s. What is there now:\n")
    _tree(folder, harvested.counts, corpus.counts)
    _reasons("Articles that could not be used", harvested.counts["articles"]["defects"])
    _reasons("Figures that could not be used", harvested.counts["figures"]["defects"])
    _reasons("Figures left out of the corpus", corpus.counts["dropped"])
    _example(folder / "corpus")
    _scores(model.notes["validation"])
    searches = demo_service.show(folder, keep=given.serve)
    summary = {"steps": model.counts["steps"], "indexed": indexed.counts, "searches": searches}
    print(json.dumps({"out": str(folder), **corpus.counts, **summary}))


def _tree(folder: Path, harvested: dict, corpus: dict) -> None:
    articles, figures, pairs = harvested["articles"], harvested["figures"], corpus["pairs"]
    mentions = harvested["mentions"]
    rows = [
        ("packages/", "what PMC publishes: JATS and images, in folders and archives"),
        ("figures/articles/", f"{articles['seen']} articles, {articles['usable']} usable"),
        (
            "figures/figures/",
            f"{figures['seen']} figures, {figures['usable']} usable, {mentions} mentions",
        ),
        ("corpus/train/", f"{pairs['train']} pairs in WebDataset tars"),
        ("corpus/val/", f"{pairs['val']} pairs of other articles"),
        ("corpus/test/", f"{pairs['test']} pairs of yet others"),
        ("corpus/index.parquet", "every pair: metadata, shard, offset and size"),
        ("corpus/README.md", "the dataset card, with plots and statistics"),
        ("model/", "a small CLIP that stock open_clip loads: local-dir:…/model"),
        ("model/README.md", "the model card, with curves and scores"),
        ("index/", "what finds the figures by image, text, words and filters"),
    ]
    for name, what in rows:
        print(f"  {folder}/{name:<22} {what}")


def _reasons(title: str, reasons: dict[str, int]) -> None:
    print(f"\n{title}:" if reasons else f"\n{title}: none")
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"  {count:>4}  {reason}")


def _example(corpus: Path) -> None:
    columns = ["pair_id", "figure_label", "caption", "license", "shard", "offset", "size"]
    pair = pq.read_table(corpus / "index.parquet", columns=columns).slice(0, 1).to_pylist()[0]
    print("\nOne pair, and how to read just it:")
    print(f"  {pair['pair_id']}, {pair['figure_label']}, {pair['license']}")
    print(f"  {pair['caption'].splitlines()[0][:90]} …")
    print(
        "  >>> from biovl.shards import read_pair\n"
        f"  >>> read_pair('{corpus}/{pair['shard']}', {pair['offset']}, {pair['size']}).keys()\n"
    )


def _scores(scores: dict) -> None:
    right, chance = scores["text_to_image_recall_at_1"], scores["chance_recall_at_1"]
    print(
        f"By the caption of an article it has not seen, the model finds the right image of "
        f"{scores['pairs']} at once for {right:.0%}; by chance it would be {chance:.0%}.\n"
    )


if __name__ == "__main__":
    main()
