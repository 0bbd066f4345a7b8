"""Measure annotate against bare PyTorch loops: the same images, decoding, batch and cores.

    make bench
    python benchmarks/annotate.py [--weights DIR] [--images 400] [--batch 32] [--rounds 2]

The loops are two that one would write: a process with a thread of PyTorch per core, and one process
with all threads and a DataLoader that decodes beside it; the faster counts. All are timed while
they work: models loaded, Ray started, the first fifth of the images left out. What the start of the
job costs is a row of its own. Without weights a small random DINOv2 is used, for which decoding
weighs more than it does for any real one.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def main() -> None:
    """Run everything in turn and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, help="of a DINOv2: a folder")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--side-px", type=int, default=800, help="of the images, which are JPEG")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2, help="in turn, of which the best count")
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        table = _table(Path(scratch) / "table", given.images, given.side_px)
        weights = given.weights or _own_weights(Path(scratch) / "weights")
        values = {
            "table": str(table),
            "annotator.name": "dinov2",
            "weights": str(weights),
            "batch": given.batch,
            "rows_per_task": 2 * given.batch,
            "workers": {"count": cores, "least": cores},
        }
        print(f"{given.images} JPEGs of {given.side_px} px, {cores} cores\n")
        print(f"| {'what':<66} | {'measured':>12} | {'goal':>8} |")
        print(f"|{'-' * 68}|{'-' * 14}|{'-' * 10}|")
        processes = loader = job = start = 0.0
        for number in range(given.rounds):
            processes = max(processes, _processes(values, cores))
            loader = max(loader, _one(_LOADER, values, cores))
            out = str(Path(scratch) / f"out{number}")
            found = json.loads(_run(_JOB, {**values, "out": out}))
            if found["rate"] > job:
                job, start = found["rate"], found["seconds"] - given.images / found["rate"]
        row(f"bare loop: {cores} processes of one thread", f"{processes:.1f}/s")
        row(f"bare loop: one process of {cores} threads, DataLoader", f"{loader:.1f}/s")
        row("annotate", f"{job:.1f}/s")
        row("annotate / the faster loop", f"{job / max(processes, loader):.2f}", ">= 0.9")
        row("start of the job: actors, weights, joining (Ray runs)", f"{start:.1f} s")


def row(what: str, measured: str, goal: str = "") -> None:
    """Print one line of the table."""
    print(f"| {what:<66} | {measured:>12} | {goal:>8} |", flush=True)


# --- how it is done ---------------------------------------------------------------------------

_COMMON = """
import json, sys, time
import numpy as np, torch
from biovl.core import config as configs
from biovl.annotate import batches
from biovl.annotate.config import AnnotateConfig
from biovl.core.tables import open_table
config = configs.build(AnnotateConfig, json.loads(sys.argv[1]))
annotator, table = config.make(), open_table(config.table)
units = batches.plan(table, config.rows_per_task)
"""

# Times are of the clock: processes that began apart are compared where all of them work.
_LOOP = (
    _COMMON
    + """
torch.set_num_threads(1)
model = annotator.load("cpu", "float32")
for unit in units[int(sys.argv[2])::int(sys.argv[3])]:
    for made in batches.prepare(annotator, table, unit, config.batch, set()):
        batch = batches.batch_of(made, 0)
        model(batch.prepared)
        print(time.time(), len(batch.defects), flush=True)
"""
)

_LOADER = (
    _COMMON
    + """
class Prepared(torch.utils.data.IterableDataset):
    def __iter__(self):
        for unit in units:
            for made in batches.prepare(annotator, table, unit, config.batch, set()):
                yield torch.tensor(batches.batch_of(made, 0).prepared)
torch.set_num_threads(int(sys.argv[2]))
model = annotator.load("cpu", "float32")
for pixels in torch.utils.data.DataLoader(Prepared(), batch_size=None, num_workers=1):
    model(pixels.numpy())
    print(time.time(), len(pixels), flush=True)
"""
)

_JOB = """
import json, re, sys, time
from biovl.core import config as configs
from biovl.annotate.config import AnnotateConfig
from biovl.annotate.job import annotate
from biovl.runtime.connection import connect_ray

class Said:
    def __init__(self):
        self.at = []
    def write(self, text):
        found = re.search(r"batch (\\d+)/(\\d+), ([\\d,]+) rows", text)
        if found:
            self.at.append((time.time(), int(found[3].replace(",", ""))))
    def flush(self):
        pass

config, said = configs.build(AnnotateConfig, json.loads(sys.argv[1])), Said()
with connect_ray():
    began = time.time()
    counts = annotate(config, progress=said).counts
    seconds = time.time() - began
working = [(at, rows) for at, rows in said.at if rows >= counts["rows"] / 5]
(first, before), (last, after) = working[0], working[-1]
print(json.dumps({"rate": (after - before) / (last - first), "seconds": seconds}))
"""


def _processes(values: dict, cores: int) -> float:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _LOOP, json.dumps(values), str(core), str(cores)],
            stdout=subprocess.PIPE,
        )
        for core in range(cores)
    ]
    return _rate(b"".join(process.communicate()[0] for process in running))


def _one(code: str, values: dict, *arguments: int) -> float:
    return _rate(_run(code, values, *arguments))


def _rate(said: bytes) -> float:
    """Return rows a second after the first fifth."""
    times = sorted((float(at), int(rows)) for at, rows in map(bytes.split, said.splitlines()))
    done = np.cumsum([rows for _, rows in times])
    first = int(np.argmax(done >= done[-1] / 5))
    return float(done[-1] - done[first]) / (times[-1][0] - times[first][0])


def _run(code: str, values: dict, *arguments: int) -> bytes:
    command = [sys.executable, "-c", code, json.dumps(values), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.decode())
    return done.stdout


def _table(folder: Path, images: int, side_px: int) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(images):
        small = Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8))
        stream = io.BytesIO()
        small.resize((side_px, side_px), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        encoded.append(stream.getvalue())
    pq.write_table(pa.table({"image": encoded}), folder / "part-0.parquet", row_group_size=64)
    return folder


def _own_weights(folder: Path) -> Path:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    shape = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3}
    Dinov2Model(Dinov2Config(**shape, image_size=518, patch_size=14)).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
