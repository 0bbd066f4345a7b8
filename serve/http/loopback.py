"""Refuse to start a service without API keys on an address that other machines can reach."""

import ray
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

from biovl.core.errors import ConfigError
from serve.auth import is_loopback
from serve.http.settings import Auth


async def require_loopback(auth: Auth, *, setting: str = "auth.keys_file") -> None:
    """Require the loopback interface for a service without API keys.

    With HAProxy each replica has its own port; it is bound to the same address.

    Args:
        auth: Authentication settings.
        setting: Name of the setting for the key file, for the message.

    Raises:
        ConfigError: If there are no keys and Serve listens on more than the loopback interface.
    """
    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    host = (await controller.get_http_config.remote()).host or "0.0.0.0"
    check_bound(auth, host, setting=setting)


def check_bound(auth: Auth, host: str, *, setting: str = "auth.keys_file") -> None:
    """Raise ConfigError if a service without keys is bound to more than the loopback interface."""
    if not auth.are_keys_required and not is_loopback(host.strip("[]")):
        raise ConfigError(
            f"Serve listens on {host} and {setting} is not set: every client that reaches this "
            f"machine would have access. Create keys with `python -m serve.auth new` and set "
            f"{setting}, or bind Serve to 127.0.0.1 (http_options.host of serve deploy, "
            "--http-host of serve start)"
        )
