"""The benchmarks of the papers, as data: what each asks, where it comes from, and what it takes.

Forty tasks of BIOMEDICA (arXiv:2501.07171, table 12), the sets of BiomedCLIP (arXiv:2303.00915) and
those of BMC-LongCLIP (appendices B and C).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SEE_SOURCE = "see source"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark."""

    name: str
    domain: str
    group: str
    """The column of BIOMEDICA's table 3 or 5 that it counts in."""
    about: str
    modality: str
    classes: int | None
    source: str
    """Who made it, and where it is to be had."""
    licence: str = SEE_SOURCE
    access: str = "download"
    """What a user must do: download, or sign."""
    path: str = ""
    """Below data_root; the name, unless it says otherwise."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the reader, which is chosen by what is there unless ``name`` is among them."""
    task: str = ""
    """By which it is asked; empty is what the run says."""
    prompts: str = ""
    """Of ``prompts.PROMPTS``."""
    captions: int | None = 2
    """Variations of a class's caption in the paper; it does not print them."""
    metric: str = ""
    """The score that counts in averages; empty is the first."""

    @property
    def location(self) -> str:
        """Where it is below data_root."""
        return self.path or self.name


_MICRO = "Micro-Bench (Lozano et al. 2024), huggingface.co/datasets/jnirschl/uBench"


def _micro(
    name: str,
    domain: str,
    group: str,
    about: str,
    modality: str,
    classes: int,
    made_by: str,
    dataset: str,
) -> Benchmark:
    """Return a task of Micro-Bench: rows of its Parquet files with that value of ``dataset``."""
    return Benchmark(
        name=name,
        domain=domain,
        group=group,
        about=about,
        modality=modality,
        classes=classes,
        source=f"{made_by}; in {_MICRO}",
        licence="by row: column license",
        path="ubench",
        settings={"name": "table", "label": "label_name", "where": {"dataset": dataset}},
    )


def _general(name: str, about: str, classes: int, column: str) -> Benchmark:
    """Return a task of Micro-Bench Perception over all of its images."""
    return Benchmark(
        name=name,
        domain="General microscopy",
        group=about,
        about=f"Microscopy {about.lower()}",
        modality="Microscopy",
        classes=classes,
        source=_MICRO,
        licence="by row: column license",
        path="ubench",
        settings={"name": "table", "label": column},
    )


_FLUO, _GIEMSA, _HE, _IHC = (
    "Fluorescence microscopy",
    "Light microscopy (Giemsa)",
    "Light microscopy (H&E)",
    "Light microscopy (IHC)",
)
_CELL, _STRUCTURE, _CYTOLOGY = "Cell profiling", "Structure profiling", "Cytology"
_NEO, _NON_NEO, _SURGERY = "Neo-histopathology", "Non-neo-histopathology", "M.I. surgery"

