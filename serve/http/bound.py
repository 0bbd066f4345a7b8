"""Who can reach the address that Serve listens on, where there are no keys to ask for."""

import ipaddress

import ray
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

from biovl.core.errors import ConfigError
from serve.http.settings import Auth


async def refuse_strangers(auth: Auth, *, setting: str = "auth.keys_file") -> None:
    """See to it that a service without keys is reached from its own machine only.

    With HAProxy each replica has a port of its own; it is bound to the same address.

    Args:
        auth: Names the file of keys, if there is one.
        setting: What the file's setting is called, for the message.

    Raises:
        ConfigError: If Serve listens to more.
    """
    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    host = (await controller.get_http_config.remote()).host or "0.0.0.0"
    check_bound(auth, host, setting=setting)


def check_bound(auth: Auth, host: str, *, setting: str = "auth.keys_file") -> None:
    """Raise ConfigError if a service without keys is bound to more than the loopback interface."""
    if not auth.are_keys_required and not _is_loopback(host):
        raise ConfigError(
            f"Serve listens on {host} and {setting} is not set: whoever reaches this machine "
            "could ask. Make keys with `python -m serve.auth new` and name their file, or bind "
            "Serve to 127.0.0.1 (http_options.host of serve deploy, --http-host of serve start)"
        )


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address to which a server is bound."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
