"""A review on a real Ray Serve: two replicas on one database, and one deployed anew."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serve.review.small_review import an_answer, publish_concepts

# What Ray itself warns of.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`"),
]


@pytest.fixture
def address(ray_session: None) -> Iterator[str]:
    """Serve, bound to this machine."""
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


def test_votes_of_all_replicas_are_there_after_a_restart(address: str, tmp_path: Path) -> None:
    from ray import serve

    from serve.review.app import build

    settings = {
        "concepts": str(publish_concepts(tmp_path / "concepts", clusters=6, side=24)),
        "database": f"sqlite:///{tmp_path / 'review.db'}",
        "practice": "0",
        "replicas": "2",
    }
    serve.run(build(settings), name="review", route_prefix="/")
    with httpx.Client(base_url=address, headers={"X-Reviewer": "ann"}, timeout=600) as ann:
        assert "Review clusters" in ann.get("/").text
        for _ in range(6):
            sheet = ann.post("/v1/next", json={}).json()["cluster"]
            assert ann.post("/v1/votes", json=an_answer(sheet)).status_code == 200
        votes = ann.get("/v1/votes.csv").text
        assert len(votes.splitlines()) == 7
        serve.delete("review")
        serve.run(build({**settings, "replicas": "1"}), name="review", route_prefix="/")
        assert ann.get("/v1/votes.csv").text == votes
        assert ann.post("/v1/next", json={}).json()["cluster"] is None
