"""Kills at random moments: does a pipeline end in the same bytes, whoever dies?

    python benchmarks/chaos.py --runs 5 --only harvest,split,assemble,pretrain,index --seed 0

A small cluster on this machine (a head and two nodes, each with a raylet of its own) runs each
pipeline by the command that users type, on articles of our own. First undisturbed; then, at moments
drawn over the length of that run, one of these is killed with SIGKILL:

    worker   a process of Ray's workers, whatever it does just then
    node     a node: its raylet with all its workers; another node takes its place
    driver   the process of the command, which is then typed again

A run survives where it publishes what the undisturbed one did, byte for byte, without help but
that. Where it fails with an error, and the same command then ends in the same bytes, it counts as
resumed. Of a model, the files that hold times are left out: ``metrics.jsonl`` but for steps and
losses, TensorBoard, plots and the card. The last line is all results as JSON.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("worker", "node", "driver")
NODE_CPUS = 2
STORE_BYTES = 150 << 20


@dataclass(frozen=True)
class Pipeline:
    """A script and what it reads, by the names of its settings."""

    recipe: str
    inputs: Mapping[str, str]
    """Setting -> the pipeline that publishes it, or ``packages``."""
    settings: Sequence[str] = ()


PIPELINES = {
    "harvest": Pipeline("packages", {"source.path": "packages"}, ["packages_per_unit=2"]),
    "split": Pipeline("default", {"figures": "harvest"}),
    "assemble": Pipeline("small", {"figures": "harvest"}, ["shard.pairs=8"]),
    "pretrain": Pipeline(
        "tiny",
        {"corpus": "assemble"},
        [
            *("epochs=3", "deterministic=true", "save.every_steps=1", "validation.every_epochs=2"),
            *("workers.count=2", "workers.cpus=0.5", "batch.pairs=16"),
        ],
    ),
    "index": Pipeline(
        "default", {"model": "pretrain", "corpus": "assemble"}, ["pairs_per_unit=16"]
    ),
    "annotate": Pipeline("clip", {"table": "harvest", "weights": "pretrain"}, ["batch=16"]),
    "cluster": Pipeline(
        "default",
        {"table": "harvest", "embedding": "annotate"},
        ["components=8", "clusters=12"],
    ),
    "benchmark": Pipeline("retrieval", {"model": "pretrain", "corpus": "assemble"}),
}


@dataclass
class Outcome:
    """What became of one run."""

    pipeline: str
    kind: str
    at_s: float
    killed: str
    became: str
    """``survived``, ``resumed``, ``differs``, ``failed`` or ``hung``."""
    seconds: float
    reason: str = ""


class World:
    """The cluster, the inputs, and what undisturbed runs publish."""

    def __init__(self, folder: Path, *, articles: int = 24, limit_s: float = 600) -> None:
        from ray.cluster_utils import Cluster

        from biovl.sample import make_packages

        self.folder, self.limit_s = folder, limit_s
        make_packages(folder / "packages", articles=articles)
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": STORE_BYTES},
        )
        for _ in range(2):
            self.add_node()
        self._whole_s: dict[str, float] = {}

    def add_node(self) -> None:
        """Let another node join the cluster."""
        self.cluster.add_node(num_cpus=NODE_CPUS, object_store_memory=STORE_BYTES)

    def undisturbed(self, name: str) -> Path:
        """Return what a pipeline publishes undisturbed; made, with its inputs, when first asked."""
        if name == "packages":
            return self.folder / name
        out = self.folder / name
        if name not in self._whole_s:
            for needed in PIPELINES[name].inputs.values():
                self.undisturbed(needed)
            began = time.monotonic()
            code = self._wait(self.start(name, out))
            if code != 0:
                raise SystemExit(f"{name} undisturbed ended with {code}:\n{_tail(out)}")
            self._whole_s[name] = time.monotonic() - began
        return out

    def seconds(self, name: str) -> float:
        """Return how long the undisturbed run took."""
        self.undisturbed(name)
        return self._whole_s[name]

    def start(self, name: str, out: Path) -> "subprocess.Popen[bytes]":
        """Type the command; what it says goes to a log beside the folder."""
        pipeline = PIPELINES[name]
        given = [f"{key}={self.undisturbed(of)}" for key, of in pipeline.inputs.items()]
        command = [sys.executable, str(ROOT / "pipelines" / f"{name}.py"), pipeline.recipe]
        command += [f"--set={item}" for item in (*given, *pipeline.settings, f"out={out}")]
        with _log(out).open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={
                    **os.environ,
                    "RAY_ADDRESS": self.cluster.address,
                    "OMP_NUM_THREADS": "1",
                },
            )

    def disturbed(self, name: str, kind: str, rng: random.Random) -> Outcome:
        """Run a pipeline and kill once; a kill that comes too late is drawn again."""
        whole = self.undisturbed(name)
        while True:
            at_s = rng.uniform(0, self.seconds(name))
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=f"{name}-") as temporary:
                out = Path(temporary) / name
                began = time.monotonic()
                job = self.start(name, out)
                killed = self._kill(kind, job, began + at_s, rng)
                if killed is None:
                    job.wait()
                    # The first run on a new cluster takes longer.
                    self._whole_s[name] = min(self._whole_s[name], time.monotonic() - began)
                    continue
                became, reason = self._end(name, kind, job, out)
                if became in ("survived", "resumed") and (apart := differences(name, whole, out)):
                    became, reason = "differs", ", ".join(apart)
                seconds = time.monotonic() - began
            return Outcome(name, kind, round(at_s, 2), killed, became, round(seconds, 1), reason)

    def close(self) -> None:
        """End the cluster."""
        self.cluster.shutdown()

    def _kill(
        self, kind: str, job: "subprocess.Popen[bytes]", when: float, rng: random.Random
    ) -> str | None:
        """Kill at a moment, or soon after; return whom, or None where the job ended before."""
        while job.poll() is None:
            if time.monotonic() >= when:
                killed = self._kill_now(kind, job, rng)
                if killed is not None:
                    return killed
            time.sleep(0.01)
        return None

    def _kill_now(
        self, kind: str, job: "subprocess.Popen[bytes]", rng: random.Random
    ) -> str | None:
        if kind == "driver":
            job.kill()
            job.wait()
            return "driver"
        if kind == "node":
            nodes = sorted(self.cluster.worker_nodes, key=lambda node: str(node.raylet_socket_name))
            # Not the head, which is the driver's as well.
            self.cluster.remove_node(rng.choice(nodes), allow_graceful=False)
            self.add_node()
            return "node"
        found = sorted(_workers(self.cluster.head_node.get_logs_dir_path()).items())
        busy = [(pid, title) for pid, title in found if "IDLE" not in title]
        if not found:
            return None
        pid, title = rng.choice(busy or found)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return title

    def _end(
        self, name: str, kind: str, job: "subprocess.Popen[bytes]", out: Path
    ) -> tuple[str, str]:
        """Wait for a disturbed run, or type its command again; return what became of it."""
        if kind == "driver":
            code, reason, became = self._wait(self.start(name, out)), "", "survived"
        else:
            code, reason, became = self._wait(job), "", "survived"
            if code:
                reason = _tail(out)
                code, became = self._wait(self.start(name, out)), "resumed"
        if code is None:
            return "hung", _tail(out)
        return (became, reason) if code == 0 else ("failed", _tail(out))

    def _wait(self, job: "subprocess.Popen[bytes]") -> int | None:
        try:
            return job.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
            return None


def differences(name: str, whole: Path, out: Path) -> list[str]:
    """Return the files that differ between two published folders of a pipeline."""
    found, wanted = (_content(name, folder) for folder in (out, whole))
    return sorted(file for file in found.keys() | wanted if found.get(file) != wanted.get(file))


def _content(name: str, folder: Path) -> dict[str, str]:
    """Return a hash of every file that holds no times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        file = str(path.relative_to(folder))
        if not path.is_file():
            continue
        data = path.read_bytes()
        if name == "pretrain":
            if file.startswith(("tensorboard/", "plots/")) or file == "README.md":
                continue
            if file == "metrics.jsonl":
                rows = [json.loads(line) for line in data.splitlines()]
                data = json.dumps([(row.get("step"), row.get("loss")) for row in rows]).encode()
        found[file] = hashlib.sha256(data).hexdigest()
    return found


