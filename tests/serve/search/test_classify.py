"""POST /v1/classify: probabilities by their definition, and what is refused."""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from biovl.benchmark.prompts import PROMPTS, TEMPLATES, fill_template
from serve.search.endpoints.classify import class_vectors, softmax
from serve.search.engine import EmbeddedVectors
from serve.search.messages import ClassifyAnswer
from tests.serve.search.small_engine import (
    CONTEXT,
    LOGIT_SCALE,
    SIDE_PX,
    SmallEngine,
    drawn,
    image_vector,
    make_client,
    png,
    text_vector,
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


def image_of(colour: str, shape: str) -> str:
    return base64.b64encode(png(drawn(colour, shape, side_px=SIDE_PX))).decode()


def classified(client: TestClient, **asked: Any) -> dict[str, Any]:
    response = client.post("/v1/classify", json=asked)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    ClassifyAnswer.model_validate(answer)
    return answer


def test_probabilities_are_those_of_zero_shot_classification(client: TestClient) -> None:
    classes = ["red circle", "orange circle", "red ring"]
    templates = ["a photo of {}", "{} presented in image", "old {}"]
    answer = classified(
        client, image=image_of("red", "circle"), classes=classes, templates=templates
    )
    # Straight from the definition, one class after the other.
    image = image_vector(np.asarray(drawn("red", "circle", side_px=SIDE_PX))).astype(float)
    odds = {}
    for name in classes:
        prompts = [text_vector(template.replace("{}", name)) for template in templates]
        mean = sum(prompt.astype(float) for prompt in prompts) / 3
        odds[name] = float(np.exp(LOGIT_SCALE * image @ (mean / np.linalg.norm(mean))))
    (result,) = answer["results"]
    expected = {name: value / sum(odds.values()) for name, value in odds.items()}
    assert {one["name"]: one["probability"] for one in result["classes"]} == pytest.approx(
        expected, rel=1e-3
    )
    assert [one["name"] for one in result["classes"]] == sorted(
        expected, key=lambda name: -expected[name]
    )
    assert sum(one["probability"] for one in result["classes"]) == pytest.approx(1)


def test_classes_with_a_prompt_that_is_not_read_to_its_end_are_marked(client: TestClient) -> None:
    full = " ".join(["red"] * CONTEXT)
    answer = classified(
        client,
        image=image_of("red", "circle"),
        # More prompts than are embedded at once.
        classes=["blue circle", full, *(f"red circle {number}" for number in range(40))],
        templates=["{}", "old {}"],
    )
    (result,) = answer["results"]
    assert [one["name"] for one in result["classes"] if one["truncated"]] == [full]


def test_the_mean_of_prompts_is_of_unit_length_and_of_its_class() -> None:
    prompt_PD = np.array([[1, 0], [0, 1], [-1, 0], [-1, 0]], np.float32)
    half = 2**-0.5
    assert class_vectors(prompt_PD, 2) == pytest.approx(np.array([[half, half], [-1, 0]]))


def test_prompts_that_cancel_out_give_no_nan() -> None:
    assert np.isfinite(class_vectors(np.array([[1, 0], [-1, 0]], np.float32), 2)).all()


def test_softmax_of_large_logits_stays_a_distribution() -> None:
    assert softmax(np.array([[1e6, 0.0, 1e6]])) == pytest.approx(np.array([[0.5, 0, 0.5]]))


def test_a_smaller_scale_makes_probabilities_more_equal(client: TestClient) -> None:
    asked = {"image": image_of("red", "circle"), "classes": ["red circle", "blue circle"]}
    best = [
        classified(client, **asked, logit_scale=scale)["results"][0]["classes"][0]["probability"]
        for scale in (0.001, 1, 100)
    ]
    assert best[0] == pytest.approx(0.5, abs=0.01)
    assert best == sorted(best)


def test_several_images_are_answered_in_their_order(client: TestClient) -> None:
    images = [image_of(colour, "square") for colour in ("red", "green", "blue")]
    answer = classified(client, images=images, classes=["red", "green", "blue"])
    assert [one["classes"][0]["name"] for one in answer["results"]] == ["red", "green", "blue"]


def test_files_are_classified_as_images_in_json_are(client: TestClient) -> None:
    image = png(drawn("green", "ring"))
    response = client.post(
        "/v1/classify",
        files=[("image", ("a.png", image)), ("image", ("b.png", image))],
        data={
            "classes": ["green ring", "red ring", "[18F]FDG PET"],
            "templates": "{} presented in image",
        },
    )
    assert response.status_code == 200, response.text
    first, second = response.json()["results"]
    assert first == second
    assert first["classes"][0]["name"] == "green ring"
    assert response.json()["templates"] == ["{} presented in image"]


def test_a_benchmark_brings_its_classes_and_templates(client: TestClient) -> None:
    answer = classified(client, image=image_of("red", "ring"), benchmark="lc25000_lung")
    names = {one["name"] for one in answer["results"][0]["classes"]}
    assert names == {
        "lung adenocarcinomas",
        "normal lung tissue",
        "lung squamous cell carcinomas",
    }
    assert answer["templates"] == ["this is an image of {}", "{} presented in image"]


def test_classes_without_templates_have_those_of_the_benchmarks(client: TestClient) -> None:
    answer = classified(client, image=image_of("red", "ring"), classes=["nodule", "none"])
    assert tuple(answer["templates"]) == TEMPLATES


def test_the_known_benchmarks_say_where_their_prompts_are_from(client: TestClient) -> None:
    listed = client.get("/v1/classify/benchmarks").json()["benchmarks"]
    assert {one["name"] for one in listed} == set(PROMPTS)
    assert all("table" in one["source"] or "mteb" in one["source"] for one in listed)


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_every_benchmark_can_be_asked_for(client: TestClient, name: str) -> None:
    classified(client, image=image_of("red", "ring"), benchmark=name)


def test_a_template_may_hold_other_braces() -> None:
    assert fill_template("a {} in {brackets}", "nodule {0}") == "a nodule {0} in {brackets}"


@pytest.mark.parametrize("template", ["no place", "{} and {}", "{0}"])
def test_a_template_without_its_one_place_is_refused(client: TestClient, template: str) -> None:
    with pytest.raises(ValueError, match=re.escape(template)):
        fill_template(template, "x")
    body = {"image": image_of("red", "ring"), "classes": ["a", "b"], "templates": [template]}
    response = client.post("/v1/classify", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"][1] == "templates"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"classes": None}, "classes"),
        ({"benchmark": "pcam"}, "classes"),
        ({"classes": None, "benchmark": "imagenet"}, "benchmark"),
        ({"classes": []}, "classes"),
        ({"classes": ["one"]}, "classes"),
        ({"classes": ["same", " same"]}, "classes"),
        ({"classes": ["a", ""]}, "classes"),
        ({"classes": ["a", "b" * 5_000]}, "classes"),
        ({"classes": [str(number) for number in range(1_001)]}, "classes"),
        ({"classes": "lungs"}, "classes"),
        ({"templates": []}, "templates"),
        ({"templates": ["{}"] * 33}, "templates"),
        ({"classes": [str(n) for n in range(1_000)], "templates": ["{}"] * 5}, "classes"),
        ({"image": None}, "images"),
        ({"image": "http://127.0.0.1/"}, "image"),
        ({"images": ["x"] * 65, "image": None}, "images"),
        ({"images": ["x"], "image": None}, "images"),
        ({"logit_scale": 0}, "logit_scale"),
        ({"logit_scale": "high"}, "logit_scale"),
    ],
)
def test_what_cannot_be_classified_is_refused_with_the_field_named(
    client: TestClient, changes: dict[str, Any], field: str
) -> None:
    body = {"image": image_of("red", "ring"), "classes": ["a", "b"], **changes}
    response = client.post("/v1/classify", json=body)
    assert response.status_code in (400, 422)
    assert response.json()["errors"][0]["loc"][1] == field


