"""Is it worth splitting compound figures? Two small models, of the same articles, differ in that.

    python benchmarks/compound_worth.py FOLDER                             # 30 minutes on two cores
    python benchmarks/compound_worth.py FOLDER --shared ../shared/data     # real articles as well
    python benchmarks/compound_worth.py FOLDER --articles 2000 --pairs 200000 --gpus 1

One model is trained on figures with their captions, the other on panels with theirs, for the same
number of pairs, with several seeds. Both are scored by retrieval among held-out panels, and among
held-out figures, of the same articles. All steps are ordinary jobs: the same command resumes, and
prints the table again. The articles are synthetic (``biovl sample``); so are the panels' captions.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from biovl.benchmark import bootstrap

ARMS = {"figures": "figures", "panels": "panels"}
"""Name of each arm, and the folder that its corpus is made of."""

METRICS = (
    *("image_to_text_recall_at_10", "text_to_image_recall_at_10"),
    *("image_to_text_mrr", "text_to_image_mrr"),
)


def biovl(*arguments: str, **settings: Any) -> None:
    """Run a job; a published one is not repeated."""
    values = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in settings.items()
    ]
    command = [sys.executable, "-m", "biovl", *arguments]
    for value in values:
        command += ["--set", value.replace("__", ".", 1)]
    print("$", " ".join(command[2:]), flush=True)
    subprocess.run(command, check=True, stdout=sys.stderr)


def packages(folder: Path, articles: int, shared: Path | None) -> str:
    """Return a folder of packages: synthetic ones and, if they are given, real ones."""
    out = folder / "packages"
    if not out.exists():
        draft = folder / "packages.draft"
        shutil.rmtree(draft, ignore_errors=True)
        biovl("sample", str(draft), "--articles", str(articles))
        for path in (shared / "packages").glob("*.tar.gz") if shared else ():
            shutil.copy(path, draft)
        draft.rename(out)
    return str(out)


def train(folder: Path, arm: str, seed: int, pairs: int, gpus: int) -> int:
    """Train a model of an arm; return how many pairs it saw."""
    corpus = folder / f"corpus-{arm}"
    many = len(pq.read_table(corpus / "index.parquet", filters=[("split", "=", "train")]))
    batch = 32
    # Whole epochs of whole batches.
    epoch = many // batch * batch
    epochs = max(round(pairs / max(epoch, 1)), 1)
    more = {"workers__gpus": gpus, "workers__count": 1} if gpus else {}
    biovl(
        *("pretrain", "tiny"),
        **{"corpus": str(corpus), "out": str(folder / f"model-{arm}-{seed}")},
        **{"epochs": epochs, "seed": seed, "validation__every_epochs": epochs, **more},
    )
    return epochs * epoch


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--articles", type=int, default=300, help="synthetic ones")
    parser.add_argument("--shared", type=Path, help="folder with packages/ of real articles")
    parser.add_argument("--pairs", type=int, default=30_000, help="seen by each model")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=0)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    source = packages(folder, options.articles, options.shared)
    biovl("harvest", "packages", source__path=source, out=str(folder / "figures"))
    biovl("split", "default", figures=str(folder / "figures"), out=str(folder / "panels"))
    for arm, made_of in ARMS.items():
        biovl(
            *("assemble", "small"),
            **{"figures": str(folder / made_of), "out": str(folder / f"corpus-{arm}")},
            # Panels of one figure look alike; a quarter of the articles is held out.
            **{"duplicates__near": False, "split__test_permyriad": 2500},
        )
    seen = {
        f"{arm}-{seed}": train(folder, arm, seed, options.pairs, options.gpus)
        for seed in range(options.seeds)
        for arm in ARMS
    }
    tasks = {arm: {"name": "retrieval", "corpus": str(folder / f"corpus-{arm}")} for arm in ARMS}
    models = {name: str(folder / f"model-{name}") for name in seen}
    biovl("benchmark", "retrieval", models=models, tasks=tasks, out=str(folder / "report"))
    print(f"pairs seen: {json.dumps(seen)}\n")
    print(table(folder, options.seeds))


def table(folder: Path, seeds: int) -> str:
    """Return a row per pool and metric: each arm, and the difference with its 95 % interval.

    Queries of one article are resampled together; a query's score is its mean over the seeds. The
    smallest and largest difference of a seed say how much training itself varies.
    """
    lines = [["retrieval among held-out", "queries", "metric", *ARMS, "difference", "by seed"]]
    lines.append(["---"] * len(lines[0]))
    for pool in ARMS:
        index = pq.read_table(folder / f"corpus-{pool}" / "index.parquet").to_pylist()
        article_of = {
            row[name]: row["article_id"] for row in index for name in ("figure_id", "pair_id")
        }
        reports = {
            arm: [
                pq.read_table(
                    folder / "report" / "predictions" / f"{arm}-{seed}" / f"{pool}.parquet"
                )
                for seed in range(seeds)
            ]
            for arm in ARMS
        }
        for metric in METRICS:
            rows = np.flatnonzero(reports["figures"][0][metric].is_valid().to_numpy())
            ids = reports["figures"][0]["id"].take(rows).to_pylist()
            articles = [article_of[name.partition("/")[2].partition("#")[0]] for name in ids]
            scores = {
                arm: np.array([one[metric].take(rows).to_numpy() for one in tables])
                for arm, tables in reports.items()
            }
            gain = scores["panels"] - scores["figures"]
            low, high = interval(gain.mean(0), articles)
            by_seed = gain.mean(1)
            lines.append(
                [
                    *(pool, str(len(rows)), metric.replace("_", " ")),
                    *(f"{scores[arm].mean():.3f}" for arm in ARMS),
                    f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]",
                    " ".join(f"{value:+.3f}" for value in by_seed),
                ]
            )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(values: np.ndarray, articles: list[str]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, from resampling articles."""
    names, article_N = np.unique(articles, return_inverse=True)
    sums, counts = np.bincount(article_N, values), np.bincount(article_N)

    def mean(index_A: np.ndarray, weights_RA: np.ndarray) -> np.ndarray:
        at = index_A.astype(int)
        return (weights_RA @ sums[at]) / (weights_RA @ counts[at])

    found = bootstrap.estimate(np.arange(len(names)), mean)
    return found.low, found.high


if __name__ == "__main__":
    main()
