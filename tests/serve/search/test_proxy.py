"""POST /v1/proxy: what the public neighbours vote; and that a private image stays private.

Privacy is tested from outside, on a service in a process of its own: Python's audit events tell
what it opens, connects to and starts, and all that it may have written (its working, home and
temporary folders, its logs and its output) is searched for the image, the crop that the model
sees, and the vector, in several spellings. The same watch must notice services that leak.
"""

import base64
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from serve.search.messages import ProxyAnswer
from serve.search.votes import holds, votes
from tests.serve.search.small_engine import (
    SIDE_PX,
    SmallEngine,
    drawn,
    image_vector,
    make_client,
    png,
)

# The vote.


@pytest.mark.parametrize(
    ("caption", "is_held"),
    [
        ("Chest radiograph with pneumonia.", True),
        ("PNEUMONIA of the left lobe", True),
        ("No pneumonia.", False),
        ("Lungs without signs of pneumonia", False),
        ("negative for pneumonia", False),
        ("a lack of pneumonia", False),
        ("Lungs devoid of pneumonia", False),
        ("Neither effusion nor pneumonia", False),
        ("no effusion, nodule or pneumonia", False),
        ("No lesion above 1.5 cm or pneumonia.", False),
        ("no effusion; pneumonia", True),
        ("No effusion\nPneumonia", True),
        ("No effusion\n\nLobar pneumonia", True),
        ("No effusion or\npneumonia", False),
        ("no evidence of\nCOVID-19 pneumonia", False),
        ("There is no\nPneumonia.", False),
        ("FINDINGS: NO\nPNEUMONIA", False),
        ("Negative for\nMRSA pneumonia", False),
        ("No effusion. Pneumonia is seen.", True),
        ("no nodule, but pneumonia", True),
        ("CT without contrast showing pneumonia", True),
        ("CT without contrast showed pneumonia", True),
        ("CT without intravenous contrast of a pneumonia", True),
        ("A patient without fever who had pneumonia", True),
        ("X-rays that were not diagnostic revealed pneumonia", True),
        ("CT did not show pneumonia", False),
        ("CT without contrast: no pneumonia", False),
        ("no pneumonia before; later pneumonia", True),
        ("NO synthase staining in pneumonia", True),
        ("Effects of NO on pneumonia", True),
        ("Inhaled NO, pneumonia", True),
        ("NO PNEUMONIA.", False),
        ("NO OR MINIMAL PNEUMONIA", False),
        ("NO IN-HOSPITAL PNEUMONIA", False),
        ("NO/MINIMAL PNEUMONIA", False),
        ("NO/cGMP signalling in pneumonia", True),
        ("CHEST X-RAY: NO EVIDENCE OF PNEUMONIA", False),
        ("There is NO pneumonia", False),
        ("Not only pneumonia but edema", True),
        ("No interval change of the pneumonia", True),
        ("There is no doubt of pneumonia", True),
        ("No change. No pneumonia", False),
        ("No pneumonia", False),
        ("pneumoniae", False),
        ("bronchopneumonia", False),
        ("Non-pneumonia group", False),
        ("Non\u2013pneumonia and non pneumonia", False),
        ("Non-severe pneumonia", True),
        ("Pneumonia and non-pneumonia", True),
        ("notable pneumonia", True),
        # The reach of a negation, 60 characters, begins within "amino".
        (f"Amino {'a' * 56} pneumonia", True),
        ("", False),
    ],
)
def test_a_caption_holds_a_word_whole_and_not_denied(caption: str, is_held: bool) -> None:
    assert holds(caption, ["pneumonia"]) is is_held


def test_phrases_are_found_over_line_breaks_and_as_they_are_written() -> None:
    assert holds("a pleural\n effusion", ["pleural effusion"])
    assert holds("stained (H&E)", ["(H&E)"])
    assert not holds("axb", ["a.b"])


