"""MedMNIST's npz files, with ``train_images``, ``train_labels`` and the same for val and test.

Source: Yang et al. 2023, MedMNIST v2, doi:10.1038/s41597-022-01721-8.
"""

from dataclasses import dataclass

import numpy as np

from biovl.benchmark import selection
from biovl.benchmark.datasets import SPLITS, LabelledImages
from biovl.benchmark.stored_images import (
    Array,
    JoinedImages,
    array_names,
    hash_of,
    open_array,
    version_of,
)
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: an npz file."""

    path: str
    """The .npz file, local or ``s3://``."""
    classes: tuple[str, ...] = ()
    """Names of the labels 0, 1 …; empty: MedMNIST's names if the file name is known, else the
    numbers."""


def build(config: Config) -> LabelledImages:
    """Return the images of all splits. Pickled objects are not loaded.

    Raises:
        ArtifactError: If an array is missing or has another shape, or an image has several labels.
    """
    uri, _, name = config.path.rpartition("/")
    uri = uri or "."
    if not Folder(uri).exists(name):
        raise ArtifactError(f"{config.path} does not exist: expected an npz file of MedMNIST")
    version = version_of(Folder(uri), name)
    parts, labels, splits = [], [], []
    arrays = array_names(uri, name)
    for split in SPLITS:
        if f"{split}_images" not in arrays:
            continue
        with open_array(uri, name, f"{split}_images") as (_, shape, dtype):
            is_image = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
            if not is_image or dtype != np.uint8:
                raise ArtifactError(
                    f"{config.path}: {split}_images is {dtype} {shape}, expected uint8 [N, H, W] "
                    "or [N, H, W, 3]"
                )
        parts.append(Array(uri, name, f"{split}_images", shape, hash_of(version, split)))
        label_N = _labels(config.path, uri, name, f"{split}_labels")
        if len(label_N) != shape[0]:
            raise ArtifactError(
                f"{config.path}: {split} has {shape[0]} images and {len(label_N)} labels"
            )
        labels.append(label_N)
        splits += [split] * shape[0]
    if not parts:
        raise ArtifactError(f"{config.path} has none of train_images, val_images, test_images")
    stem = name.removesuffix(".npz").partition("_")[0]
    label_N = np.concatenate(labels)
    classes = config.classes or CLASSES.get(stem)
    if not classes:
        classes = tuple(f"class {number}" for number in range(int(label_N.max(initial=0)) + 1))
    return selection.labelled(
        name=name.removesuffix(".npz"),
        images=JoinedImages(tuple(parts)),
        labels=label_N,
        classes=classes,
        splits=splits,
        ids=[f"{part.key}/{row}" for part in parts for row in range(len(part))],
    )


def _labels(path: str, uri: str, name: str, key: str) -> np.ndarray:
    with open_array(uri, name, key) as (stream, shape, dtype):
        if not np.issubdtype(dtype, np.integer) or len(shape) not in (1, 2):
            raise ArtifactError(f"{path}: {key} is {dtype} {shape}, expected integers [N, 1]")
        if len(shape) == 2 and shape[1] != 1:
            raise ArtifactError(
                f"{path}: an image has {shape[1]} labels; only sets of one label each are read"
            )
        return np.frombuffer(stream.read(), dtype).astype(np.int64)


CLASSES: dict[str, tuple[str, ...]] = {
    "bloodmnist": (
        *("basophil", "eosinophil", "erythroblast", "immature granulocytes", "lymphocyte"),
        *("monocyte", "neutrophil", "platelet"),
    ),
    "breastmnist": ("malignant", "normal or benign"),
    "dermamnist": (
        *("actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma"),
        *("benign keratosis-like lesions", "dermatofibroma", "melanoma", "melanocytic nevi"),
        "vascular lesions",
    ),
    "octmnist": (
        *("choroidal neovascularization", "diabetic macular edema", "drusen"),
        "normal retina",
    ),
    "pathmnist": (
        *("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle"),
        *("normal colon mucosa", "cancer-associated stroma"),
        "colorectal adenocarcinoma epithelium",
    ),
    "pneumoniamnist": ("normal", "pneumonia"),
    "retinamnist": tuple(f"diabetic retinopathy grade {grade}" for grade in range(5)),
    "tissuemnist": (
        *("collecting duct, connecting tubule", "distal convoluted tubule"),
        *("glomerular endothelial cells", "interstitial endothelial cells", "leukocytes"),
        *("podocytes", "proximal tubule segments", "thick ascending limb"),
    ),
}
"""Class names by file name without its size, from ``medmnist.INFO`` of MedMNIST 3."""
