"""Known accelerators: peak rates, memory and expected utilisation."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Accelerator:
    """A type of GPU, by its data sheet. Peaks are dense: without structured sparsity."""

    name: str

    bf16_tflops: float | None
    """Peak in bfloat16, in 10^12 operations per second; None if unsupported."""

    fp32_tflops: float
    """Peak for float32 inputs, in TF32 if supported, in 10^12 operations per second."""

    memory_gb: float
    """Memory in units of 10^9 bytes."""

    expected_utilisation: float | None = None
    """Share of the peak that eager training reaches, of the operations it computes: estimated from
    published rates, not a measurement. None if there is no estimate."""

    compiled_utilisation: float | None = None
    """Share of the peak that training reaches with ``step.compile``."""

    instance: str = ""
    """Name of the AWS instance type with this accelerator."""

    def utilisation(self, *, compiled: bool) -> float | None:
        """Return the expected share of the peak in training, eager or compiled; None if unknown."""
        return self.compiled_utilisation if compiled else self.expected_utilisation

    def peak_flops(self, precision: str) -> float | None:
        """Return operations per second in ``"bf16"`` or ``"fp32"``; None if unsupported."""
        tflops = self.bf16_tflops if precision == "bf16" else self.fp32_tflops
        return None if tflops is None else tflops * 1e12


A100_EAGER = 0.15
"""LAION's runs of open_clip: 310 to 396 pairs/s a GPU with ViT-B/16, 73 to 105 with ViT-L/14, which
is 0.12 to 0.18 of the peak (LAION-AI/scaling-laws-openclip, trained_models_info.csv)."""

COMPILED_OVER_EAGER = 1.15
"""Within the range that open_clip's issue 610 reports for torch.compile: no gain for ViT-L/14, 1.27
for ViT-S/16."""

H100_OVER_A100 = 1.67
"""Pairs/s: CLIP g/14 in NVIDIA's NeMo trains 935 on eight H100, 559 on eight A100."""

UNCERTAIN = (0.8, 1.2)
"""Range of the published rates around ``A100_EAGER``: 0.12 and 0.18."""

SOURCE = "open_clip's published A100 runs (12-18 % of peak), H100 from NeMo's ratio 1.67"

_H100_EAGER = A100_EAGER * H100_OVER_A100 * 312 / 989
_A100 = A100_EAGER, A100_EAGER * COMPILED_OVER_EAGER
_H100 = _H100_EAGER, _H100_EAGER * COMPILED_OVER_EAGER

A100_40 = Accelerator("A100-40", 312, 156, 40, *_A100, "p4d")
A100_80 = Accelerator("A100-80", 312, 156, 80, *_A100, "p4de")
H100 = Accelerator("H100", 989, 494.5, 80, *_H100, "p5")
H200 = Accelerator("H200", 989, 494.5, 141, *_H100, "p5en")
L4 = Accelerator("L4", 121, 60, 24)

NAMED = (A100_40, A100_80, H100, H200)
"""Accelerators of the estimates. The first is what ``cluster.yaml`` requests for
``workers.accelerator=A100``: p4d, whose A100 have 40 GB."""

# By the driver's names, the more specific first. Source: NVIDIA's data sheets.
_BY_NAME: tuple[tuple[tuple[str, ...], Accelerator], ...] = (
    (("B200",), Accelerator("B200", 2250, 1125, 180)),
    (("GH200",), Accelerator("GH200", 989, 494.5, 96, *_H100)),
    (("H200", "NVL"), Accelerator("H200 NVL", 835, 417.5, 141, *_H100)),
    (("H200",), H200),
    (("H100", "NVL"), Accelerator("H100 NVL", 835, 417.5, 94, *_H100)),
    (("H100", "PCIe"), Accelerator("H100 PCIe", 756, 378, 80, *_H100)),
    (("H100",), H100),
    (("A100", "40GB"), A100_40),
    (("A100", "80GB"), A100_80),
    (("V100", "32GB"), Accelerator("V100-32", None, 15.7, 32)),
    (("V100", "16GB"), Accelerator("V100-16", None, 15.7, 16)),
    (("L40S",), Accelerator("L40S", 362, 183, 48)),
    (("L4",), L4),
)

KNOWN = tuple(accelerator for _, accelerator in _BY_NAME)
"""All known accelerators, by their data sheets."""


def find_accelerator(device_name: str) -> Accelerator | None:
    """Return the accelerator with a driver's device name; None if unknown."""
    # The name of a MIG slice does not give its share of the peak.
    if " MIG " in f"{device_name} ":
        return None
    words = device_name.replace("-", " ").split()
    return next((found for parts, found in _BY_NAME if all(part in words for part in parts)), None)


def detect(device: torch.device) -> Accelerator | None:
    """Return the accelerator of a torch device; None for a CPU and unknown accelerators."""
    return find_accelerator(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
