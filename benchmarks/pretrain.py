"""Measure pretraining against stock open_clip and torchrun, as ratios in one run.

    make bench
    python benchmarks/pretrain.py [--only step,ray,loss,save] [--quick]
    python benchmarks/pretrain.py --only gpu [--recipes biomedclip,bmca_clip] [--ways packed]

On a CPU: our training step against open_clip's, Ray Train against torchrun, our loss against
open_clip's, and for how long a checkpoint holds up a step. On a GPU: every paper's recipe with
random weights beside stock open_clip, without Ray. Work is done in turn, and medians are of ratios
within a round: a shared machine is noisy, ratios of the same minute less so. The last line is JSON.

    python benchmarks/pretrain.py --only gpu --device cpu --tiny      the same on small models
"""

import argparse
import json
import logging
import time
import warnings

import torch
from pretrain_report import machine

PARTS = ("step", "ray", "loss", "save", "gpu")


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", help="of step, ray, loss, save and gpu; else what the machine can do"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all works")
    parser.add_argument("--rounds", type=int, help="of step and ray")
    parser.add_argument("--laws", default="A,B", help="step: of the captions' lengths")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--recipes", default="", help="gpu: with commas; else all")
    parser.add_argument("--ways", default="", help="gpu: those with this in their name")
    parser.add_argument("--batch", type=int, default=1_024, help="gpu: pairs to begin with")
    parser.add_argument("--tiny", action="store_true", help="gpu: models for a CPU")
    given = parser.parse_args()
    device = torch.device(given.device)
    parts = (given.only or ("gpu" if device.type == "cuda" else "step,ray,loss,save")).split(",")
    if set(parts) - set(PARTS):
        parser.error(f"choose from {', '.join(PARTS)}")
    # transformers on captions of one length, torch on names it will change.
    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("torch").setLevel(logging.ERROR)
    found: dict[str, object] = {"machine": machine(device)}
    print(", ".join(f"{name} {value}" for name, value in machine(device).items()))
    started = time.monotonic()
    # Each part is imported when it is run: that on a GPU needs no Ray.
    if "step" in parts:
        from pretrain_step import step

        found["step"] = step(
            given.quick, given.rounds or (2 if given.quick else 3), given.laws.split(",")
        )
    if "ray" in parts:
        from pretrain_ray import ray_train

        found["ray"] = ray_train(given.quick, given.rounds or (1 if given.quick else 4))
    if "loss" in parts:
        from pretrain_loss import loss

        found["loss"] = loss(given.quick)
    if "save" in parts:
        from pretrain_save import save

        found["save"] = save(given.quick, device)
    if "gpu" in parts:
        from pretrain_gpu import chosen, gpu

        found["gpu"] = gpu(
            device,
            names=chosen(given.recipes),
            ways=given.ways,
            batch=8 if given.tiny else given.batch,
            is_tiny=given.tiny,
        )
    print(f"\n{time.monotonic() - started:.0f} s in all\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
