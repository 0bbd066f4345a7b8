"""Export of a detector network: as an inference function on one image, and as an ONNX file."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from biovl.split.detector.boxes import Maps
from biovl.split.detector.detector import Run
from biovl.split.detector.model import Output, boxes_of, normalised

_LARGE = 64
"""Numbers in a weight from which on it is stored in half precision."""


class Exported(nn.Module):
    """A network from uint8 images, [B, H, W, 3], to scores, boxes and compound probabilities."""

    def __init__(self, network: nn.Module) -> None:
        """Wrap a network."""
        super().__init__()
        self.network = network

    def forward(self, pixels_BHWC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores [B, H, W], boxes [B, 4, H, W], probabilities [B]."""
        output: Output = self.network(normalised(pixels_BHWC))
        boxes = boxes_of(output.sides_B4HW)
        return output.score_BHW.sigmoid(), boxes, output.compound_B.sigmoid()


def torch_run(network: nn.Module, device: torch.device) -> Run:
    """Return a function that runs a network, in float32, on one image."""
    exported = Exported(network).to(device).eval()

    @torch.inference_mode()
    def run(pixels: np.ndarray) -> Maps:
        on_device = torch.from_numpy(pixels[None]).to(device)
        score, boxes, compound = (one[0].cpu().numpy() for one in exported(on_device))
        return Maps(score, boxes, float(compound))

    return run


def to_onnx(network: nn.Module, size_px: int) -> bytes:
    """Return a network as an ONNX file, weights in half precision.

    Equal weights give equal bytes with the same version of PyTorch. ONNX Runtime computes in
    float32: it widens the weights when it loads the file.
    """
    exported = Exported(network).cpu().eval()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        # The exporter that follows Python's code takes ten seconds and says more.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            exported,
            (torch.zeros(1, size_px, size_px, 3, dtype=torch.uint8),),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["pixels"],
            output_names=["score", "boxes", "compound"],
        )
        model = onnx.load(path)
    model.doc_string = "Panels of compound figures. Apache-2.0. Trained on drawn figures alone."
    _halve(model.graph)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _halve(graph: onnx.GraphProto) -> None:
    """Store the larger weights of a graph in half precision, each with a node that widens it."""
    casts = []
    for weight in graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        if values.dtype != np.float32 or values.size < _LARGE:
            continue
        name = weight.name
        weight.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        casts.append(
            onnx.helper.make_node("Cast", [f"{name}_half"], [name], to=onnx.TensorProto.FLOAT)
        )
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
