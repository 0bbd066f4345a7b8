"""Members of untrusted tar and zip archives, decompressed with bounded memory and verified.

tarfile takes a corrupt header for the end of an archive, does not verify the checksum of a gzip
file, and reads long names without a limit.
"""

import bz2
import contextlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO

_BLOCK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 32_768
"""Maximum size of a member's header with its long name and attributes. Real ones have some hundred
bytes; tarfile searches them in quadratic time."""
_INPUT_BYTES = 16_384
"""Bytes passed to zlib at a time: it returns a copy of the input that it did not consume."""
_MAX_LZMA_BYTES = 256_000_000
"""Maximum memory to decompress xz, which its header states; ``xz -9`` needs 65 MB."""
_MAX_PREAMBLE = 1024
"""Maximum bytes before a gzip file, and ..."""
_MAX_PADDING = 1 << 24
"""... maximum zeros after it, before another one."""
_TAIL_BYTES = 4 * tarfile.RECORDSIZE
"""Bytes that tarfile may have read ahead."""

Members = Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]
"""Members of an archive, each with its content if it is a file, valid until the next one."""


class _StrictTarInfo(tarfile.TarInfo):
    """Raises an error for a corrupt header, which tarfile would take for the end of the archive.

    tarfile also reads the long names and attributes before a member without a size limit.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_StrictTarInfo":
        stream: Any = archive.fileobj
        source: _Unpacked = stream.fileobj
        try:
            with source.at_most(_MAX_HEADER_BYTES):
                member = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        # A header may be followed by others that belong to it, and those by others.
        except (tarfile.HeaderError, RecursionError) as error:
            raise tarfile.ReadError(
                f"{error or 'no end of archive'} at {archive.offset}"
            ) from error
        if sum(len(name) + len(value) for name, value in archive.pax_headers.items()) > (
            _MAX_HEADER_BYTES
        ):
            raise tarfile.ReadError("attributes of the archive are too long")
        return member


class _Unpacked:
    """The decompressed bytes of a stream; the last ones can be read again.

    Data after the end of a compressed file is ignored unless it is compressed: zeros that fill a
    block, a line added by a server. A second compressed file after the first continues it.
    """

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        head = packed.read(_INPUT_BYTES)
        kind = next((magic for magic in _UNPACKERS if head.startswith(magic)), None)
        if kind is None and not _is_header(head[: tarfile.BLOCKSIZE]):
            # A mail program or server may have added bytes in front.
            place = head.find(_GZIP_MAGIC, 0, _MAX_PREAMBLE)
            kind, head = (_GZIP, head[place:]) if place > 0 else (None, head)
        self._kind = kind or b""
        self._unpacker: Any = _UNPACKERS[kind]() if kind else None
        self._head, self._input = head, b""
        self._tail = b""
        self._left: int | None = None
        self._put_back = b""
        self.part = 1
        """Number of the concatenated compressed file that is being read."""
        self.position = 0
        """Number of bytes returned so far."""

    @contextlib.contextmanager
    def at_most(self, size: int) -> Iterator[None]:
        """Limit the bytes returned inside the block; blocks may be nested."""
        outer, self._left = self._left, size if self._left is None else min(size, self._left)
        before = self._left
        try:
            yield
        finally:
            self._left = None if outer is None else outer - (before - self._left)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; empty only at the end."""
        if self._left is not None and self._left <= 0:
            raise tarfile.ReadError("a header is too long")
        given, self._put_back = self._put_back[:size], self._put_back[size:]
        given = given or self._unpacked(size)
        self.position += len(given)
        self._tail = (self._tail + given)[-_TAIL_BYTES:]
        if self._left is not None:
            self._left -= len(given)
        return given

    def back_to(self, position: int) -> None:
        """Rewind to a position among the bytes read last."""
        count = self.position - position
        self._put_back = (self._tail[-count:] if count else b"") + self._put_back
        self.position = position

    def _unpacked(self, size: int) -> bytes:
        if self._unpacker is None:
            given, self._head = self._head[:size], self._head[size:]
            return given or self._packed.read(size)
        while True:
            if self._unpacker.eof:
                if not self._goes_on():
                    return b""
                self._unpacker = _UNPACKERS[self._kind]()
                self.part += 1
            given = self._unpack(size)
            if given:
                return given

    def _unpack(self, size: int) -> bytes:
        """Return the output of the next input block, which may be empty."""
        unpacker = self._unpacker
        needs_input = not self._input and getattr(unpacker, "needs_input", True)
        if needs_input:
            self._input = self._next_input()
            if not self._input:
                raise EOFError("compressed data ends before its end")
        given: bytes = unpacker.decompress(self._input, size)
        if unpacker.eof:
            self._input = unpacker.unused_data
        else:
            # zlib returns the input that it did not consume; the others keep it.
            self._input = getattr(unpacker, "unconsumed_tail", b"")
        return given

    def _next_input(self) -> bytes:
        given, self._head = self._head, b""
        return given or self._packed.read(_INPUT_BYTES)

    def _goes_on(self) -> bool:
        """Return whether another compressed file follows; other data is ignored."""
        passed = 0
        while passed <= _MAX_PADDING:
            if len(self._input) < len(self._kind):
                self._input += self._next_input()
            rest = self._input.lstrip(b"\0")
            passed += len(self._input) - len(rest)
            self._input = rest
            if len(rest) >= len(self._kind):
                return rest.startswith(self._kind)
            more = self._next_input()
            if not more:
                return False
            self._input += more
        return False


