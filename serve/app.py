"""Build the search service as a Ray Serve application.

serve run serve.app:build model=DIR index=DIR limits.k_max=500
serve deploy serve/config.yaml
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application, Deployment

from biovl.core.errors import BiovlError
from serve.auth import Keys
from serve.http.settings import ApplicationError, read_settings
from serve.http.stopping import drain_before_exit
from serve.search.deployments import EncoderDeployment, Gateway, SearchDeployment, Service
from serve.search.release import find
from serve.search.settings import Settings

_HEADROOM = 4_096
"""Requests that reach a replica beyond limits.concurrent_requests. Serve would queue them without a
limit; the application rejects them immediately with Retry-After."""


def build(settings: Mapping[str, Any]) -> Application:
    """Return the search service for Ray Serve.

    Args:
        settings: Fields of ``serve.search.settings.Settings``. Names may contain dots and values
            may be strings, as on a command line:
            ``{"limits.k_max": "500", "replicas.http": "[1, 4]"}``.

    Raises:
        ConfigError: If settings are unknown, missing or invalid (all are listed), or if the model
            or its index does not exist, or the index is of another model.
    """
    try:
        own = settings_of(settings)
        # Fail before anything is started; replicas check again on their nodes.
        find(own.model, own.index)
        Keys(own.auth)
    except BiovlError as error:
        raise ApplicationError(str(error)) from error
    drain_before_exit(own.limits.drain_s)
    plain = _with_absolute_paths(own.model_dump(mode="json"))
    # Part of the coordinator's name: a deployment with other settings starts from those settings.
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
    """Return settings from Python values or from the strings of a command line.

    Raises:
        ConfigError: If settings are unknown, missing or invalid; the message lists all of them.
    """
    return read_settings(Settings, values)


def _with_absolute_paths(plain: dict[str, Any]) -> dict[str, Any]:
    """Return settings with absolute paths: replicas have another working directory."""

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
        graceful_shutdown_timeout_s=settings.limits.drain_s,
    )


def _deployment(
    cls: type, name: str, replicas: int | tuple[int, int], cpus: float, gpus: float
) -> Deployment:
    """Return a deployment with rolling updates: each new replica starts before an old one stops."""
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
        # The application writes its own access log, without paths.
        logging_config={"enable_access_log": False},
        max_ongoing_requests=256,
        max_queued_requests=1_024,
        max_surge_percent=100,
        health_check_period_s=10,
        health_check_timeout_s=60,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=20,
    )
