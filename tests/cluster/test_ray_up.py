"""cluster-local.yaml for real: two machines, `ray up`, jobs, `ray status`, `ray down`."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.machines import ROOT, Machine, make_key, why_not, wire

pytestmark = [pytest.mark.ray, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


class Cluster:
    """What `ray up` made of two machines, and the commands that a user types."""

    def __init__(self, folder: Path) -> None:
        key = make_key(folder / "key")
        self.head, self.worker = Machine(folder / "head", key), Machine(folder / "worker", key)
        self.head.fork_workers()
        self.worker.fork_workers()
        head_ip, worker_ip = wire(self.head, self.worker)
        config = yaml.safe_load((ROOT / "cluster-local.yaml").read_text())
        # What the file asks users to edit, and nothing else.
        config["provider"] |= {"head_ip": head_ip, "worker_ips": [worker_ip]}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": str(key)}
        self.config = folder / "cluster.yaml"
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))
        self.head.environment["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:8265"
        self.head.run("ray", "get-auth-token", "--generate")

    def up(self) -> None:
        for tries_left in (2, 1, 0):
            try:
                self.head.run("ray", "up", "-y", "--no-config-cache", str(self.config))
            # Ray gives its processes half a minute to begin, whatever else the machine does.
            except AssertionError as error:
                if not tries_left or "timed out during startup" not in str(error):
                    raise
            else:
                return

    def wait_for_both(self) -> None:
        """Wait until both machines are there."""
        deadline = time.monotonic() + 600
        # Each question below starts two programs: it is asked when there may be another answer.
        while not self.worker.processes("raylet"):
            assert time.monotonic() < deadline, "no Ray on the second machine"
            time.sleep(0.5)
        while "2 local.cluster.node" not in (
            said := self.head.run("ray", "exec", str(self.config), "ray status")
        ):
            assert time.monotonic() < deadline, said
            time.sleep(1)

    def submit(self, *arguments: str) -> "subprocess.Popen[str]":
        """Begin to submit a job, from a directory that has nothing to do with it."""
        return subprocess.Popen(
            self.head.inside("ray", "job", "submit", "--", "python", *arguments, folder="/"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def end(self) -> None:
        self.head.end()
        self.worker.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.up()
        # Jobs on one machine of two would wait for the other until each is ended.
        cluster.wait_for_both()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def finished(job: "subprocess.Popen[str]") -> tuple[int, str]:
    said, _ = job.communicate(timeout=600)
    return job.returncode, said


def summary(said: str) -> dict[str, object]:
    """Return the last line of JSON that a job printed."""
    found = [line for line in said.splitlines() if line.startswith("{")]
    assert found, said
    result: dict[str, object] = json.loads(found[-1])
    return result


def harvested(cluster: Cluster, packages: Path, out: Path) -> "subprocess.Popen[str]":
    settings = [f"source.path={packages}", f"out={out}", "packages_per_unit=4"]
    return cluster.submit("pipelines/harvest.py", "packages", *sets(settings))


def sets(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_jobs_share_the_cluster_and_a_failed_one_says_why_in_its_last_line(
    cluster: Cluster, sample_packages: Path, out: Path
) -> None:
    jobs = [harvested(cluster, sample_packages, out / name) for name in ("figures", "again")]
    wrong = harvested(cluster, Path("/nowhere"), out / "nothing")
    for job in jobs:
        status, said = finished(job)
        assert status == 0, said
        assert "harvest: unit" in said
        assert summary(said)["kind"] == "figures"
    manifests = [json.loads((out / n / "manifest.json").read_text()) for n in ("figures", "again")]
    assert manifests[0]["files"] == manifests[1]["files"]

    status, said = finished(wrong)
    assert status == 1, said
    name = re.search(r"raysubmit_\w+", said)
    assert name is not None
    logs = cluster.head.run("ray", "job", "logs", "--log-style=record", name[0])
    assert logs.strip().splitlines()[-1] == "source.path: there is nothing at /nowhere"


def test_the_chain_runs_as_one_job_on_both_machines_and_again_does_nothing(
    cluster: Cluster, sample_packages: Path, out: Path
) -> None:
    settings = [f"folder={out}/story", f"source.path={sample_packages}"]
    settings += ["assemble.split.val_permyriad=3000", "pretrain.epochs=1", "pretrain.batch.pairs=8"]
    settings += ["pretrain.workers.count=2"]
    status, said = finished(cluster.submit("pipelines/all.py", "demo", *sets(settings)))
    assert status == 0, said
    steps = ("figures", "corpus", "model", "index", "report")
    manifests = [out / "story" / name / "manifest.json" for name in steps]
    made = [path.stat().st_mtime_ns for path in manifests]
    assert (out / "story" / "summary.html").exists()
    assert (out / "story" / "model" / "open_clip_config.json").exists()
    assert "2 x CPU" in (out / "story" / "model" / "README.md").read_text()
    status, said = finished(cluster.submit("pipelines/all.py", "demo", *sets(settings)))
    assert status == 0, said
    assert [path.stat().st_mtime_ns for path in manifests] == made


def test_a_sweep_runs_as_many_trials_as_there_is_room_for(cluster: Cluster, out: Path) -> None:
    settings = [f"corpus={out}/story/corpus", f"out={out}/sweep", "base.recipe=tiny"]
    # Each trial is the driver of workers.
    settings += ["base.epochs=1", "base.batch.pairs=8", "base.workers.count=1"]
    settings += ["grid.optim.peak_lr=[0.001,0.0001]"]
    status, said = finished(cluster.submit("tune/sweep.py", "grid", *sets(settings)))
    assert status == 0, said
    assert "2 trials, 2 at a time" in said
    counted = summary(said)["trials"]
    assert counted == {"total": 2, "finished": 2, "stopped early": 0, "failed": 0}
    assert (out / "sweep" / "best.yaml").exists()


def test_nobody_without_the_token_gets_in(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="Unauthorized"):
        cluster.head.run("env", "RAY_AUTH_MODE=disabled", "ray", "job", "list")


def test_the_dashboard_listens_on_the_head_alone(cluster: Cluster) -> None:
    listening = cluster.head.run("ss", "-ltnH").splitlines()
    assert [line.split()[3] for line in listening if ":8265" in line] == ["127.0.0.1:8265"]


def test_down_leaves_nothing_running(cluster: Cluster) -> None:
    cluster.head.run("ray", "down", "-y", str(cluster.config))
    assert cluster.head.processes("raylet") == cluster.head.processes("gcs_server") == 0
    # Workers find out by themselves, within a minute, that their head is gone.