@pytest.mark.parametrize(
    ("caption", "phrase"),
    [
        ("Non\u2010small cell carcinoma on CT.", "non-small cell carcinoma"),
        ("COVID-19 pneumonia", "COVID\u201119 pneumonia"),
        ("Crohn\u2019s disease", "Crohn's disease"),
        ("Kaplan\u2013Meier curves", "Kaplan-Meier"),
        ("Non\u2013small-cell carcinoma", "non-small-cell carcinoma"),
        ("Sjo\u0308gren syndrome", "Sj\u00f6gren syndrome"),
        ("pulmonary \ufb01brosis", "fibrosis"),
    ],
)
def test_one_word_is_found_however_it_is_encoded(caption: str, phrase: str) -> None:
    assert holds(caption, [phrase])


def test_a_contrast_agent_that_was_not_given_is_no_finding_but_its_uptake_is() -> None:
    assert not holds("A mass without contrast enhancement", ["enhancement"])
    assert not holds("A mass without contrast enhancement", ["contrast enhancement"])
    assert holds("CT without contrast of a mass", ["mass"])


def test_votes_weigh_similarity_and_shares_are_of_all_neighbours() -> None:
    neighbours = [
        ("F1", 0.8, ["a"]),
        ("F2", 0.6, ["a", "b", "b"]),
        ("F3", 0.6, []),
        ("F4", -0.5, ["c"]),
    ]
    assert votes(neighbours, ["d"]) == [
        ("a", pytest.approx(0.7), ["F1", "F2"]),
        ("b", pytest.approx(0.3), ["F2"]),
        ("c", 0.0, ["F4"]),
        ("d", 0.0, []),
    ]


def test_no_neighbours_no_votes() -> None:
    assert votes([]) == []
    assert votes([], ["a"]) == [("a", 0.0, [])]


# The endpoint.


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with make_client() as client:
        yield client


def encoded(image: Image.Image) -> str:
    return base64.b64encode(png(image)).decode()


def asked(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/v1/proxy", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    answer: dict[str, Any] = response.json()
    ProxyAnswer.model_validate(answer)
    return answer


def test_neighbours_vote_with_their_concepts(client: TestClient) -> None:
    answer = asked(client, image=encoded(drawn("blue", "ring")), k=6)
    assert answer["votes"][0]["name"] == "blue"
    assert len(answer["evidence"]) == 6
    ids = {hit["figure_id"] for hit in answer["evidence"]}
    assert all(set(vote["figures"]) <= ids for vote in answer["votes"])


def test_classes_are_looked_for_in_captions_and_denials_do_not_count(client: TestClient) -> None:
    answer = asked(
        client,
        image=encoded(drawn("red", "circle")),
        k=36,
        classes={
            "infection": ["pneumonia", "abscess"],
            "mass": ["nodule"],
            "fracture": ["fracture"],
        },
    )
    captions = {hit["figure_id"]: hit["caption"] for hit in answer["evidence"]}
    by_name = {vote["name"]: vote for vote in answer["votes"]}
    assert {captions[one].split(" ", 3)[3] for one in by_name["infection"]["figures"]} == {
        caption.split(" ", 3)[3] for caption in captions.values() if " with pneumonia" in caption
    }
    assert len(by_name["infection"]["figures"]) == len(by_name["mass"]["figures"]) == 12
    assert by_name["fracture"] == {"name": "fracture", "share": 0.0, "figures": []}


def test_neighbours_come_from_what_fits_the_filter(client: TestClient) -> None:
    image = encoded(drawn("red", "circle"))
    answer = asked(client, image=image, filter={"image_type": ["x-ray"]})
    assert {hit["image_type"] for hit in answer["evidence"]} == {"x-ray"}


def test_an_image_may_be_the_body(client: TestClient) -> None:
    image = drawn("green", "cross")
    raw = client.post(
        "/v1/proxy?k=3&classes=nodule&classes=pneumonia",
        content=png(image),
        headers={"Content-Type": "application/octet-stream"},
    ).json()
    assert (
        raw["votes"]
        == asked(client, image=encoded(image), k=3, classes=["nodule", "pneumonia"])["votes"]
    )


def test_classes_with_synonyms_may_be_a_parameter_beside_an_image(client: TestClient) -> None:
    image = drawn("green", "cross")
    classes = {"nodule": ["nodule", "mass"], "infection": ["pneumonia"]}
    raw = client.post(
        "/v1/proxy",
        params={"k": 3, "classes": json.dumps(classes)},
        content=png(image),
        headers={"Content-Type": "image/png"},
    )
    assert raw.json()["votes"] == asked(client, image=encoded(image), k=3, classes=classes)["votes"]


def test_forms_are_refused_since_they_may_be_spooled_on_their_way(client: TestClient) -> None:
    response = client.post("/v1/proxy", files={"image": png(drawn("red", "ring"))})
    assert response.status_code == 415
    assert "disk" in response.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"image": ""},
        {"image": None},
        {"image": "https://example.org/x.png"},
        {"k": 0},
        {"k": 201},
        {"classes": []},
        {"classes": ["a", "a"]},
        {"classes": {"a": []}},
        {"classes": {"a": [""]}},
        {"classes": {"": ["a"]}},
        {"classes": {"a": "b"}},
        {"classes": {"a": ["x" * 300]}},
        {"text": "a"},
    ],
)
def test_what_is_no_such_question_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    image = {"image": encoded(drawn("red", "ring"))} if body and "image" not in body else {}
    assert client.post("/v1/proxy", json={**image, **body}).status_code == 422


