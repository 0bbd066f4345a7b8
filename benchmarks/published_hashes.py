"""SHA-256 of every file that the commands publish, to prove that a change changes no bytes.

python benchmarks/published_hashes.py run FOLDER [--shared DIR]     runs the commands below FOLDER
python benchmarks/published_hashes.py compare BEFORE.json AFTER.json

`run` writes FOLDER/hashes.json. The commands run with FOLDER as their working folder and relative
paths; rows of figures hold absolute addresses, so give both runs a FOLDER of the same path.
Published folders that exist are not made anew: delete FOLDER to begin again. Manifests are compared
setting by setting. Wall-clock times are left out: TensorBoard's events, metrics.jsonl and speeds.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

TIMED = ("tensorboard", "metrics.jsonl", "throughput.png")
KINDS = ("bars", "heat_map", "histology", "brain_scan", "electrocardiogram", "fundus")


def main() -> int:
    """Run or compare, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("folder", type=Path)
    run.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        return report_differences(given.before, given.after)
    run_all(given.folder, given.shared)
    hashes = published_hashes(given.folder)
    (given.folder / "hashes.json").write_text(json.dumps(hashes, indent=1, sort_keys=True))
    print(f"{len(hashes)} files: {given.folder / 'hashes.json'}")
    return 0


def run_all(folder: Path, shared: Path) -> None:
    """Run every command once on the synthetic sample, then on the articles of ``shared``."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "packages").exists():
        _script(folder, "sample.py", "packages", "--articles", "24")
    _pipeline(folder, "harvest", "packages", "source.path=packages", "out=figures")
    _enrich(folder)
    _pipeline(folder, "split", "default", "figures=figures", "out=panels")
    _pipeline(folder, "annotate", "context", "table=figures")
    _pipeline(folder, "assemble", "small", "figures=figures", "out=corpus")
    _pipeline(folder, "assemble", "default", "figures=panels", "out=panel_corpus")
    _pipeline(
        *(folder, "pretrain", "tiny", "corpus=corpus", "out=model", "epochs=4", "batch.pairs=8"),
        *("deterministic=true", "optim.warmup_steps=2"),
    )
    _pipeline(
        *(folder, "pretrain", "tiny", "corpus=corpus", "out=base", "epochs=1", "batch.pairs=8"),
        *("deterministic=true", "optim.warmup_steps=2"),
    )
    _pipeline(folder, "merge", "wise_ft", "base=base", "tuned=model", "alpha=0.5", "out=merged")
    _pipeline(folder, "index", "default", "model=model", "corpus=corpus", "out=index")
    _pipeline(folder, "benchmark", "retrieval", "model=model", "corpus=corpus", "out=report")
    _concepts(folder)
    _pipeline(
        *(folder, "benchmark", "zero_shot", "model=model", "data=kinds/images", "out=zero_shot"),
    )
    if (shared / "packages").exists():
        _real(folder, shared)


def _enrich(folder: Path) -> None:
    import pyarrow.parquet as pq

    from tests.enrich.eutils import Eutils, article

    pmids: set[int] = set()
    for part in sorted((folder / "figures" / "articles").glob("*.parquet")):
        pmids |= {int(pmid) for pmid in pq.read_table(part)["pmid"].to_pylist() if pmid}
    with Eutils() as service:
        for pmid in sorted(pmids):
            service.add(article(pmid, mesh=[("Humans", "D006801", "N")]))
        _pipeline(
            *(folder, "enrich", "entrez", "articles=figures", "entrez.email=a@example.org"),
            *(f"entrez.url={service.url}", "entrez.api_key=key"),
        )


def _concepts(folder: Path) -> None:
    from biovl.chain.demo.concepts import planted_votes
    from biovl.concepts.votes import write_votes
    from biovl.sample.kinds import make_kinds

    if not (folder / "kinds").exists():
        make_kinds(folder / "kinds", each=10, kinds=KINDS)
    _pipeline(
        *(folder, "harvest", "table", "source.path=kinds/captions.csv", "out=kinds/figures"),
    )
    _pipeline(folder, "annotate", "clip", "table=kinds/figures", "weights=model")
    _pipeline(
        *(folder, "cluster", "default", "table=kinds/figures", "out=kinds/concepts"),
        *("embedding=kinds/figures/columns/clip_image", "components=10", "clusters=12"),
    )
    votes = planted_votes(folder / "kinds" / "concepts")
    (folder / "kinds" / "votes.csv").write_bytes(write_votes(votes))
    _pipeline(
        *(folder, "resolve", "default", "concepts=kinds/concepts", "votes=kinds/votes.csv"),
        "out=kinds/labels",
    )


def _real(folder: Path, shared: Path) -> None:
    packages = shared / "packages"
    _pipeline(folder, "harvest", "packages", f"source.path={packages}", "out=real")
    _pipeline(folder, "split", "default", "figures=real", "out=real_panels")
    _pipeline(folder, "annotate", "context", "table=real")
    dinov2 = shared / "models" / "dinov2_small"
    _pipeline(folder, "annotate", "dinov2", "table=real", f"weights={dinov2}")
    _pipeline(folder, "cluster", "default", "table=real", "clusters=10", "out=real_concepts")
    _pipeline(folder, "assemble", "default", "figures=real", "out=real_corpus")
    _pipeline(folder, "index", "default", "model=model", "corpus=real_corpus", "out=real_index")
    xray = folder / "xray"
    if not xray.exists():
        with tarfile.open(shared / "labelled" / "cxr_pneumonia.tar.gz") as archive:
            archive.extractall(xray, filter="data")
    data = next(path.parent for path in sorted(xray.rglob("labels.csv")))
    _pipeline(
        *(folder, "benchmark", "linear_probe", "model=model", "out=probe"),
        f"data={data.relative_to(folder)}",
    )


def _pipeline(folder: Path, command: str, recipe: str, *settings: str) -> None:
    assigned = [part for setting in settings for part in ("--set", setting)]
    _script(folder, f"{command}.py", recipe, *assigned)


def _script(folder: Path, script: str, *arguments: str) -> None:
    print("+", script, *arguments, flush=True)
    subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / script), *arguments],
        cwd=folder,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"},
        stdout=subprocess.DEVNULL,
    )


def published_hashes(folder: Path) -> dict[str, Any]:
    """Return the SHA-256 of each file below a folder by its name; manifests as they are."""
    hashes: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name == "hashes.json" or set(path.parts) & set(TIMED):
            continue
        if path.name == "manifest.json":
            hashes[name] = json.loads(path.read_text())
        else:
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def report_differences(before: Path, after: Path) -> int:
    """Print each difference, and return 1 if there is one."""
    old, new = _flat(json.loads(before.read_text())), _flat(json.loads(after.read_text()))
    different = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for name in different:
        print(f"{name}: {old.get(name, '(absent)')} -> {new.get(name, '(absent)')}")
    print(f"{len(different)} of {len(old)} values differ")
    return 1 if different else 0


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{name} {key}".strip())
        return found
    return {name: value}


if __name__ == "__main__":
    sys.exit(main())
