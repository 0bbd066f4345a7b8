"""A real vision-language model behind the endpoint: what is sent reaches its eyes."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from biovl.annotate.annotators.longcap import Config, build
from biovl.annotate.longcap.endpoint import EndpointConfig
from tests.annotate.longcap.scripted_endpoint import (
    Scripted,
    answer,
    good,
    serving,
    step_of,
    text_of,
)
from tests.annotate.small_models import png, scene

IMAGE, START, END = 257, 258, 259
"""Ids of the places of an image and of its ends; bytes are ids of their own."""


class SmallModel:
    """Qwen2-VL as published, with random weights; texts are bytes."""

    def __init__(self) -> None:
        from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
        from transformers.models.qwen2_vl import Qwen2VLImageProcessor

        torch.manual_seed(0)
        text = {
            **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
            **{"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 272},
            "rope_parameters": {
                **{"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}
            },
            **{"bos_token_id": None, "eos_token_id": None, "pad_token_id": 256},
        }
        vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
        config = Qwen2VLConfig(
            text_config=text,
            vision_config=vision,
            image_token_id=IMAGE,
            vision_start_token_id=START,
            vision_end_token_id=END,
        )
        self._model = Qwen2VLForConditionalGeneration(config).eval()
        self._eyes = Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=112 * 112)
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, body: dict[str, Any]) -> tuple[str, int]:
        """Return what it answers to a request, and how many tokens that had."""
        (url,) = [
            part["image_url"]["url"]
            for part in body["messages"][1]["content"]
            if part["type"] == "image_url"
        ]
        data = base64.b64decode(url.partition(",")[2])
        seen = self._eyes(images=Image.open(io.BytesIO(data)), return_tensors="pt")
        self.seen.append(tuple(seen["image_grid_thw"][0].tolist()))
        places = int(seen["image_grid_thw"].prod()) // 4
        said = list(text_of(body["messages"][1]).encode()[:200])
        ids = torch.tensor([[START, *[IMAGE] * places, END, *said]])
        kinds = (ids == IMAGE).int()
        with torch.no_grad():
            made = self._model.generate(
                input_ids=ids,
                mm_token_type_ids=kinds,
                attention_mask=torch.ones_like(ids),
                pixel_values=seen["pixel_values"],
                image_grid_thw=seen["image_grid_thw"],
                max_new_tokens=8,
                do_sample=False,
            )
        new = made[0, ids.shape[1] :].tolist()
        return bytes(token for token in new if token < 256).decode("latin-1"), ids.shape[1]


def test_images_go_through_a_model_of_the_real_architecture(tmp_path: Path) -> None:
    model = SmallModel()

    def reply(body: dict[str, Any], number: int) -> Any:
        if step_of(body) == "augment":
            return good(body)
        text, tokens = model(body)
        return 200, {}, answer(text, tokens=(tokens, 8))

    with serving(Scripted(reply)) as script:
        config = Config(
            model="small",
            cache=str(tmp_path),
            most_failures=1.0,
            endpoint=EndpointConfig(url=script.url, concurrent=1),
        )
        annotator = build(config)
        rows = [
            {
                "image": png(scene(seed, 120, 60)),
                "figure_label": None,
                "caption": f"Scene {seed} of colours.",
                "caption_superscripts": [],
                "mentions": [],
                "article.abstract": None,
                "article.full_text": None,
                "article.abbreviations": None,
            }
            for seed in (1, 2)
        ]
        prepared = np.array([annotator.prepare(row) for row in rows], object)
        columns = annotator.load("cpu", "float32")(prepared)
    # Random weights write no XML: both are asked for once more, and keep their captions.
    assert columns["long_caption_status"] == ["malformed: assess"] * 2
    assert columns["long_caption"] == ["Scene 1 of colours.", "Scene 2 of colours."]
    assert script.steps().count("repair") == 2
    # 120 x 60 px in patches of 14, twice as wide as high.
    assert set(model.seen) == {(1, 4, 8)}