def test_a_service_may_do_without() -> None:
    with make_client(proxy=False) as client:
        assert client.post("/v1/proxy", json={}).status_code == 404


def test_only_a_vector_reaches_the_index_and_the_same_image_is_looked_at_again() -> None:
    engine = SmallEngine()
    with make_client(engine) as client:
        asked(client, image=encoded(drawn("red", "ring")))
    (query,) = engine.queries
    (part,) = query.parts
    assert part.vector_D is not None
    assert query.words is None


# Privacy.

SIDE = 700
"""Noise of so many pixels is a PNG of 1.5 MB: more than forms keep in memory elsewhere."""


@dataclass
class Watch:
    """A service under observation."""

    url: str
    folders: list[Path]
    report_fd: int
    process: "subprocess.Popen[bytes]"
    received: list[bytes] = field(default_factory=list)
    """What came to a server that the service has no business with."""

    def events(self) -> list[list[str]]:
        """Return what was reported since the last call."""
        data = b""
        while select.select([self.report_fd], [], [], 0.3)[0]:
            some = os.read(self.report_fd, 1 << 16)
            if not some:
                break
            data += some
        return [json.loads(line) for line in data.splitlines()]

    def forget(self) -> None:
        """Empty all files, and what was received."""
        for folder in self.folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    os.truncate(path, 0)
        self.received.clear()


@contextmanager
def watched(folder: Path, leaks: str) -> Iterator[Watch]:
    """Run the service where all it can write by itself is below a folder."""
    folders = [folder / name for name in ("work", "home", "tmp")]
    for one in folders:
        one.mkdir()
    work, home, tmp = folders
    read_fd, write_fd = os.pipe()
    received: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_server(("127.0.0.1", 0)) as collector,
        (work / "output.txt").open("wb") as output,
    ):
        threading.Thread(target=_collect, args=(collector, received), daemon=True).start()
        environment = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "LANG")},
            "HOME": str(home),
            "TMPDIR": str(tmp),
            "OMP_NUM_THREADS": "1",
            "COLLECTOR": str(collector.getsockname()[1]),
        }
        script = Path(__file__).with_name("watched_service.py")
        process = subprocess.Popen(
            [sys.executable, str(script), str(listening.fileno()), str(write_fd), leaks],
            pass_fds=(listening.fileno(), write_fd),
            cwd=work,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        os.close(write_fd)
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            _wait_for(url, process)
            watch = Watch(url, folders, read_fd, process, received)
            watch.events()
            yield watch
        finally:
            process.terminate()
            process.wait(600)
            os.close(read_fd)


def _collect(server: socket.socket, received: list[bytes]) -> None:
    try:
        while True:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    received.append(data)
    except OSError:
        return


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/healthz", timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the service did not start")


