"""The node types of cluster.yaml come when a task asks for them, and go when they are idle.

By Ray's own autoscaler, on one machine: its provider for tests starts a raylet where another would
rent a machine. It gives up one that takes longer than 30 s, and starts another.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.fake_multi_node.node_provider import (
    FAKE_HEAD_NODE_ID,
    FAKE_HEAD_NODE_TYPE,
    FakeMultiNodeProvider,
)

from tests.cluster.machines import ROOT, Machine, make_key, why_not

pytestmark = [pytest.mark.ray, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

# What ray.cluster_utils.AutoscalingCluster would write, had the wheel the file of defaults that the
# provider's own name (fake_multinode) stands for: one from outside needs none.
_REST = {
    "cluster_name": "biovl",
    "provider": {
        "type": "external",
        "module": f"{FakeMultiNodeProvider.__module__}.{FakeMultiNodeProvider.__name__}",
        "head_node_id": FAKE_HEAD_NODE_ID,
        "launch_multiple": True,
        # All nodes share an address; there is nothing to be set up on them.
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "head_node_type": FAKE_HEAD_NODE_TYPE,
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    "cluster_synced_files": [],
    **{
        name: []
        for name in (
            *("initialization_commands", "setup_commands", "head_setup_commands"),
            *("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
        )
    },
}

_ENVIRONMENT = {
    "RAY_FAKE_CLUSTER": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}

_JOB = """
import json, os, time
import ray

ray.init(address="auto", log_to_driver=False)

@ray.remote
def where():
    return os.environ["RAY_NODE_TYPE_NAME"]

def alive():
    return sum(node["Alive"] for node in ray.nodes())

before = alive()
# First alone: a machine that comes for a GPU has CPUs to spare.
ran_on = [ray.get(where.options(num_cpus=1).remote(), timeout=300)]
gpu = [
    where.options(num_cpus=0, num_gpus=1, accelerator_type="L4").remote(),
    where.options(num_cpus=0, num_gpus=8, accelerator_type="H100").remote(),
]
ran_on += ray.get(gpu, timeout=300)
deadline = time.monotonic() + 300
while alive() > before and time.monotonic() < deadline:
    time.sleep(0.5)
print(json.dumps({"before": before, "ran_on": ran_on, "after": alive()}))
"""


def small(node: dict[str, Any]) -> dict[str, Any]:
    """Return a type without its machine: few CPUs, as Ray starts a process for each."""
    resources = {**node["resources"], "CPU": min(node["resources"]["CPU"], 1)}
    return {**node, "node_config": {}, "resources": resources}


def test_machines_come_when_tasks_ask_and_go_when_idle(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    types = {name: small(node) for name, node in config["available_node_types"].items()}
    types[FAKE_HEAD_NODE_TYPE] = types.pop(config["head_node_type"])
    kept = {key: config[key] for key in ("max_workers", "upscaling_speed")}
    file = tmp_path / "autoscaling.json"
    file.write_text(
        json.dumps({**_REST, **kept, "idle_timeout_minutes": 0.05, "available_node_types": types})
    )
    machine = Machine(tmp_path / "machine", make_key(tmp_path / "key"))
    try:
        machine.run("ray", "get-auth-token", "--generate")
        machine.environment |= _ENVIRONMENT
        machine.run("ray", "start", "--head", "--num-cpus=0", f"--autoscaling-config={file}")
        for name in _ENVIRONMENT:
            del machine.environment[name]
        said = machine.run("python", "-c", _JOB)
    finally:
        machine.end()
    assert json.loads(said.strip().splitlines()[-1]) == {
        "before": 1,
        "ran_on": ["cpu_spot", "l4", "h100_spot"],
        "after": 1,
    }
