"""cluster.yaml as Ray and AWS read it: against a local server that answers as AWS does (moto)."""

import gzip
import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
FILES = ("cluster.yaml", "cluster-local.yaml")


def read(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return config


def commands(name: str) -> str:
    config = read(name)
    return "\n".join(line for key in config if "commands" in key for line in config[key])


@pytest.fixture(scope="module")
def instance_types() -> dict[str, dict[str, Any]]:
    """What EC2 says of its instance types: moto keeps its answers to DescribeInstanceTypes."""
    spec = importlib.util.find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    table = Path(spec.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    types: dict[str, dict[str, Any]] = json.loads(gzip.decompress(table.read_bytes()))
    return types


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_the_file(name: str) -> None:
    validate_config(prepare_config(read(name)))


def test_every_type_has_the_resources_of_its_machine(
    instance_types: dict[str, dict[str, Any]],
) -> None:
    config = read("cluster.yaml")
    for name, node in config["available_node_types"].items():
        if name == config["head_node_type"]:
            assert node["resources"] == {"CPU": 0}, "no task runs where drivers do"
            continue
        machine = instance_types[node["node_config"]["InstanceType"]]
        gpus = machine.get("GpuInfo", {}).get("Gpus", [])
        expected = {"CPU": machine["VCpuInfo"]["DefaultVCpus"]}
        if gpus:
            kind = gpus[0]["Name"]
            expected |= {"GPU": gpus[0]["Count"], f"accelerator_type:{kind}": 1}
            assert node["labels"]["ray.io/accelerator-type"] == kind
        stated = {key: count for key, count in node["resources"].items() if key != "a100_80gb"}
        assert stated == expected, name


def test_the_large_a100_has_80_gb(instance_types: dict[str, dict[str, Any]]) -> None:
    types = read("cluster.yaml")["available_node_types"]
    memory = {
        name: instance_types[node["node_config"]["InstanceType"]]["GpuInfo"]["Gpus"][0]
        for name, node in types.items()
        if name.startswith("a100")
    }
    gb = {name: gpu["MemoryInfo"]["SizeInMiB"] // 1024 for name, gpu in memory.items()}
    assert gb == {"a100_spot": 40, "a100": 40, "a100_80gb": 80}


def test_only_the_head_runs_before_a_job_asks() -> None:
    types = read("cluster.yaml")["available_node_types"]
    assert all(node.get("min_workers", 0) == 0 for node in types.values())


def test_spot_machines_are_asked_for_first() -> None:
    types = read("cluster.yaml")["available_node_types"]
    for spot, full in (("cpu_spot", "cpu"), ("a100_spot", "a100"), ("h100_spot", "h100")):
        assert types[spot]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
        assert "InstanceMarketOptions" not in types[full]["node_config"]
        assert types[spot]["priority"] > types[full]["priority"]


@pytest.mark.parametrize("name", FILES)
def test_everything_a_job_needs_is_on_every_machine(name: str) -> None:
    mounts = read(name)["file_mounts"]
    for folder in ("platform", "pipelines", "serve", "tune"):
        assert mounts[f"~/biovl/{folder}"] == folder
    for path in mounts.values():
        assert path.startswith("~") or (ROOT / path).exists()
    assert "cd ~/biovl && make setup" in commands(name)
    assert "cd ~/biovl && ray start --head" in commands(name)
    assert re.search(r"cd ~/biovl && for wait in [^;]*; do ray start --address", commands(name))


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_the_set_up_reads_is_on_every_machine(name: str, tmp_path: Path) -> None:
    dry = ["make", "--dry-run", "--always-make", "setup", f"VENV={tmp_path}"]
    recipe = subprocess.run(dry, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    read_by_it = {word for word in re.split(r"[\s'\"]+", recipe) if (ROOT / word).is_file()}
    mounted = set(read(name)["file_mounts"].values())
    assert {"install.py", "requirements.txt"} <= read_by_it
    assert read_by_it | {"Makefile", "pyproject.toml"} <= mounted


def test_worker_machines_watch_for_their_interruption() -> None:
    starts = read("cluster.yaml")["worker_start_ray_commands"]
    assert any("python -m biovl.runtime.reclaim" in line and line.endswith("&") for line in starts)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("failures", [0, 2, 9])
def test_a_worker_whose_start_fails_starts_again(name: str, failures: int, tmp_path: Path) -> None:
    (tmp_path / "biovl").mkdir()
    (tmp_path / "bin").mkdir()
    scripts = {
        # Fails when it is called first.
        "ray": f'echo "$@" >> ~/calls; test "$(wc -l < ~/calls)" -gt {failures}',
        "sleep": "true",
    }
    for program, script in scripts.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    (start,) = (c for c in read(name)["worker_start_ray_commands"] if "ray start" in c)
    env = {
        **{"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        **{"RAY_HEAD_IP": "10.0.0.1", "SPILL": str(tmp_path / "spill")},
    }
    done = subprocess.run(["bash", "-c", start], env=env, check=False)
    assert done.returncode == (failures > 5)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == min(failures + 1, 5)
    assert len(set(calls)) == 1
    assert "--address=10.0.0.1:6379" in calls[0]


@pytest.mark.parametrize("name", FILES)
def test_ray_starts_with_what_serve_wants_to_be_started_with(name: str) -> None:
    said = (ROOT / "serve" / "config.yaml").read_text()
    wanted = re.findall(r"^#   (RAY_\w+=(?:\"[^\"]*\"|\S+))", said, re.MULTILINE)
    assert len(wanted) > 5
    missing = [setting for setting in wanted if setting not in commands(name)]
    assert missing == []


@pytest.mark.parametrize("name", FILES)
def test_only_who_holds_the_token_gets_in_and_the_file_does_not_hold_it(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "export RAY_AUTH_MODE=token" in commands(name)
    assert read(name)["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert not re.search(r"AKIA|aws_secret|RAY_AUTH_TOKEN=|PRIVATE KEY", text)
    starts = [line for line in commands(name).splitlines() if "ray start --head" in line]
    assert all("--dashboard-host=127.0.0.1" in line for line in starts)


def test_three_places_are_to_be_edited() -> None:
    text = (ROOT / "cluster.yaml").read_text()
    assert re.findall(r"# EDIT (\d) of 3", text) == ["1", "2", "3"]


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """EC2 and IAM with the profile that docs/cluster.md tells users to make."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    (tmp_path / ".ssh").mkdir()  # where Ray puts the key it makes
    settings = {
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-west-2",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    boto3.client("iam").create_instance_profile(InstanceProfileName="biovl")
    yield boto3.client("ec2")
    server.stop()


def test_aws_starts_machines_of_every_kind_as_the_file_says(aws: Any, tmp_path: Path) -> None:
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.commands import _bootstrap_config

    config = read("cluster.yaml")
    (image, *_) = aws.describe_images(Owners=["amazon"])["Images"]
    for node in config["available_node_types"].values():
        assert node["node_config"]["ImageId"] == "ami-00000000000000000"
        node["node_config"]["ImageId"] = image["ImageId"]
    # EFA as docs/cluster.md has it: a template with the interfaces.
    subnet = aws.describe_subnets()["Subnets"][0]
    group = aws.create_security_group(
        GroupName="biovl-efa", Description="EFA", VpcId=subnet["VpcId"]
    )["GroupId"]
    cards = [
        {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": "efa"}
        | {"SubnetId": subnet["SubnetId"], "Groups": [group]}
        for card in range(32)
    ]
    aws.create_launch_template(
        LaunchTemplateName="biovl-p5", LaunchTemplateData={"NetworkInterfaces": cards}
    )
    template = {"LaunchTemplateName": "biovl-p5"}
    config["available_node_types"]["h100"]["node_config"]["LaunchTemplate"] = template

    resolved = _bootstrap_config(config, no_config_cache=True)
    types = resolved["available_node_types"]
    assert types["h100"]["node_config"]["SecurityGroupIds"] == [group] * 32
    assert len(types["cpu_spot"]["node_config"]["SubnetIds"]) == 3, "one for each zone"
    # Memory is what EC2 says of the machine, less what Ray keeps for objects.
    assert 0.6 * 2**40 < types["a100"]["resources"]["memory"] < 1.125 * 2**40

    provider = AWSNodeProvider(resolved["provider"], resolved["cluster_name"])
    # moto does not start machines with several interfaces.
    for name in set(types) - {"h100"}:
        tags = {"ray-node-type": "worker", "ray-user-node-type": name}
        provider.create_node(dict(types[name]["node_config"]), tags, 1)
    started = {}
    for reservation in aws.describe_instances()["Reservations"]:
        for machine in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
            started[tags["ray-user-node-type"]] = machine
            assert machine["IamInstanceProfile"]["Arn"].endswith("/biovl")
    spot = {name for name, machine in started.items() if "InstanceLifecycle" in machine}
    assert spot == {"cpu_spot", "cpu_spot_other", "a100_spot", "h100_spot"}
    assert started["a100_80gb"]["InstanceType"] == "p4de.24xlarge"

    # From outside, nothing but SSH: neither dashboard nor service.
    groups = aws.describe_security_groups(GroupIds=types["head"]["node_config"]["SecurityGroupIds"])
    open_to_all = [
        rule["FromPort"]
        for rule in groups["SecurityGroups"][0]["IpPermissions"]
        if rule["IpRanges"]
    ]
    assert open_to_all == [22]
