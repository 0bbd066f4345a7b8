"""A service in a process of its own that reports what it opens and connects to.

``python watched_service.py SOCKET_FD REPORT_FD LEAKS``: answers on a socket that is listening
already, and writes an audit event a line. Each image that comes in is leaked by the next of LEAKS
(``file,log``), for the tests to see that they would notice.
"""

import base64
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
    "socket.sendto",
    "socket.sendmsg",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "tempfile.mkstemp",
    "tempfile.mkdtemp",
    "urllib.Request",
    "http.client.connect",
    "sqlite3.connect",
    "shutil.copyfile",
    "mmap.__new__",
)


def report_to(fd: int) -> None:
    """Write every event that could take data out of the process."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND)
            if not writes and not (isinstance(mode, str) and set(mode) & set("wax+")):
                return
            arguments = (str(path),)
        os.write(fd, json.dumps([event, repr(arguments)[:300]]).encode() + b"\n")

    sys.addaudithook(hook)


def leaking_engine(kinds: Sequence[str]) -> Any:
    """Return an engine that does with each image the next of some things that it must not."""
    from tests.serve.search.small_engine import SmallEngine

    left = iter(kinds)

    class Leaking(SmallEngine):
        kind = ""

        async def prepare(self, images: Sequence[bytes]) -> Any:
            self.kind = next(left, "")
            prepared = await super().prepare(images)
            leak(self.kind, images[0], prepared.pixels[0].tobytes())
            return prepared

        async def embed_images(self, prepared: Any) -> Any:
            embedded = await super().embed_images(prepared)
            if self.kind == "vector":
                logging.getLogger().error("vector %s", embedded.rows_ND[0].tolist())
            return embedded

    return Leaking()


def leak(kind: str, image: bytes, crop: bytes) -> None:
    """Let an image out."""
    match kind:
        case "file":
            Path(tempfile.gettempdir(), "kept.bin").write_bytes(image)
        case "unlinked":
            with tempfile.TemporaryFile() as file:
                file.write(image)
        case "crop":
            Path(tempfile.gettempdir(), "crop.npy").write_bytes(crop)
        case "log":
            logging.getLogger().error("got %s", base64.b64encode(image).decode())
        case "error":
            raise RuntimeError(repr(image))
        case "socket":
            address = ("127.0.0.1", int(os.environ["COLLECTOR"]))
            with socket.create_connection(address) as connection:
                connection.sendall(image)


def main() -> None:
    """Serve until terminated."""
    import uvicorn

    from tests.serve.search.small_engine import make_app

    socket_fd, report_fd, leaks = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    logging.basicConfig(level=logging.DEBUG, filename="all.log")
    app = make_app(leaking_engine(leaks))
    config = uvicorn.Config(app, fd=socket_fd, log_level="trace")
    report_to(report_fd)
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
