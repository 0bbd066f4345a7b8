"""Logistic regression on frozen features (linear probing), with selection of C.

The objective is scikit-learn's: the summed cross-entropy times C plus half the squared weights,
without regularisation of intercepts. It is minimised by L-BFGS in float64, on any device. C is
selected on validation images, or, if there are none, on a held-out part of the training images;
test labels are never used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Shapes: N images, T training images, D features, C classes, W weight vectors (1 of two classes).

STRENGTHS = tuple(10.0**power for power in range(-4, 4))
"""Candidate values of C, from strong regularisation to almost none, for scaled features."""

FOLDS = 5
"""Folds of the training images for cross-validation of C, if there are no validation images."""

_FEW = 5_000
"""Maximum training images for full cross-validation; of more images only one fold is held out,
which is large enough."""

_STEPS = 1_000
TOLERANCE = 1e-5
"""Convergence criterion: largest entry of the gradient of the mean loss. scikit-learn's is 1e-4."""


@dataclass(frozen=True)
class Probe:
    """A fitted logistic regression. W is 1 for two classes, otherwise the number of classes."""

    weight_WD: np.ndarray
    """Weight vectors. [W, D]."""
    bias_W: np.ndarray
    """Intercepts, float64. [W]."""
    classes: int
    """Number of classes."""
    inverse_strength: float
    """C, the inverse regularisation strength."""

    def logits(self, features_ND: np.ndarray) -> np.ndarray:
        """Return the logits of each class, float64, shape [N, C]."""
        logits_NW = features_ND.astype(np.float64) @ self.weight_WD.T + self.bias_W
        return _of_all_classes(torch.from_numpy(logits_NW)).numpy()

    def probabilities(self, features_ND: np.ndarray) -> np.ndarray:
        """Return the probabilities of each class, float64, shape [N, C]."""
        shares: np.ndarray = torch.from_numpy(self.logits(features_ND)).softmax(1).numpy()
        return shares


@dataclass(frozen=True)
class Scaling:
    """Centring and scaling of features by their mean and standard deviation over training images.

    All features share one standard deviation: the regression is equivalent to that on unscaled
    features, and its C has the same meaning for every model, however narrow the cone of its
    embeddings. Scaling each feature by its own would amplify features on which a few images happen
    to agree.
    """

    mean_D: np.ndarray
    """Mean of each feature."""
    deviation: float
    """Standard deviation over all features."""

    @classmethod
    def of(cls, features_TD: np.ndarray) -> "Scaling":
        """Return the scaling of training images; identical images are only centred."""
        mean_D = features_TD.mean(axis=0, dtype=np.float64)
        deviation = float(np.sqrt(((features_TD - mean_D) ** 2).mean()))
        # The deviation of equal float32 vectors is only rounding error.
        return cls(mean_D, deviation if deviation > 1e-6 * np.abs(mean_D).max() else 1.0)

    def __call__(self, features_ND: np.ndarray) -> np.ndarray:
        """Return features after centring and scaling, float64, [N, D]."""
        scaled: np.ndarray = (features_ND - self.mean_D) / self.deviation
        return scaled


def fit(
    features_TD: np.ndarray,
    labels_T: np.ndarray,
    classes: int,
    inverse_strength: float = 1.0,
    *,
    device: str = "cpu",
    tolerance: float = TOLERANCE,
) -> Probe:
    """Return a logistic regression of labels on features.

    Two classes have one weight vector, more have one each, so that C has the same meaning as in
    ``sklearn.linear_model.LogisticRegression``. Classes without training images are never
    predicted.

    Args:
        features_TD: Features of the T training images, of any float type, without NaN.
        labels_T: Classes, 0 <= label < classes, int64.
        classes: Number of classes, at least 2.
        inverse_strength: Inverse regularisation strength: C of scikit-learn, positive.
        device: Device to compute on.
        tolerance: Convergence criterion, see ``TOLERANCE``.

    Raises:
        ValueError: If there are no training images, or a label is out of range.
    """
    return next(
        iter(_fitted(features_TD, labels_T, classes, (inverse_strength,), device, tolerance))
    )


def fit_with_validation(
    train: tuple[np.ndarray, np.ndarray],
    val: tuple[np.ndarray, np.ndarray],
    classes: int,
    *,
    inverse_strengths: Sequence[float] = STRENGTHS,
    device: str = "cpu",
) -> Probe:
    """Return the regression fitted on ``train`` with the C of highest accuracy on ``val``.

    Ties go to the lower cross-entropy: with few images, accuracy is coarse.

    Args:
        train: Features [T, D] and labels [T].
        val: Features [V, D] and labels [V].
        classes: Number of classes.
        inverse_strengths: Candidate values of C.
        device: Device to compute on.
    """
    fits = list(_fitted(*train, classes, inverse_strengths, device))
    features_VD, labels_V = val
    scores = [accuracy_and_likelihood(one.logits(features_VD), labels_V) for one in fits]
    return fits[_best(scores)]


