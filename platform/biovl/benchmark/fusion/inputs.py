"""Token features of questions and images, cached between epochs if they fit in memory.

Frozen towers give the same features in every epoch: these are rounded to float16, computed once, a
share by each worker, and cached. For towers that are trained, only preprocessed pixels are cached.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.tokens import TokenTowers
from biovl.benchmark.stored_images import Chosen
from biovl.images.decode import MIN_SIDE_PX, TOO_SMALL, decode_rgb
from biovl.models.encoder import Preparation
from biovl.runtime import workers
from biovl.runtime.workers import Workers

# Shapes: B questions of a batch, Q of the set, N images, H pixels of a side, P tokens of an image,
# L tokens of a question, S of all questions, I and T widths of the towers.

_CHUNK = 64
"""Images or questions per forward pass of frozen towers."""


def share(items: np.ndarray, group: Workers) -> np.ndarray:
    """Return this worker's share of the items: a contiguous range, equal in size to within one."""
    own = workers.share(len(items), group.rank, group.count)
    return items[own.start : own.stop]


class Inputs:
    """Loads token features of questions and their images.

    Args:
        towers: Towers of the model, on ``device``.
        preparation: Preprocessing of images and texts.
        data: The questions.
        frozen: Whether the towers are frozen.
        device: Device for computation and cache.
        group: Workers that train together.
        held_bytes: Maximum size of the cache in bytes; if the data is larger, nothing is cached.
    """

    def __init__(
        self,
        towers: TokenTowers,
        preparation: Preparation,
        data: Questions,
        *,
        frozen: bool,
        device: torch.device,
        group: Workers,
        held_bytes: int,
    ) -> None:
        self._towers, self._preparation, self._data = towers, preparation, data
        self._frozen, self._device, self._group = frozen, device, group
        self._tokens = [
            torch.from_numpy(tokens).long() for tokens in preparation.encode(data.questions)
        ]
        lengths = [len(tokens) for tokens in self._tokens]
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        count, side = len(data.images), preparation.image_size
        used = np.unique(data.image_of)
        image_shape = (side, side, 3)
        if frozen:
            image_shape = (1, towers.image_tokens_count, towers.image_width)
        item_bytes = 2 if frozen else 1
        image_bytes = len(used) * int(np.prod(image_shape)) * item_bytes
        text_bytes = 2 * sum(lengths) * towers.text_width if frozen else 0
        self._place = np.full(count, -1)
        self._place[used] = np.arange(len(used))
        self.is_held = image_bytes + text_bytes <= held_bytes
        """Whether the features fit in the cache."""
        self._images: Tensor | None = None
        self._texts_ST: Tensor | None = None
        if self.is_held:
            dtype = torch.float16 if frozen else torch.uint8
            shape = (len(used), *(image_shape[1:] if frozen else image_shape))
            self._images = torch.zeros(shape, dtype=dtype, device=device)
        self.unreadable = self._read(used)
        """Reason for each unreadable image, by its index; its questions are not used."""
        if self.is_held and frozen:
            self._texts_ST = self._all_texts(towers.text_width)

    def __call__(self, numbers: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Return image tokens [B, P, I], question tokens [B, L, T] and padding mask [B, L].

        Args:
            numbers: Indices of the questions. Shape [B].
        """
        image_BPI = self._image_tokens(numbers)
        tokens_BL, padding_BL = self._padded([self._tokens[number] for number in numbers])
        if self._texts_ST is None:
            text_BLT = self._rounded(self._towers.text_tokens, tokens_BL, padding_BL)
        else:
            rows = [self._texts_ST[self._starts[n] : self._starts[n + 1]] for n in numbers]
            text_BLT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).float()
        return image_BPI, text_BLT, padding_BL

    def _image_tokens(self, numbers: np.ndarray) -> Tensor:
        images = self._data.image_of[numbers]
        if self._images is None:
            pixels = np.stack([self._pixels(int(image))[0] for image in images])
            chosen = torch.from_numpy(pixels).to(self._device)
        else:
            chosen = self._images[torch.from_numpy(self._place[images]).to(self._device)]
            if self._frozen:
                return chosen.float()
        return self._rounded(self._towers.image_tokens, chosen)

    def _rounded(self, compute: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """Return the output of a tower; for a frozen tower rounded as in the cache."""
        if not self._frozen:
            return compute(*inputs)
        with torch.no_grad():
            return compute(*inputs).half().float()

    def _padded(self, texts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        pad = self._preparation.tokenizer.pad_id
        tokens_BL = torch.nn.utils.rnn.pad_sequence(
            list(texts), batch_first=True, padding_value=pad
        )
        lengths_B = torch.tensor([len(tokens) for tokens in texts])
        padding_BL = torch.arange(tokens_BL.shape[1]) >= lengths_B[:, None]
        return tokens_BL.to(self._device), padding_BL.to(self._device)

    def _pixels(self, image: int) -> tuple[np.ndarray, str | None]:
        return self._cropped(self._data.images.read(image, image + 1)[0])

    def _cropped(self, data: bytes) -> tuple[np.ndarray, str | None]:
        decoded = decode_rgb(data)
        if decoded.pixels is not None and min(decoded.pixels.shape[:2]) >= MIN_SIDE_PX:
            return self._preparation.crop(decoded.pixels), None
        side = self._preparation.image_size
        return np.zeros((side, side, 3), np.uint8), decoded.defect or TOO_SMALL

    def _read(self, used: np.ndarray) -> dict[int, str]:
        """Decode this worker's share of the images into the cache; return the unreadable ones."""
        bad_N = torch.zeros(len(self._place), dtype=torch.int64, device=self._device)
        for chunk in _chunks(share(used, self._group)):
            # Together: a table is read by row groups.
            files = Chosen(self._data.images, chunk).read(0, len(chunk))
            decoded = [self._cropped(data) for data in files]
            for image, (_, defect) in zip(chunk, decoded, strict=True):
                bad_N[int(image)] = defect is not None
            if self._images is None:
                continue
            pixels = torch.from_numpy(np.stack([pixels for pixels, _ in decoded])).to(self._device)
            if self._frozen:
                with torch.no_grad():
                    pixels = self._towers.image_tokens(pixels)
            self._images[torch.from_numpy(self._place[chunk]).to(self._device)] = pixels.to(
                self._images.dtype
            )
        # Rows of other workers are zero here, so that the sum is exact.
        if self._images is not None:
            self._images = self._group.sum(self._images)
        bad = self._group.sum(bad_N).nonzero().flatten().tolist()
        return {image: self._pixels(image)[1] or "unreadable" for image in bad}

    def _all_texts(self, width: int) -> Tensor:
        texts_ST = torch.zeros(
            int(self._starts[-1]), width, dtype=torch.float16, device=self._device
        )
        for chunk in _chunks(share(np.arange(len(self._tokens)), self._group)):
            tokens_BL, padding_BL = self._padded([self._tokens[number] for number in chunk])
            with torch.no_grad():
                token_BLT = self._towers.text_tokens(tokens_BL, padding_BL)
            # A chunk is consecutive, so its rows are a slice.
            rows = slice(int(self._starts[chunk[0]]), int(self._starts[chunk[-1] + 1]))
            texts_ST[rows] = token_BLT[~padding_BL].half()
        return self._group.sum(texts_ST)


def _chunks(items: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
