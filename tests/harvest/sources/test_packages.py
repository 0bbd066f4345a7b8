"""PMC packages in every form they are kept in, and what strangers put into archives."""

import contextlib
import gzip
import io
import os
import string
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from biovl.core import archives
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ConfigError, SourceError
from biovl.harvest.sources import packages
from biovl.harvest.sources.packages import Config, build

XML = b"<article><body><p>Text.</p></body></article>"


def tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
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


@pytest.mark.parametrize("where", ["", "corpus", "deep/below/corpus"])
def test_what_we_published_is_no_source_of_packages(where: str, tmp_path: Path) -> None:
    (tmp_path / "PMC5").mkdir()
    (tmp_path / "PMC5" / "a.nxml").write_bytes(XML)
    corpus = tmp_path / where
    (corpus / "train").mkdir(parents=True)
    tar(corpus / "train" / "00000.tar", {"a.txt": b"A caption."}, "w")
    assert len(read(tmp_path)) == 2
    Draft(str(corpus)).publish(Manifest(kind="corpus", config={}, counts={}))
    with pytest.raises(SourceError, match=r"source\.path: .* corpus "):
        list(build(Config(path=str(tmp_path))).addresses())


@pytest.mark.parametrize("text", ['{"kind": "corpus"}', "[1]", "{", ""])
def test_a_manifest_of_somebody_else_is_a_file_like_any_other(text: str, tmp_path: Path) -> None:
    (tmp_path / "PMC1").mkdir()
    (tmp_path / "PMC1" / "a.nxml").write_bytes(XML)
    (tmp_path / "PMC1" / "manifest.json").write_text(text)
    ((_, defect, _, media),) = read(tmp_path)
    assert (defect, media) == (None, ["manifest.json"])


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


def test_zip_archives_are_packages(tmp_path: Path) -> None:
    zipped(tmp_path / "PMC1.zip", {"PMC1/f.jpg": b"1", "PMC1/": b"", "PMC1/x.nxml": XML})
    zipped(tmp_path / "PMC2.ZIP", {"x.xml": XML, "f.jpg": b"22"}, zipfile.ZIP_STORED)
    # The members of one folder need not follow each other.
    many = {"PMC3/x.nxml": XML, "PMC4/x.nxml": XML, "PMC3/f.jpg": b"3", "PMC4/g/f.jpg": b"4"}
    zipped(tmp_path / "many.zip", many)
    (tmp_path / "none.zip").write_bytes(b"no archive")
    assert read(tmp_path) == [
        ("PMC1", None, XML, ["f.jpg"]),
        ("PMC2", None, XML, ["f.jpg"]),
        ("many_PMC3", None, XML, ["f.jpg"]),
        ("many_PMC4", None, XML, ["g/f.jpg"]),
        ("none", archives.UNREADABLE, None, []),
    ]
    assert read(tmp_path / "PMC1.zip") == [("PMC1", None, XML, ["f.jpg"])]


def test_of_a_meca_archive_the_article_is_read(tmp_path: Path) -> None:
    members = {
        "manifest.xml": b"<manifest/>",
        "transfer.xml": b"<transfer/>",
        "content/123.xml": XML,
        "content/123_fig1.tif": b"1",
        "content/supplements/a.zip": b"2",
    }
    zipped(tmp_path / "a.meca", members)
    assert read(tmp_path) == [("a_content", None, XML, ["123_fig1.tif", "supplements/a.zip"])]


def test_a_zip_next_to_an_article_is_its_supplement(tmp_path: Path) -> None:
    (tmp_path / "x.nxml").write_bytes(XML)
    zipped(tmp_path / "data.zip", {"table.csv": b"1"})
    ((_, defect, _, media),) = read(tmp_path)
    assert (defect, media) == (None, ["data.zip"])


def encrypted(path: Path) -> Path:
    """Set the flag of encryption in both headers of the only member."""
    data = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + flags] |= 1
    path.write_bytes(data)
    return path


