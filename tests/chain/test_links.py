"""What a chain knows of its steps before it runs them."""

from dataclasses import replace
from pathlib import Path

from biovl.chain.links import Chain, link
from biovl.chain.steps import STEPS
from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.plugins import Plugin
from biovl.pretrain.config import tiny


def test_a_named_chain_goes_on_with_what_the_same_numbers_began(tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    begun = replace(tiny(), corpus="corpus", out=out)
    Draft.begin(out, "model", configs.to_plain(begun))
    settings = {"recipe": "tiny", "corpus": "corpus", "out": out}
    (step,) = (step for step in STEPS if step.name == "pretrain")
    for image_size, folder in (("64", "model"), ("96", "model-b")):
        # As --set gives them to a plug-in: as texts.
        model = Plugin("open_clip", {**begun.model.settings, "image_size": image_size})
        chain = Chain(str(tmp_path), {"pretrain": {**settings, "model": model}}, name="b")
        assert Path(link(step, chain, ()).out).name == folder
