"""Write the files that a run publishes: weights, curves, the model card."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from biovl.core.artifacts import Draft, Manifest, find_manifest, to_json
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin
from biovl.models import encoder, hub
from biovl.models.builders.open_clip import Built
from biovl.pretrain import card, models, plots
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.mixture import Mixture, input_names, merged_stats
from biovl.pretrain.trackers import read_steps

HARDWARE = "hardware"
"""Name of the draft's note in which worker 0 records the hardware."""


def write_model(folder: Folder, built: Built, state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write weights and configuration in open_clip's layout; return the files for the manifest."""
    with tempfile.TemporaryDirectory() as local:
        encoder.save(Path(local), built, state)
        return folder.upload(Path(local))


def publish_pretrained(name: str, out: str, settings: Mapping[str, Any] | None = None) -> Manifest:
    """Publish a model that others trained, for index and serve, unless ``out`` is published.

    Args:
        name: A model in open_clip's layout: ``hf-hub:OWNER/NAME``, which is downloaded, or a
            folder. With ``settings`` any name, for the manifest.
        out: The folder to publish.
        settings: Settings of the builder ``open_clip``; by default architecture and weights of
            ``name``.

    Raises:
        ArtifactError: If the Hub cannot be reached, or the model cannot be read.
    """
    published = find_manifest(out)
    if published is not None:
        return published
    config = {"downloaded": name}
    draft = Draft.begin(out, "model", config)
    if settings is None:
        # Configuration and weights of one commit.
        source = hub.pinned(name)
        settings = {"architecture": source, "weights": source}
    plugin = Plugin("open_clip", settings)
    built = models.build(plugin, with_weights=True)
    files = write_model(draft.folder, built, built.model.state_dict())
    parameters = sum(parameter.numel() for parameter in built.model.parameters())
    return draft.publish(
        Manifest(
            kind="model",
            config=config,
            counts={"parameters": parameters},
            files=files,
            notes={"weights_sha256": files[encoder.WEIGHTS]["sha256"]},
        )
    )


def write_report_files(
    config: PretrainConfig,
    mixture: Mixture,
    manifest: Manifest,
    built: Built,
    scores: Mapping[int, Mapping[str, Any]],
    epoch: int,
) -> None:
    """Write the scores, the curves and the model card.

    Args:
        config: Configuration of the run.
        mixture: Its corpora.
        manifest: Manifest to be published.
        built: The model.
        scores: Scores of the validated epochs, by epoch from 0.
        epoch: Epoch whose weights are published, from 0.
    """
    folder = Draft(config.out).folder
    rows = read_steps(folder)
    drawn = plots.plots(rows, scores, config.step.loss)
    for name, png in drawn.items():
        folder.write(f"plots/{name}", png)
    folder.write("validation.json", to_json({epoch + 1: scores[epoch] for epoch in scores}))
    text = card.model_card(
        config,
        built,
        mixture=mixture,
        stats=merged_stats(mixture.parts),
        fingerprints=[
            item.fingerprint for item in manifest.inputs if item.name in input_names(config)
        ],
        rows=rows,
        scores=scores,
        epoch=epoch,
        plots=list(drawn),
        code=manifest.code,
        lineage=manifest.notes["lineage"],
        changed=manifest.notes["changed"],
        hardware=Draft(config.out).read_note(HARDWARE) or "",
        rollbacks=manifest.notes["rollbacks"],
    )
    folder.write("README.md", text.encode())
