"""One Ray Serve application from a few settings.

serve run serve.app:build model=DIR index=DIR limits.k_max=500
serve deploy serve/config.yaml
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import click
from ray import serve
from ray.serve import Application, Deployment

from biovl.core.errors import BiovlError, ConfigError
from serve.auth import Keys
from serve.http.settings import read_settings
from serve.http.stopping import drain_before_exit
from serve.search.deployments import EncoderDeployment, Gateway, SearchDeployment, Service
from serve.search.release import find
from serve.search.settings import Settings

_HEADROOM = 4_096
"""Requests beyond limits.concurrent_requests that reach a replica: what stands before it would let
them wait without end; the application refuses them at once and says when to come again."""


class Refused(ConfigError, click.ClickException):
    """An application that cannot be. ``serve run`` prints its words, and no traceback."""


def build(settings: Mapping[str, Any]) -> Application:
    """Return the application.

    Args:
        settings: Those of ``serve.search.settings.Settings``. Names may have dots, and values may
            be text, as on a command line: ``{"limits.k_max": "500", "replicas.http": "[1, 4]"}``.

    Raises:
        ConfigError: If one is unknown, missing or not valid (every one is listed), or if the model
            and its index are not there or do not belong together.
    """
    try:
        own = settings_of(settings)
        # Before anything is started; replicas look again, from where they are.
        find(own.model, own.index)
        Keys(own.auth)
    except BiovlError as error:
        raise Refused(str(error)) from error
    # From the first byte of a request to its answer, and the answer's way.
    drain_before_exit(own.limits.body_s + own.limits.timeout_s + 5)
    plain = _with_absolute_paths(own.model_dump(mode="json"))
    # Named after its settings: an application deployed with others begins with what they say.
    token = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]
    replicas, gpus = own.replicas, own.replicas.encoder_gpus
    if own.layout == "fused":
        cpus = max(replicas.http_cpus, replicas.encoder_cpus)
        whole: Application = _http(own, Service, replicas.http, cpus, gpus).bind(plain, token)
        return whole
    encoder = _deployment(
        EncoderDeployment, "Encoder", replicas.encoder, replicas.encoder_cpus, gpus
    ).bind(plain, token)
    search = None
    if own.index is not None:
        search = _deployment(
            SearchDeployment, "Search", replicas.search, replicas.search_cpus, 0
        ).bind(plain, token)
    gateway: Application = _http(own, Gateway, replicas.http, replicas.http_cpus, 0).bind(
        plain, token, encoder, search
    )
    return gateway


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Return settings from plain values or from those of a command line.

    Raises:
        ConfigError: If one is unknown, missing or not valid; every one is listed.
    """
    return read_settings(Settings, values)


def _with_absolute_paths(plain: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose paths mean the same in the working folder of a replica."""

    def absolute(path: str | None) -> str | None:
        if path is None or "://" in path:
            return path
        return os.path.abspath(os.path.expanduser(path))

    plain |= {name: absolute(plain[name]) for name in ("model", "index", "corpus", "cache_folder")}
    plain["auth"]["keys_file"] = absolute(plain["auth"]["keys_file"])
    return plain


def _http(
    settings: Settings, cls: type, replicas: int | tuple[int, int], cpus: float, gpus: float
) -> Any:
    most = settings.limits.concurrent_requests
    return _deployment(cls, cls.__name__, replicas, cpus, gpus).options(
        max_ongoing_requests=most + _HEADROOM,
        max_queued_requests=most,
        # Requests in flight have their time, and the answer its way.
        graceful_shutdown_timeout_s=settings.limits.timeout_s + 5,
    )


def _deployment(
    cls: type, name: str, replicas: int | tuple[int, int], cpus: float, gpus: float
) -> Deployment:
    """Return a deployment whose replicas are replaced one by one, each after its successor."""
    scale: dict[str, Any] = {"num_replicas": replicas}
    if not isinstance(replicas, int):
        least, most = replicas
        scale = {
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                "target_ongoing_requests": 24,
                "upscale_delay_s": 5,
                "downscale_delay_s": 300,
            }
        }
    deployment: Deployment = serve.deployment(name=name)(cls)
    return deployment.options(
        **scale,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        # The application writes a line for each request itself, without its path.
        logging_config={"enable_access_log": False},
        max_ongoing_requests=256,
        max_queued_requests=1_024,
        max_surge_percent=100,
        health_check_period_s=10,
        health_check_timeout_s=60,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=20,
    )
