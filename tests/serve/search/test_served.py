"""What answers state of model and index: never the name of one and the version of another."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from serve.http.problems import Problem
from serve.search.description_cache import DescriptionCache


class Engine:
    """Tells of what is served now."""

    def __init__(self) -> None:
        self.now = ("old", "a")
        self.asked = 0

    async def about(self) -> Mapping[str, Any]:
        self.asked += 1
        name, version = self.now
        index = {"version": f"i{version}", "figures": 3}
        return {"model": {"name": name, "version": version}, "index": index}


def test_a_name_is_that_of_its_version() -> None:
    async def test() -> None:
        engine = Engine()
        served = DescriptionCache(engine)  # type: ignore[arg-type]
        assert await served.versioned_name("a") == "old@a"
        engine.now = ("new", "b")
        # What another replica answers that was exchanged already, and the last of the one before.
        assert await served.versioned_name("b") == "new@b"
        assert await served.versioned_name("a") == "old@a"
        assert (await served.index_of("ia"))["version"] == "ia"
        assert engine.asked == 2
        with pytest.raises(Problem) as caught:
            await served.versioned_name("c")
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
        # An index that nobody has told of yet says nothing, rather than what another says.
        assert await served.index_of("ic") == {}

    asyncio.run(test())
