"""The page of ``gpu_day.py``: Markdown from its results."""

from collections.abc import Mapping, Sequence
from typing import Any

GOALS = (
    ("speed-biomedclip", "BiomedCLIP, pairs/s", 2_500.0),
    ("speed-bmc_longclip_512", "BMC-LongCLIP 512, pairs/s", 785.0),
)
TIMES_STOCK, UTILISATION = 2.5, 0.40

Results = Mapping[str, Mapping[str, Any]]


def page(done: Results, missing: Sequence[str]) -> str:
    """Return the page of the steps that have a result, and name those that have none."""
    where = _machine(done["machine"]) if "machine" in done else "no machine yet"
    parts = [
        "# Measured on a GPU",
        "This page is the output of `python benchmarks/gpu_day.py OUT`: in 40 minutes on one H100 "
        "or H200 it checks and measures all that needs a GPU, resumes after an interruption, and "
        "writes the page anew. Weights are random: speed and memory do not depend on them. "
        "Results of CPUs: [performance](performance.md).",
        f"Measured on: {where}.",
    ]
    compiles = done.get("machine", {}).get("compiles", True)
    if compiles is not True:
        parts.append(f"**Nothing was compiled, torch.compile fails on this machine**: {compiles}")
    if missing:
        parts.append(f"Not measured yet, or not to the end: {', '.join(missing)}.")
    sections = (
        ("Targets", _targets(done)),
        ("Packed and padded captions", _agree(done.get("agree", {}))),
        ("Speed", _speed(done)),
        ("Memory, predicted and measured", _memory(done.get("memory", {}))),
        ("Killed and resumed", _train(done.get("train", {}))),
        ("Embedding", _numbers(done.get("embed", {}))),
        ("Training of the panel detector", _numbers(done.get("detector", {}))),
        ("Jobs on Ray", _numbers(done.get("jobs", {}))),
    )
    parts += [f"## {title}\n\n{text}" for title, text in sections if text]
    return "\n\n".join(parts) + "\n"


def _machine(found: Mapping[str, Any]) -> str:
    memory = f", {found['memory_gib']:.0f} GiB" if "memory_gib" in found else ""
    rest = (f"{name} {found[name]}" for name in ("torch", "cuda", "open_clip") if name in found)
    return f"{found.get('device', 'an unknown machine')}{memory} ({', '.join(rest)})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _best(ways: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    own = [way for name, way in ways.items() if name.startswith(prefix) and "pairs_per_s" in way]
    return max(own, key=lambda way: float(way["pairs_per_s"]), default={})


def _targets(done: Results) -> str:
    rows = []
    for step, what, goal in GOALS:
        best = _best(done.get(step, {}), "ours")
        rows.append([what, f"{goal:,.0f}", f"{best['pairs_per_s']:,.0f}" if best else "–"])
    for step, ways in done.items():
        ours, stock = _best(ways, "ours"), _best(ways, "stock, bf16")
        if step.startswith("speed-") and ours:
            name = step.removeprefix("speed-")
            if stock and step == "speed-biomedclip":
                times = ours["pairs_per_s"] / stock["pairs_per_s"]
                rows.append([f"{name}, times stock open_clip", f"{TIMES_STOCK:g}", f"{times:.2f}"])
            if ours.get("mfu") is not None:
                row = [f"{name}, MFU", f"{UTILISATION:.0%}", f"{ours['mfu']:.1%}"]
                rows.append(row)
    return _table(["", "target (pairs/s: on an H200)", "measured"], rows)


def _agree(found: Mapping[str, Any]) -> str:
    rows = [
        [
            text,
            *(f"{own[name]:.5f}" for name in ("loss", "loss_padded", "loss_packed")),
            *(f"{own[name]:.4f}" for name in ("padded_from_fp32", "packed_from_fp32")),
            "yes" if own["equal"] else "**no**",
        ]
        for text, own in found.items()
    ]
    columns = ["text tower", "loss, float32", "padded", "packed"]
    columns += ["gradient, padded", "packed", "equal up to bfloat16"]
    note = "\n\nGradients: norm of the difference from float32, relative."
    return _table(columns, rows) + note if rows else ""


def _speed(done: Results) -> str:
    rows = []
    recipes = {
        name.removeprefix("speed-"): ways for name, ways in done.items() if name.startswith("speed")
    }
    for recipe, ways in {**recipes, **done.get("others", {})}.items():
        for name, way in ways.items():
            name += ", **partly eager**" if way.get("fallbacks") else ""
            if "pairs_per_s" not in way:
                rows.append([recipe, name, f"failed: {way.get('failed', '')}"[:80], *[""] * 5])
                continue
            rows.append(
                [
                    recipe,
                    name,
                    str(way["pairs"]),
                    f"{way['pairs_per_s']:,.0f}",
                    f"{way['tokens'] / way['seconds']:,.0f}",
                    "" if way["mfu"] is None else f"{way['mfu']:.1%}",
                    f"{way['peak_gib']:.1f}",
                    f"{way['start_s']:.0f}",
                ]
            )
    columns = ["recipe", "", "batch", "pairs/s", "tokens/s", "MFU", "GiB", "start s"]
    note = (
        "\n\nThe largest batch that fits, from 1,024 pairs down; compiled, that of the same step "
        "without compiling. Tokens without padding; start: copying, compiling and the first steps."
    )
    return _table(columns, rows) + note if rows else ""


def _memory(found: Mapping[str, Any]) -> str:
    rows = []
    for name, row in found.items():
        cells = ["–", ""]
        if row.get("out_of_memory"):
            cells = ["out of memory", ""]
        elif row.get("peak_gib"):
            cells = [f"{row['peak_gib']:.2f}", f"{row['expected_gib'] / row['peak_gib']:.2f}"]
        rows.append([name, f"{row['expected_gib']:.2f}", *cells])
    return _table(["recipe, pairs in micro-batches of", "predicted GiB", "peak GiB", "ratio"], rows)


def _train(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    equal = "equal to" if found["equal_weights"] else "**different from**"
    return (
        f"A deterministic run, killed and resumed from step {found['resumed_from']}: weights "
        f"{equal} those of an uninterrupted run (loss {found['killed_loss']:.6f} and "
        f"{found['whole_loss']:.6f})."
    )


def _numbers(found: Mapping[str, Any]) -> str:
    rows = [
        [name.replace("_", " "), f"{value:,.1f}" if isinstance(value, float) else str(value)]
        for name, value in found.items()
    ]
    return _table(["", ""], rows)
