"""Ray's workers, forked from a process that has already imported PyTorch: 0.5 CPU s in place of 5.

    python tests/worker_forks.py SOCKET     the process that forks them

They are those of every Ray that tests start, and that the commands start which tests run: a worker
asks for it itself, in ``startup/sitecustomize.py``, which Python runs before anything else.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

ADDRESS = "BIOVL_TESTS_WORKER_FORKS"
"""The variable that says where workers are forked. Without it, they are below Ray's raylet."""
_STARTUP = Path(__file__).with_name("startup")
_MODULES = (
    *("fastapi", "lxml.etree", "matplotlib.pyplot", "open_clip", "pandas", "pyarrow.dataset"),
    *("scipy.sparse", "scipy.stats", "sklearn.metrics", "torch.distributed.elastic.rendezvous"),
    *("torch.nn.attention.varlen", "torch.utils.tensorboard", "transformers"),
)


def _serve(address: str) -> None:
    """Fork a worker for each connection, until stdin ends."""
    _preload()
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen(64)
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        selector.register(listener, selectors.EVENT_READ, None)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is not listener:
                    key.data()
                    continue
                connection, _ = listener.accept()
                _fork(connection, selector)


def _preload() -> None:
    """Import what most workers need, but not Ray.

    It reads its variables when it is imported, and draws the same random ids in each fork after it.
    No thread of Python may be there afterwards: it would not be forked.
    """
    for name in _MODULES:
        importlib.import_module(name)
    # Ray collects garbage in each worker, which would search and copy all of these pages.
    gc.collect()
    gc.freeze()


def _fork(connection: socket.socket, selector: selectors.BaseSelector) -> None:
    size, outputs, *_ = socket.recv_fds(connection, 4, 2)
    begin, left = b"", int.from_bytes(size, "big")
    while len(begin) < left:
        more = connection.recv(left - len(begin))
        if not more:
            # Whoever asked was killed.
            connection.close()
            for output in outputs:
                os.close(output)
            return
        begin += more
    worker = os.fork()
    if worker == 0:
        try:
            # A worker that kept them would keep the others' ends from being noticed.
            for key in list(selector.get_map().values()):
                os.close(key.fd)
            selector.close()
            connection.close()
            _become(*json.loads(begin), outputs)
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    for output in outputs:
        os.close(output)
    handle = os.pidfd_open(worker)

    def end() -> None:
        _, status = os.waitpid(worker, 0)
        with contextlib.suppress(OSError):
            connection.send(bytes([abs(os.waitstatus_to_exitcode(status)) & 255]))
        for each in (handle, connection):
            with contextlib.suppress(KeyError):
                selector.unregister(each)
        connection.close()
        os.close(handle)

    def lose() -> None:
        # Where both ended at once, ``end`` has come first, and the number may be another process's.
        with contextlib.suppress(KeyError, ValueError):
            selector.unregister(connection)
            os.kill(worker, 9)

    selector.register(handle, selectors.EVENT_READ, end)
    selector.register(connection, selectors.EVENT_READ, lose)


def _become(
    arguments: list[str], variables: dict[str, str], folder: str, outputs: list[int]
) -> None:
    """Be the process that Ray's ``setup_worker.py`` would have turned itself into."""
    # As Ray starts a worker: when it has ended, Ray kills what is left of its process group.
    os.setpgrp()
    for output, standard in zip(outputs, (1, 2), strict=True):
        os.dup2(output, standard)
        os.close(output)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray._private.utils import update_envs
    from ray._private.workers.setup_worker import parser

    words = arguments
    # Ray puts this script before the worker's own where there is a runtime environment.
    if Path(words[0]).name == "setup_worker.py":
        found, words = parser.parse_known_args(words[1:])
        context = RuntimeEnvContext.deserialize(found.serialized_runtime_env_context)
        if context.command_prefix or context.py_executable != sys.executable:
            del os.environ[ADDRESS]
            os.execv(sys.executable, [sys.executable, *arguments])
        update_envs(context.env_vars)
    paths = [str(Path(words[0]).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:1] = [path for path in paths if path]
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def variables(address: str) -> dict[str, str]:
    """Return what a process has in its environment so that workers are forked at an address."""
    paths = filter(None, [str(_STARTUP), os.environ.get("PYTHONPATH")])
    return {ADDRESS: address, "PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def fork_workers() -> Iterator[None]:
    """Within the block, fork the workers of every Ray that inherits this process's variables."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/forks"
        with subprocess.Popen(
            [sys.executable, __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # As Ray sets it for a worker with one CPU, before the worker imports PyTorch.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == b"ready\n"
                with mock.patch.dict(os.environ, variables(address)):
                    yield
            finally:
                server.stdin.close()


if __name__ == "__main__":
    _serve(sys.argv[1])
