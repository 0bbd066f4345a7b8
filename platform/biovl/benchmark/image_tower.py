"""The image tower of any model, to be trained."""

from collections.abc import Callable

from torch import Tensor, nn

from biovl.core.errors import ConfigError

# Shapes: B images, D features.


class TrainableImageTower(nn.Module):
    """What a model makes of images, with gradients.

    It stays in evaluation: no dropout, and batch norms keep their statistics, so that what comes of
    a step depends on its images alone.

    Args:
        whole: The model.
        features: Returns the vectors [B, D] of a batch, not of unit length, of what its ``crop``
            returned, stacked, on its device.
    """

    def __init__(self, whole: nn.Module, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.whole = whole.eval().requires_grad_(True)
        self._features = features

    def forward(self, pixels: Tensor) -> Tensor:
        """Return features, float32, [B, D]."""
        return self._features(pixels).float()

    def learning(self, pixels: Tensor) -> dict[str, nn.Parameter]:
        """Return the parameters that the features of images depend on: a text tower has others.

        Args:
            pixels: Some images.

        Raises:
            ConfigError: If there are none.
        """
        self(pixels).sum().backward()
        found = {name: one for name, one in self.named_parameters() if one.grad is not None}
        self.zero_grad(set_to_none=True)
        if not found:
            raise ConfigError("nothing in the image tower of this model can learn")
        return found
