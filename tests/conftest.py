"""What tests share: one Ray for the whole session, a small corpus, the real articles if there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One Ray for all tests that need it: starting it takes seconds."""
    from biovl.jobs.cluster import connected

    with connected():
        yield


@pytest.fixture(scope="session")
def sample_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few good packages and every damaged one."""
    from biovl.sample import make_damaged_packages, make_packages

    folder = tmp_path_factory.mktemp("packages")
    make_packages(folder, articles=8)
    make_damaged_packages(folder)
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real articles kept beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("no real articles beside the repository")
    return SHARED
