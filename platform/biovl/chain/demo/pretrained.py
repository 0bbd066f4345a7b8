"""The model of the demo with real articles: BiomedCLIP from the Hugging Face Hub."""

from biovl.core.artifacts import Draft, Manifest, find_manifest
from biovl.core.plugins import Plugin
from biovl.pretrain import models
from biovl.pretrain.publishing import write_model

NAME = "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"
"""BiomedCLIP as its authors published it, in open_clip's layout (MIT licence)."""


def publish_pretrained(out: str, name: str = NAME) -> Manifest:
    """Download a model and publish it as a model folder; return at once if it is there.

    Args:
        out: The folder.
        name: Name of a model in open_clip's layout on the Hub.

    Raises:
        ArtifactError: If the Hub cannot be reached, or the model cannot be read.
    """
    published = find_manifest(out)
    if published is not None:
        return published
    config = {"downloaded": name}
    draft = Draft.begin(out, "model", config)
    settings = {"architecture": name, "weights": name}
    built = models.build(Plugin("open_clip", settings), with_weights=True)
    digest = write_model(draft.folder, built, built.model.state_dict())
    parameters = sum(parameter.numel() for parameter in built.model.parameters())
    return draft.publish(
        Manifest(
            kind="model",
            config=config,
            counts={"parameters": parameters},
            notes={"weights_sha256": digest},
        )
    )
