"""The prompts of the papers' zero-shot benchmarks, word for word, by benchmark.

Only what a paper states is here. BIOMEDICA (arXiv:2501.07171, section 5) writes two captions for
each class and does not print them, so none of its own tasks is listed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PLACE = "{}"
"""Where the name of the class goes. It is no format string: other braces mean themselves."""


@dataclass(frozen=True, kw_only=True)
class ClassPrompts:
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
    ClassPrompts(
        name="pcam",
        title="PatchCamelyon",
        classes=("normal lymph node", "lymph node metastasis"),
        templates=_AN_IMAGE_OF,
        source=_BIOMEDCLIP,
    ),
    ClassPrompts(
        name="lc25000_lung",
        title="LC25000 (Lung)",
        classes=("lung adenocarcinomas", "normal lung tissue", "lung squamous cell carcinomas"),
        templates=_AN_IMAGE_OF,
        source=_BIOMEDCLIP,
    ),
    ClassPrompts(
        name="lc25000_colon",
        title="LC25000 (Colon)",
        classes=("colon adenocarcinomas", "normal colonic tissue"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
    ClassPrompts(
        name="tcga_til",
        title="TCGA-TIL",
        classes=("none", "tumor infiltrating lymphocytes"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
    ClassPrompts(
        name="rsna",
        title="RSNA pneumonia",
        classes=("normal lung", "pneumonia"),
        templates=_A_PHOTO_OF,
        source=_BIOMEDCLIP,
    ),
)

PROMPTS: Mapping[str, ClassPrompts] = {prompts.name: prompts for prompts in _ALL}

SPELLINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "pcam": {
        "normal lymph node": (
            *("normal", "lymph node", "normal lymph node tissue", "normal tissue", "healthy"),
            *("no metastasis", "non metastasis", "no metastases", "non metastatic", "negative"),
            *("no tumor", "non tumor", "no tumour", "non tumour", "no tumor tissue", "benign"),
            *("no cancer", "non cancer", "no", "false", "0", "class 0", "label 0"),
        ),
        "lymph node metastasis": (
            *("metastasis", "metastases", "metastatic", "metastatic tissue", "metastatic tumor"),
            *("tumor", "tumour", "tumor tissue", "tumour tissue", "cancer", "malignant"),
            *("lymph node containing metastatic tumor tissue", "lymph node metastases"),
            *("positive", "yes", "true", "1", "class 1", "label 1"),
        ),
    },
    "lc25000_lung": {
        "lung adenocarcinomas": (
            *("lung adenocarcinoma", "adenocarcinoma", "adenocarcinomas", "lung aca", "aca"),
        ),
        "normal lung tissue": (
            *("lung n", "n", "normal", "normal lung", "lung normal", "benign", "healthy"),
            *("benign lung tissue", "lung benign tissue", "lung benign", "benign tissue"),
        ),
        "lung squamous cell carcinomas": (
            *("lung squamous cell carcinoma", "squamous cell carcinoma", "lung scc", "scc"),
            *("squamous cell carcinomas",),
        ),
    },
    "lc25000_colon": {
        "colon adenocarcinomas": (
            *("colon adenocarcinoma", "adenocarcinoma", "adenocarcinomas", "colon aca", "aca"),
        ),
        "normal colonic tissue": (
            *("colon n", "n", "normal", "normal colon", "normal colon tissue", "colon normal"),
            *("benign colonic tissue", "benign colon tissue", "colon benign tissue", "benign"),
            *("colon benign", "benign tissue", "healthy"),
        ),
    },
    "tcga_til": {
        "none": (
            *("til negative", "tils negative", "til neg", "negative", "no til", "no tils", "no"),
            *("non til", "no tumor infiltrating lymphocytes", "no lymphocytes", "absent"),
            *("no tumour infiltrating lymphocytes",),
        ),
        "tumor infiltrating lymphocytes": (
            *("til positive", "tils positive", "til pos", "positive", "til", "tils", "present"),
            *("tumor infiltrating lymphocyte", "tumour infiltrating lymphocytes", "lymphocytes"),
            *("yes",),
        ),
    },
    "rsna": {
        "normal lung": (
            *("normal", "normal lungs", "healthy", "no finding", "no findings", "negative"),
            *("no pneumonia", "non pneumonia", "not pneumonia", "without pneumonia"),
            *("no lung opacity", "no opacity", "no", "false", "0", "class 0", "target 0"),
        ),
        "pneumonia": (
            *("lung opacity", "lung opacities", "opacity", "opacities", "pneumonias", "positive"),
            *("with pneumonia", "yes", "true", "1", "class 1", "target 1"),
        ),
    },
}
"""How data spells the classes of each benchmark; ``class_names.match`` ignores case, underscores,
hyphens and spaces. Numbers are here only where the data set itself fixes them: PatchCamelyon's
label 1 is a centre with tumour tissue (Veeling et al. 2018), RSNA's target 1 a lung opacity (the
challenge's ``stage_2_train_labels.csv``)."""


def spellings_of(words: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return other spellings of each word for a class, if the words are those of a benchmark."""
    given = list(words)
    for known in SPELLINGS.values():
        if set(given) == set(known):
            return known
    return dict.fromkeys(given, ())
