"""The detector's card, ``README.md``: training data and scores."""

from collections.abc import Mapping
from typing import Any

from biovl.core.markdown import table
from biovl.split.detector.config import DetectorConfig

_HEADS = ("stratum", "figures", "F1@0.5", "precision", "recall", "mAP@0.5", "mAP@.5:.95")

_SHOWN = ("f1", "precision", "recall", "map", "map_50_95")


def detector_card(config: DetectorConfig, scores: Mapping[str, Any], parameters: int) -> str:
    """Return the text of the detector's card."""
    rows = [("all", scores), *scores["strata"].items()]
    lines = [[name, one["figures"], *(f"{one[key]:.3f}" for key in _SHOWN)] for name, one in rows]
    return f"""# A detector of panels in compound figures

{parameters:,} parameters, for figures fitted into {config.design.size_px} px. Trained for \
{config.optim.steps:,} steps of {config.optim.batch} figures that were drawn; nothing of it is \
from articles.

{table(_HEADS, lines)}

On figures drawn from seeds held out, at the score from which on boxes are believed, \
{scores["threshold"]:g}, which was chosen on the same figures. It tells compound figures from \
others in {scores["compound_accuracy"]:.1%} of them. **Figures of articles differ from drawn ones: \
there it is worse.** Use it beside the cuts, labels and captions of `split`, not alone.

Licence of the weights: Apache-2.0.
"""
