"""What Python runs first where this folder is on PYTHONPATH: a worker of Ray has itself forked.

``tests/worker_forks.py`` puts it there. Nothing else differs: a worker has Ray's arguments,
variables, folder and log files.
"""

import os
import sys


def _launch(address: str) -> None:
    """Have a worker forked in place of this process, which ends as it does, and it with this one.

    Where nobody listens any more, this process goes on to be the worker.
    """
    import json
    import socket

    begin = json.dumps([sys.orig_argv[1:], dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except OSError:
            return
        socket.send_fds(connection, [len(begin).to_bytes(4, "big")], [1, 2])
        connection.sendall(begin)
        status = connection.recv(1)
    os._exit(status[0] if status else 1)


if (
    any(os.path.basename(word) == "default_worker.py" for word in sys.orig_argv)
    and (address := os.environ.get("BIOVL_TESTS_WORKER_FORKS")) is not None
):
    _launch(address)
