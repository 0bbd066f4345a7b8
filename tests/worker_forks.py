"""Ray's workers, forked from a process that has already imported PyTorch: 0.5 CPU s in place of 5.

    python -I -S tests/worker_forks.py SOCKET RAY_ARGUMENT...   in place of Ray's Python: a worker
    python tests/worker_forks.py SOCKET                         the process that forks them

Nothing else differs: a worker has Ray's arguments, variables, folder and log files.
"""

import contextlib
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

_WORKER = "default_worker.py"


def _launch(address: str, arguments: list[str]) -> int:
    """Have a worker forked; return its exit status when it ends. It dies with this process."""
    begin = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(begin).to_bytes(4, "big")], [1, 2])
        connection.sendall(begin)
        status = connection.recv(1)
    return status[0] if status else 1


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
    """Import what most workers need, but not Ray, which reads its variables when it is imported.

    No thread of Python may be there afterwards: it would not be forked.
    """
    for name in ("open_clip", "pandas", "pyarrow.dataset", "scipy.sparse", "transformers"):
        importlib.import_module(name)


def _fork(connection: socket.socket, selector: selectors.BaseSelector) -> None:
    size, outputs, *_ = socket.recv_fds(connection, 4, 2)
    begin, left = b"", int.from_bytes(size, "big")
    while len(begin) < left:
        begin += connection.recv(left - len(begin))
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
            os.execv(sys.executable, [sys.executable, *arguments])
        update_envs(context.env_vars)
    paths = [str(Path(words[0]).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:1] = [path for path in paths if path]
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


@contextlib.contextmanager
def connect_ray() -> Iterator[None]:
    """Start a Ray as commands do, whose workers are forked; shut it down at the end of the block."""
    # Here, so that a worker does not wait for these.
    import tempfile
    from unittest import mock

    from biovl.runtime import connection

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        python = stack.enter_context(_forks(Path(folder)))
        # Ray starts its processes with the Python of this one.
        with mock.patch.object(sys, "executable", str(python)):
            stack.enter_context(connection.connect_ray())
        yield


@contextlib.contextmanager
def _forks(folder: Path) -> Iterator[Path]:
    """Give a program to be started in place of Python: if it is to be a worker, one is forked."""
    address, launcher = folder / "forks", folder / "python"
    launcher.write_text(f"""#!/bin/sh
case "$*" in
*{_WORKER}*) exec "{sys.executable}" -I -S "{__file__}" "{address}" "$@" ;;
*) exec "{sys.executable}" "$@" ;;
esac
""")
    launcher.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # As Ray sets it for a worker with one CPU, before the worker imports PyTorch.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n"
            yield launcher
        finally:
            server.stdin.close()


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(_launch(sys.argv[1], sys.argv[2:]))
    _serve(sys.argv[1])
