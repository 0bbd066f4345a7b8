"""Serve a model and an index over HTTP, with a web page, on this machine.

biovl serve model=DIR index=DIR
biovl serve model=DIR index=DIR limits.k_max=500 replicas.encoder_gpus=1

The same as `serve run serve.app:build …`, of Ray Serve; Ctrl-C ends it. Settings are those of
serve.search.settings and serve.http.settings.
"""

import argparse
import importlib.util
import socket
import sys


def main() -> None:
    """Run the search service."""
    run_application("serve.app:build", __doc__)


def run_application(builder: str, about: str | None) -> None:
    """Run an application of Ray Serve until it is interrupted.

    Args:
        builder: Function that builds it, ``module:function``.
        about: Description of the command.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", metavar="NAME=VALUE", nargs="+", help="a setting")
    parser.parse_known_args()
    if importlib.util.find_spec("fastapi") is None:
        parser.exit(
            2, "serving needs the packages of the extra biovl[serve]: see docs/install.md\n"
        )
    if busy := port_in_use():
        parser.exit(2, f"{busy}\n")
    from ray.serve.scripts import cli

    cli.main(args=["run", builder, *sys.argv[1:]], prog_name="serve")


def port_in_use(port: int = 8000) -> str | None:
    """Return a message if another process listens on the port of Ray Serve; None if it is free.

    Not checked on a running Ray cluster: Ray Serve may already use the port for this application.
    """
    from biovl.runtime.connection import running_ray

    if running_ray() is not None:
        return None
    with socket.socket() as taken:
        # As servers do: a port whose connections were just closed is free.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError as error:
            return (
                f"127.0.0.1:{port} cannot be used: {error.strerror}. End the process that listens "
                "there; http_options of a configuration (serve/config.yaml) set another port"
            )
    return None
