"""Connection to Ray: the cluster that the job was submitted to, or a local instance."""

import contextlib
import logging
import os
import site
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import ray
from ray._common.utils import get_ray_address_file
from ray._private.utils import read_ray_address
from ray.data import DataContext

import biovl
from biovl.core.errors import ConfigError, RayError
from biovl.runtime import worker_process

_ANSWERS_S = 10.0
"""Seconds in which a running Ray must accept a connection; Ray itself would try for a quarter of an
hour."""


def running_ray() -> str | None:
    """Return the address of the Ray cluster that commands use; None: they start their own.

    It is ``RAY_ADDRESS`` if set, where ``local`` gives None; else that of a cluster started with
    ``ray start`` on this machine.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    if address == "local":
        return None
    return address or read_ray_address() or None


@contextlib.contextmanager
def connect_ray() -> Iterator[None]:
    """Connect to the running Ray; otherwise start one, and shut it down at the end of the block.

    Raises:
        RayError: If Ray does not start, or the cluster cannot be reached.
    """
    _quiet()
    if ray.is_initialized():
        yield
        return
    address = running_ray()
    is_own = address is None
    if address is not None:
        _check_answers(address)
    # A single machine is not preempted, and the preemption watcher logs an error at startup.
    if is_own:
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    root = str(Path(biovl.__file__).parents[1])
    # If biovl is not installed (a checkout on PYTHONPATH), workers need its path. The path of
    # installed packages would come before the standard library.
    is_installed = root in (*site.getsitepackages(), site.getusersitepackages())
    paths = filter(None, [None if is_installed else root, os.environ.get("PYTHONPATH")])
    try:
        ray.init(
            runtime_env={
                "env_vars": {
                    "PYTHONPATH": os.pathsep.join(paths),
                    worker_process.WORKING_FOLDER: os.getcwd(),
                },
                "worker_process_setup_hook": "biovl.runtime.worker_process.begin",
            },
            logging_level=logging.WARNING,
            log_to_driver=True,
            include_dashboard=False if is_own else None,
            # Without a dashboard, Ray Train would ask whoever listens at the default port whether
            # its controller is alive. The dashboard of another Ray does not know that controller,
            # so the workers would be ended as soon as they start.
            dashboard_port=0 if is_own else None,
            configure_logging=True,
        )
    # Ray raises a bare Exception if one of its processes does not start in time.
    except Exception as error:
        ray.shutdown()
        raise RayError(_not_started(error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Check that somebody listens at an address such as ``10.0.0.1:6379``.

    Raises:
        RayError: If nobody does.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_S).close()
    except OSError as error:
        raise RayError(_not_reached(address, error.strerror or str(error))) from error


def _not_reached(address: str, reason: str) -> str:
    if os.environ.get("RAY_ADDRESS"):
        return (
            f"Ray cannot be reached at RAY_ADDRESS={address}: see whether the cluster is up and "
            f"RAY_AUTH_MODE is as it expects. Found: {reason}"
        )
    noted = get_ray_address_file(None)
    return (
        f"Ray cannot be reached at {address}, which `ray start` noted in {noted}: start it again; "
        "or, if it was ended without `ray stop`, delete this file; or set RAY_ADDRESS=local for a "
        f"Ray of the command's own. Found: {reason}"
    )


def _not_started(error: Exception) -> str:
    reason = " ".join(str(error).split())[:500] or type(error).__name__
    address = running_ray()
    if address is not None:
        return _not_reached(address, reason)
    return (
        "Ray did not start on this machine, which may be too busy, or have too little memory or "
        "room in RAY_TMPDIR (else /tmp). Nothing is lost: type the same command again. "
        f"Found: {reason}"
    )


def check_room(
    cpus: float, gpus: float, say: Callable[[str], object], *, what: str = "a worker"
) -> None:
    """Reject workers that do not fit on this single machine: Ray would wait indefinitely.

    A cluster may grow: there, only a message is logged.

    Args:
        cpus: CPUs that are needed at the same time.
        gpus: GPUs that are needed at the same time.
        say: Called with a line for the user.
        what: Name, in messages, of what needs them.

    Raises:
        ConfigError: If the machine has too few CPUs or GPUs.
    """
    resources = ray.cluster_resources()
    for name, count in {"GPU": gpus, "CPU": cpus}.items():
        found = resources.get(name, 0)
        if found >= count:
            continue
        lacks = f"{name}s for {what}: {count:g} needed, and Ray here has {found:g}"
        if _may_grow():
            say(f"{lacks}: waits until there are more")
            continue
        less = "workers.gpus=0 computes on the CPU" if name == "GPU" else "lower workers.cpus"
        raise ConfigError(
            f"{lacks}: {less} or workers.count, or submit the job to a cluster that has them"
        )


def _may_grow() -> bool:
    """Return whether nodes may be added, as far as this process knows: a trial knows nothing."""
    is_driver = ray.get_runtime_context().get_actor_id() is None
    return not (is_driver and running_ray() is None and len(ray.nodes()) == 1)


def _quiet() -> None:
    # Jobs report progress in articles and figures, not in blocks and operators.
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in (
        "ray.data",
        "ray.data._internal.progress",
        "ray._private.authentication.authentication_token_setup",
    ):
        logging.getLogger(name).setLevel(logging.ERROR)
