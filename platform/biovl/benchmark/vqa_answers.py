"""Comparison of answers for visual question answering: normalisation, exact match, token F1."""

import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

# Signs are part of an answer: "ER+" is not "ER-", and ">5 mm" not "<5 mm".
_SIGNS = "%+-<=>~"
_OUTER = string.whitespace + "".join(sorted({*string.punctuation} - {*_SIGNS}))
_ARTICLES = ("a", "an", "the")


def normalised(answer: object) -> str:
    """Return an answer normalised for comparison: lower case, single spaces, no outer punctuation.

    Signs (``+ - < = > ~ %``) stay. Numbers become digits: ``4`` and ``"4"`` are equal. Nothing
    inside is changed, so ``x-ray`` and ``xray`` differ; METER's rules for VQAv2 (articles, number
    words) are not applied, since no paper states that the medical datasets were scored with them.
    """
    return " ".join(str(answer).lower().split()).strip(_OUTER)


def words(answer: str) -> list[str]:
    """Return the words of an answer for F1, as in SQuAD: without punctuation and articles."""
    plain = answer.lower().translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in _ARTICLES]


def token_f1(
    predicted: str, answer: str, tokens: Callable[[str], Sequence[Hashable]] = words
) -> float:
    """Return the F1 of the tokens of two answers, counted with repetitions.

    With c tokens in common, precision is c / (predicted tokens) and recall c / (tokens of the
    answer). If either has none, it is 1 if both have none and 0 otherwise. The score of a dataset
    is the mean over its questions.

    Args:
        predicted: The predicted answer.
        answer: The reference answer.
        tokens: Function that splits an answer; by default into words.

    Source:
        Rajpurkar et al. 2016, arXiv:1606.05250 (SQuAD), section 6.1. BiomedCLIP (arXiv:2303.00915)
        has the same F1 of GPT-2's tokens, which split words and so give other values.
    """
    guessed, right = Counter(tokens(predicted)), Counter(tokens(answer))
    if not guessed or not right:
        return float(guessed == right)
    common = (guessed & right).total()
    return 2 * common / (guessed.total() + right.total())


def vocabulary(answers: Iterable[str], *, least: int = 1) -> tuple[str, ...]:
    """Return the normalised answers with at least ``least`` occurrences: the classes of a model.

    They are sorted by descending frequency, then alphabetically.
    """
    counts = Counter(normalised(answer) for answer in answers)
    frequent = [answer for answer, count in counts.items() if count >= least]
    return tuple(sorted(frequent, key=lambda answer: (-counts[answer], answer)))


def most_frequent(answers: Iterable[str]) -> str:
    """Return the most frequent normalised answer, the baseline that ignores image and question.

    Raises:
        ValueError: If there are no answers.
    """
    found = vocabulary(answers)
    if not found:
        raise ValueError("there are no answers to choose from")
    return found[0]
