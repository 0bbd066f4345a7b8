"""All checks and measurements that need a GPU, in 40 minutes, resumable; writes docs/gpu.md.

    python benchmarks/gpu_day.py OUT                      every step that OUT has no result of
    python benchmarks/gpu_day.py OUT --again memory train
    python benchmarks/gpu_day.py OUT --tiny --device cpu  small models, to see that all works

Each step runs in a process of its own, in the order of its worth, and writes OUT/STEP.json; its log
is OUT/STEP.txt, and what it had found when it was ended is in OUT/STEP.partial.json. Steps that
failed, or did not fit into --minutes, run again with the same command. Only ``jobs`` needs Ray;
without it, that step is left out. No weights are downloaded: speed and memory do not depend on
them.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Result = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A part of the day."""

    run: Callable[["Day"], Result]
    minutes: float
    """Expected time; the step is ended after three times as long."""


@dataclass(frozen=True)
class Day:
    """What a step needs to know."""

    out: Path
    device: str
    is_tiny: bool
    step: str

    def keep(self, found: Result) -> None:
        """Write what a step has found so far."""
        _write(self.out / f"{self.step}.partial.json", found)


# --- steps: each imports what it needs ------------------------------------------------------------


def machine(day: Day) -> Result:
    """Name, memory and driver of the GPU, and versions."""
    import torch
    from pretrain_report import machine as describe

    found = describe(torch.device(day.device))
    if day.device == "cuda":
        own = torch.cuda.get_device_properties(0)
        found |= {"memory_gib": own.total_memory / 2**30, "cuda": torch.version.cuda}
        found |= {"capability": f"{own.major}.{own.minor}", "processors": own.multi_processor_count}
        found |= {"c_compiler": shutil.which("cc") or "none"}
        try:
            torch.compile(lambda rows: rows * 2)(torch.ones(64, device=day.device))
            found["compiles"] = True
        except Exception as error:  # whatever it is: the day goes on, without compiled steps
            found["compiles"] = repr(error)[:500]
    return found


_TEXTS = {"biomedclip": "BERT", "bmca_clip": "CLIP", "bmc_longclip_512": "ModernBERT"}


def agree(day: Day) -> Result:
    """Loss and gradients of packed captions equal those of padded ones, up to bfloat16."""
    import torch
    from pretrain_gpu import settings_of
    from pretrain_peers import Ours, batch_of, build, copied, difference

    from biovl.pretrain.config import OptimConfig, StepConfig

    found: Result = {}
    device = torch.device(day.device)
    for recipe, text in _TEXTS.items():
        torch.manual_seed(0)
        settings = {**settings_of(recipe, is_tiny=day.is_tiny), "text_dropout": 0.0}
        built = build(settings)
        batches = [batch_of(built, "B", 8 if day.is_tiny else 32)]

        def gradient(
            text: str, precision: str, built: Any = built, batches: Any = batches
        ) -> tuple[float, dict[str, Any]]:
            step = StepConfig(text=text, precision=precision, compile=False)
            return Ours(copied(built), batches, OptimConfig(), step, device).gradient()

        exact = gradient("padded", "fp32")
        padded, packed = gradient("padded", "bf16"), gradient("packed", "bf16")
        found[text] = {
            "loss": exact[0],
            "loss_padded": padded[0],
            "loss_packed": packed[0],
            "padded_from_fp32": difference(padded[1], exact[1]),
            "packed_from_fp32": difference(packed[1], exact[1]),
        }
        # Neither is the truth: both are as far from float32, or packing is wrong.
        found[text]["equal"] = found[text]["packed_from_fp32"] < 1.5 * (
            found[text]["padded_from_fp32"] + 1e-6
        )
    return found


def speed(recipe: str) -> Callable[[Day], Result]:
    """Return a step: pairs/s of a recipe, eager and compiled, and of stock open_clip."""

    def measure(day: Day) -> Result:
        import torch
        from pretrain_gpu import DAY, gpu

        batch = 8 if day.is_tiny else 1_024
        device = torch.device(day.device)
        found = gpu(
            *(device,),
            names=[recipe],
            ways=DAY,
            batch=batch,
            is_tiny=day.is_tiny,
            loss=False,
            keep=lambda found: day.keep(found[recipe]),
        )
        return dict(found[recipe])

    return measure


