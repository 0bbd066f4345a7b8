"""Accelerators we know: what they could compute at best, what they hold, what to expect of them."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Accelerator:
    """A GPU by its data sheet. Peaks are dense: without the sparsity that doubles them."""

    name: str

    bf16_tflops: float | None
    """10^12 operations a second in bfloat16; None where the hardware has none."""

    fp32_tflops: float
    """The same with float32 inputs, in TF32 where the hardware has it."""

    memory_gb: float
    """10^9 bytes."""

    expected_utilisation: float | None = None
    """An estimate, not a measurement: the share of the peak that a pretraining step reaches, of
    the operations it computes. A roofline of transformer blocks with flash attention, fused
    activations and 85 % of the matrix rate seen in practice; published CLIP training reaches 0.09
    to 0.18 (LAION) and 0.39 at best (NeMo g/14 on A100). None where we have no estimate."""

    def peak_flops(self, precision: str) -> float | None:
        """Return operations a second in ``"bf16"`` or ``"fp32"``; None where it has none."""
        tflops = self.bf16_tflops if precision == "bf16" else self.fp32_tflops
        return None if tflops is None else tflops * 1e12


A100_40 = Accelerator("A100-40", 312, 156, 40, 0.50)
A100_80 = Accelerator("A100-80", 312, 156, 80, 0.50)
H100 = Accelerator("H100", 989, 494.5, 80, 0.40)
H200 = Accelerator("H200", 989, 494.5, 141, 0.40)
L4 = Accelerator("L4", 121, 60, 24)

NAMED = (A100_80, H100, H200)
"""What estimates are made for."""

# By what the driver calls them, the more special first. Source: NVIDIA's data sheets.
_BY_NAME: tuple[tuple[tuple[str, ...], Accelerator], ...] = (
    (("B200",), Accelerator("B200", 2250, 1125, 180)),
    (("GH200",), Accelerator("GH200", 989, 494.5, 96, 0.40)),
    (("H200", "NVL"), Accelerator("H200 NVL", 835, 417.5, 141, 0.40)),
    (("H200",), H200),
    (("H100", "NVL"), Accelerator("H100 NVL", 835, 417.5, 94, 0.40)),
    (("H100", "PCIe"), Accelerator("H100 PCIe", 756, 378, 80, 0.40)),
    (("H100",), H100),
    (("A100", "40GB"), A100_40),
    (("A100", "80GB"), A100_80),
    (("V100", "32GB"), Accelerator("V100-32", None, 15.7, 32)),
    (("V100", "16GB"), Accelerator("V100-16", None, 15.7, 16)),
    (("L40S",), Accelerator("L40S", 362, 183, 48)),
    (("L4",), L4),
)

KNOWN = tuple(accelerator for _, accelerator in _BY_NAME)
"""All that we know, by their data sheets."""


def named(device_name: str) -> Accelerator | None:
    """Return the accelerator that a driver's name stands for; None where we do not know it."""
    # A slice of a GPU has a share of its peak that the name does not tell.
    if " MIG " in f"{device_name} ":
        return None
    words = device_name.replace("-", " ").split()
    return next((found for parts, found in _BY_NAME if all(part in words for part in parts)), None)


def detect(device: torch.device) -> Accelerator | None:
    """Return the accelerator of a torch device; None for a CPU and what we do not know."""
    return named(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
