"""Known accelerators: peak rates, memory and expected utilisation."""

from dataclasses import dataclass

import torch

from biovl.pretrain.rates import training_rate


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

    instance: str = ""
    """Name of the AWS instance type with this accelerator."""

    vcpus: int = 0
    """vCPUs of that instance per accelerator."""

    shares: tuple[float, float] | None = None
    """Share of the peak that training reaches, eager and compiled, in place of ``rates.yaml``."""

    def utilisation(self, *, compiled: bool) -> float | None:
        """Return the expected share of peak FLOP/s in training; None if unknown."""
        if self.shares is not None:
            return self.shares[compiled]
        rate = training_rate(self.name, compiled=compiled)
        return None if rate is None else rate.share

    def peak_flops(self, precision: str) -> float | None:
        """Return operations per second in ``"bf16"`` or ``"fp32"``; None if unsupported."""
        tflops = self.bf16_tflops if precision == "bf16" else self.fp32_tflops
        return None if tflops is None else tflops * 1e12


A100_40 = Accelerator("A100-40", 312, 156, 40, "p4d", 12)
A100_80 = Accelerator("A100-80", 312, 156, 80, "p4de", 12)
H100 = Accelerator("H100", 989, 494.5, 80, "p5", 24)
H200 = Accelerator("H200", 989, 494.5, 141, "p5en", 24)
L4 = Accelerator("L4", 121, 60, 24)

NAMED = (A100_40, A100_80, H100, H200)
"""Accelerators of the estimates. The first is what ``cluster.yaml`` requests for
``workers.accelerator=A100``: p4d, whose A100 have 40 GB."""

# By the driver's names, the more specific first. Source: NVIDIA's data sheets.
_BY_NAME: tuple[tuple[tuple[str, ...], Accelerator], ...] = (
    (("B200",), Accelerator("B200", 2250, 1125, 180)),
    (("GH200",), Accelerator("GH200", 989, 494.5, 96)),
    (("H200", "NVL"), Accelerator("H200 NVL", 835, 417.5, 141)),
    (("H200",), H200),
    (("H100", "NVL"), Accelerator("H100 NVL", 835, 417.5, 94)),
    (("H100", "PCIe"), Accelerator("H100 PCIe", 756, 378, 80)),
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
