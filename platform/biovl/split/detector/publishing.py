"""Write the files that a detector training publishes: weights, card and scores."""

from typing import Any

from biovl.core.artifacts import to_json
from biovl.core.folders import Folder
from biovl.split.detector.card import detector_card
from biovl.split.detector.detector import save
from biovl.split.detector.export import to_onnx
from biovl.split.detector.model import parameters
from biovl.split.detector.training import DetectorTrainer


def write(trainer: DetectorTrainer) -> dict[str, Any]:
    """Write the folder without its manifest; return scores, parameter count and weights' hash."""
    config = trainer.config
    scores = trainer.scores or trainer.score()
    folder, count = Folder(config.out), parameters(trainer.network)
    # Gutters and labels find far more than half: a weaker detector adds nothing to them.
    trust = round(max(0.0, 2 * scores["map"] - 1), 4)
    size_px = config.design.size_px
    data = to_onnx(trainer.averaged.module, size_px)
    weights = save(folder, data, size_px, scores["threshold"], trust)
    folder.write("metrics.json", to_json(scores))
    folder.write("README.md", detector_card(config, scores, count).encode())
    return {"scores": scores, "parameters": count, "weights_sha256": weights}
