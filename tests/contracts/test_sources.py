"""What every source keeps to: a new file in ``sources/`` is tested before its author writes a line."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from biovl.core import plugins
from biovl.core.plugins import Plugin, make
from biovl.harvest.sources import Source
from biovl.sample.packages import PackageFiles
from tests.harvest.pmc.bucket import Bucket, Server, serving

SAFE = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture
def open_data() -> Iterator[Server]:
    """A bucket with an article of each kind, and one whose XML is not there."""
    bucket = Bucket()
    xml = b"<article><body><fig id='f'><graphic href='a'/></fig></body></article>"
    for number, text in enumerate((xml, b"broken <", xml), start=1):
        files = {"x.xml": text, "a.jpg": b"a"}
        bucket.put_article(PackageFiles(f"PMC{number}", "x.xml", files, ()))
    bucket.drop("PMC3.1/PMC3.1.xml")
    bucket.put_inventory("2026-10-01")
    with serving(bucket) as server:
        yield server


@pytest.fixture
def example(tmp_path: Path, open_data: Server) -> dict[str, Plugin]:
    """Settings under which each source finds something good and something bad to read."""
    xml = "<article><body><fig id='f'><graphic href='a'/></fig></body></article>"
    for name, content in (("PMC1", xml), ("PMC2", "broken <")):
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "x.xml").write_text(content)
        (tmp_path / "packages" / name / "a.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "packages" / "PMC3.tar.gz").write_bytes(b"no archive")
    (tmp_path / "t.csv").write_text("image,caption\npackages/PMC1/a.jpg,One\nabsent.png,\n")
    return {
        "packages": Plugin("packages", {"path": str(tmp_path / "packages")}),
        "table": Plugin("table", {"path": str(tmp_path / "t.csv")}),
        "pmc_open_data": Plugin("pmc_open_data", {"endpoint": open_data.url}),
    }


@pytest.fixture(params=plugins.names("harvest.sources"))
def source(request: pytest.FixtureRequest, example: dict[str, Plugin]) -> Source:
    assert request.param in example, f"give {request.param} an example in this file"
    made: Source = make("harvest.sources", example[request.param])
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
                assert size in (None, len(package.read(name)))
            with pytest.raises(OSError, match=r".*"):
                package.read("nothing of this name")
