"""Closed visual questions: an image, some options in words, one of them right.

Classes become options by captions, several variations of each (BIOMEDICA writes two). Options stand
in an order drawn from the seed and the question's id, and of options that are equally near the
first is taken: so a model to which all are alike scores what guessing scores, while the answer that
is published is one option.

Source:
    Lozano et al. 2025 (BIOMEDICA), arXiv:2501.07171, section 16.1.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from biovl.benchmark import class_names
from biovl.benchmark.datasets import Images, LabelledImages
from biovl.benchmark.metrics import TIE
from biovl.core.errors import ConfigError

# Shapes: N images, M texts, D embedding, E examples, V variations, O options (of the longest list).

ONE_OPTION = "fewer than two options"
OUT_OF_RANGE = "the answer is none of the options"
SAME_OPTION = "the same option twice"
EMPTY_OPTION = "an empty option"
UNKNOWN_TASK = "of no known task"
REPEATED = "asked before on the same image"
CONTRADICTORY = "asked twice on the same image with different answers"

_AT_ONCE = 1 << 24
"""Numbers of option vectors held at a time: 64 MB."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Examples: an image and a list of options, in one or several variations of their wording."""

    name: str
    images: Images
    image_of: np.ndarray
    """Index of the image. int64, [E]."""
    questions: list[str]
    """Told, not used: options answer without them, as in the source. [E]."""
    texts: tuple[str, ...]
    """Distinct; [M]."""
    option_VEO: np.ndarray
    """Index of the text; -1 after the last option. int64."""
    answer_VE: np.ndarray
    """Place of the right option. int64."""
    groups: list[str]
    """What accuracy is told apart by, as well; empty if nothing. [E]."""
    ids: list[str]
    """Unique; [E]."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is not among them, by reason."""

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return float((1 / (self.option_VEO >= 0).sum(2)).mean())


def of_classes(data: LabelledImages, captions: Mapping[str, Sequence[str]]) -> Choices:
    """Return a question for each image, whose options are the captions of all classes.

    Args:
        data: Images and their classes, of one split.
        captions: By class, as many variations of each; those of a variation stand together.

    Raises:
        ConfigError: If a class has no captions or another number, two share one, or there are
            captions of an unknown class.
    """
    captions = _named(data, captions)
    _check(data, captions)
    variations = len(captions[data.classes[0]])
    examples = len(data.ids)
    wordings = [[captions[name][v] for name in data.classes] for v in range(variations)]
    texts = tuple(dict.fromkeys(text for wording in wordings for text in wording))
    place = {text: number for number, text in enumerate(texts)}
    option_VC = np.array([[place[text] for text in wording] for wording in wordings], np.int64)
    return Choices(
        name=data.name,
        images=data.images,
        image_of=np.arange(examples),
        questions=[""] * examples,
        texts=texts,
        option_VEO=np.repeat(option_VC[:, None], examples, axis=1),
        answer_VE=np.repeat(data.labels.astype(np.int64)[None], variations, axis=0),
        groups=[""] * examples,
        ids=data.ids,
        left_out=data.left_out,
    )


def _named(
    data: LabelledImages, captions: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[str]]:
    """Return captions by the data's own names of the classes; case and separators may differ."""
    known = dict.fromkeys(captions, ())
    names = class_names.match(data.classes, known, where=data.name, whose="the captions")
    return {own: captions[name] for own, name in zip(data.classes, names, strict=True)}


def _check(data: LabelledImages, captions: Mapping[str, Sequence[str]]) -> None:
    if len(data.classes) < 2:
        raise ConfigError(f"{data.name} has one class: there is nothing to choose from")
    numbers = {name: len(captions[name]) for name in data.classes}
    if len(set(numbers.values())) != 1 or not min(numbers.values()):
        raise ConfigError(f"each class of {data.name} has as many captions, got {numbers}")
    for number, wording in enumerate(zip(*(captions[n] for n in data.classes), strict=True)):
        twice = [text for text, count in Counter(wording).items() if count > 1 or not text.strip()]
        if twice:
            raise ConfigError(
                f"two classes of {data.name} share a caption, or it is empty: {twice[0]!r} "
                f"(variation {number + 1})"
            )