def fit_with_cross_validation(
    train: tuple[np.ndarray, np.ndarray],
    classes: int,
    *,
    seed: int = 0,
    inverse_strengths: Sequence[float] = STRENGTHS,
    device: str = "cpu",
) -> Probe:
    """Fit a logistic regression on all of ``train``, with C selected by cross-validation.

    No other labels are used, so that few-shot evaluation stays few-shot. Each of five folds is held
    out in turn; with more than 5,000 images, only one of them is. The only image of a class is
    never held out; if every class has only one image, C is 1.
    """
    features_TD, labels_T = train
    fold_T = folds(labels_T, seed)
    values = sorted(inverse_strengths)
    scores = np.zeros((len(values), 2))
    for fold in range(FOLDS if len(labels_T) <= _FEW else 1):
        val_T = fold_T == fold
        if val_T.any():
            fits = _fitted(features_TD[~val_T], labels_T[~val_T], classes, values, device)
            logits = [fitted.logits(features_TD[val_T]) for fitted in fits]
            found = [accuracy_and_likelihood(logits_VC, labels_T[val_T]) for logits_VC in logits]
            scores += val_T.sum() * np.array(found)
    inverse_strength = values[_best(scores.tolist())] if scores.any() else 1.0
    return fit(features_TD, labels_T, classes, inverse_strength, device=device)


def folds(labels_T: np.ndarray, seed: int) -> np.ndarray:
    """Return the stratified fold of each image; -1 for the only image of a class. int64."""
    fold_T = np.full(len(labels_T), -1)
    for rows in _by_class(labels_T, seed):
        if len(rows) > 1:
            fold_T[rows] = np.arange(len(rows)) % FOLDS
    return fold_T


def accuracy_and_likelihood(logits_VC: np.ndarray, labels_V: np.ndarray) -> tuple[float, float]:
    """Return the accuracy and the mean log-likelihood."""
    right = float((logits_VC.argmax(1) == labels_V).mean())
    target_V = torch.from_numpy(labels_V.astype(np.int64))
    return right, -float(F.cross_entropy(torch.from_numpy(logits_VC), target_V))


def _best(scores: Sequence[Sequence[float]]) -> int:
    """Return the index of the highest accuracy, and among ties of the highest log-likelihood."""
    return max(range(len(scores)), key=lambda at: (round(scores[at][0], 9), scores[at][1]))


def draw_rows(labels_N: np.ndarray, fraction: float, *, seed: int) -> np.ndarray:
    """Return a random share of the rows of each class, at least one each; sorted, int64.

    With equal seeds, a smaller share is a subset of a larger one.

    Raises:
        ValueError: If ``fraction`` is not in (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction is in (0, 1], got {fraction}")
    parts = [rows[: max(1, round(fraction * len(rows)))] for rows in _by_class(labels_N, seed)]
    return np.sort(np.concatenate(parts))


def _by_class(labels_N: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Yield the rows of each class, in an independent random order."""
    for label in np.unique(labels_N):
        rows = np.flatnonzero(labels_N == label)
        yield np.random.default_rng([seed, int(label)]).permutation(rows)


def _fitted(
    features_TD: np.ndarray,
    labels_T: np.ndarray,
    classes: int,
    inverse_strengths: Sequence[float],
    device: str,
    tolerance: float = TOLERANCE,
) -> Iterator[Probe]:
    """Yield the fit for each C, from the smallest; each starts from the previous solution."""
    if not len(labels_T):
        raise ValueError("there are no training images")
    if labels_T.min() < 0 or labels_T.max() >= classes:
        raise ValueError(f"labels are classes 0 to {classes - 1}, got {labels_T.max()}")
    feature_TD = torch.as_tensor(features_TD, dtype=torch.float64, device=device)
    label_T = torch.as_tensor(labels_T, dtype=torch.int64, device=device)
    vectors = 1 if classes == 2 else classes
    weight_WD = feature_TD.new_zeros(vectors, feature_TD.shape[1], requires_grad=True)
    bias_W = feature_TD.new_zeros(vectors, requires_grad=True)
    for inverse_strength in sorted(inverse_strengths):
        optimizer = torch.optim.LBFGS(
            [weight_WD, bias_W],
            max_iter=_STEPS,
            tolerance_grad=tolerance,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )
        # The mean loss, so that the tolerance does not depend on the number of images.
        decay = 1 / (inverse_strength * len(labels_T))

        def loss(decay: float = decay, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            logits_TC = _of_all_classes(feature_TD @ weight_WD.T + bias_W)
            value = F.cross_entropy(logits_TC, label_T) + decay / 2 * weight_WD.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        weight, bias = (part.detach().cpu().numpy().copy() for part in (weight_WD, bias_W))
        yield Probe(weight, bias, classes, inverse_strength)


def _of_all_classes(logits_NW: Tensor) -> Tensor:
    """Return a logit for each class; of two classes, the first has 0."""
    if logits_NW.shape[1] > 1:
        return logits_NW
    return torch.cat([torch.zeros_like(logits_NW), logits_NW], dim=1)