def test_zip_archives_of_strangers(tmp_path: Path) -> None:
    members = {"x.xml": XML, "f.jpg": os.urandom(3_000)}
    encrypted(zipped(tmp_path / "a-encrypted.zip", {"x.xml": XML}))
    zipped(tmp_path / "b-method.zip", members, zipfile.ZIP_BZIP2)
    whole = zipped(tmp_path / "c-cut.zip", members).read_bytes()
    (tmp_path / "c-cut.zip").write_bytes(whole[:2_000])
    flipped = bytearray(zipped(tmp_path / "d-crc.zip", members, zipfile.ZIP_STORED).read_bytes())
    flipped[flipped.index(XML) + 20] ^= 1
    (tmp_path / "d-crc.zip").write_bytes(flipped)
    zipped(tmp_path / "e-escape.zip", {"x.xml": XML, "../../f.jpg": b"1"})
    link = zipfile.ZipInfo("f.jpg")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "f-link.zip", "w") as archive:
        archive.writestr("x.xml", XML)
        archive.writestr(link, "/etc/passwd")
    zipped(tmp_path / "g-bomb.zip", {"x.xml": XML, "f.jpg": bytes(3_000_000)})
    found = read(tmp_path, max_package_mb=1)
    assert [(name, defect) for name, defect, *_ in found] == [
        ("a-encrypted", archives.UNREADABLE),
        ("b-method", archives.UNREADABLE),
        ("c-cut", archives.UNREADABLE),
        ("d-crc", archives.UNREADABLE),
        ("e-escape", archives.UNSAFE),
        ("f-link", archives.UNSAFE),
        ("g-bomb", archives.TOO_LARGE),
    ]
    assert not list(tmp_path.parent.glob("f.jpg"))


@pytest.mark.parametrize(
    "inside", ["PMC{}/x.nxml", "bulk/PMC{}/x.nxml", "PMC{}.xml", "all/PMC{}.xml"]
)
def test_a_tar_of_many(tmp_path: Path, inside: str) -> None:
    tar(tmp_path / "bulk.tar.gz", {inside.format(n): XML for n in range(1, 40)})
    found = read(tmp_path)
    assert len(found) == 39
    assert {name for name, *_ in found} == {f"bulk_PMC{n}" for n in range(1, 40)}
    assert all(defect is None and xml == XML for _, defect, xml, _ in found)


@pytest.mark.parametrize("count", [1_999, 2_000, 2_001, 2_002])
@pytest.mark.parametrize("inside", ["PMC000xxxxxx/PMC{}.xml", "PMC{}.xml"])
def test_a_bulk_archive_may_hold_more_articles_than_a_package_may(
    tmp_path: Path, inside: str, count: int
) -> None:
    damaged = b"<brticle/>"
    members = {inside.format(n): XML for n in range(count - 1)} | {inside.format(count): damaged}
    tar(tmp_path / "bulk.tar", members, "w")
    found = read(tmp_path, max_package_files=1_500)
    assert all(defect is None for _, defect, *_ in found)
    assert [name for name, *_ in found] == [
        f"bulk_PMC{n}"
        for start in range(0, count, 1_000)
        for n in sorted([*range(count - 1), count][start : start + 1_000], key=str)
    ]
    assert [xml for *_, xml, _ in found].count(damaged) == 1


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


def test_a_single_package_keeps_the_media_below_it(tmp_path: Path) -> None:
    folder = tmp_path / "PMC7"
    (folder / "images").mkdir(parents=True)
    (folder / "x.xml").write_bytes(XML)
    (folder / "images" / "f.jpg").write_bytes(b"1")
    assert read(folder) == [("PMC7", None, XML, ["images/f.jpg"])]