def private_image() -> Image.Image:
    noise = np.random.default_rng(7).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    return Image.fromarray(noise)


def traces(image: Image.Image, data: bytes) -> dict[str, list[bytes]]:
    """Return what would betray the image, in the spellings that files and logs have."""
    crop = np.asarray(image.resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR))
    vector = image_vector(crop)
    raw = {
        "file": [data[start : start + 24] for start in range(1_000, len(data) - 24, 100_000)],
        "pixels": [np.asarray(image).tobytes()[start : start + 24] for start in (0, 300_000)],
        "crop": [crop.tobytes()[start : start + 24] for start in (0, 1_000, 3_000)],
        "vector": [vector.tobytes()[:12], repr(float(vector[3]))[:8].encode()],
    }
    found = {name: list(pieces) for name, pieces in raw.items()}
    for name in ("file", "crop"):
        for piece in raw[name]:
            found[name].append(piece.hex().encode())
            found[name].append(repr(piece)[2:-1].encode())
    text = base64.b64encode(data)
    found["file"] += [text[start : start + 32] for start in range(0, len(text) - 32, 100_000)][1:]
    return found


def betrayed(watch: Watch, image: Image.Image, data: bytes) -> set[str]:
    """Return what of the image is found in files, logs and what was sent elsewhere."""
    files = [path for one in watch.folders for path in one.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in files] + [b"".join(watch.received)]
    return {
        name
        for name, pieces in traces(image, data).items()
        if any(piece in content for content in contents for piece in pieces)
    }


def ask_about(watch: Watch, image: Image.Image, data: bytes) -> list[int]:
    """Ask in each way that there is, and so that errors come of it; return the statuses."""
    text = base64.b64encode(data).decode()
    with httpx.Client(base_url=watch.url, timeout=600) as client:
        responses = [
            client.post("/v1/proxy", json={"image": text}),
            client.post("/v1/proxy", json={"image": f"data:image/png;base64,{text}"}),
            client.post("/v1/proxy", content=data, headers={"Content-Type": "image/png"}),
            client.post("/v1/proxy", json={"image": text, "k": 0}),
            client.post("/v1/proxy", json={"image": text + "!"}),
            client.post("/v1/proxy", json={"imaeg": text}),
            client.post("/v1/proxy", json={"image": {"a": text}}),
            client.post("/v1/proxy", content=data[:-9_999], headers={"Content-Type": "image/png"}),
            client.post("/v1/proxy", files={"image": data}),
            client.post("/v1/proxy", content=data, headers={"Content-Type": "application/json"}),
            client.post("/v1/search", json={"image": text}),
            client.post("/v1/search", files={"image": data}),
            client.post("/v1/classify", files={"image": data}, data={"classes": ["a", "b"]}),
            client.get("/metrics"),
        ]
    pieces = [piece for name, some in traces(image, data).items() for piece in some]
    for response in responses:
        assert not any(piece in response.content for piece in pieces)
    return [response.status_code for response in responses]


# Nothing but the log of the service itself, which is searched.
HARMLESS = ("all.log",)


def test_a_private_image_is_not_written_logged_or_sent_on(tmp_path: Path) -> None:
    image = private_image()
    data = png(image)
    assert len(data) > 1 << 20
    with watched(tmp_path, "") as watch:
        statuses = ask_about(watch, image, data)
        events = watch.events()
        assert betrayed(watch, image, data) == set()
    assert statuses[:3] == [200, 200, 200]
    assert statuses[-4:] == [200, 200, 200, 200]
    assert all(400 <= status < 500 for status in statuses[3:10])
    assert [one for one in events if not any(name in one[1] for name in HARMLESS)] == []
    # It did log, so that there was something to search.
    assert "/v1/proxy" in (tmp_path / "work" / "output.txt").read_text()


