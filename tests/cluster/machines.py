"""Machines made of namespaces: each with its own processes, network, home and /tmp/ray.

What a cluster does to a machine, `ray stop` above all, happens to these alone.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests import worker_forks

ROOT = Path(__file__).parents[2]
_IDLE = "RAY_idle_worker_killing_time_threshold_ms"
# What commands find that are run by SSH.
_BY_SSH = ("VENV", _IDLE, "PYTHONPATH", worker_forks.ADDRESS)
SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin")

# Only the loopback and the wire between machines; /tmp/ray and home are this machine's own, the
# latter by its list of users, which ssh asks and not $HOME. The first process waits for orphans, as
# Ray leaves some.
_BOOT = """
set -e
ip link set lo up
mkdir -p {folder}/ray /tmp/ray /run/sshd
mount --bind {folder}/ray /tmp/ray
mount --bind {folder}/passwd /etc/passwd
{sshd} -D -e -f {folder}/sshd_config 2> {folder}/sshd.log &
while true; do wait -n || sleep 0.2; done
"""
_SSHD_USER = "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin"


def why_not() -> str | None:
    """Return why this machine cannot make others, or None where it can."""
    missing = [name for name in ("unshare", "nsenter", "ip", "rsync", "ssh") if not _has(name)]
    if SSHD is None or missing:
        return f"not installed: {', '.join([*missing, *([] if SSHD else ['sshd'])])}"
    if os.geteuid() != 0:
        return "namespaces with an sshd need root"
    tried = ["unshare", "--fork", "--pid", "--mount", "--net", "--ipc", "ip", "link"]
    if subprocess.run(tried, capture_output=True).returncode:
        return "namespaces are not allowed here"
    return None


def _has(name: str) -> bool:
    return shutil.which(name) is not None


class Machine:
    """A machine that answers by SSH to who holds a key."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.home, self.folder = folder / "home", folder
        self.home.mkdir(parents=True)
        self.environment = {
            "HOME": str(self.home),
            # As tests/conftest.py sets it.
            _IDLE: os.environ[_IDLE],
            "VENV": str(_environment(folder / "venv")),
            "PATH": f"{folder}/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            **worker_forks.variables(f"{folder}/forks"),
        }
        _make_key(folder / "hostkey")
        (folder / "sshd_config").write_text(
            f"HostKey {folder}/hostkey\nAuthorizedKeysFile {key}.pub\nStrictModes no\n"
            f"UsePAM no\nPidFile none\nSetEnv {' '.join(self._variables(*_BY_SSH))}\n"
        )
        (folder / "passwd").write_text(f"root:x:0:0:root:{self.home}:/bin/bash\n{_SSHD_USER}\n")
        self._process = subprocess.Popen(
            [
                *("unshare", "--fork", "--pid", "--mount", "--mount-proc", "--net", "--ipc"),
                *("--kill-child", "bash", "-c", _BOOT.format(folder=folder, sshd=SSHD)),
            ],
            env=self.environment,
        )
        self.pid = _child(self._process.pid)

    def inside(self, *command: str, folder: str | Path = ROOT) -> list[str]:
        """Return the command that runs another on this machine."""
        variables = self._variables(*self.environment)
        place = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--ipc"]
        return [*place, "env", "-i", f"--chdir={folder}", *variables, *command]

    def _variables(self, *names: str) -> list[str]:
        return [f"{name}={self.environment[name]}" for name in names]

    def fork_workers(self) -> None:
        """Fork the workers of its Ray here: only processes of this machine may be theirs."""
        address = self.environment[worker_forks.ADDRESS]
        self._forks = subprocess.Popen(
            # The Python that the program ``ray`` names: workers run by that one.
            self.inside(sys.executable, worker_forks.__file__, address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._forks.stdout is not None
        assert self._forks.stdout.readline() == b"ready\n"

    def run(self, *command: str, folder: str | Path = ROOT) -> str:
        """Run a command on this machine; what it says, also what it says of errors.

        Raises:
            AssertionError: If it fails.
        """
        done = subprocess.run(
            self.inside(*command, folder=folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def processes(self, name: str) -> int:
        """Return how many processes of a name run here."""
        listed = self.run("ps", "-eo", "comm=").split()
        return sum(each.startswith(name) for each in listed)

    def end(self) -> None:
        """End all that runs here."""
        self._process.kill()
        self._process.wait()


def wire(one: Machine, other: Machine) -> tuple[str, str]:
    """Join two machines by a cable; their addresses."""
    addresses = ("10.77.0.1", "10.77.0.2")
    ends = [("one", one, addresses[0]), ("other", other, addresses[1])]
    (_, first, _), (_, second, _) = ends
    subprocess.run(
        [
            *("ip", "link", "add", "one", "netns", str(first.pid), "type", "veth"),
            *("peer", "name", "other", "netns", str(second.pid)),
        ],
        check=True,
    )
    for name, machine, address in ends:
        machine.run("ip", "address", "add", f"{address}/24", "dev", name)
        machine.run("ip", "link", "set", name, "up")
        # Ray takes the address that leads out for that of the machine.
        machine.run("ip", "route", "add", "default", "dev", name)
    return addresses


def make_key(path: Path) -> Path:
    """Make a key that opens machines."""
    _make_key(path)
    return path


def _make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _environment(folder: Path) -> Path:
    """Make a folder that is the environment of these tests, ready as `make setup` leaves one."""
    folder.mkdir(parents=True)
    for entry in Path(sys.prefix).iterdir():
        if entry.name != ".ready":
            (folder / entry.name).symlink_to(entry)
    (folder / ".ready").touch()
    return folder


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for _ in range(100):
        found = children.read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.05)
    raise TimeoutError("the namespaces did not come up")