_GZIP, _GZIP_MAGIC = b"\x1f\x8b", b"\x1f\x8b\x08"
_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    _GZIP: lambda: zlib.decompressobj(wbits=31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ": lambda: lzma.LZMADecompressor(memlimit=_MAX_LZMA_BYTES),
}


def _is_header(block: bytes) -> bool:
    """Return whether a block is the header of a tar member, or an end-of-archive block."""
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return not any(block)
    return True


def zip_members(stream: BinaryIO, max_bytes: int) -> Members:
    """Yield the members of a zip archive as ``TarInfo`` objects, sorted by name."""
    with zipfile.ZipFile(stream) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            # The decompressors of other methods cannot limit how much they return at a time.
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise NotImplementedError(f"{info.filename} is compressed with another method")
            member = tarfile.TarInfo(info.filename)
            member.size = info.file_size
            if info.is_dir():
                member.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(info.external_attr >> 16):
                member.type = tarfile.SYMTYPE
            if not member.isreg():
                yield member, None
                continue
            with archive.open(info) as source:
                yield member, source


def tar_members(stream: BinaryIO, max_bytes: int) -> Members:
    """Yield the members of a tar archive, or of several concatenated ones.

    Args:
        stream: The archive, uncompressed or compressed as a whole.
        max_bytes: Maximum size of the padding after an archive.

    Raises:
        tarfile.ReadError: If the archive is invalid or truncated.
        EOFError, zlib.error, lzma.LZMAError: If its compressed data is.
    """
    # tarfile's own streams do not verify checksums. It needs no more of a file than ``read``.
    plain = _Unpacked(stream)
    file: Any = plain
    while True:
        start = plain.position
        with tarfile.open(
            fileobj=file, mode="r|", errors="surrogateescape", tarinfo=_StrictTarInfo
        ) as opened:
            archive: Any = opened
            while (member := archive.next()) is not None:
                yield member, archive.extractfile(member) if member.isreg() else None
                # tarfile would keep every member in memory.
                archive.members.clear()
            plain.back_to(start + archive.offset)
        part = plain.part
        try:
            if not _is_followed(plain, max_bytes):
                return
        except (EOFError, zlib.error, lzma.LZMAError):
            # Data that only starts like another compressed file is ignored.
            if plain.part == part:
                raise
            return


def _is_followed(plain: _Unpacked, max_bytes: int) -> bool:
    """Return whether another archive follows the end of one, as ``cat`` creates them.

    Reads up to the checksum, which comes after the last byte.
    """
    is_padding = True
    for _ in range(max_bytes // tarfile.BLOCKSIZE + 1):
        block = plain.read(tarfile.BLOCKSIZE if is_padding else _BLOCK_BYTES)
        if not block:
            return False
        if is_padding and any(block):
            while len(block) < tarfile.BLOCKSIZE and (
                more := plain.read(tarfile.BLOCKSIZE - len(block))
            ):
                block += more
            if _is_header(block):
                plain.back_to(plain.position - len(block))
                return True
            is_padding = False
    raise tarfile.ReadError("the archive has data after its end")
