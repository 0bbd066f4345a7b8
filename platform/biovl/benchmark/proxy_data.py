"""Private and public pairs of the proxy analysis, seed images, and patients of private images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark import data as opening
from biovl.benchmark import selection
from biovl.benchmark.datasets import Images, Pairs
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.benchmark.stored_images import Chosen, ImageFiles, JoinedImages, parts_of, version_of
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin

# Shapes: P private images, N private and public ones, S seeds, L findings.

PRIVATE, PUBLIC = "private", "public"


@dataclass(frozen=True, kw_only=True)
class ProxySources(Pairs):
    """All private and public pairs before the selection; arrays begin with private ones."""

    private: Pairs
    public: Pairs
    seeds: Images | None = None
    """Example images of the modality."""
    labeller_files: tuple[tuple[str, int, int], ...] = ()
    """Versions of the local files of the labeller: with others, a run is another one."""
    selected_with: tuple[str, ...] = ()
    """Fingerprints of a selector that is not evaluated, and of the index: likewise."""


@dataclass(frozen=True, kw_only=True)
class LabelledPairs(Pairs):
    """Private pairs and those of the pool, the private ones first, with their findings."""

    is_private_N: np.ndarray
    """Whether an image is private. bool."""
    positive_NL: np.ndarray
    """Findings of each image's text. bool."""
    group_P: np.ndarray
    """Number of each private image's patient, or of the image itself. int64."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts of the selection and of the labels, for the report."""


def sources(private: Pairs, public: Pairs, seeds: Images | None = None) -> ProxySources:
    """Return private and public pairs as one dataset, the private ones first.

    The id of a private image is its row number: ``private/17``.
    """
    both = (private, public)
    left_out = {
        f"{name}: {reason}": count
        for name, part in zip((PRIVATE, PUBLIC), both, strict=True)
        for reason, count in part.left_out.items()
    }
    images = [one for part in both for one in parts_of(part.images)]
    return ProxySources(
        name=f"{private.name} by {public.name}",
        images=JoinedImages((*images, *(parts_of(seeds) if seeds is not None else ()))),
        texts=[*private.texts, *public.texts],
        text_of_image=np.concatenate(
            [private.text_of_image, len(private.texts) + public.text_of_image]
        ),
        further_F2=np.concatenate(
            [
                private.further_F2,
                public.further_F2 + np.array([len(private.ids), len(private.texts)]),
            ]
        ),
        about=pa.table({"set": pa.array(np.repeat((PRIVATE, PUBLIC), [len(p.ids) for p in both]))}),
        ids=[f"{PRIVATE}/{row}" for row in range(len(private.ids))]
        + [f"{PUBLIC}/{name}" for name in public.ids],
        left_out=left_out,
        private=private,
        public=public,
        seeds=seeds,
    )


def seed_images(seeds: str | Plugin, count: int, seed: int) -> Images:
    """Return example images: a random draw of a folder of images, or of a dataset.

    Raises:
        ArtifactError: If there are none.
    """
    plugin = opening.dataset_plugin(seeds)
    images: Images
    if isinstance(seeds, str) and plugin.name == "folder":
        tree = Tree(seeds)
        files = sorted(tree.below(tree.path).files)
        images = ImageFiles.of(seeds, [one for one in files if one.lower().endswith(ENDINGS)])
    else:
        images = opening.open_dataset(plugin).images
    if not len(images):
        raise ArtifactError(f"seeds: {plugin} holds no images")
    if count and count < len(images):
        drawn = np.random.default_rng(seed).choice(len(images), count, replace=False)
        images = Chosen(images, np.sort(drawn))
    return images


def subset(pairs: Pairs, rows: np.ndarray) -> Pairs:
    texts_of = {row: [pairs.texts[pairs.text_of_image[row]]] for row in rows.tolist()}
    for row, text in pairs.further_F2.tolist():
        if row in texts_of:
            texts_of[row].append(pairs.texts[text])
    return selection.pairs(
        name=pairs.name,
        images=Chosen(pairs.images, rows),
        texts=list(texts_of.values()),
        ids=[pairs.ids[row] for row in rows],
        left_out=pairs.left_out,
    )


def groups(private: Pairs, column: str) -> tuple[np.ndarray, int]:
    """Return the group number of each image, and the number of images without a patient.

    Images of a patient are a group. An image without a patient is a group of its own, as is every
    image if ``column`` is empty.

    Raises:
        ArtifactError: If the data has no such column.
    """
    if not column:
        return np.arange(len(private.ids)), 0
    if column not in private.about.column_names:
        raise ArtifactError(
            f"{private.name} has no column {column} of patients, only "
            f"{', '.join(private.about.column_names)}"
        )
    values: list[str | int] = [
        row if _is_blank(value) else str(value).strip()
        for row, value in enumerate(private.about[column].to_pylist())
    ]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    group_P = np.array([numbers[value] for value in values], np.int64)
    return group_P, sum(isinstance(value, int) for value in values)


def _is_blank(patient: Any) -> bool:
    return patient is None or patient != patient or not str(patient).strip()


def versions(labeller: str | Plugin) -> tuple[tuple[str, int, int], ...]:
    """Return the versions of a labeller's local files; none of a function or a name on the hub."""
    path = Path(str(labeller.settings.get("path", ""))) if isinstance(labeller, Plugin) else Path()
    if path.is_file():
        return (version_of(Folder(str(path.parent)), path.name),)
    names = sorted(one.name for one in path.iterdir() if one.is_file()) if path.is_dir() else []
    return tuple(version_of(Folder(str(path)), name) for name in names) if path.name else ()
