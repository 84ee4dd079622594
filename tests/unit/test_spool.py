"""The spool through its public door: round trips, ranges, damage, crashes and full disks."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from batchctl_store.spool import FRAME_BYTES, Spool, SpoolError

LINES = [b"%07d " % number + os.urandom(40).hex().encode() for number in range(12_000)]  # several frames


def split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def put(spool: Spool, name: str, lines: list[bytes]) -> None:
    with spool.writer(name) as writer:
        for line in lines:
            writer.append(line)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Spool:
    spool = Spool(tmp_path_factory.mktemp("shared"))
    put(spool, "big", LINES)
    return spool


@given(chunks=st.lists(st.binary(max_size=40) | st.sampled_from([b"\n", b"\r\n", b"a\nb", b"\x85\n"]), max_size=30))
def test_raw_bytes_come_back_as_they_were(shared: Spool, chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    with shared.writer("any") as writer:
        for chunk in chunks:
            writer.write(chunk)
        assert (writer.size, writer.lines) == (len(data), len(split(data)))
    with shared.reader("any") as reader:
        reader.verify()
        assert b"".join(reader.chunks()) == data
        assert list(reader.lines()) == split(data)
        assert (reader.line_count, reader.size) == (len(split(data)), len(data))
        assert reader.complete == (not data or data.endswith(b"\n"))


@given(cuts=st.lists(st.integers(0, sum(len(line) + 1 for line in LINES)), max_size=6))
def test_frames_hold_whole_lines_however_the_bytes_arrive(shared: Spool, cuts: list[int]) -> None:
    data = b"\n".join(LINES)  # the last line has no end
    edges = [0, *sorted(cuts), len(data)]
    with shared.writer("cut") as writer:
        for start, end in itertools.pairwise(edges):
            writer.write(data[start:end])
    with shared.reader("cut") as reader:
        assert list(reader.lines()) == LINES
        assert not reader.complete
        chunks = list(reader.chunks())
        assert len(chunks) > 1
        assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


@given(start=st.integers(0, len(LINES) + 5), stop=st.none() | st.integers(0, len(LINES) + 5))
def test_any_range_of_lines(shared: Spool, start: int, stop: int | None) -> None:
    with shared.reader("big") as reader:
        assert list(reader.lines(start, stop)) == LINES[start:stop]


@given(numbers=st.lists(st.integers(0, len(LINES) - 1), max_size=50).map(sorted))
def test_pick_gives_the_lines_asked_for(shared: Spool, numbers: list[int]) -> None:
    with shared.reader("big") as reader:
        assert list(reader.pick(numbers)) == [LINES[number] for number in numbers]


def test_a_range_does_not_read_the_other_frames(shared: Spool) -> None:
    path = shared.root / "big"
    torn = bytearray(path.read_bytes())
    torn[100:200] = b"x" * 100
    (shared.root / "hurt").write_bytes(torn)
    with shared.reader("hurt") as reader:
        assert list(reader.lines(len(LINES) - 3)) == LINES[-3:]
        assert list(reader.pick([len(LINES) - 1])) == LINES[-1:]
        with pytest.raises(SpoolError, match="hurt"):
            list(reader.lines(0, 1))
        with pytest.raises(SpoolError, match="hurt"):
            reader.verify()


def test_pick_refuses_numbers_out_of_order_or_out_of_range(shared: Spool) -> None:
    with shared.reader("big") as reader:
        with pytest.raises(ValueError, match="ascend"):
            list(reader.pick([5, 4]))
        with pytest.raises(IndexError, match="12000"):
            list(reader.pick([len(LINES)]))
        with pytest.raises(ValueError, match="negative"):
            list(reader.lines(-1))


def test_a_line_longer_than_a_frame(spool: Spool) -> None:
    lines = [b"a", b"b" * (3 * FRAME_BYTES + 17), b"", b"c"]
    put(spool, "long", lines)
    with spool.reader("long") as reader:
        assert list(reader.lines()) == lines
        assert list(reader.pick([1, 3])) == [lines[1], lines[3]]


def test_append_refuses_a_line_end(spool: Spool) -> None:
    with pytest.raises(ValueError, match="line end"), spool.writer("x") as writer:
        writer.append(b"a\nb")
    assert not spool.exists("x")


def test_the_file_is_plain_zstd_with_checksums(shared: Spool) -> None:
    packed = (shared.root / "big").read_bytes()
    frame = zstandard.get_frame_parameters(packed)
    assert frame.has_checksum
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as stream:
        assert stream.read() == b"".join(line + b"\n" for line in LINES)


def test_case_55_a_file_cut_anywhere_is_noticed(spool: Spool) -> None:
    put(spool, "whole", [b'{"n": %d}' % number for number in range(40)])
    packed = (spool.root / "whole").read_bytes()
    for end in range(len(packed)):
        (spool.root / "cut").write_bytes(packed[:end])
        with pytest.raises(SpoolError, match="spool object cut is damaged"), spool.reader("cut") as reader:
            reader.verify()


@given(at=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_harmless(shared: Spool, at: int, bit: int) -> None:
    put(shared, "small", [b"one", b"two"])
    packed = bytearray((shared.root / "small").read_bytes())
    packed[at % len(packed)] ^= 1 << bit
    (shared.root / "flipped").write_bytes(packed)
    try:
        with shared.reader("flipped") as reader:
            reader.verify()
            assert list(reader.lines()) == [b"one", b"two"]
    except SpoolError as error:
        assert "flipped" in str(error)


def test_a_missing_object_says_which_and_what_to_do(spool: Spool) -> None:
    with pytest.raises(SpoolError, match=r"jobs/j1/rows is missing.*BATCHCTL_HOME"):
        spool.reader("jobs/j1/rows")
    with pytest.raises(SpoolError, match="missing"):
        spool.disk_bytes("jobs/j1/rows")


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".tmp/x", "a b", "a\n", "ä", "a\\b"]
)
def test_names_that_lead_elsewhere_are_refused(spool: Spool, name: str) -> None:
    for use in (spool.writer, spool.reader, spool.exists, spool.delete, spool.disk_bytes):
        with pytest.raises(ValueError, match="not a name"):
            use(name)


def test_objects_are_listed_deleted_and_measured(spool: Spool) -> None:
    for name in ("jobs/j1/rows", "jobs/j1/lines", "jobs/j2/rows"):
        put(spool, name, [b"x"])
    assert list(spool.names()) == ["jobs/j1/lines", "jobs/j1/rows", "jobs/j2/rows"]
    assert list(spool.names("jobs/j1/")) == ["jobs/j1/lines", "jobs/j1/rows"]
    assert spool.disk_bytes("jobs/j1/rows") == (spool.root / "jobs/j1/rows").stat().st_size
    spool.delete("jobs/j1/rows")
    spool.delete("jobs/j1/rows")
    assert not spool.exists("jobs/j1/rows")
    assert list(Spool(spool.root / "nowhere").names()) == []


def test_only_the_owner_may_read(spool: Spool) -> None:
    put(spool, "jobs/j1/rows", [b"secret"])
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [spool.root, *spool.root.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_an_exception_leaves_the_old_object_and_nothing_else(spool: Spool) -> None:
    put(spool, "rows", [b"old"])
    with pytest.raises(RuntimeError, match="stop"), spool.writer("rows") as writer:
        writer.append(b"new")
        raise RuntimeError("stop")
    with spool.reader("rows") as reader:
        assert list(reader.lines()) == [b"old"]
    assert [path.name for path in spool.root.rglob("*") if path.is_file()] == ["rows"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file grows beyond `size` bytes: a write that fails half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [10, 300_000])
def test_a_full_disk_leaves_no_half_object(spool: Spool, room: int) -> None:
    put(spool, "other", [b"x"])
    with largest_file(room), pytest.raises(OSError, match="File too large"):
        put(spool, "rows", LINES)
    assert not spool.exists("rows")
    assert [path.name for path in spool.root.rglob("*") if path.is_file()] == ["other"]


def _die_while_writing(root: str) -> None:
    with Spool(root).writer("jobs/j1/rows") as writer:
        writer.append(b"x" * FRAME_BYTES)
        os._exit(9)


def test_leftovers_of_dead_writers_are_swept_and_live_ones_kept(spool: Spool) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_while_writing, args=(str(spool.root),))
    process.start()
    process.join()
    with spool.writer("alive") as writer:
        writer.append(b"still here")
        assert list(spool.sweep(dry=True)) == list(spool.sweep()) != []
    assert list(spool.names()) == ["alive"]
    assert spool.sweep() == {}
