"""No waiting for drivers that start at the same moment: in tests, each folder has one."""

from biovl.core.leases import acquire_lease


def do_not_wait() -> None:
    """Verify leases of this process at once: SETTLE_S is half a second for each folder of a job."""
    acquire_lease.__wrapped__.__kwdefaults__["settle_s"] = 0.0
