"""The same model on the same images by CLIP_benchmark's command and by our tasks, side by side.

python benchmarks/evaluate_clip_benchmark.py --model MODEL --data CLASS_FOLDERS --corpus CORPUS

Zero-shot classification, and retrieval among pairs whose texts differ, as CLIP_benchmark knows no
equal texts. Both read the same files, in a process of their own: CLIP_benchmark 1.6.2 from tars
(``pip install --no-deps clip-benchmark pycocoevalcap "numpy<2.3"`` in an environment of its own;
newer NumPy it does not know), ours as the job does without Ray, from
class folders and a table of captions, with its intervals. What is measured is the whole process,
loading included. MODEL is a folder in open_clip's layout.
"""

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from biovl.benchmark import data as opening
from biovl.benchmark import embedding, encoders
from biovl.benchmark.datasets import Images
from biovl.benchmark.embedding import EmbeddingTask
from biovl.benchmark.stored_images import parts_of
from biovl.core import plugins
from biovl.core.artifacts import Draft
from biovl.core.plugins import Plugin

_TEMPLATES = ("this is an image of {}", "{} presented in image")
_SHARD = 1_000
_KS = (1, 5, 10)

SCORES = {
    "zero_shot": {"acc1": "accuracy", "mean_per_class_recall": "balanced_accuracy"},
    "retrieval": {
        **{f"text_retrieval_recall@{k}": f"image_to_text_recall_at_{k}" for k in _KS},
        **{f"image_retrieval_recall@{k}": f"text_to_image_recall_at_{k}" for k in _KS},
    },
}
"""CLIP_benchmark's names of scores, and ours."""


def written(images: Images, others: list[tuple[str, str]], root: Path) -> None:
    """Write images and what belongs to each, an ending and a text, as CLIP_benchmark reads them."""
    (root / "test").mkdir(parents=True)
    shards = -(-len(images) // _SHARD)
    for shard in range(shards):
        rows = range(shard * _SHARD, min((shard + 1) * _SHARD, len(images)))
        with tarfile.open(root / "test" / f"{shard}.tar", "w") as tar:
            for row in rows:
                (data,) = images.read(row, row + 1)
                ending, text = others[row]
                for name, value in ((kind_of(data), data), (ending, text.encode())):
                    member = tarfile.TarInfo(f"{row:08d}.{name}")
                    member.size = len(value)
                    tar.addfile(member, io.BytesIO(value))
    (root / "test" / "nshards.txt").write_text(str(shards))


def kind_of(data: bytes) -> str:
    """Return the ending of a file's name by its content."""
    with Image.open(io.BytesIO(data)) as image:
        return {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[image.format or ""]


def classes_written(data: str, root: Path) -> int:
    """Write class folders for CLIP_benchmark; return how many images there are."""
    found = opening.open_labelled(data)
    written(found.images, [("cls", str(label)) for label in found.labels.tolist()], root)
    (root / "classnames.txt").write_text("\n".join(found.classes))
    templates = [template.replace("{}", "{c}") for template in _TEMPLATES]
    (root / "zeroshot_classification_templates.txt").write_text("\n".join(templates))
    return len(found.images)


def pairs_written(corpus: str, split: str, root: Path, table: Path) -> int:
    """Write pairs whose texts differ for both; return how many there are."""
    found = opening.open_pairs(Plugin("corpus", {"path": corpus, "split": split}))
    table.mkdir()
    seen: set[str] = set()
    kept: list[tuple[str, str]] = []
    for row, text in enumerate(found.text_of_image.tolist()):
        words = " ".join(found.texts[text].split())
        (data,) = found.images.read(row, row + 1)
        if words in seen:
            continue
        seen.add(words)
        kept.append((f"{row:08d}.{kind_of(data)}", words))
        (table / kept[-1][0]).write_bytes(data)
    with (table / "captions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image", "caption"), *kept])
    read = opening.open_pairs(str(table / "captions.csv"))
    written(read.images, [("txt", text) for _, text in sorted(kept)], root)
    (root / "dataset_type.txt").write_text("retrieval")
    return len(kept)