def _workers(logs: str) -> dict[int, str]:
    """Return the titles of the workers that write to a folder of logs, by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
            # The agents of a raylet have such titles as well, and take it with them.
            is_worker = title.startswith("ray::") and not title.endswith("Agent")
            if is_worker and (process / "fd" / "1").readlink().is_relative_to(logs):
                found[int(process.name)] = title
        except OSError:  # it ended meanwhile
            continue
    return found


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def _tail(out: Path, lines: int = 12) -> str:
    return "\n".join(_log(out).read_text(errors="replace").splitlines()[-lines:])


def chaos(
    world: World,
    names: Sequence[str],
    runs: int,
    seed: int,
    kinds: Sequence[str] = KINDS,
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Run each pipeline so often with each kind of kill; the same seed draws the same moments."""
    outcomes: list[Outcome] = []
    for name in names:
        say(f"{name}: undisturbed {world.seconds(name):.1f} s")
        for kind in kinds:
            for number in range(runs):
                rng = random.Random(f"{seed} {name} {kind} {number}")
                outcome = world.disturbed(name, kind, rng)
                outcomes.append(outcome)
                say(
                    f"  {outcome.became:<9} {kind:<7} at {outcome.at_s:5.1f} s, whole run "
                    f"{outcome.seconds:5.1f} s: {outcome.killed}"
                )
                if outcome.reason:
                    say("    " + outcome.reason.replace("\n", "\n    "))
    return outcomes


def main() -> None:
    """Print a table of who survived, and all outcomes as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="kills of each kind per pipeline")
    parser.add_argument("--only", default=",".join(PIPELINES), help="pipelines, by commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="who is killed, by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--articles", type=int, default=24)
    given = parser.parse_args()
    names, kinds = given.only.split(","), given.kinds.split(",")
    if set(names) - set(PIPELINES) or set(kinds) - set(KINDS):
        parser.error(f"choose from {', '.join(PIPELINES)}, and {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), articles=given.articles)
        try:
            outcomes = chaos(
                world, names, given.runs, given.seed, kinds, lambda line: print(line, flush=True)
            )
        finally:
            world.close()
    print("\n| pipeline | " + " | ".join(f"{kind} killed" for kind in kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    for name in names:
        cells = []
        for kind in kinds:
            became = Counter(o.became for o in outcomes if (o.pipeline, o.kind) == (name, kind))
            others = [f"{n} {what}" for what, n in sorted(became.items()) if what != "survived"]
            cells.append(", ".join([f"{became['survived']}/{became.total()}", *others]))
        print(f"| {name} | " + " | ".join(cells) + " |")
    survived = sum(outcome.became == "survived" for outcome in outcomes)
    summary = {"survived": survived, "runs": len(outcomes), "seed": given.seed}
    print(json.dumps({**summary, "outcomes": [asdict(outcome) for outcome in outcomes]}))


if __name__ == "__main__":
    main()
