"""Graceful shutdown of ``serve run``: requests in flight are completed at SIGTERM or Ctrl-C.

Ray does not do this by itself: its C++ handler of SIGTERM aborts the process, and
``serve.shutdown``, which follows Ctrl-C, kills the proxies that responses still have to pass. Here
the HTTP replicas are drained first, while encoders, indexes and proxies keep running.
"""

import logging
import queue
import signal
import threading
import time
from types import FrameType

import click
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_S = 0.1


def drain_before_exit(wait_s: float) -> None:
    """Make ``serve run`` drain the application that is being built before it exits.

    No effect outside ``serve run``: builders are also called by ``serve deploy``, by ``serve run``
    with a config file (both in a cluster worker) and by tests.

    Args:
        wait_s: Maximum seconds for requests in flight to complete; after that they are aborted.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.command.name == "run" and context.params.get("blocking"):
        _Ending(context.params["name"], wait_s).watch()


class _Ending:
    """Drain an application at the first signal; the second ends ``serve run`` immediately."""

    def __init__(self, application: str, wait_s: float) -> None:
        self._application = application
        self._wait_s = wait_s
        # SimpleQueue.put() is reentrant, as signal handlers require.
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._is_ending = False

    def watch(self) -> None:
        """Install the signal handlers after Ray has started: Ray replaces earlier handlers."""
        signal.signal(signal.SIGUSR1, self._replace_handlers)
        threading.Thread(target=self._run, name="drain", daemon=True).start()

    def _run(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not ray.is_initialized():
            time.sleep(_POLL_S)
        # Python sets handlers in the main thread only.
        signal.pthread_kill(main, signal.SIGUSR1)
        name = signal.Signals(self._signals.get()).name
        log.warning("%s: answering the requests in flight, for at most %g s", name, self._wait_s)
        try:
            _drain(self._application, self._wait_s)
        finally:
            # `serve run` ends even if draining failed.
            if not self._is_ending:
                signal.pthread_kill(main, signal.SIGINT)

    def _replace_handlers(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        for one in _SIGNALS:
            signal.signal(one, self._on_first)

    def _on_first(self, number: int, frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, self._on_second)
        self._signals.put(number)

    def _on_second(self, number: int, frame: FrameType | None) -> None:
        self._is_ending = True
        # `serve run` shuts Serve down at this.
        raise KeyboardInterrupt


def _drain(application: str, wait_s: float) -> None:
    """Complete the requests in flight of an application, then delete it."""
    until = time.monotonic() + wait_s
    try:
        status = serve.status().applications.get(application)
        if status is None:
            return
        ingress = serve.get_app_handle(application)
        replicas = status.deployments.get(ingress.deployment_name)
        if replicas is None or "RUNNING" not in replicas.replica_states:
            return
        while True:
            left_s = max(0.0, until - time.monotonic())
            try:
                ended = ingress.broadcast("drain").results(timeout_s=left_s, return_exceptions=True)
                break
            # A new handle has not received the list of replicas yet.
            except DeploymentUnavailableError:
                if not left_s:
                    raise
                time.sleep(_POLL_S)
        for error in ended:
            if isinstance(error, TimeoutError):
                raise error
            if error is not None:
                log.warning("a replica ended before its requests in flight: %r", error)
        # A replica exits when its responses have reached the proxies.
        serve.delete(application)
    except TimeoutError:
        log.warning("requests still in flight after %g s are aborted", wait_s)
    except (RayError, RayServeException) as error:
        log.warning("requests in flight may be aborted: %r", error)