def test_no_archive_or_article_is_lost_below_a_folder_with_articles(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    (folder / "PMC4").mkdir(parents=True)
    for name in ("PMC1.nxml", "PMC2.nxml", "PMC4/x.nxml"):
        (folder / name).write_bytes(XML)
    tar(folder / "PMC3.tar.gz", {"x.nxml": XML})
    assert [(name, xml) for name, _, xml, _ in read(tmp_path)] == [
        (f"PMC{n}", XML) for n in range(1, 5)
    ]


def test_names_are_unique_and_can_be_part_of_a_figure_id(tmp_path: Path) -> None:
    # figure_id has no dots, and a.tar's b would be called like the folder a_b.
    for folder in ("a_b", "x.y", "x-y", "p/content", "q/content", "r/content"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.xml").write_bytes(XML)
    members = ["b/x.xml", "c/a b.xml", "c/a-b.xml", "d/x.xml", "c/x.xml", "e.f/x.xml", "e-f/x.xml"]
    tar(tmp_path / "a.tar", dict.fromkeys(members, XML), "w")
    names = [name for name, *_ in read(tmp_path)]
    assert len(names) == 13
    assert all(set(name) <= set(string.ascii_letters + string.digits + "_-") for name in names)


def test_a_folder_that_comes_twice_in_an_archive_gives_rows_apart(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        for name in ("PMC1/x.nxml", "PMC2/x.nxml", "PMC1/x.nxml", "PMC3/x.nxml", "PMC2/f.jpg"):
            info = tarfile.TarInfo(name)
            info.size = len(XML)
            archive.addfile(info, io.BytesIO(XML))
    source = build(Config(path=str(tmp_path)))
    found = [package for address in source.addresses() for package in source.read(address)]
    assert [package.defect for package in found] == [None, None, None, None, packages.NO_XML]
    assert len({package.name for package in found}) == 5
    assert len({package.uri for package in found}) == 5


@pytest.mark.parametrize(
    "article",
    [
        b"<article/>",
        b"\xef\xbb\xbf<?xml version='1.0'?>\n<!DOCTYPE article [<!ELEMENT a (b)>]>\n<article >",
        b"<?xml version='1.0'?><!--" + b" <supplement> " * 2_000 + b"--><article xml:lang='en'>",
        b"<pmc-articleset><article/></pmc-articleset>",
        b"<oai:OAI-PMH xmlns:oai='x'><oai:record/></oai:OAI-PMH>",
        "<?xml version='1.0' encoding='utf-16'?><article/>".encode("utf-16"),
        b"",
        b"cut <artic",
    ],
)
def test_supplements_in_xml_are_not_articles(tmp_path: Path, article: bytes) -> None:
    """An article is what is not plainly something else: a damaged one must not get lost."""
    (tmp_path / "PMC1").mkdir()
    (tmp_path / "PMC1" / "a.xml").write_bytes(
        b"<!-- <article> --><supplement><article/></supplement>"
    )
    (tmp_path / "PMC1" / "b.nxml").write_bytes(article)
    ((name, defect, xml, _),) = read(tmp_path)
    assert (name, defect, xml) == ("PMC1", None, article)


def test_supplements_in_an_archive_are_not_packages(tmp_path: Path) -> None:
    inside = {"supplement/a.xml": b"<data/>", "x.nxml": XML, "f.jpg": b"1"}
    expected = ["f.jpg", "supplement/a.xml"]
    tar(tmp_path / "PMC1.tar", {f"PMC1/{name}": data for name, data in inside.items()}, "w")
    tar(
        tmp_path / "many.tar",
        {f"PMC{n}/{name}": data for n in (2, 3) for name, data in inside.items()} | {"README": b""},
        "w",
    )
    assert read(tmp_path) == [
        ("PMC1", None, XML, expected),
        ("many_PMC2", None, XML, expected),
        ("many_PMC3", None, XML, expected),
    ]


def test_among_articles_a_damaged_one_is_not_taken_for_a_supplement(tmp_path: Path) -> None:
    damaged = b"<brticle></brticle>"
    members = {"all/PMC1.xml": XML, "all/PMC2.xml": damaged, "all/PMC3.xml": XML}
    tar(tmp_path / "flat.tar", members, "w")
    tar(tmp_path / "many.tar", {"PMC1/x.xml": XML, "PMC2/x.xml": damaged, "PMC3/x.xml": XML}, "w")
    assert [xml for *_, xml, _ in read(tmp_path)] == [XML, damaged, XML] * 2


def test_every_package_without_xml_is_a_row(tmp_path: Path) -> None:
    members = {"PMC1/x.xml": XML, "PMC2/f.jpg": b"1", "PMC2/images/g.jpg": b"1", "PMC3/f.jpg": b"1"}
    tar(tmp_path / "m.tar", members, "w")
    assert [(name, defect) for name, defect, *_ in read(tmp_path)] == [
        ("m_PMC1", None),
        ("m_PMC2", packages.NO_XML),
        ("m_PMC3", packages.NO_XML),
    ]


def test_what_systems_leave_behind_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "PMC1" / "__MACOSX").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("PMC1/x.nxml", "PMC1/._x.nxml", "PMC1/__MACOSX/y.nxml", ".git/z.nxml"):
        (tmp_path / name).write_bytes(XML)
    members = {"__MACOSX/PMC2/._x.nxml": b"", "PMC2/._x.nxml": b"", "PMC2/x.nxml": XML}
    tar(tmp_path / "PMC2.tar", members, "w")
    assert read(tmp_path) == [("PMC1", None, XML, []), ("PMC2", None, XML, [])]


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


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize(
    "behind",
    [
        b"\0",
        b"\n",
        b"trailing bytes",
        b"\0" * 70_000,
        b"\0" * 600 + b"\r\n",
        b"\x1f\x8b",
        b"x" * 90_000,
    ],
    ids=lambda behind: f"{behind[:4]!r} {len(behind)}",
)
def test_what_stands_behind_an_archive_costs_no_article(
    tmp_path: Path, mode: str, behind: bytes
) -> None:
    suffix = mode.replace("w:", ".").removeprefix("w")
    members = {"PMC1/x.nxml": XML, "PMC1/f.jpg": os.urandom(30_000)}
    path = tar(tmp_path / f"PMC1.tar{suffix}", members, mode)
    path.write_bytes(path.read_bytes() + behind)
    assert read(tmp_path) == [("PMC1", None, XML, ["f.jpg"])]


@pytest.mark.parametrize("front", [b"\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_what_stands_in_front_of_a_gzip_archive_costs_no_article(
    tmp_path: Path, front: bytes
) -> None:
    path = tar(tmp_path / "PMC1.tar.gz", {"PMC1/x.nxml": XML, "PMC1/f.jpg": b"1"})
    path.write_bytes(front + path.read_bytes())
    assert read(tmp_path) == [("PMC1", None, XML, ["f.jpg"])]


@pytest.mark.parametrize("parts", [2, 40])
@pytest.mark.parametrize("between", [b"", bytes(512)])
def test_an_archive_may_be_compressed_in_several_parts(
    tmp_path: Path, parts: int, between: bytes
) -> None:
    media = os.urandom(30_000)
    whole = tar(tmp_path / "w.tar", {"PMC1/x.nxml": XML, "PMC1/f.jpg": media}, "w").read_bytes()
    (tmp_path / "w.tar").unlink()
    size = len(whole) // parts + 1
    cut = [whole[start : start + size] for start in range(0, len(whole), size)]
    packed = between.join(gzip.compress(part, mtime=0) for part in cut)
    (tmp_path / "PMC1.tar.gz").write_bytes(packed)
    assert read(tmp_path) == [("PMC1", None, XML, ["f.jpg"])]
    (tmp_path / "PMC1.tar.gz").write_bytes(packed[: len(packed) // 2])
    ((_, defect, *_),) = read(tmp_path)
    assert defect == archives.UNREADABLE


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_archives_put_one_behind_the_other_are_all_read(tmp_path: Path, mode: str) -> None:
    both = b""
    for n in (1, 2):
        members = {f"PMC{n}/x.nxml": XML, f"PMC{n}/f.jpg": os.urandom(9_000 * n)}
        path = tar(tmp_path / "one.tar", members, mode)
        both += path.read_bytes()
        path.unlink()
    (tmp_path / "both.tar").write_bytes(both + b"and a line")
    assert read(tmp_path) == [(f"both_PMC{n}", None, XML, ["f.jpg"]) for n in (1, 2)]


def test_in_a_truncated_tar_of_many_only_the_last_is_lost(tmp_path: Path) -> None:
    members = {
        f"PMC{n}/{name}": os.urandom(20_000) for n in range(4) for name in ("x.nxml", "f.jpg")
    }
    whole = tar(tmp_path / "w.tar", members, "w").read_bytes()
    (tmp_path / "w.tar").write_bytes(whole[: len(whole) * 5 // 8])
    found = read(tmp_path)
    assert [defect for _, defect, *_ in found][:2] == [None, None]
    assert found[-1][1] == archives.UNREADABLE


def test_in_a_damaged_archive_of_bare_articles_those_that_are_there_are_read(
    tmp_path: Path,
) -> None:
    members = {f"all/PMC{n}.xml": XML + b" " * 20_000 for n in range(4)}
    whole = tar(tmp_path / "w.tar", members, "w").read_bytes()
    (tmp_path / "w.tar").write_bytes(whole[: len(whole) * 5 // 8])
    tar(tmp_path / "x.tar", {**members, "../evil": b"x"}, "w")
    good = [(f"PMC{n}", None) for n in range(4)]
    assert [(name, defect) for name, defect, *_ in read(tmp_path)] == [
        *((f"w_{name}", defect) for name, defect in good[:2]),
        ("w_rest", archives.UNREADABLE),
        *((f"x_{name}", defect) for name, defect in good),
        ("x_rest", archives.UNSAFE),
    ]


@pytest.mark.parametrize(
    "data", [b"", b"no archive at all", gzip.compress(b"not a tar", mtime=0), b"\x1f\x8b"]
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


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("count", [1, 3_000])
def test_headers_are_believed_up_to_a_limit(tmp_path: Path, kind: bytes, count: int) -> None:
    # tarfile reads what stands before a member whole: a name of a gigabyte takes two.
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 300_000_000 if count == 1 else 512
    record = b"512 a=" + b"9" * 505 + b"\n"
    with gzip.open(tmp_path / "PMC1.tar.gz", "wb", 1) as stream:
        for _ in range(count):
            stream.write(header.tobuf(tarfile.GNU_FORMAT))
            stream.write(record if count > 1 else b"")
        for _ in range(0, 300_000_000 if count == 1 else 0, 10_000_000):
            stream.write(bytes(10_000_000))
    tracemalloc.start()
    ((_, defect, *_),) = read(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert defect == archives.UNREADABLE
    assert peak < 20_000_000


def test_memory_does_not_grow_with_the_attributes_of_members(tmp_path: Path) -> None:
    peaks = []
    for count in (5, 50):
        with tarfile.open(tmp_path / "PMC1.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
            for n in range(count):
                member = tarfile.TarInfo(f"PMC1/{n}.nxml")
                member.size, member.pax_headers = len(XML), {"comment": f"a{n}" * 8_000}
                archive.addfile(member, io.BytesIO(XML))
        tracemalloc.start()
        assert len(read(tmp_path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 2


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
    with pytest.raises(OSError, match=r"file too large: f\.tif .*1 MB"):
        package.read("f.tif")


def test_a_supplement_over_the_limit_is_no_article(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(b"<data/>" + b" " * 1_100_000)
    (tmp_path / "b.xml").write_bytes(XML)
    tar(tmp_path / "PMC1.tar", {n: (tmp_path / n).read_bytes() for n in ("a.xml", "b.xml")}, "w")
    assert read(tmp_path / "PMC1.tar", max_xml_mb=1) == [("PMC1", None, XML, [])]


def test_links_and_pipes_lead_nowhere_and_are_named(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.mkdir()
    (outside / "x.nxml").write_bytes(XML)
    root = tmp_path / "in"
    (root / "PMC1").mkdir(parents=True)
    (root / "PMC1" / "x.nxml").write_bytes(XML)
    (root / "PMC1" / "f1.jpg").symlink_to("/etc/passwd")
    (root / "PMC1" / "self").symlink_to(root)
    (root / "PMC1" / "f3.jpg").symlink_to(root / "PMC1" / "x.nxml")
    os.mkfifo(root / "PMC1" / "f2.jpg")
    (root / "deep").mkdir()
    (root / "deep" / "PMC2").symlink_to(outside)
    (root / "PMC3").mkdir()
    (root / "PMC3" / "x.nxml").symlink_to(outside / "x.nxml")
    os.mkfifo(root / "PMC4.tar.gz")
    (root / "PMC5").symlink_to("gone")
    (root / "PMC6").symlink_to("PMC1")
    assert read(root) == [
        ("PMC1", None, XML, ["f3.jpg"]),
        ("PMC3", packages.NO_XML, None, []),
        ("PMC4", packages.REFUSED, None, []),
        ("PMC5", packages.REFUSED, None, []),
        # Its packages are read where they are.
        ("PMC6", packages.REFUSED, None, []),
        ("PMC2", packages.REFUSED, None, []),
    ]


def test_packages_gathered_by_links_are_read_and_lead_no_further(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "PMC2").mkdir(parents=True)
    (store / "PMC2" / "x.nxml").write_bytes(XML)
    (store / "PMC2" / "f1.jpg").write_bytes(b"1")
    (store / "PMC2" / "f2.jpg").symlink_to("/etc/passwd")
    (store / "PMC2" / "up").symlink_to(store)
    tar(store / "PMC3.tar.gz", {"PMC3/x.nxml": XML})
    (store / "PMC4.nxml").write_bytes(XML)
    root = tmp_path / "in"
    root.mkdir()
    for name in ("PMC2", "PMC3.tar.gz", "PMC4.nxml"):
        (root / name).symlink_to(store / name)
    (root / "around").symlink_to(tmp_path)
    found = read(root)
    assert [(name, defect, xml) for name, defect, xml, _ in found] == [
        ("PMC2", None, XML),
        ("PMC3", None, XML),
        ("PMC4", None, XML),
        ("around", packages.REFUSED, None),
    ]
    assert found[0][3] == ["f1.jpg"]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(tmp_path / ("b" if name == "a" else "a"))
    assert [defect for _, defect, *_ in read(tmp_path)] == [packages.REFUSED] * 2


def test_folders_nested_a_thousand_deep(tmp_path: Path) -> None:
    (tmp_path / "README").touch()
    deep = str(tmp_path)
    for _ in range(1_500):
        deep += "/d"
        os.mkdir(deep)
    article = Path(deep, "x.nxml")
    article.write_bytes(XML)
    found = read(tmp_path)
    # Python cannot delete folders that deep by itself.
    article.unlink()
    os.removedirs(deep)
    assert [(defect, xml) for _, defect, xml, _ in found] == [(None, XML)]


def test_names_that_are_not_utf8_can_be_stored(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/PMC\xff")
    for path in (b"/PMC\xff/x.nxml", b"/\xe9.tar.gz"):
        with open(root + path, "wb") as stream:
            stream.write(XML)
    tar(tmp_path / "PMC1.tar", {"PMC1/\udcff.nxml": XML, "PMC1/\udce9.jpg": b"1"}, "w")
    source = build(Config(path=str(tmp_path)))
    found = [package for address in source.addresses() for package in source.read(address)]
    for package in found:
        for text in (package.uri, package.name, package.defect_detail or "-", *package.files):
            assert text.encode()
    assert {package.defect for package in found} == {None, packages.REFUSED}
    assert sum(package.xml == XML for package in found) == 1


def test_a_folder_that_may_not_be_read_is_a_row() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("PMC1", "PMC2"):
            (root / name).mkdir()
            (root / name / "x.nxml").write_bytes(XML)
        (root / "PMC1").chmod(0)
        with as_nobody():
            found = read(root)
        (root / "PMC1").chmod(0o755)
    assert [(name, defect) for name, defect, *_ in found] == [
        ("PMC1", packages.UNREADABLE),
        ("PMC2", None),
    ]


def test_of_several_articles_in_a_folder_only_the_locked_one_is_lost() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "PMC1").mkdir()
        for name in ("a.xml", "b.xml", "c.xml"):
            (root / "PMC1" / name).write_bytes(XML)
        (root / "PMC1" / "b.xml").chmod(0)
        with as_nobody():
            found = read(root)
    assert [(name, defect) for name, defect, *_ in found] == [
        ("PMC1_a", None),
        ("PMC1_b", packages.UNREADABLE),
        ("PMC1_c", None),
    ]


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Tests may run as root, to whom no folder is closed."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_vanished_after_listing_is_a_row(tmp_path: Path) -> None:
    path = tar(tmp_path / "PMC1.tar.gz", {"PMC1/x.nxml": XML})
    source = build(Config(path=str(tmp_path)))
    (address,) = source.addresses()
    path.unlink()
    (package,) = source.read(address)
    assert package.defect == packages.UNREADABLE


def test_a_source_that_is_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"source\.path: .*absent"):
        list(build(Config(path=str(tmp_path / "absent"))).addresses())
    assert list(build(Config(path=str(tmp_path))).addresses()) == []
    with pytest.raises(ConfigError, match="max_xml_mb"):
        configs.build(Config, {"path": str(tmp_path), "max_xml_mb": 0})


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
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


def test_memory_does_not_grow_with_the_articles_of_a_folder(tmp_path: Path) -> None:
    members = {f"PMC{n}.xml": XML + b" " * 1_000_000 for n in range(20)}
    path = tar(tmp_path / "flat.tar", members, "w")
    members.clear()
    source = build(Config(path=str(path)))
    tracemalloc.start()
    count = sum(1 for address in source.addresses() for _ in source.read(address))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20
    assert peak < 6_000_000


# --- a bucket ---------------------------------------------------------------------------------


def test_packages_in_a_bucket(
    tmp_path: Path, bucket: Callable[[str, bytes], None], bucket_uri: str
) -> None:
    archive = tar(tmp_path / "PMC2.tar.gz", {"PMC2/b.nxml": XML, "PMC2/f.jpg": b"333"})
    bucket("packages/PMC1/a.nxml", XML)
    bucket("packages/PMC1/images/f1.jpg", b"1")
    bucket("packages/PMC2.tar.gz", archive.read_bytes())
    bucket("packages/PMC3/f.jpg", b"1")
    bucket("packages/__MACOSX/x.nxml", XML)
    archive = zipped(tmp_path / "PMC4.zip", {"PMC4/b.nxml": XML, "PMC4/f.jpg": b"4444"})
    bucket("packages/PMC4.zip", archive.read_bytes())
    assert read(f"{bucket_uri}/packages") == [
        ("PMC1", None, XML, ["images/f1.jpg"]),
        ("PMC2", None, XML, ["f.jpg"]),
        ("PMC3", packages.NO_XML, None, []),
        ("PMC4", None, XML, ["f.jpg"]),
    ]


@pytest.mark.shared
def test_real_packages(shared_data: Path) -> None:
    found = read(shared_data / "packages")
    assert len(found) == len(list((shared_data / "packages").iterdir()))
    assert all(defect is None for _, defect, *_ in found)
    assert len(read(shared_data / "nxml.tar.gz")) == 549
