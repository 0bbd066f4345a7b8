"""Clusters of real images whose kinds are known, beside scikit-learn's on the same embedding.

python benchmarks/cluster_purity.py --shared DIR --folder DIR

Retinal photographs, chest radiographs of children, and radiology of head, chest and abdomen from
VQA-RAD are embedded by the real ViT-S/14 weights of DINOv2 that lie beside them, then clustered by
the jobs as a user would. Purity is the share of images whose cluster is mostly of their kind; NMI
is normalised mutual information. scikit-learn gets the same vectors, components and clusters, and
is run with ten seeds, as one k-means may be lucky; so are we.
"""

import argparse
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score

ROOT = Path(__file__).parents[1]
_AT_MOST = 120
"""Images of a kind."""
_SEEDS = 10


def images(labelled: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the kind, the name and the bytes of every image."""
    for name in ("chasedb1", "cxr_pneumonia", "vqa_rad"):
        with tarfile.open(labelled / f"{name}.tar.gz") as archive:
            files = {item.name: archive.extractfile(item) for item in archive if item.isfile()}
            organs: dict[str, str] = {}
            for path, stream in files.items():
                if path.endswith("Public.json") and stream is not None:
                    asked = json.load(stream)
                    organs = {row["image_name"]: row["image_organ"].lower() for row in asked}
            kinds = {"chasedb1": "retina", "cxr_pneumonia": "chest of a child"}
            for path in sorted(files):
                own, stream = PurePosixPath(path).name, files[path]
                kind = organs.get(own) if name == "vqa_rad" else kinds[name]
                if kind and stream is not None and path.endswith((".jpg", ".jpeg")):
                    yield kind, f"{name}-{own}", stream.read()


def write_table(labelled: Path, table: Path) -> list[str]:
    """Write the images as a table; return their kinds."""
    seen: Counter[str] = Counter()
    kept = []
    for kind, name, data in images(labelled):
        seen[kind] += 1
        if seen[kind] <= _AT_MOST:
            kept.append((kind, name, data))
    table.mkdir(parents=True, exist_ok=True)
    kinds, names, data = zip(*kept, strict=True)
    columns = {"image_id": names, "image": pa.array(data, pa.binary()), "caption": kinds}
    pq.write_table(pa.table(columns), table / "part-000000-000.parquet", row_group_size=64)
    return list(kinds)


def run(script: str, recipe: str, **settings: object) -> None:
    """Run a job from the command line."""
    given = [f"--set={name}={value}" for name, value in settings.items()]
    command = [sys.executable, str(ROOT / "pipelines" / script), recipe, *given]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def purity(clusters: np.ndarray, kinds: list[str]) -> float:
    """Return the share of images whose cluster is mostly of their kind."""
    found: dict[int, Counter[str]] = {}
    for cluster, kind in zip(clusters.tolist(), kinds, strict=True):
        found.setdefault(cluster, Counter())[kind] += 1
    return sum(max(counts.values()) for counts in found.values()) / len(kinds)


def main() -> None:
    """Print a line of JSON for each number of clusters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--clusters", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    args = parser.parse_args()
    table = args.folder / "table"
    kinds = write_table(args.shared / "labelled", table)
    weights = args.shared / "models" / "dinov2_small"
    run("annotate.py", "dinov2", table=table, weights=weights)
    stored = pq.read_table(table / "columns" / "dinov2" / "part-000000-000.parquet")["dinov2"]
    vectors = np.array(stored.to_pylist(), np.float32)
    projected = PCA(25, svd_solver="full").fit_transform(vectors)
    for clusters in args.clusters:
        scores: dict[str, list[tuple[float, float]]] = {"ours": [], "scikit-learn": []}
        for seed in range(args.seeds):
            out = args.folder / f"concepts-{clusters}-{seed}"
            run("cluster.py", "default", table=table, out=out, clusters=clusters, seed=seed)
            column = pq.read_table(out / "columns" / "part-000000-000.parquet")["cluster_id"]
            theirs = KMeans(clusters, n_init=1, random_state=seed).fit_predict(projected)
            for name, found in (("ours", column.to_numpy()), ("scikit-learn", theirs)):
                nmi = float(normalized_mutual_info_score(kinds, found))
                scores[name].append((purity(found, kinds), nmi))
        said = {
            name: {
                "purity": round(float(np.mean([row[0] for row in rows])), 3),
                "nmi": round(float(np.mean([row[1] for row in rows])), 3),
            }
            for name, rows in scores.items()
        }
        about = {"images": len(kinds), "kinds": Counter(kinds), "clusters": clusters}
        print(json.dumps({**about, "seeds": args.seeds, **said}), flush=True)


if __name__ == "__main__":
    main()
