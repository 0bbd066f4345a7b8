"""Settings of merge."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt

from biovl.core.config import REQUIRED, Recipe, Share, is_unfinished


@dataclass(frozen=True, kw_only=True)
class MergeConfig:
    """Settings of merge: two models, interpolation coefficients, and evaluation."""

    base: str
    """The model before fine-tuning: a folder in open_clip's ``local-dir:`` layout, a name of
    open_clip with its weights (``ViT-B-32/laion2b_s34b_b79k``), ``hf-hub:OWNER/NAME``, or a weight
    file for the architecture of ``tuned``; folders and files local or ``s3://``."""

    tuned: str
    """The fine-tuned model, a folder in open_clip's ``local-dir:`` layout or a name, as ``base``;
    architecture, tokenizer and image preprocessing are taken from it."""

    out: str
    """The folder to publish, local or ``s3://``."""

    alpha: Share | None = None
    """The interpolation coefficient to publish: 0 is ``base``, 1 is ``tuned``. None: the best of
    ``alphas``."""

    alphas: tuple[Share, ...] = ()
    """Additional coefficients to evaluate on ``corpus``."""

    corpus: str | None = None
    """A corpus published by assemble, on whose pairs the models are evaluated; None: no
    evaluation."""

    split: Literal["train", "val", "test"] = "val"
    """Split to evaluate. A value selected on one split must be reported on another."""

    pairs: NonNegativeInt = 10_000
    """Number of pairs to evaluate, from the first of the split; 0: all. Recall depends on it: the
    fewer pairs, the higher."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if not self.points:
            raise ValueError("give alpha, or alphas to choose from and a corpus to score them on")
        if self.alphas and self.corpus is None:
            raise ValueError("alphas are scored on a corpus: give one, or alpha alone")

    @property
    def points(self) -> list[float]:
        """All coefficients to evaluate, sorted."""
        return sorted({*self.alphas, *([] if self.alpha is None else [self.alpha])})


def wise_ft() -> MergeConfig:
    """Interpolate two models at a given alpha (needs base, tuned, alpha, out)."""
    return MergeConfig(base=REQUIRED, tuned=REQUIRED, out=REQUIRED)


def sweep() -> MergeConfig:
    """The best of eleven alphas by mean R@1 on val pairs (needs base, tuned, corpus, out)."""
    alphas = tuple(step / 10 for step in range(11))
    return MergeConfig(base=REQUIRED, tuned=REQUIRED, out=REQUIRED, alphas=alphas)


RECIPES: dict[str, Recipe[MergeConfig]] = {"wise_ft": wise_ft, "sweep": sweep}