def others(day: Day) -> Result:
    """Pairs/s of every other recipe, packed, eager and compiled."""
    import torch
    from pretrain_gpu import RECIPES as MAIN
    from pretrain_gpu import gpu

    from biovl.pretrain import config as pretrain_config

    names = [name for name in pretrain_config.RECIPES if name not in (*MAIN, "tiny")]
    seen: dict[str, str] = {}
    for name in names:
        # Recipes that differ in data or epochs alone have the same step.
        model = pretrain_config.RECIPES[name]().model.settings
        shape = {k: v for k, v in model.items() if not k.endswith("weights")}
        seen.setdefault(json.dumps(shape, sort_keys=True, default=str), name)
    main = {
        json.dumps(
            {k: v for k, v in m.items() if not k.endswith("weights")}, sort_keys=True, default=str
        )
        for m in (pretrain_config.RECIPES[name]().model.settings for name in MAIN)
    }
    chosen = [name for shape, name in seen.items() if shape not in main]
    return gpu(
        torch.device(day.device),
        names=chosen[:1] if day.is_tiny else chosen,
        ways=("ours, packed", "ours, packed, compile"),
        batch=8 if day.is_tiny else 256,
        is_tiny=day.is_tiny,
        loss=False,
        keep=day.keep,
    )


def _expected_gib(recipe: str, cases: Sequence[tuple[int, int]], *, is_tiny: bool) -> list[float]:
    """Return what the dry run predicts for pairs in micro-batches."""
    from pretrain_gpu import settings_of
    from pretrain_peers import build, lengths

    from biovl.pretrain import memory as predicting

    built = build(settings_of(recipe, is_tiny=is_tiny))
    info = predicting.model_info(built)
    expected = [
        predicting.memory(
            info,
            batch=pairs,
            local=pairs,
            micro_batch=micro,
            tokens=float(lengths("B", pairs, built.context_length).mean()),
            tile=1_024,
            compute="packed",
            autocast=True,
            checkpointed=False,
        )
        for pairs, micro in cases
    ]
    # The reserve is outside of PyTorch's allocator.
    return [(one.total - one.reserve) / 2**30 for one in expected]


