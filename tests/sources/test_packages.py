"""PMC packages in every form they are kept in, and what strangers put into archives."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from biovl import archives
from biovl.errors import SourceError
from biovl.sources import packages
from biovl.sources.packages import Config, build

XML = b"<article><body><p>Text.</p></body></article>"


def tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def read(path: Path | str, **limits: int) -> list[tuple[str, str | None, bytes | None, list[str]]]:
    """Return name, defect, XML and media of every package, each media file read once."""
    source = build(Config(path=str(path), **limits))
    found = []
    for address in source.addresses():
        for package in source.read(address):
            for name, size in package.files.items():
                assert len(package.read(name)) == size
            found.append((package.name, package.defect, package.xml, sorted(package.files)))
    names = [name for name, *_ in found]
    assert len(set(names)) == len(names)
    return found


# --- the forms --------------------------------------------------------------------------------


def test_folders_archives_and_loose_xml_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "PMC1").mkdir()
    (tmp_path / "PMC1" / "a.nxml").write_bytes(XML)
    (tmp_path / "PMC1" / "f1.jpg").write_bytes(b"1")
    (tmp_path / "PMC1" / "images").mkdir()
    (tmp_path / "PMC1" / "images" / "f2.jpg").write_bytes(b"22")
    (tmp_path / "PMC1" / "supplement.tar.gz").write_bytes(b"not a package")
    tar(tmp_path / "PMC2.tar.gz", {"PMC2/b.nxml": XML, "PMC2/f.jpg": b"333"})
    tar(tmp_path / "PMC3.TGZ", {"c.XML": XML, "f.jpg": b"333"})
    tar(tmp_path / "PMC4.tar", {"./PMC4/d.xml": XML}, "w")
    (tmp_path / "PMC5.nxml").write_bytes(XML)
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert read(tmp_path) == [
        ("PMC1", None, XML, ["f1.jpg", "images/f2.jpg", "supplement.tar.gz"]),
        ("PMC2", None, XML, ["f.jpg"]),
        ("PMC3", None, XML, ["f.jpg"]),
        ("PMC4", None, XML, []),
        ("PMC5", None, XML, []),
    ]


@pytest.mark.parametrize(
    "inside", ["PMC{}/x.nxml", "bulk/PMC{}/x.nxml", "PMC{}.xml", "all/PMC{}.xml"]
)
def test_a_tar_of_many(tmp_path: Path, inside: str) -> None:
    tar(tmp_path / "bulk.tar.gz", {inside.format(n): XML for n in range(1, 40)})
    found = read(tmp_path)
    assert len(found) == 39
    assert {name for name, *_ in found} == {f"bulk_PMC{n}" for n in range(1, 40)}
    assert all(defect is None and xml == XML for _, defect, xml, _ in found)


def test_a_tar_of_many_gives_each_package_its_own_files(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for n in range(5):
        # The XML may come before, between or after its images.
        members[f"PMC{n}/a.jpg"] = b"a" * n
        members[f"PMC{n}/x.nxml"] = XML
        members[f"PMC{n}/images/b.jpg"] = b"b" * n
    tar(tmp_path / "many.tar", members, "w")
    assert [files for *_, files in read(tmp_path)] == [["a.jpg", "images/b.jpg"]] * 5


@pytest.mark.parametrize("kind", ["archive", "xml", "folder"])
def test_the_path_may_be_a_single_package(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "PMC7"
    folder.mkdir()
    (folder / "x.xml").write_bytes(XML)
    (folder / "f.jpg").write_bytes(b"1")
    path = {
        "archive": tar(tmp_path / "PMC7.tar.gz", {"PMC7/x.xml": XML, "PMC7/f.jpg": b"1"}),
        "xml": folder / "x.xml",
        "folder": folder,
    }[kind]
    ((name, defect, xml, files),) = read(path)
    assert (defect, xml, files) == (None, XML, ["f.jpg"])
    assert name == ("x" if kind == "xml" else "PMC7")


def test_packages_lie_at_any_depth_and_names_stay_unique(tmp_path: Path) -> None:
    for folder in ("a/PMC1", "b/c/PMC1", "b/PMC2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.nxml").write_bytes(XML)
    names = [name for name, *_ in read(tmp_path)]
    assert names[:2] == ["PMC1", "PMC2"]
    assert names[2].startswith("PMC1-")


def test_supplements_in_xml_are_not_articles(tmp_path: Path) -> None:
    (tmp_path / "PMC1").mkdir()
    (tmp_path / "PMC1" / "a.xml").write_bytes(b"<supplement/>")
    (tmp_path / "PMC1" / "b.nxml").write_bytes(b"<!DOCTYPE article><article/>")
    ((name, defect, xml, _),) = read(tmp_path)
    assert (name, defect, xml) == ("PMC1", None, b"<!DOCTYPE article><article/>")


def test_reading_twice_gives_the_same(tmp_path: Path) -> None:
    tar(tmp_path / "m.tar.gz", {f"PMC{n}/x.nxml": XML for n in range(3)})
    assert read(tmp_path) == read(tmp_path)


# --- what is broken or hostile ----------------------------------------------------------------


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info


@pytest.mark.parametrize(
    "bad",
    [
        tarfile.TarInfo("/etc/evil"),
        tarfile.TarInfo("../evil"),
        tarfile.TarInfo("PMC1/../../evil"),
        tarfile.TarInfo("PMC1\\..\\evil"),
        tarfile.TarInfo("PMC1/" + "x" * 2_000),
        link("PMC1/f.jpg", "/etc/passwd", tarfile.SYMTYPE),
        link("PMC1/f.jpg", "../../../etc/passwd", tarfile.LNKTYPE),
        special("PMC1/f.jpg", tarfile.CHRTYPE),
        special("PMC1/f.jpg", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name[:20]} {member.type!r}",
)
@pytest.mark.parametrize("first", [True, False])
def test_an_unsafe_member_is_named_and_nothing_is_written(
    tmp_path: Path, bad: tarfile.TarInfo, first: bool
) -> None:
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "PMC1.tar.gz", "w:gz") as archive:
        good = tarfile.TarInfo("PMC1/x.nxml")
        good.size = len(XML)
        if first:
            archive.addfile(bad)
        archive.addfile(good, io.BytesIO(XML))
        if not first:
            archive.addfile(bad)
    ((name, defect, xml, _),) = read(folder)
    assert (name, defect, xml) == ("PMC1", archives.UNSAFE, XML)
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "deep", "PMC1.tar.gz"]


def test_an_unsafe_member_among_many_packages_spares_them(tmp_path: Path) -> None:
    members = {f"PMC{n}/x.nxml": XML for n in range(3)} | {"../evil": b"x"}
    tar(tmp_path / "many.tar", members, "w")
    found = read(tmp_path)
    assert [defect for _, defect, *_ in found] == [None, None, None, archives.UNSAFE]


@pytest.mark.parametrize("kept", [0, 10, 200, 5_000, 12_000, -200])
def test_a_truncated_archive(tmp_path: Path, kept: int) -> None:
    media = {f"PMC1/f{n}.jpg": os.urandom(4_000) for n in range(4)}
    whole = tar(tmp_path / "w.tar.gz", {"PMC1/x.nxml": XML, **media}).read_bytes()
    (tmp_path / "w.tar.gz").unlink()
    (tmp_path / "PMC1.tar.gz").write_bytes(whole[:kept])
    ((name, defect, *_),) = read(tmp_path)
    assert (name, defect) == ("PMC1", archives.UNREADABLE)


@pytest.mark.parametrize("cut", [512 * 3, 512 * 20, 10_000, 30_000])
def test_a_broken_header_is_not_the_end(tmp_path: Path, cut: int) -> None:
    members = {"PMC1/x.nxml": XML} | {f"PMC1/f{n}.jpg": os.urandom(4_000) for n in range(9)}
    whole = tar(tmp_path / "w.tar", members, "w").read_bytes()
    (tmp_path / "w.tar").unlink()
    for damaged in (whole[:cut], whole[:cut] + whole[cut + 700 :]):
        (tmp_path / "PMC1.tar").write_bytes(damaged)
        ((_, defect, *_),) = read(tmp_path)
        assert defect == archives.UNREADABLE


def test_a_checksum_that_does_not_fit_is_found_out(tmp_path: Path) -> None:
    whole = tar(tmp_path / "PMC1.tar.gz", {"PMC1/x.nxml": XML}).read_bytes()
    (tmp_path / "PMC1.tar.gz").write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    ((_, defect, *_),) = read(tmp_path)
    assert defect == archives.UNREADABLE


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_every_compression(tmp_path: Path, mode: str) -> None:
    suffix = mode.replace("w:", ".").removeprefix("w")
    tar(tmp_path / f"PMC1.tar{suffix}", {"PMC1/x.nxml": XML, "PMC1/f.jpg": b"1"}, mode)
    assert read(tmp_path) == [("PMC1", None, XML, ["f.jpg"])]


def test_in_a_truncated_tar_of_many_only_the_last_is_lost(tmp_path: Path) -> None:
    members = {
        f"PMC{n}/{name}": os.urandom(20_000) for n in range(4) for name in ("x.nxml", "f.jpg")
    }
    whole = tar(tmp_path / "w.tar", members, "w").read_bytes()
    (tmp_path / "w.tar").write_bytes(whole[: len(whole) * 5 // 8])
    found = read(tmp_path)
    assert [defect for _, defect, *_ in found][:2] == [None, None]
    assert found[-1][1] == archives.UNREADABLE


@pytest.mark.parametrize(
    "data", [b"", b"no archive at all", gzip.compress(b"not a tar"), b"\x1f\x8b"]
)
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "PMC1.tar.gz").write_bytes(data)
    ((_, defect, *_),) = read(tmp_path)
    assert defect == archives.UNREADABLE


def test_bombs_stop_at_the_limits(tmp_path: Path) -> None:
    tar(tmp_path / "PMC1.tar.gz", {"PMC1/x.nxml": XML, "PMC1/f.jpg": bytes(3_000_000)})
    ((_, defect, *_),) = read(tmp_path, max_package_mb=2)
    assert defect == archives.TOO_LARGE
    tar(tmp_path / "PMC1.tar.gz", {f"PMC1/{n}.jpg": b"" for n in range(50)})
    ((_, defect, *_),) = read(tmp_path, max_package_files=20)
    assert defect == archives.TOO_LARGE


def test_no_xml_and_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "PMC1").mkdir()
    (tmp_path / "PMC1" / "f.jpg").write_bytes(b"1")
    (tmp_path / "PMC2").mkdir()
    tar(tmp_path / "PMC3.tar.gz", {})
    tar(tmp_path / "PMC4.tar.gz", {"PMC4/f.jpg": b"1"})
    found = [(name, defect) for name, defect, *_ in read(tmp_path)]
    assert found == [
        ("PMC1", packages.NO_XML),
        ("PMC2", packages.EMPTY),
        ("PMC3", packages.EMPTY),
        ("PMC4", packages.NO_XML),
    ]


def test_xml_and_media_over_the_limit(tmp_path: Path) -> None:
    folder = tmp_path / "PMC1"
    folder.mkdir()
    (folder / "x.xml").write_bytes(XML + b" " * 1_100_000)
    ((_, defect, xml, _),) = read(folder, max_xml_mb=1)
    assert (defect, xml) == (packages.XML_TOO_LARGE, None)
    (folder / "x.xml").write_bytes(XML)
    (folder / "f.tif").write_bytes(bytes(1_100_000))
    source = build(Config(path=str(folder), max_file_mb=1))
    (package,) = [p for address in source.addresses() for p in source.read(address)]
    with pytest.raises(OSError, match=r"f\.tif has 1 MB, over 1"):
        package.read("f.tif")


def test_links_and_pipes_in_a_folder_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.mkdir()
    (outside / "x.nxml").write_bytes(XML)
    folder = tmp_path / "in" / "PMC1"
    folder.mkdir(parents=True)
    (folder / "x.nxml").write_bytes(XML)
    (folder / "f1.jpg").symlink_to("/etc/passwd")
    (folder / "self").symlink_to(tmp_path / "in")
    os.mkfifo(folder / "f2.jpg")
    (tmp_path / "in" / "PMC2").symlink_to(outside)
    assert read(tmp_path / "in") == [("PMC1", None, XML, [])]


def test_what_vanished_after_listing_is_a_row(tmp_path: Path) -> None:
    path = tar(tmp_path / "PMC1.tar.gz", {"PMC1/x.nxml": XML})
    source = build(Config(path=str(tmp_path)))
    (address,) = source.addresses()
    path.unlink()
    (package,) = source.read(address)
    assert package.defect == packages.UNREADABLE


def test_a_source_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing at"):
        list(build(Config(path=str(tmp_path / "absent"))).addresses())
    assert list(build(Config(path=str(tmp_path))).addresses()) == []


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    import tracemalloc

    peaks = []
    for count in (2, 20):
        members = {}
        for n in range(count):
            members[f"PMC{n}/x.nxml"] = XML
            members[f"PMC{n}/f.jpg"] = bytes(2_000_000)
        path = tar(tmp_path / f"{count}.tar", members, "w")
        members.clear()
        source = build(Config(path=str(path)))
        tracemalloc.start()
        for address in source.addresses():
            for package in source.read(address):
                package.read("f.jpg")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5
    assert peaks[1] < 8_000_000


# --- a bucket ---------------------------------------------------------------------------------


def test_packages_in_a_bucket(
    tmp_path: Path, bucket: Callable[[str, bytes], None], bucket_uri: str
) -> None:
    archive = tar(tmp_path / "PMC2.tar.gz", {"PMC2/b.nxml": XML, "PMC2/f.jpg": b"333"})
    bucket("packages/PMC1/a.nxml", XML)
    bucket("packages/PMC1/images/f1.jpg", b"1")
    bucket("packages/PMC2.tar.gz", archive.read_bytes())
    bucket("packages/PMC3/f.jpg", b"1")
    assert read(f"{bucket_uri}/packages") == [
        ("PMC1", None, XML, ["images/f1.jpg"]),
        ("PMC2", None, XML, ["f.jpg"]),
        ("PMC3", packages.NO_XML, None, []),
    ]


@pytest.mark.shared
def test_real_packages(shared_data: Path) -> None:
    found = read(shared_data / "packages")
    assert len(found) == len(list((shared_data / "packages").iterdir()))
    assert all(defect is None for _, defect, *_ in found)
    assert len(read(shared_data / "nxml.tar.gz")) == 549
