"""Multiple-choice questions about images: one image, several text options, of which one is correct.

For images with classes, the options are captions of the classes, in one or several wordings
(BIOMEDICA has two). Options are shuffled by seed and question id, and of equally near options the
first is predicted. A model with constant embeddings therefore scores at chance level, although it
predicts a single option for each question.

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
"""Elements of option embeddings in memory at a time: 64 MB."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Multiple-choice questions about images, with options in one or several wordings.

    Axes: E questions, V wordings, O options, M distinct texts.
    """

    name: str
    """Name of the dataset in the report."""
    images: Images
    """Encoded images of the dataset."""
    image_of: np.ndarray
    """Index of the image of each question. int64, [E]."""
    questions: list[str]
    """Text of each question, for the predictions only: as in the source, the model sees the options
    alone. [E]."""
    texts: tuple[str, ...]
    """Distinct option texts; [M]."""
    option_VEO: np.ndarray
    """Index in ``texts`` of each option; -1 after the last one. int64."""
    answer_VE: np.ndarray
    """Position of the correct option. int64."""
    groups: list[str]
    """Group of each question, by which accuracy is broken down; empty for none. [E]."""
    ids: list[str]
    """Unique id of each question; [E]."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows left out, by reason."""
    captions: str = "of the data"
    """Where the options come from: ``of the data``, ``templates`` with the names of classes, or
    ``set`` in the configuration."""

    @property
    def chance(self) -> float:
        """Expected accuracy of random guessing."""
        return float((1 / (self.option_VEO >= 0).sum(2)).mean())


def of_classes(data: LabelledImages, captions: Mapping[str, Sequence[str]]) -> Choices:
    """Return one question per image, with the captions of all classes as options.

    Args:
        data: Images of one split, with classes.
        captions: Captions by class, the same number of wordings for each class; the options of a
            question are in the same wording.

    Raises:
        ConfigError: If a class has no captions, numbers of captions differ, two classes share a
            caption, or a class is unknown.
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
    """Return captions by the data's own class names; case and separators may differ."""
    known = dict.fromkeys(captions, ())
    names = class_names.match(data.classes, known, where=data.name, whose="the captions")
    return {own: captions[name] for own, name in zip(data.classes, names, strict=True)}


def _check(data: LabelledImages, captions: Mapping[str, Sequence[str]]) -> None:
    if len(data.classes) < 2:
        raise ConfigError(f"{data.name} has one class: there is nothing to choose from")
    numbers = {name: len(captions[name]) for name in data.classes}
    if len(set(numbers.values())) != 1 or not min(numbers.values()):
        raise ConfigError(
            f"{data.name}: every class needs as many captions as the others, got {numbers}"
        )
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
    """Return for each question the reason why it is unusable, or None.

    Args:
        images: Key of each question's image; equal keys are the same image.
        questions: Text of each question; may be empty.
        options: Options of each question.
        answers: Position of the correct option; positions outside the list are defects.
        tasks: Task of each question.
        known_tasks: Tasks to use; empty: all but ``unknown``.
    """
    reasons: list[str | None] = []
    answers_of: dict[tuple[str, str, str, frozenset[str]], list[tuple[int, str]]] = {}
    for number, (offered, answer) in enumerate(zip(options, answers, strict=True)):
        texts = [" ".join(text.split()) for text in offered]
        is_known = tasks[number] in known_tasks if known_tasks else tasks[number] != "unknown"
        reason = None
        if not is_known:
            reason = UNKNOWN_TASK
        elif len(texts) < 2:
            reason = ONE_OPTION
        elif not all(texts):
            reason = EMPTY_OPTION
        elif len(set(texts)) < len(texts):
            reason = SAME_OPTION
        elif not 0 <= answer < len(texts):
            reason = OUT_OF_RANGE
        else:
            # Tasks may offer the same options: "yes" and "no".
            question = " ".join(questions[number].split())
            key = images[number], tasks[number], question, frozenset(texts)
            answers_of.setdefault(key, []).append((number, texts[answer]))
        reasons.append(reason)
    for same in answers_of.values():
        contradictory = len({answer for _, answer in same}) > 1
        for number, _ in same if contradictory else same[1:]:
            reasons[number] = CONTRADICTORY if contradictory else REPEATED
    return reasons


def shuffle_options(data: Choices, seed: int) -> Choices:
    """Return the questions with shuffled options, and the new positions of the correct ones.

    The order depends only on the seed, the id and the wording: it is the same on every machine, and
    does not depend on other questions.
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


def nearest_options(data: Choices, image_ND: np.ndarray, text_MD: np.ndarray) -> np.ndarray:
    """Return the position of the nearest option, -1 for an unreadable image. int64, [V, E].

    Args:
        data: The questions.
        image_ND: Unit embeddings of ``data.images``; NaN if unreadable.
        text_MD: Unit embeddings of ``data.texts``.
    """
    # Imports PyTorch, which the command line does without: it lists datasets.
    from biovl.benchmark.ranks import TIE

    variations, examples, options = data.option_VEO.shape
    chosen_VE = np.full((variations, examples), -1, np.int64)
    rows = max(1, _AT_ONCE // (options * text_MD.shape[1]))
    for start in range(0, examples, rows):
        some = slice(start, start + rows)
        image_eD = np.asarray(image_ND[data.image_of[some]], np.float32)
        readable_e = ~np.isnan(image_eD).any(1)
        for v in range(variations):
            option_eO = data.option_VEO[v, some]
            # One product per option, so that equal vectors have exactly equal similarities.
            near_eO = np.einsum("eod,ed->eo", text_MD[option_eO], image_eD)
            near_eO = np.where(option_eO >= 0, near_eO, -np.inf)
            first_e = (near_eO >= near_eO.max(1, keepdims=True) - TIE).argmax(1)
            chosen_VE[v, some] = np.where(readable_e, first_e, -1)
    return chosen_VE