def memory(day: Day) -> Result:
    """Peak memory of a step next to what the dry run predicts, for several micro-batches."""
    import gc
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import torch
    from pretrain_gpu import settings_of
    from pretrain_peers import Ours, batch_of, build, copied

    from biovl.pretrain import gpu_settings
    from biovl.pretrain.config import OptimConfig, StepConfig

    device = torch.device(day.device)
    found: Result = {}
    cases = ((16, 16), (16, 8)) if day.is_tiny else ((64, 64), (192, 192), (512, 64))
    # The prediction is made on a fake GPU, which must not meet the real one.
    with ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=gpu_settings.hide_gpus,
    ) as process:
        expected = {
            recipe: process.submit(_expected_gib, recipe, cases, is_tiny=day.is_tiny)
            for recipe in _TEXTS
        }
        expected_gib = {recipe: future.result() for recipe, future in expected.items()}
    for recipe in _TEXTS:
        built = build(settings_of(recipe, is_tiny=day.is_tiny))
        for (pairs, micro), gib in zip(cases, expected_gib[recipe], strict=True):
            batch = batch_of(built, "B", pairs)
            step = StepConfig(precision="bf16", micro_batch=micro, compile=False)
            row: Result = {"pairs": pairs, "micro_batch": micro, "expected_gib": gib}
            try:
                side = Ours(copied(built), [batch], OptimConfig(), step, device)
                side.steps(2)
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(device)
                    side.steps(2)
                    row["peak_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
                    row["reserved_gib"] = torch.cuda.max_memory_reserved(device) / 2**30
            except torch.OutOfMemoryError:
                row["out_of_memory"] = True
            side = None
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            found[f"{recipe}, {pairs} in {micro}"] = row
            day.keep(found)
    return found


def train(day: Day) -> Result:
    """Train to a checkpoint, kill the process, resume: weights equal an uninterrupted run's."""
    steps, found = (12 if day.is_tiny else 60), Result()
    folder = day.out / "train"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    hashes = {}
    for name, dies_at in (("whole", 0), ("killed", steps // 2 + 1), ("killed", 0)):
        command = [sys.executable, __file__, str(folder / name), "--device", day.device, "--train"]
        command += [str(steps), str(dies_at), *(["--tiny"] if day.is_tiny else [])]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout[-4_000:], done.stderr[-4_000:], sep="\n")
        if done.returncode != (-9 if dies_at else 0):
            raise SystemExit(f"{name} ended with {done.returncode}")
        found[f"{name}{' until it dies' if dies_at else ''}_s"] = time.monotonic() - started
        if not dies_at:
            hashes[name] = json.loads(done.stdout.splitlines()[-1])
    found |= {f"{name}_loss": own["loss"] for name, own in hashes.items()}
    found["resumed_from"] = hashes["killed"]["first"]
    found["equal_weights"] = hashes["whole"]["sha256"] == hashes["killed"]["sha256"]
    return found


def _train(out: str, device: str, steps: int, dies_at: int, *, is_tiny: bool) -> None:
    """Train on random pairs; the process kills itself before step ``dies_at``."""
    import hashlib

    import torch
    from pretrain_gpu import settings_of
    from pretrain_peers import batch_of, offline

    from biovl.core import config as configs
    from biovl.pretrain import run as running
    from biovl.pretrain.config import PretrainConfig
    from biovl.pretrain.schedule import Plan
    from biovl.runtime.checkpoints import Checkpoints
    from biovl.runtime.workers import Workers

    Path(out, "tokenizer").mkdir(parents=True, exist_ok=True)
    model = offline(settings_of("biomedclip", is_tiny=is_tiny), f"{out}/tokenizer")
    pairs, every, first = (8 if is_tiny else 128), 5, list[int]()
    values = {"corpus": "", "out": f"{out}/model", "batch.pairs": pairs, "trackers": []}
    values |= {"model": {"name": "open_clip", **model}, "deterministic": True}
    values |= {"save.every_steps": every, "trouble.diverged": None}
    config = configs.build(PretrainConfig, values)

    def batches(built: Any, steps_done: int, _: Callable[[], None]) -> Any:
        first.append(steps_done)
        for number in range(steps_done, steps):
            if number == dies_at > 0:
                # The checkpoint is written in the background.
                while not Checkpoints(config.out).steps():
                    time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch_of(built, "A", pairs, seed=number)

    callbacks = running.Callbacks(batches=batches, validate=lambda epoch, done: None, say=print)
    plan = Plan([(pairs, steps)])
    running.run(config, plan, None, callbacks, workers=Workers(), device=torch.device(device))
    state = Checkpoints(config.out).load(steps)
    digest = hashlib.sha256()
    for name, tensor in sorted(state["model"].items()):
        digest.update(name.encode() + tensor.float().numpy().tobytes())
    rows = [json.loads(line) for line in Path(config.out, "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    print(json.dumps({"sha256": digest.hexdigest(), "first": first[0], "loss": losses[-1]}))


def embed(day: Day) -> Result:
    """Images/s of DINOv2 (annotate) and of a model's encoder (index, serve), and texts/s."""
    import numpy as np
    import torch
    from pretrain_gpu import settings_of
    from pretrain_peers import build
    from transformers import Dinov2Config, Dinov2Model

    from biovl.annotate.annotators import dinov2
    from biovl.models.encoder import Encoder

    found: Result = {}
    rng = np.random.default_rng(0)
    for size, shape in (("base", (768, 12, 12)), ("large", (1024, 24, 16))):
        width, layers, heads = (48, 2, 3) if day.is_tiny else shape
        folder = str(day.out / f"dinov2-{size}")
        dims = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        Dinov2Model(Dinov2Config(**dims, image_size=518, patch_size=14)).save_pretrained(folder)
        model = dinov2.build(dinov2.Config(weights=folder)).load(day.device, "auto")
        batch = rng.integers(0, 256, (8 if day.is_tiny else 256, 224, 224, 3), np.uint8)
        found[f"DINOv2 {size}, images/s"] = _rate(lambda m=model, b=batch: m(b), len(batch), day)
    torch.manual_seed(0)
    built = build(settings_of("biomedclip", is_tiny=day.is_tiny))
    encoder = Encoder(built, device=day.device, precision="auto")
    side = built.image_size
    pixels = rng.integers(0, 256, (8 if day.is_tiny else 256, side, side, 3), np.uint8)
    texts = [
        rng.integers(1_000, 29_000, length).astype(np.int32)
        for length in rng.integers(20, min(200, built.context_length), len(pixels))
    ]
    found["BiomedCLIP, images/s"] = _rate(lambda: encoder.embed_pixels(pixels), len(pixels), day)
    found["BiomedCLIP, texts/s"] = _rate(lambda: encoder.embed_tokens(texts), len(texts), day)
    return found


def _rate(work: Callable[[], object], count: int, day: Day) -> float:
    """Return items per second; results arrive on the host, so the device is waited for."""
    work()
    started, rounds = time.perf_counter(), 0
    while rounds < 2 or time.perf_counter() - started < (0.2 if day.is_tiny else 5.0):
        work()
        rounds += 1
    return rounds * count / (time.perf_counter() - started)


def detector(day: Day) -> Result:
    """Training figures/s of the panel detector, from figures that are drawn already."""
    import dataclasses

    from biovl.split.detector import config as detecting
    from biovl.split.detector.figures import draw
    from biovl.split.detector.training import DetectorTrainer

    recipe = detecting.RECIPES["tiny" if day.is_tiny else "default"]()
    out = day.out / "detector"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    steps = 12 if day.is_tiny else 200
    config = dataclasses.replace(
        recipe,
        out=str(out),
        optim=dataclasses.replace(recipe.optim, steps=steps, decay_steps=4, warmup_steps=4),
        validate_every=steps,
        validation_figures=1,
        save_every=steps,
        workers=dataclasses.replace(recipe.workers, gpus=int(day.device == "cuda")),
    )
    if not day.is_tiny:
        drawing = dataclasses.replace(config.drawing, photographs=60, plots=80, figures=128)
        config = dataclasses.replace(config, drawing=drawing)
    started, results = time.monotonic(), []
    with ThreadPoolExecutor(1) as threads:
        trainer = DetectorTrainer(config, lambda *figures: threads.submit(draw, *figures).result)
        for result in trainer.run():
            results.append((time.monotonic() - started, result.loss))
    half = len(results) // 2
    return {
        "steps": len(results),
        "first_loss": results[0][1],
        "last_loss": results[-1][1],
        "figures_per_s": (len(results) - 1 - half)
        * config.optim.batch
        / (results[-2][0] - results[half - 1][0]),
    }


def jobs(day: Day) -> Result:
    """The jobs themselves, on Ray with a GPU: corpus to model, kill, resume, fine-tune, index."""
    folder = day.out / "jobs"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    folder.mkdir(parents=True)
    gpus = int(day.device == "cuda")
    found: Result = {}

    def job(name: str, *words: str, dies: bool = False) -> None:
        command = [sys.executable, "-m", "biovl", *words]
        started = time.monotonic()
        with (folder / f"{name}.txt").open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            if dies:
                checkpoints = folder / "model/.draft/checkpoints"
                while process.poll() is None and not list(checkpoints.glob("*.pt")):
                    time.sleep(0.1)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        print((folder / f"{name}.txt").read_text()[-2_000:])
        if code not in ((0, -signal.SIGKILL) if dies else (0,)):
            raise SystemExit(f"{' '.join(words)} ended with {code}: {folder / name}.txt")
        found[f"{name}_s"] = time.monotonic() - started

    job("sample", "sample", "packages")
    job("harvest", "harvest", "packages", "--set", "source.path=packages", "--set", "out=figures")
    job("assemble", "assemble", "small", "--set", "figures=figures", "--set", "out=corpus")
    model = ["pretrain", "tiny", "--set", "corpus=corpus", "--set", "out=model"]
    model += ["--set", f"workers.gpus={gpus}", "--set", "save.every_steps=10"]
    model += ["--set", f"epochs={4 if day.is_tiny else 40}"]
    job("pretrain until it dies", *model, dies=True)
    job("pretrain resumed", *model)
    tune = ["finetune", "tiny", "--set", "model=model", "--set", "corpus=corpus"]
    job("finetune", *tune, "--set", "out=tuned", "--set", f"workers.gpus={gpus}")
    index = ["index", "on_gpus" if gpus else "default", "--set", "model=model"]
    job("index", *index, "--set", "corpus=corpus", "--set", "out=index")
    manifest = json.loads((folder / "model/manifest.json").read_text())
    found["skipped_checkpoints"] = manifest["notes"]["skipped_checkpoints"]
    found["validation"] = manifest["notes"]["validation"]
    return found


STEPS: Mapping[str, Step] = {
    "machine": Step(machine, 0.5),
    "agree": Step(agree, 1.5),
    "speed-biomedclip": Step(speed("biomedclip"), 4),
    "speed-bmc_longclip_512": Step(speed("bmc_longclip_512"), 5),
    "memory": Step(memory, 3),
    "train": Step(train, 2.5),
    "speed-bmca_clip": Step(speed("bmca_clip"), 5),
    "embed": Step(embed, 1.5),
    "detector": Step(detector, 1.5),
    "jobs": Step(jobs, 4),
    "speed-bmc_longclip_77": Step(speed("bmc_longclip_77"), 3.5),
    "speed-bmc_longclip_154": Step(speed("bmc_longclip_154"), 3.5),
    "others": Step(others, 4),
}
"""In the order of their worth."""


# --- the day --------------------------------------------------------------------------------------


def main() -> None:
    """Run the steps that have no result, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=40.0, help="no step begins after them")
    parser.add_argument("--only", nargs="*", choices=STEPS, help="these steps alone")
    parser.add_argument("--again", nargs="*", default=[], choices=STEPS, help="although done")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small models")
    parser.add_argument("--page", type=Path, help="default: docs/gpu.md; with --tiny OUT/gpu.md")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        _train(str(given.out), given.device, *given.train, is_tiny=given.tiny)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    if given.step:
        result = STEPS[given.step].run(Day(given.out, given.device, given.tiny, given.step))
        _write(given.out / f"{given.step}.json", result)
        (given.out / f"{given.step}.partial.json").unlink(missing_ok=True)
        return
    for name in given.again:
        (given.out / f"{name}.json").unlink(missing_ok=True)
    started, failed = time.monotonic(), []
    for name, step in STEPS.items():
        if (given.only and name not in given.only) or (given.out / f"{name}.json").exists():
            continue
        spent = (time.monotonic() - started) / 60
        if spent >= given.minutes:
            print(f"{name}: not run, {given.minutes:g} minutes are over; run the command again")
            continue
        if name == "jobs" and importlib.util.find_spec("ray") is None:
            print("jobs: not run, there is no Ray")
            continue
        # What is left, but never too little to end.
        reason = _run(given, name, min(3 * step.minutes, max(given.minutes - spent, 2)))
        print(
            f"{name}: {reason or 'done'}, {(time.monotonic() - started) / 60:.1f} min", flush=True
        )
        failed += [name] if reason else []
        _page(given)
    print(_page(given))
    sys.exit(1 if failed else 0)


def _page(given: argparse.Namespace) -> str:
    """Write the page of all results, whole and partial; return a line about it."""
    from gpu_day_page import page

    found, missing = {}, []
    for name in STEPS:
        whole, part = (given.out / f"{name}{end}.json" for end in ("", ".partial"))
        if whole.exists() or part.exists():
            found[name] = json.loads((whole if whole.exists() else part).read_text())
        missing += [] if whole.exists() else [name]
    target = given.page or (given.out / "gpu.md" if given.tiny else ROOT / "docs/gpu.md")
    target.write_text(page(found, missing))
    return f"{target}: {len(STEPS) - len(missing)} of {len(STEPS)} steps"


def _run(given: argparse.Namespace, name: str, minutes: float) -> str | None:
    """Run a step in a process of its own; return why it failed, or None."""
    command = [sys.executable, __file__, str(given.out), "--step", name, "--device", given.device]
    command += ["--tiny"] if given.tiny else []
    log = given.out / f"{name}.txt"
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        try:
            code = process.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            # With the processes that it began, which would keep the GPU.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"ended after {minutes:.1f} minutes, see {log}"
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return f"failed with {code}, see {log}" if code else None


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _write(path: Path, result: Result) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1, default=str) + "\n")
    part.replace(path)


if __name__ == "__main__":
    main()
