"""Image tower of any supported model, for training."""

from collections.abc import Callable

from torch import Tensor, nn

from biovl.core.errors import ConfigError

# Shapes: B images, D features.


class TrainableImageTower(nn.Module):
    """The trainable image tower of a model.

    It stays in evaluation mode, without dropout and with fixed batch norm statistics, so that a
    step depends on its images alone.

    Args:
        whole: The model.
        features: Function from a stacked batch of the model's ``crop`` results, on its device, to
            embeddings [B, D] that are not normalised.
    """

    def __init__(self, whole: nn.Module, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.whole = whole.eval().requires_grad_(True)
        self._features = features

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of images before normalization, float32, [B, D]."""
        return self._features(pixels).float()

    def learning(self, pixels: Tensor) -> dict[str, nn.Parameter]:
        """Return the parameters to train: those that image features depend on.

        Args:
            pixels: Any preprocessed images: parameters are found by their gradients.

        Raises:
            ConfigError: If there are no such parameters.
        """
        self(pixels).sum().backward()
        with_gradient = {name: one for name, one in self.named_parameters() if one.grad is not None}
        self.zero_grad(set_to_none=True)
        if not with_gradient:
            raise ConfigError("the image tower of this model has no trainable parameters")
        return with_gradient