_CELL_BIOLOGY = (
    _micro(
        "bbbc048_bf",
        "Biology",
        _CELL,
        "Cell cycle phase, bright field",
        _FLUO,
        7,
        "Eulenberg et al. 2017, BBBC048",
        "eulenberg_et_al_2017_brightfield",
    ),
    _micro(
        "bbbc048_df",
        "Biology",
        _CELL,
        "Cell cycle phase, dark field",
        _FLUO,
        7,
        "Eulenberg et al. 2017, BBBC048",
        "eulenberg_et_al_2017_darkfield",
    ),
    _micro(
        "bbbc048_ef",
        "Biology",
        _CELL,
        "Cell cycle phase, epifluorescence",
        _FLUO,
        5,
        "Eulenberg et al. 2017, BBBC048",
        "eulenberg_et_al_2017_epifluorescence",
    ),
    _micro(
        "pcst_contour",
        "Biology",
        _CELL,
        "Cell contour",
        _FLUO,
        3,
        "Burgess et al. 2024",
        "burgess_et_al_2024_contour",
    ),
    _micro(
        "pcst_texture",
        "Biology",
        _CELL,
        "Cell texture",
        _FLUO,
        3,
        "Burgess et al. 2024",
        "burgess_et_al_2024_texture",
    ),
    _micro(
        "pcst_eccentricity",
        "Biology",
        _CELL,
        "Cell eccentricity",
        _FLUO,
        3,
        "Burgess et al. 2024",
        "burgess_et_al_2024_eccentricity",
    ),
    _micro(
        "fluorescence_cells",
        "Biology",
        _STRUCTURE,
        "Organisms and structures",
        _FLUO,
        13,
        "Nirschl, unpublished",
        "nirschl_unpub_fluorescence",
    ),
    _micro(
        "empiar_sbfsem",
        "Biology",
        _STRUCTURE,
        "Organisms and structures",
        "Electron microscopy",
        5,
        "Iudin et al. 2023, EMPIAR",
        "empiar_sbfsem",
    ),
    _micro(
        "icpr2020_pollen",
        "Biology",
        _STRUCTURE,
        "Pollen structures",
        _FLUO,
        4,
        "Battiato et al. 2020",
        "icpr2020_pollen",
    ),
)
_PATHOLOGY = (
    _micro(
        "acevedo_2020",
        "Pathology",
        _CYTOLOGY,
        "White blood cell",
        _GIEMSA,
        8,
        "Acevedo et al. 2020",
        "acevedo_et_al_2020",
    ),
    _micro(
        "jung_2022",
        "Pathology",
        _CYTOLOGY,
        "White blood cell",
        _GIEMSA,
        5,
        "Jung et al. 2022",
        "jung_et_al_2022",
    ),
    _micro(
        "pap_smear_2019",
        "Pathology",
        _CYTOLOGY,
        "Pap smear grading",
        "Light microscopy (Pap smear)",
        4,
        "Hussain et al. 2019",
        "hussain_et_al_2019",
    ),
    _micro(
        "kather_2016",
        "Pathology",
        _NEO,
        "Colorectal tissue",
        _HE,
        8,
        "Kather et al. 2016",
        "kather_et_al_2016",
    ),
    Benchmark(
        name="lc25000_lung",
        domain="Pathology",
        group=_NEO,
        about="Lung tissue",
        modality=_HE,
        classes=3,
        prompts="lc25000_lung",
        source="Borkowski et al. 2019, arXiv:1912.12142",
        path="lc25000/lung_image_sets",
        settings={"name": "folder", "folders": ["lung_aca", "lung_n", "lung_scc"]},
    ),
    Benchmark(
        name="pcam",
        domain="Pathology",
        group=_NEO,
        about="Lymph node metastasis",
        modality=_HE,
        classes=2,
        prompts="pcam",
        licence="CC0-1.0",
        source="Veeling et al. 2018, github.com/basveeling/pcam",
    ),
    Benchmark(
        name="lc25000_colon",
        domain="Pathology",
        group=_NEO,
        about="Colon tissue",
        modality=_HE,
        classes=2,
        prompts="lc25000_colon",
        source="Borkowski et al. 2019, arXiv:1912.12142",
        path="lc25000/colon_image_sets",
        settings={"name": "folder", "folders": ["colon_aca", "colon_n"]},
    ),
    _micro(
        "tang_2019",
        "Pathology",
        _NON_NEO,
        "Amyloid morphology",
        _IHC,
        4,
        "Tang et al. 2019",
        "tang_et_al_2019",
    ),
    _micro(
        "wong_2022",
        "Pathology",
        _NON_NEO,
        "Amyloid morphology",
        _IHC,
        4,
        "Wong et al. 2022",
        "wong_et_al_2022",
    ),
    _micro(
        "nirschl_2018",
        "Pathology",
        _NON_NEO,
        "Clinical chronic heart failure",
        _HE,
        2,
        "Nirschl et al. 2018",
        "nirschl_et_al_2018",
    ),
    _micro(
        "wu_2023",
        "Pathology",
        _NON_NEO,
        "Mitochondrial morphology",
        _IHC,
        2,
        "Wu et al. 2023",
        "wu_et_al_2023",
    ),
)
_MICROSCOPY = (
    _general("microbench_submodality", "Submodality", 6, "submodality"),
    _general("microbench_stain", "Stain", 6, "stain"),
    _general("microbench_domain", "Domain", 6, "domain"),
    _general("microbench_modality", "Modality", 3, "modality"),
)
_CLINICAL = (
    Benchmark(
        name="chexpert",
        domain="Radiology",
        group="Chest X-ray",
        about="Chest X-ray findings",
        modality="Chest X-ray",
        classes=5,
        access="sign",
        licence="Stanford research use agreement",
        source="Irvin et al. 2019, stanfordmlgroup.github.io/competitions/chexpert; one "
        "class folder for each of the five findings",
    ),
    Benchmark(
        name="rsna",
        domain="Radiology",
        group="Chest X-ray",
        about="Chest X-ray findings",
        modality="Chest X-ray",
        classes=2,
        access="sign",
        prompts="rsna",
        licence="terms of the RSNA 2018 challenge",
        source="Shih et al. 2019, kaggle.com/c/rsna-pneumonia-detection-challenge",
    ),
    Benchmark(
        name="breastmnist",
        domain="Radiology",
        group="Breast ultrasound",
        about="Breast cancer diagnosis",
        modality="Breast ultrasound",
        classes=2,
        licence="CC-BY-4.0",
        path="medmnist/breastmnist_224.npz",
        source="Al-Dhabyani et al. 2020; MedMNIST, medmnist.com",
    ),
    Benchmark(
        name="ham10000",
        domain="Dermatology",
        group="Skin diagnosis",
        about="Common skin lesions",
        modality="Dermatoscope",
        classes=7,
        licence="CC-BY-NC-4.0",
        path="medmnist/dermamnist_224.npz",
        source="Tschandl et al. 2018; MedMNIST, medmnist.com",
    ),
    Benchmark(
        name="deepdrid",
        domain="Ophthalmology",
        group="Fundus camera",
        about="Diabetic retinopathy",
        modality="Retina fundus images",
        classes=4,
        licence="CC-BY-4.0",
        path="medmnist/retinamnist_224.npz",
        source="Liu et al. 2022; MedMNIST, medmnist.com, has 5 grades",
    ),
)
_ORGANS = (
    *("colon", "inferior_mesenteric_artery", "intestinal_veins", "liver", "pancreas"),
    *("small_intestine", "spleen", "stomach", "ureter", "vesicular_glands"),
)
# The set has eleven structures; ten are counted in table 3 and none is named. The abdominal wall is
# in view nearly always, and left out here.
_DRESDEN = tuple(
    Benchmark(
        name=f"dresden_{organ}",
        domain="Surgery",
        group=_SURGERY,
        about=f"Anatomy in surgery: {organ.replace('_', ' ')} in view or not",
        modality="Laparoscopic surgery",
        classes=2,
        licence="CC-BY-4.0",
        source="Carstens et al. 2023, doi:10.1038/s41597-022-01719-2; two class folders, "
        "with the structure in view and without",
        path=f"dresden/{organ}",
    )
    for organ in _ORGANS
)
_RETRIEVAL = (
    Benchmark(
        name="biomed_flickr",
        domain="Retrieval",
        group="Retrieval",
        about="7K biomedical image-caption pairs",
        modality="mixed",
        classes=None,
        task="retrieval",
        captions=None,
        source="BIOMEDICA, section 17; captions.csv (image, caption), Parquet or tars",
    ),
)
_OTHERS = (
    Benchmark(
        name="tcga_til",
        domain="Pathology",
        group=_NEO,
        about="Tumour infiltrating lymphocytes",
        modality=_HE,
        classes=2,
        prompts="tcga_til",
        captions=None,
        # BiomedCLIP, supplementary table 5: AUROC for TCGA-TIL, accuracy for others.
        metric="auroc",
        source="Abousamra et al. 2022; Kaczmarzyk et al., zenodo 6604094",
    ),
    Benchmark(
        name="mimic_cxr",
        domain="Retrieval",
        group="Retrieval",
        about="1,000 chest radiographs and whole reports",
        modality="Chest X-ray",
        classes=None,
        access="sign",
        licence="PhysioNet credentialed health data licence",
        task="retrieval",
        captions=None,
        settings={"name": "reports"},
        source="Johnson et al. 2019, physionet.org/content/mimic-cxr; BMC-LongCLIP, B",
    ),
    Benchmark(
        name="pmc_long",
        domain="Retrieval",
        group="Retrieval",
        about="Long captions of 1,000 articles of 2025",
        modality="mixed",
        classes=None,
        task="retrieval",
        captions=None,
        licence="by article",
        path="figures",
        settings={"name": "long_captions"},
        access="harvest",
        source="figures/ of pipelines/harvest.py; BMC-LongCLIP, C",
    ),
    Benchmark(
        name="vqa_rad",
        domain="Radiology",
        group="Medical questions",
        about="VQA-RAD, questions about radiographs and slices, 1,797 to train on and 451",
        modality="X-ray, CT, MRI",
        classes=None,
        task="vqa",
        captions=None,
        licence="CC0-1.0",
        settings={"name": "vqa"},
        source="Lau et al. 2018, doi:10.1038/sdata.2018.251; osf.io/89kps",
    ),
    Benchmark(
        name="slake",
        domain="Radiology",
        group="Medical questions",
        about="SLAKE, questions in English, 4,919, 1,053 and 1,061; vqa_slake trains as it should",
        modality="X-ray, CT, MRI",
        classes=None,
        task="vqa",
        captions=None,
        licence="CC-BY-4.0",
        settings={"name": "vqa"},
        source="Liu et al. 2021, arXiv:2102.09542; huggingface.co/datasets/BoKelvin/SLAKE",
    ),
)

