"""Program that runs alongside Ray on a spot machine: drains the node before AWS reclaims it.

python -m biovl.runtime.reclaim           started by cluster.yaml on every worker machine

AWS announces the end of a spot machine two minutes ahead, in the instance's metadata
(``spot/instance-action``). Ray's drain announces it to the cluster: nothing new is placed on the
node, and training saves a checkpoint (``ray_train.is_preempted``). Without it, a reclaimed machine
is a crash, and the work since the last checkpoint is lost.

Where a SIGTERM is the notice (Kubernetes, Slurm's ``--signal=TERM@120``), ``ray start --block``
drains by itself, for at most ``RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S`` seconds.
"""

import argparse
import http.client
import json
import logging
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

METADATA_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""Environment variable with the address of the metadata service, as in AWS's own tools."""

_METADATA = "http://169.254.169.254"
_TOKEN_S = 21_600
_TIMEOUT_S = 2.0
_DRAIN_TIMEOUT_S = 60.0

# The service answers for the machine that asks: through a proxy, for the proxy's.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_log = logging.getLogger(__name__)


class SpotNotice:
    """AWS's notice that this machine will be interrupted (instance metadata service, version 2).

    Args:
        address: Address of the service; None: that of ``AWS_EC2_METADATA_SERVICE_ENDPOINT``, or
            the link-local one.
    """

    def __init__(self, address: str | None = None) -> None:
        found = address or os.environ.get(METADATA_VARIABLE) or _METADATA
        self._address = found.rstrip("/")
        self._token, self._token_ends = "", 0.0

    def seconds_left(self) -> float | None:
        """Return the seconds until the machine is interrupted; None if there is no notice.

        Raises:
            OSError: If the service does not respond.
            http.client.HTTPException: If its response is not valid HTTP, or is truncated.
            ValueError: If its response cannot be parsed.
        """
        if time.monotonic() > self._token_ends:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            self._token = self._request("PUT", "api/token", headers)
            self._token_ends = time.monotonic() + _TOKEN_S / 2
        headers = {"X-aws-ec2-metadata-token": self._token}
        try:
            action = json.loads(self._request("GET", "meta-data/spot/instance-action", headers))
        except urllib.error.HTTPError as error:
            if error.code == 401:
                self._token_ends = 0.0
            if error.code in (401, 404):
                return None
            raise
        try:
            ends = datetime.strptime(action["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except (KeyError, TypeError) as error:
            raise ValueError(f"spot/instance-action has no time: {action}") from error
        return max((ends - datetime.now(UTC)).total_seconds(), 0.0)

    def _request(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(
            f"{self._address}/latest/{path}", method=method, headers=headers
        )
        with _DIRECT.open(request, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read().decode()
            return text


def drain(reason: str, seconds: float, node_id: str | None = None) -> None:
    """Make Ray drain a node before its machine is terminated.

    Args:
        reason: Shown by Ray's dashboard and logs.
        seconds: Seconds until the machine is terminated.
        node_id: The node, in hexadecimal; None: the node of this machine.

    Raises:
        RuntimeError: If Ray rejects the request or does not respond.
    """
    command = [
        *(str(Path(sys.executable).with_name("ray")), "drain-node"),
        *("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", reason),
        *("--deadline-remaining-seconds", str(int(seconds))),
        *(() if node_id is None else ("--node-id", node_id)),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_DRAIN_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"ray drain-node: no answer within {_DRAIN_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise RuntimeError(f"ray drain-node: {(done.stderr or done.stdout).strip()[-2_000:]}")


def watch(
    notice: SpotNotice,
    drained: Callable[[float], None],
    *,
    every_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for AWS's notice, and drain the node once.

    Args:
        notice: Polled at intervals, which grow up to sixfold while the service does not respond.
        drained: Called with the seconds left; retried if it raises RuntimeError.
        every_s: Seconds between two requests.
        sleep: Waits for a number of seconds.
    """
    pause_s = every_s
    while True:
        sleep(pause_s)
        try:
            left = notice.seconds_left()
            if left is not None:
                drained(left)
                return
            pause_s = every_s
        except RuntimeError as error:
            _log.warning("%s; tries again", error)
        except (OSError, ValueError, http.client.HTTPException) as error:
            _log.info("no answer of the metadata service: %s", error)
            pause_s = min(pause_s * 2, 6 * every_s)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two questions")
    parser.add_argument("--node-id", help="the node to drain (default: that of this machine)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    def drained(seconds: float) -> None:
        _log.info("spot interruption in %.0f s: drains this node", seconds)
        drain("spot interruption", seconds, options.node_id)

    watch(SpotNotice(), drained, every_s=options.every)


if __name__ == "__main__":
    main()