def defects(
    images: Sequence[str],
    questions: Sequence[str],
    options: Sequence[Sequence[str]],
    answers: Sequence[int],
    tasks: Sequence[str],
    known_tasks: Sequence[str] = (),
) -> list[str | None]:
    """Return why each question cannot be asked, or None.

    Args:
        images: What tells images apart.
        questions: In words; may be empty.
        options: Of each question.
        answers: Place of the right option; anything outside the list is out of range.
        tasks: Of each question.
        known_tasks: Others are left out; empty knows all but ``unknown``.
    """
    found: list[str | None] = []
    given: dict[tuple[str, str, frozenset[str]], list[tuple[int, str]]] = {}
    for number, (offered, answer) in enumerate(zip(options, answers, strict=True)):
        told = [" ".join(text.split()) for text in offered]
        is_known = tasks[number] in known_tasks if known_tasks else tasks[number] != "unknown"
        reason = None
        if not is_known:
            reason = UNKNOWN_TASK
        elif len(told) < 2:
            reason = ONE_OPTION
        elif not all(told):
            reason = EMPTY_OPTION
        elif len(set(told)) < len(told):
            reason = SAME_OPTION
        elif not 0 <= answer < len(told):
            reason = OUT_OF_RANGE
        else:
            key = images[number], " ".join(questions[number].split()), frozenset(told)
            given.setdefault(key, []).append((number, told[answer]))
        found.append(reason)
    for same in given.values():
        contradictory = len({answer for _, answer in same}) > 1
        for number, _ in same if contradictory else same[1:]:
            found[number] = CONTRADICTORY if contradictory else REPEATED
    return found


def permuted(data: Choices, seed: int) -> Choices:
    """Return the questions with their options in a drawn order, and where the right one went.

    The order depends on the seed, the id and the variation alone: the same on every machine, and
    whatever else is asked.
    """
    order_VEO = np.zeros_like(data.option_VEO)
    count_VE = (data.option_VEO >= 0).sum(2)
    for v, counts in enumerate(count_VE):
        for e, (name, count) in enumerate(zip(data.ids, counts.tolist(), strict=True)):
            drawn = [_drawn(f"{seed}/{v}/{o}/{name}") for o in range(count)]
            order = sorted(range(count), key=drawn.__getitem__)
            order_VEO[v, e] = order + list(range(count, data.option_VEO.shape[2]))
    moved_VE = (order_VEO == data.answer_VE[..., None]).argmax(2)
    option_VEO = np.take_along_axis(data.option_VEO, order_VEO, axis=2)
    return replace(data, option_VEO=option_VEO, answer_VE=moved_VE)


def _drawn(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def answered(data: Choices, image_ND: np.ndarray, text_MD: np.ndarray) -> np.ndarray:
    """Return the place of the nearest option, -1 where the image is unreadable. int64, [V, E].

    Args:
        data: Whose ``texts`` and ``images`` the vectors are of.
        image_ND: Unit rows; NaN where unreadable.
        text_MD: Unit rows.
    """
    variations, examples, options = data.option_VEO.shape
    chosen_VE = np.full((variations, examples), -1, np.int64)
    rows = max(1, _AT_ONCE // (options * text_MD.shape[1]))
    for start in range(0, examples, rows):
        some = slice(start, start + rows)
        image_eD = np.asarray(image_ND[data.image_of[some]], np.float32)
        readable_e = ~np.isnan(image_eD).any(1)
        for v in range(variations):
            option_eO = data.option_VEO[v, some]
            # Each product for itself: equal vectors have equal similarities.
            near_eO = np.einsum("eod,ed->eo", text_MD[option_eO], image_eD)
            near_eO = np.where(option_eO >= 0, near_eO, -np.inf)
            first_e = (near_eO >= near_eO.max(1, keepdims=True) - TIE).argmax(1)
            chosen_VE[v, some] = np.where(readable_e, first_e, -1)
    return chosen_VE