BIOMEDICA_TABLE_12 = (*_CELL_BIOLOGY, *_PATHOLOGY, *_MICROSCOPY, *_CLINICAL, *_DRESDEN, *_RETRIEVAL)

BENCHMARKS: Mapping[str, Benchmark] = {item.name: item for item in (*BIOMEDICA_TABLE_12, *_OTHERS)}

SUITES: Mapping[str, tuple[str, ...]] = {
    "biomedica": tuple(item.name for item in BIOMEDICA_TABLE_12),
    "biomedica_general": tuple(
        item.name for item in (*_CELL_BIOLOGY, *_PATHOLOGY, *_CLINICAL, *_DRESDEN)
    ),
    "microscopy_composition": tuple(item.name for item in _MICROSCOPY),
    "biomedclip": ("pcam", "lc25000_lung", "lc25000_colon", "tcga_til", "rsna"),
    "bmc_longclip": ("mimic_cxr", "pmc_long"),
    "bmc_longclip_classification": tuple(
        item.name for item in (*_CELL_BIOLOGY, *_PATHOLOGY, *_MICROSCOPY, *_CLINICAL)
    ),
    "medical_questions": ("vqa_rad", "slake"),
}
"""Benchmarks by the name of what they are reported together as."""

AVERAGED_OVER: Mapping[str, Literal["group", "domain", "task"]] = {
    "biomedica_general": "group",
    "microscopy_composition": "task",
    "biomedclip": "task",
    "bmc_longclip_classification": "domain",
}
"""What the papers' own averages of a suite are means of: the ten columns of BIOMEDICA's table 3,
the tasks of its table 5 and of BiomedCLIP's supplementary table 5, the six domains of
BMC-LongCLIP's table 2, where surgery is none. A column or domain is the mean of its tasks."""
