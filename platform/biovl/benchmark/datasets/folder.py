"""Class folders: ``CLASS/image.png``, optionally inside ``train/``, ``val/`` and ``test/``.

The name of a folder is that of its class, with spaces for underscores.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from biovl.benchmark import selection
from biovl.benchmark.class_names import normalize
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.stored_images import ImageFiles
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree, base_name

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".gif", ".webp", ".bmp")

OTHER = "no image by its name"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: class folders."""

    path: str
    """The folder that contains the class folders, local or ``s3://``."""
    folders: tuple[str, ...] = ()
    """Class folders to use, in the order of the labels; empty: all, sorted by name."""
    split: str = "test"
    """Split of all images if there are no folders train, val, test."""


def build(config: Config) -> LabelledImages:
    """Return the images with the classes of their folders; links out of the folder are skipped.

    Raises:
        ArtifactError: If there are no class folders, or only one.
    """
    files_of, left_out_of = _files_of_classes(config)
    _check_spelling(config, files_of)
    classes = list(config.folders) or sorted(files_of)
    missing = [name for name in classes if name not in files_of]
    if missing:
        raise ArtifactError(
            f"{config.path} has no class folder {missing[0]!r}, only {', '.join(sorted(files_of))}"
        )
    if not classes:
        raise ArtifactError(f"{config.path} has no class folders")
    rows = [
        (file, number, split)
        for number, name in enumerate(classes)
        for file, split in files_of[name]
    ]
    names = tuple(file for file, _, _ in rows)
    return selection.labelled(
        name=base_name(config.path),
        images=ImageFiles.of(config.path, names),
        labels=[number for _, number, _ in rows],
        classes=[name.replace("_", " ") for name in classes],
        splits=[split for _, _, split in rows],
        ids=names,
        left_out_of={split: +left_out for split, left_out in left_out_of.items()},
    )


def _files_of_classes(
    config: Config,
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, Counter[str]]]:
    """Return the images of each class folder with their splits, and what is left out by split."""
    tree, left_out_of = Tree(config.path), dict[str, Counter[str]]()
    try:
        top = tree.folder(tree.path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactError(f"{config.path} is not a folder of class folders: {error}") from error
    splits = {name: selection.split_named(name) for name in top.folders}
    strays = [name for name, split in splits.items() if not split]
    # One class may be called "test"; several folders of such names are splits.
    has_splits = len(splits) - len(strays) >= (2 if strays else 1)
    if has_splits and strays:
        raise ArtifactError(
            f"{config.path} has folders of splits, and also {strays[0]!r}: expected either "
            "only train, val and test with class folders inside, or only class folders; move the "
            "others elsewhere"
        )
    files_of: dict[str, list[tuple[str, str]]] = {}
    for name, split in splits.items() if has_splits else [("", config.split)]:
        folder = f"{tree.path}/{name}".rstrip("/")
        listing = tree.folder(folder)
        left_out = left_out_of.setdefault(split or "", Counter())
        left_out.update(listing.refused.values())
        for class_folder in listing.folders:
            inside = tree.below(f"{folder}/{class_folder}")
            left_out.update(inside.refused.values())
            begin = f"{name}/{class_folder}/".lstrip("/")
            files = [file for file in inside.files if file.lower().endswith(ENDINGS)]
            left_out.update({OTHER: len(inside.files) - len(files)})
            files_of.setdefault(class_folder, []).extend(
                (begin + file, split or "") for file in files
            )
    return files_of, left_out_of


def _check_spelling(config: Config, files_of: Mapping[str, list[tuple[str, str]]]) -> None:
    splits_of = {name: {split for _, split in files} for name, files in files_of.items()}
    spelled: dict[str, str] = {}
    for class_folder in sorted(files_of):
        other = spelled.setdefault(normalize(class_folder), class_folder)
        is_same = other.replace("_", " ") == class_folder.replace("_", " ")
        # Next to each other, "T cell" and "t cell" are two classes.
        are_beside = splits_of[other] & splits_of[class_folder]
        if other != class_folder and (is_same or not are_beside):
            raise ArtifactError(
                f"{config.path} has two classes of the same name, the folders {other!r} and "
                f"{class_folder!r}: name them alike in every split"
            )
