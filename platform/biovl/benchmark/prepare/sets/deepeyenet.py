"""DeepEyeNet: JSON files of retinal images with keywords and a clinical description.

    DeepEyeNet_train.json  DeepEyeNet_valid.json  DeepEyeNet_test.json
    eyenet0420/train_set/group41-177.jpg …

The JSON is a list of objects with one image (or several) as key. The text of an image is its
keywords and its description on two lines, as in Open-PMC's retrieval; both are columns as well.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from biovl.benchmark.prepare.annotation_files import NO_IMAGE, Described, NamedImages, read_json
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import SourceError

SETS = {
    "deepeyenet": SetAbout(
        title="DeepEyeNet: retinal images with keywords and descriptions",
        files=("DeepEyeNet_train.json, DeepEyeNet_valid.json, DeepEyeNet_test.json", "eyenet0420/"),
        get="https://github.com/Jhhuangkay/DeepOpht-Medical-Report-Generation-for-Retinal-Images-"
        "via-Deep-Models-and-Visual-Explanation (by e-mail, after signing its terms)",
        size="about 2 GB",
        licence="terms of use of DeepEyeNet: do not redistribute",
        citation="Huang et al. 2021, DeepOpht: medical report generation for retinal images via "
        "deep models and visual explanation, WACV 2021",
        papers={"DeepOpht (60, 20, 20 %)": {"train": 9_425, "val": 3_142, "test": 3_142}},
        differs="text is keywords and description, as in Open-PMC; many images share one",
    ),
}

NO_TEXT = "neither keywords nor description"
REPEATED = "image described before in the same split"

_FILES = {
    "train": ("DeepEyeNet_train.json",),
    "val": ("DeepEyeNet_valid.json", "DeepEyeNet_val.json"),
    "test": ("DeepEyeNet_test.json",),
}
_KEYWORDS, _DESCRIPTION = "keywords", "clinical-description"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: none."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return images, keywords and descriptions by split."""
    images, left_out, splits = NamedImages(raw), Counter[str](), {}
    for split, names in _FILES.items():
        rows: dict[str, tuple[str, str, str]] = {}
        for image, keywords, description in _described(raw, raw.required(*names)):
            file = images.find(image)
            if file is None:
                left_out[NO_IMAGE] += 1
            elif not keywords and not description:
                left_out[NO_TEXT] += 1
            elif image in rows:
                left_out[REPEATED] += 1
            else:
                rows[image] = file, keywords, description
        if rows:
            splits[split] = Described(list(rows.items()), partial(_example, raw))
    images.warn(SETS["deepeyenet"].get)
    if not splits:
        raise SourceError(
            f"{raw.folder} has no image with a text: {dict(left_out)}. {raw.warnings}"
        )
    return RawSet(
        holds="pairs",
        columns={name: pa.string() for name in ("text", "keywords", "clinical_description")},
        splits=splits,
        left_out=dict(sorted(left_out.items())),
    )


def _described(raw: RawFiles, name: str) -> list[tuple[str, str, str]]:
    """Return image, keywords and description of each entry of a file."""
    value, rows = read_json(raw, name), []
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        for image, about in entry.items() if isinstance(entry, dict) else [("", None)]:
            if not isinstance(about, dict):
                raise SourceError(
                    f"{raw.folder}/{name}: expected images with {_KEYWORDS} and {_DESCRIPTION}, "
                    f"found {type(about).__name__} at {str(image)[:80]!r}"
                )
            texts = {str(key).lower(): _text(text) for key, text in about.items()}
            rows.append((str(image), texts.get(_KEYWORDS, ""), texts.get(_DESCRIPTION, "")))
    return rows


def _text(value: Any) -> str:
    """Return keywords, which may be a list, or a description, with single spaces."""
    joined = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return " ".join(joined.split())


def _example(raw: RawFiles, row: tuple[str, tuple[str, str, str]]) -> Example:
    image, (file, keywords, description) = row
    values: Mapping[str, Any] = {
        "text": "\n".join(text for text in (keywords, description) if text),
        "keywords": keywords or None,
        "clinical_description": description or None,
    }
    return Example(id=image, path=image, read=partial(raw.read, file), values=values)