def test_a_bad_image_is_named_by_its_number(client: TestClient) -> None:
    images = [image_of("red", "ring"), base64.b64encode(b"%PDF-1.7").decode()]
    response = client.post("/v1/classify", json={"images": images, "classes": ["a", "b"]})
    assert response.status_code == 415
    assert response.json()["errors"][0]["loc"] == ["body", "images", 1]


class Exchanged(SmallEngine):
    """Each call is answered by the next of some models."""

    def __init__(self, versions: str) -> None:
        super().__init__()
        self.versions = iter(versions)
        self.version = ""

    def _embedded(self, rows: list[np.ndarray]) -> EmbeddedVectors:
        self.version = next(self.versions)
        return replace(super()._embedded(rows), model_version=self.version)

    async def about(self) -> Mapping[str, Any]:
        about = await super().about()
        return {**about, "model": {**about["model"], "version": self.version}}


@pytest.mark.parametrize(
    ("versions", "status"), [("aa", 200), ("abbb", 200), ("ababbb", 200), ("ababab", 409)]
)
def test_images_and_prompts_are_compared_by_one_model(versions: str, status: int) -> None:
    with make_client(Exchanged(versions)) as client:
        body = {"image": image_of("red", "ring"), "classes": ["a", "b"]}
        assert client.post("/v1/classify", json=body).status_code == status
