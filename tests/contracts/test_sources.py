"""What every source keeps to: a new file in ``sources/`` is tested before its author writes a line."""

import re
from pathlib import Path

import pytest

from biovl import plugins
from biovl.plugins import Plugin, make
from biovl.sources import Source

SAFE = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture
def example(tmp_path: Path) -> dict[str, Plugin]:
    """Settings under which each source finds something good and something bad to read."""
    xml = "<article><body><fig id='f'><graphic href='a'/></fig></body></article>"
    for name, content in (("PMC1", xml), ("PMC2", "broken <")):
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "x.xml").write_text(content)
        (tmp_path / "packages" / name / "a.jpg").write_bytes(b"a")
    (tmp_path / "packages" / "PMC3.tar.gz").write_bytes(b"no archive")
    (tmp_path / "t.csv").write_text("image,caption\npackages/PMC1/a.jpg,One\nabsent.png,\n")
    return {
        "packages": Plugin("packages", {"path": str(tmp_path / "packages")}),
        "table": Plugin("table", {"path": str(tmp_path / "t.csv")}),
    }


@pytest.fixture(params=plugins.names("sources"))
def source(request: pytest.FixtureRequest, example: dict[str, Plugin]) -> Source:
    assert request.param in example, f"give {request.param} an example in this file"
    made: Source = make("sources", example[request.param])
    return made


def test_addresses_are_stable_unique_and_can_name_a_file(source: Source) -> None:
    addresses = list(source.addresses())
    assert addresses
    assert addresses == list(source.addresses())
    assert len({address.name for address in addresses}) == len(addresses)
    assert len({address.uri for address in addresses}) == len(addresses)
    assert all(SAFE.fullmatch(address.name) for address in addresses)


def test_every_address_gives_packages_and_the_same_ones_again(source: Source) -> None:
    seen = []
    for address in source.addresses():
        first = [(p.name, p.uri, p.xml, p.defect, dict(p.files)) for p in source.read(address)]
        again = [(p.name, p.uri, p.xml, p.defect, dict(p.files)) for p in source.read(address)]
        assert first
        assert first == again
        seen += first
    assert len({name for name, *_ in seen}) == len(seen)
    assert len({uri for _, uri, *_ in seen}) == len(seen)
    assert all(SAFE.fullmatch(name) for name, *_ in seen)


def test_files_are_read_by_the_names_given(source: Source) -> None:
    for address in source.addresses():
        for package in source.read(address):
            for name, size in package.files.items():
                assert len(package.read(name)) == size
            with pytest.raises(OSError, match=r".*"):
                package.read("nothing of this name")
