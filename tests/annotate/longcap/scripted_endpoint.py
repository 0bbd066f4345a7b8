"""A real HTTP server that speaks the OpenAI chat protocol, and answers as a test says."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-0123456789-secret"

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and what the body is: a text to answer with, or values that go out as JSON."""


@dataclass
class Scripted:
    """What came in, and what goes out."""

    reply: Callable[[dict[str, Any], int], Reply | str]
    """Of a request and how many came before it: a text is a good answer."""
    latency_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    times: list[float] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def steps(self) -> list[str]:
        """Return which step each request was."""
        return [step_of(body) for body in self.bodies]


def step_of(body: dict[str, Any]) -> str:
    """Return the step of a request: augment, assess, refine or repair."""
    texts = [text_of(message) for message in body["messages"] if message["role"] == "user"]
    if len(texts) > 1:
        return "repair"
    for step, said in (("augment", "<article>"), ("refine", "<remove>")):
        if said in texts[0]:
            return step
    return "assess"


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def good(body: dict[str, Any], number: int = 0) -> str:
    """Answer as a model would that does what it is asked: it adds a sentence, and sees all of it."""
    asked = text_of(body["messages"][1])
    if step_of(body) == "augment":
        # The prompt's own example of an answer stands behind it.
        caption = re.findall(r"<caption>(.*?)</caption>", asked, re.DOTALL)[0]
        return f"<caption>{caption} The bright square is on the left of a dark field.</caption>"
    if step_of(body) == "refine":
        (kept,) = re.findall(r"<keep>(.*?)</keep>", asked, re.DOTALL)
        return f"<caption>{' '.join(kept.split())}</caption>"
    (draft,) = re.findall(r"<draft>(.*?)</draft>", asked, re.DOTALL)
    return assessment([(draft, "FEASIBLE")])


def assessment(features: list[tuple[str, str]]) -> str:
    """Return the XML of features, whose texts are escaped already."""
    inner = "".join(
        f"<feature><text>{text}</text><rationale>seen</rationale><label>{label}</label></feature>"
        for text, label in features
    )
    return f"<assessment>{inner}</assessment>"


def answer(text: str, finish: str = "stop", tokens: tuple[int, int] = (100, 20)) -> dict[str, Any]:
    """Return a completion as the protocol has it."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }


@contextlib.contextmanager
def serving(script: Scripted) -> Iterator[Scripted]:
    """Serve a script on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A small answer leaves at once.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with script.lock:
                number = len(script.bodies)
                script.bodies.append(body)
                script.keys.append(self.headers.get("Authorization"))
                script.times.append(time.monotonic())
                script.at_once += 1
                script.most_at_once = max(script.most_at_once, script.at_once)
            try:
                time.sleep(script.latency_s)
                reply = script.reply(body, number)
            finally:
                with script.lock:
                    script.at_once -= 1
            status, headers, values = reply if isinstance(reply, tuple) else (200, {}, reply)
            if isinstance(values, str):
                values = answer(values)
            data = values if isinstance(values, bytes) else json.dumps(values).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
