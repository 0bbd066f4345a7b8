"""Deploy a file of ``serve deploy`` on a Ray of its own: ``python deployed_config.py CONFIG``.

Prints ``running`` when all deployments are healthy, or what is wrong; ends with its standard input.
"""

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[3] / "platform")]


def main() -> None:
    """Deploy, wait for the end of standard input, and shut down."""
    import ray
    import yaml
    from ray import serve
    from ray.serve._private.api import serve_start
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(yaml.safe_load(Path(sys.argv[1]).read_text()))
    # Resources are only counted: those of a head, of a GPU node and of CPU nodes.
    ray.init(address="local", num_cpus=64, num_gpus=1, include_dashboard=False)
    client = serve_start(
        http_options={**config.http_options.model_dump(), "location": config.proxy_location}
    )
    client.deploy_apps(config)
    (name,) = (one.name for one in config.applications)
    while True:
        status = serve.status().applications.get(name)
        if status is not None and status.status in ("RUNNING", "DEPLOY_FAILED", "UNHEALTHY"):
            break
        time.sleep(0.5)
    print("running" if status.status == "RUNNING" else repr(status), flush=True)  # noqa: T201
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
