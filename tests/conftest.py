"""What tests share: one Ray for the whole session, a small corpus, the real articles if there."""

import fcntl
import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xdist.remote import Producer

from tests.scheduling import FewRays, may_start_ray, needs_ray

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"

# Ray ends a worker that was idle for a second, and the next one imports PyTorch anew: most of the
# CPU time of these tests. It is read where Ray is started, also by the commands that tests run.
os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "60000")

# Ray looks for new logs ten times a second, as long as there are few. Here are hundreds, of workers
# that have ended: 90 CPU seconds. Then it does so twice a second.
os.environ.setdefault("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "0")

# Each node reports on all of its processes every five seconds, to a dashboard that nobody looks at.
os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")

# Testers run side by side, as many as cores. Threads of PyTorch that wait for each other do so by
# computing: beside another tester, two take seven times the CPU time of one for a small model.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Some environments forbid byte-code. Then each process compiles all tests anew (7 CPU seconds), and
# each of the dozens of processes that tests start compiles our modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


SLOW = (
    # Servers, browsers, processes and whole jobs,
    *("benchmarks/", "browser/", "cluster/", "docs/", "plan/", "serve/", "job.py"),
    # and what computes for seconds.
    *("annotate/test_longcap.py", "articles/test_against_lxml.py", "articles/test_growth.py"),
    *(
        "assemble/test_card.py",
        "assemble/test_plots.py",
        "benchmark/test_vqa_module.py",
        "chain/page/test_checked_first.py",
    ),
    *("chain/page/test_summary_browser.py", "chain/page/test_summary_page.py"),
    *("chain/reproduce/test_docs.py", "chain/reproduce/test_papers.py", "chain/test_demo.py"),
    *("harvest/pmc/test_client.py", "images/test_hostile.py"),
    *("index/test_copies.py", "index/test_search.py", "index/test_recall.py"),
    *("models/test_encoder.py", "models/test_hub.py", "models/test_weights.py"),
    *(
        "pretrain/test_activation_memory.py",
        "pretrain/test_gpu_settings.py",
        "pretrain/test_compiling.py",
    ),
    *("pretrain/test_estimate.py", "pretrain/test_loop.py", "pretrain/test_losses.py"),
    *("pretrain/test_out_of_memory.py", "pretrain/test_pairs.py", "pretrain/test_recipes.py"),
    *("pretrain/test_image_size.py", "pretrain/test_rollback.py", "pretrain/test_run.py"),
    *("pretrain/test_step_on_gpu.py", "pretrain/test_step_time.py"),
    "pretrain/test_training_plots.py",
    *("publish/test_hub.py", "sample/test_sample.py"),
    *("sweep/test_spaces.py", "sweep/test_sweep_report.py", "sweep/test_trials.py"),
    *("test_types.py", "test_wheel.py"),
)
"""Tests that ``make check`` leaves to ``make test``: folders, and ends of file names."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Do not search for garbage in what all modules of the tests create when they are imported.

    It is there until the end. Measured: 8 of 44 CPU seconds of collecting, in each process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FewRays:
    return FewRays(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and begin with files that need Ray, then with the slow ones.

    A tester that may start no Ray computes beside them, and at the end none waits for another.
    The longest files are among the last of the alphabet: ``sweep/test_job.py``, ``serve/``.
    """
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path, reverse=True)
    items.sort(key=lambda item: (needs_ray(item.location[0]), _is_slow(item.path)), reverse=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import slow files that are not wanted: a sixth of the time of collecting."""
    return ("not slow" in config.option.markexpr and _is_slow(collection_path)) or None


def _is_slow(path: Path) -> bool:
    name = path.relative_to(ROOT / "tests").as_posix()
    return name.startswith(SLOW) or name.endswith(SLOW)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_leases() -> None:
    from tests.leases import do_not_wait

    do_not_wait()


@pytest.fixture(scope="session", autouse=True)
def _worker_forks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork the workers of Ray, of ours and of the commands that tests run."""
    with ExitStack() as stack:
        needs_ray = any(item.get_closest_marker("ray") for item in request.session.items)
        # Without a name, this process is the only tester.
        if needs_ray and may_start_ray(os.environ.get("PYTEST_XDIST_WORKER", "gw0")):
            from tests.worker_forks import fork_workers

            stack.enter_context(fork_workers())
        yield


@pytest.fixture(scope="session")
def ray_session(bucket_uri: str) -> Iterator[None]:
    """One Ray for all tests that need it: starting it takes seconds.

    Its workers find the bucket through the environment, which they have from this process.
    """
    from biovl.core.errors import RayError
    from biovl.runtime.connection import connect_ray

    with ExitStack() as stack:
        for tries_left in reversed(range(5)):
            try:
                stack.enter_context(connect_ray())
                break
            # Ray gives its processes 30 s to begin, whatever else the machine does.
            except RayError:
                if not tries_left:
                    raise
        yield


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Call a function with a new folder, unless a process that tests next to this one has done so.

    The folder is read by tests in several processes: they must not change it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, finished = root / name, root / f"{name}.finished"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                finished.touch()
        return folder

    return make


@pytest.fixture(scope="session")
def put_packages(make_once: Callable[..., Path]) -> Callable[[Path, int], None]:
    """Put the first packages of the sample into a folder: drawing takes a second for each."""
    from biovl.sample import make_packages

    most = 36

    def put(folder: Path, articles: int) -> None:
        if articles > most:
            make_packages(folder, articles=articles)
            return
        drawn = make_once("drawn", lambda all_: make_packages(all_, articles=most))
        folder.mkdir(parents=True, exist_ok=True)
        for package in sorted(drawn.iterdir())[:articles]:
            if package.is_dir():
                shutil.copytree(package, folder / package.name, dirs_exist_ok=True)
            else:
                shutil.copy(package, folder / package.name)

    return put


@pytest.fixture(scope="session")
def sample_packages(
    put_packages: Callable[[Path, int], None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A few good packages and every damaged one."""
    from biovl.sample import make_damaged_packages

    folder = tmp_path_factory.mktemp("packages")
    put_packages(folder, 8)
    make_damaged_packages(folder)
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real articles kept beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("no real articles beside the repository")
    return SHARED


@pytest.fixture
def mount_small_disk() -> Iterator[Callable[[Path, str], None]]:
    """Mount a disk of a size, such as ``5m``, at a folder."""
    import subprocess

    mounted: list[Path] = []

    def mount(folder: Path, size: str) -> None:
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("only root can make a small disk")
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def bucket_uri() -> Iterator[str]:
    """A bucket of a local S3 server; clients find it through the environment as in production."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(
            Bucket="corpora"
        )
        yield "s3://corpora"
    server.stop()


@pytest.fixture
def bucket(bucket_uri: str) -> Callable[[str, bytes], None]:
    """Put an object into the bucket."""
    import os

    import boto3

    client = boto3.client(
        "s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1"
    )

    def put(key: str, data: bytes) -> None:
        client.put_object(Bucket="corpora", Key=key, Body=data)

    return put


@pytest.fixture(scope="session")
def make_sample_corpus(
    ray_session: None,
    put_packages: Callable[[Path, int], None],
    make_once: Callable[..., Path],
) -> Callable[[int], Path]:
    """Make a corpus of so many articles of our own, whose captions say what images show."""
    from biovl.assemble import config as assemble_config
    from biovl.assemble.config import AssembleConfig
    from biovl.assemble.job import assemble
    from biovl.core import config as configs
    from biovl.harvest.config import HarvestConfig
    from biovl.harvest.job import harvest

    def fill(folder: Path, articles: int) -> None:
        put_packages(folder / "packages", articles)
        source = {"name": "packages", "path": str(folder / "packages")}
        settings = {"source": source, "out": str(folder / "figures"), "packages_per_unit": 12}
        harvest(configs.build(HarvestConfig, settings))
        settings = {
            **configs.recipe_settings(assemble_config.small()),
            "figures": str(folder / "figures"),
            "out": str(folder / "corpus"),
            "shard.pairs": 16,
        }
        assemble(configs.build(AssembleConfig, settings))

    def make(articles: int) -> Path:
        return make_once(f"sample{articles}", lambda folder: fill(folder, articles)) / "corpus"

    return make


@pytest.fixture(scope="session")
def sample_corpus(make_sample_corpus: Callable[[int], Path]) -> Path:
    """About a hundred pairs."""
    return make_sample_corpus(24)