LEAKS = (
    # what it does, the event that tells, and what is found afterwards
    ("file", "open", "file"),
    ("unlinked", "open", None),
    ("crop", "open", "crop"),
    ("log", None, "file"),
    ("vector", None, "vector"),
    ("socket", "socket.connect", "file"),
)


def test_the_watch_notices_leaks_and_a_failure_that_holds_an_image_is_none(
    tmp_path: Path,
) -> None:
    image = private_image()
    data = png(image)
    with watched(tmp_path, ",".join([*(kind for kind, _, _ in LEAKS), "error"])) as watch:
        for kind, event, trace in LEAKS:
            assert ask_once(watch, data) == 200
            events = {one[0] for one in watch.events()}
            found = betrayed(watch, image, data)
            assert event is None or event in events, kind
            assert trace is None or trace in found, kind
            watch.forget()
            assert betrayed(watch, image, data) == set()
        assert ask_once(watch, data) == 500
        assert betrayed(watch, image, data) == set()


def ask_once(watch: Watch, data: bytes) -> int:
    headers = {"Content-Type": "image/png"}
    response = httpx.post(f"{watch.url}/v1/proxy", content=data, headers=headers, timeout=600)
    assert data[1_000:1_024] not in response.content
    return response.status_code


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_no_byte_of_a_private_image_written(tmp_path: Path) -> None:
    # Python's events do not tell what libraries in C do.
    image = private_image()
    data = png(image)
    calls = tmp_path / "calls.txt"
    with watched(tmp_path, ",,,unlinked") as watch:
        tracer = traced(watch.process.pid, calls)
        if tracer is None:
            pytest.skip("tracing is not allowed here")
        for _ in range(3):
            assert ask_once(watch, data) == 200
        honest = kernel_calls(watch, calls)
        assert ask_once(watch, data) == 200
        tracer.terminate()
        tracer.wait(600)
    leaking = written(calls)[len(honest) :]
    pieces = [hexadecimal(piece) for piece in traces(image, data)["file"]]
    assert not [line for line in honest if any(piece in line for piece in pieces)]
    assert not [line for line in honest if "connect(" in line]
    log = hexadecimal(b"all.log")
    opened = [line for line in honest if "O_CREAT" in line or "O_RDWR" in line]
    assert [line for line in opened if log not in line] == []
    assert [line for line in leaking if any(piece in line for piece in pieces)]


def hexadecimal(data: bytes) -> str:
    """Return bytes as strace writes them."""
    return "".join(f"\\x{byte:02x}" for byte in data)


def traced(pid: int, calls: Path) -> "subprocess.Popen[bytes] | None":
    """Write down what a process opens, connects to and writes, each with its first 2 MB."""
    watched_calls = "openat,open,creat,memfd_create,connect,write,pwrite64,writev,sendto,sendmsg"
    command = ["strace", "-f", "-qq", "-xx", "-s", str(2 << 20), "-e", f"trace={watched_calls}"]
    tracer = subprocess.Popen(
        [*command, "-o", str(calls), "-p", str(pid)], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 600
    status = Path(f"/proc/{pid}/status")
    while time.monotonic() < deadline and tracer.poll() is None:
        if f"TracerPid:\t{tracer.pid}\n" in status.read_text():
            return tracer
        time.sleep(0.05)
    return None


def kernel_calls(watch: Watch, calls: Path) -> list[str]:
    """Return what was traced so far, without what reads only."""
    # strace writes in the order of calls: when a later request is logged, all before it is there.
    last = b"/asked-for-the-trace"
    assert httpx.get(watch.url + last.decode(), timeout=600).status_code == 404
    deadline = time.monotonic() + 600
    while hexadecimal(last) not in calls.read_text():
        assert time.monotonic() < deadline, "the last request is not in the trace"
        time.sleep(0.05)
    return written(calls)


def written(calls: Path) -> list[str]:
    return [line for line in calls.read_text().splitlines() if "O_RDONLY" not in line]
