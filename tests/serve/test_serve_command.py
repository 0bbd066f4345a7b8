"""A port that another process holds ends the command before Ray starts."""

import socket

import pytest

from serve.command import port_in_use


def test_a_port_in_use_is_reported_and_a_free_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("os.path.exists", lambda path: False)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be used" in (port_in_use(port) or "")
        monkeypatch.setenv("RAY_ADDRESS", "auto")
        assert port_in_use(port) is None
        monkeypatch.delenv("RAY_ADDRESS")
    assert port_in_use(port) is None
