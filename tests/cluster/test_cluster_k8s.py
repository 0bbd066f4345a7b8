"""cluster-k8s.yaml as Ray's autoscaler on Kubernetes reads it, with the fields KubeRay has."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

ROOT = Path(__file__).parents[2]

# The fields of ray.io/v1 that we may use: docs.ray.io/en/master/kuberay/references/api.html. An
# unknown one is refused by `kubectl apply`. The CRD itself (900 kB) is in no registry of Python's.
CLUSTER = {
    *("authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions"),
    *("headGroupSpec", "headServiceAnnotations", "managedBy", "rayVersion"),
    *("suspend", "upgradeStrategy", "workerGroupSpecs"),
}
AUTOSCALER = {
    *("args", "command", "env", "envFrom", "idleTimeoutSeconds", "image", "imagePullPolicy"),
    *("resources", "securityContext", "upscalingMode", "version", "volumeMounts"),
}
HEAD = {
    *("enableIngress", "headService", "ingressOptions", "labels", "rayStartParams", "resources"),
    *("serviceType", "template"),
}
GROUP = {
    *("groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts"),
    *("priority", "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend"),
    "template",
}


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "cluster-k8s.yaml").read_text())
    return read


def test_kuberay_has_every_field(cluster: dict[str, Any]) -> None:
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec.keys() <= CLUSTER
    assert spec["autoscalerOptions"].keys() <= AUTOSCALER
    assert spec["headGroupSpec"].keys() <= HEAD
    for group in spec["workerGroupSpecs"]:
        assert group.keys() <= GROUP
        assert {"groupName", "minReplicas", "maxReplicas", "template"} <= group.keys()
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_the_version_of_ray_is_the_one_we_pin(cluster: dict[str, Any]) -> None:
    pinned = [
        line.split("==")[1].split()[0]
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.startswith(("ray==", "ray["))
    ]
    assert pinned == [cluster["spec"]["rayVersion"]]


def test_the_autoscaler_sees_the_types_of_cluster_yaml(cluster: dict[str, Any]) -> None:
    placed = {**cluster, "metadata": {**cluster["metadata"], "namespace": "default"}}
    seen = _derive_autoscaling_config_from_ray_cr(placed)["available_node_types"]
    types = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    assert seen["headgroup"]["resources"]["CPU"] == 0
    for name, node in seen.items():
        if name == "headgroup":
            continue
        ours = types[name.replace("-", "_")]
        assert node["max_workers"] == ours["max_workers"]
        assert node["min_workers"] == 0
        assert node["resources"].get("GPU") == ours["resources"].get("GPU")
        # Kubernetes keeps a few CPUs of a machine for itself.
        assert 0.87 <= node["resources"]["CPU"] / ours["resources"]["CPU"] < 1
        kinds = [key for key in ours["resources"] if key.startswith("accelerator_type")]
        assert [key for key in node["resources"] if key.startswith("accelerator_type")] == kinds
        wanted = {key: ours["labels"][key] for key in node["labels"] if key in ours["labels"]}
        assert {key: node["labels"][key] for key in wanted} == wanted
    assert seen["cpu-spot"]["priority"] > seen["cpu"]["priority"]


def test_pods_run_the_repository_as_machines_do(cluster: dict[str, Any]) -> None:
    spec = cluster["spec"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        (container,) = group["template"]["spec"]["containers"]
        assert container["workingDir"] == "/opt/biovl"
        assert container["resources"]["requests"] == container["resources"]["limits"]
        names = {variable["name"] for variable in container["env"]}
        assert {"RAY_SERVE_ENABLE_HA_PROXY", "NCCL_SOCKET_IFNAME"} <= names
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
