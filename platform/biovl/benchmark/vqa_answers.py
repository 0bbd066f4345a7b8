"""Answers to questions about images: which are the same, and how near two others are.

Accuracy and F1 are defined here once; what scores a run is the mean over its questions.
"""

import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

_OUTER = string.punctuation.replace("%", "") + string.whitespace
_ARTICLES = ("a", "an", "the")


def normalised(answer: object) -> str:
    """Return an answer as it is compared: lower case, single blanks, no punctuation around it.

    Numbers are their digits: ``4`` and ``"4"`` are one answer. Nothing inside is changed, so that
    ``x-ray`` and ``xray`` are two; METER's rules for VQAv2 (articles, number words) are not used,
    since nobody states that the medical sets were scored with them.
    """
    return " ".join(str(answer).lower().split()).strip(_OUTER)


def words(answer: str) -> list[str]:
    """Return the words of an answer for F1, as SQuAD: no punctuation, no articles."""
    plain = answer.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in _ARTICLES]


def token_f1(
    predicted: str, answer: str, tokens: Callable[[str], Sequence[Hashable]] = words
) -> float:
    """Return the F1 of the tokens of two answers, counted with their repetitions.

    With c tokens in common, precision is c / (tokens predicted) and recall c / (tokens of the
    answer). Where either has none, it is 1 if both have none and 0 otherwise. Over a set, the mean
    over its questions.

    Args:
        predicted: By the model.
        answer: The right one.
        tokens: Splits an answer; words unless said otherwise.

    Source:
        Rajpurkar et al. 2016, arXiv:1606.05250 (SQuAD), section 6.1. BiomedCLIP (arXiv:2303.00915)
        takes the tokens of GPT-2, which splits words and so gives other values.
    """
    found, right = Counter(tokens(predicted)), Counter(tokens(answer))
    if not found or not right:
        return float(found == right)
    common = (found & right).total()
    return 2 * common / (found.total() + right.total())


def vocabulary(answers: Iterable[str], *, least: int = 1) -> tuple[str, ...]:
    """Return the normalised answers that were given at least so often: the classes of a model.

    The most frequent is first; equally frequent ones are in the order of the alphabet.
    """
    counts = Counter(normalised(answer) for answer in answers)
    kept = [answer for answer, count in counts.items() if count >= least]
    return tuple(sorted(kept, key=lambda answer: (-counts[answer], answer)))


def most_frequent(answers: Iterable[str]) -> str:
    """Return the most frequent normalised answer, what who sees nothing should say.

    Raises:
        ValueError: If there are no answers.
    """
    found = vocabulary(answers)
    if not found:
        raise ValueError("there are no answers to choose from")
    return found[0]
