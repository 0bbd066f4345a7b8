"""The prompts of the papers' zero-shot benchmarks, word for word, by benchmark.

Only what a paper states is here. BIOMEDICA (arXiv:2501.07171, section 5) writes two captions for
each class and does not print them, so none of its own tasks is listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PLACE = "{}"
"""Where the name of the class goes. It is no format string: other braces mean themselves."""


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """How a benchmark's classes are put into words."""

    name: str
    title: str
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    """Each holds exactly one ``{}``."""
    source: str


def filled(template: str, class_name: str) -> str:
    """Return the prompt of a class: ``a photo of {}`` and ``pneumonia`` give the sentence.

    Raises:
        ValueError: If the template does not hold exactly one ``{}``.
    """
    if template.count(PLACE) != 1:
        raise ValueError(f"a template holds exactly one {PLACE}, got {template!r}")
    return template.replace(PLACE, class_name)


_BIOMEDCLIP = "Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, supplementary table 10"
_AN_IMAGE_OF = ("this is an image of {}", "{} presented in image")
_A_PHOTO_OF = ("a photo of {}", "{} presented in image")

_ALL = (
    Prompts(
        name="pcam",
        title="PatchCamelyon",
        classes=("normal lymph node", "lymph node metastasis"),
        templates=_AN_IMAGE_OF,
        source=_BIOMEDCLIP,
    ),
    Prompts(
        name="lc25000_lung",
        title="LC25000 (Lung)",
        classes=("lung adenocarcinomas", "normal lung tissue", "lung squamous cell carcinomas"),
        templates=_AN_IMAGE_OF,
        source=_BIOMEDCLIP,
    ),
    Prompts(
        name="lc25000_colon",
        title="LC25000 (Colon)",
        classes=("colon adenocarcinomas", "normal colonic tissue"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
    Prompts(
        name="tcga_til",
        title="TCGA-TIL",
        classes=("none", "tumor infiltrating lymphocytes"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
    Prompts(
        name="rsna",
        title="RSNA pneumonia",
        classes=("normal lung", "pneumonia"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
)

PROMPTS: Mapping[str, Prompts] = {prompts.name: prompts for prompts in _ALL}