def ours(task: str, model: str, data: str, threads: int) -> dict[str, float]:
    """Return our scores by name."""
    words = {"templates": list(_TEMPLATES)} if task == "zero_shot" else {}
    asked: Any = plugins.make("benchmark.tasks", Plugin(task, {"data": data, **words}))
    opened, loaded = asked.data(), encoders.load(model)
    with tempfile.TemporaryDirectory() as cache:
        known = encoders.describe(model)
        parts = [EmbeddingTask(model=known, source=s, cache=cache) for s in parts_of(opened.images)]
        texts = getattr(opened, "texts", None)
        for item in [*parts, *([embedding.text_task(parts[0], texts)] if texts else [])]:
            Draft.begin(item.uri, embedding.KIND, item.plain, embedding.inputs(item))
            for number in range(item.units):
                embedding.embed_unit(item, loaded, number, threads)
            embedding.publish(item)
        # Who judges loads it anew for the texts, as a worker would.
        del loaded
        outcome = asked.evaluate(opened, embedding.cached_embeddings("model", parts))
    return {score.name: score.value for score in outcome.scores}


def theirs(task: str, model: str, root: Path, out: Path) -> list[str]:
    """Return the command that has CLIP_benchmark write its scores."""
    name = "zeroshot_classification" if task == "zero_shot" else "zeroshot_retrieval"
    program = "from clip_benchmark.cli import main; main()"
    return [
        *(sys.executable, "-c", program, "eval", "--model", f"local-dir:{model}"),
        # The weights are those of the folder, whatever their name.
        *("--pretrained", "folder", "--dataset", "wds/local"),
        *("--dataset_root", str(root), "--task", name, "--no_amp", "--batch_size", "64"),
        *("--num_workers", "0", "--recall_k", *map(str, _KS), "--output", str(out)),
    ]


def measured(command: list[str], threads: int) -> dict[str, float]:
    """Run a process; return its seconds, CPU seconds and peak of memory in GB."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_gb": used.ru_maxrss / 1e6,
    }


def main() -> None:
    """Print a table of scores and of costs; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", help="class folders")
    parser.add_argument("--corpus", help="that assemble published")
    parser.add_argument("--split", default="test", help="of the corpus, which is searched")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--task", choices=sorted(SCORES), help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        scores = ours(given.task, given.model, given.data, given.threads)
        Path(given.out).write_text(json.dumps(scores))
        return
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        asked = {}
        if given.data:
            images = classes_written(given.data, folder / "classes")
            asked["zero_shot"] = (folder / "classes", given.data, images)
        if given.corpus:
            table = folder / "table"
            images = pairs_written(given.corpus, given.split, folder / "pairs", table)
            asked["retrieval"] = (folder / "pairs", str(table / "captions.csv"), images)
        for task, (root, data, images) in asked.items():
            said = {who: folder / f"{task}-{who}.json" for who in ("ours", "theirs")}
            own = [
                *(sys.executable, __file__, "--model", given.model, "--data", data),
                *("--task", task, "--out", str(said["ours"]), "--threads", str(given.threads)),
            ]
            other = theirs(task, given.model, root, said["theirs"])
            cost = {
                "ours": measured(own, given.threads),
                "theirs": measured(other, given.threads),
            }
            scores = {who: json.loads(path.read_text()) for who, path in said.items()}
            for name, our_name in SCORES[task].items():
                pair = scores["theirs"]["metrics"][name], scores["ours"][our_name]
                print(f"{task} {our_name:28} CLIP_benchmark {pair[0]:.6f}  ours {pair[1]:.6f}")
                found.append({"task": task, "score": our_name, "theirs": pair[0], "ours": pair[1]})
            for what in cost["ours"]:
                pair = cost["theirs"][what], cost["ours"][what]
                print(
                    f"{task} {images} images {what:12} CLIP_benchmark {pair[0]:.2f}  "
                    f"ours {pair[1]:.2f}  ratio {pair[1] / pair[0]:.2f}",
                    flush=True,
                )
                found.append({"task": task, "cost": what, "theirs": pair[0], "ours": pair[1]})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
