"""Keys land where Kafka's own clients put them, and growth moves as few as it can."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.client.hashing import jump, murmur2, murmur3
from millpond.client.partitioners import RoundRobin, by_consistent_hash, by_murmur2, choose, named
from millpond.model.errors import InvalidSetting, WrongUse

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python-client.md"


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"test", 0, 0xBA6BD213),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
    ],
)
def test_murmur3_is_the_one_everybody_has(key: bytes, seed: int, expected: int) -> None:
    assert murmur3(key, seed) == expected


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_a_place_more_moves_a_hash_there_or_not_at_all(hashed: int, places: int) -> None:
    before, after = jump(hashed, places), jump(hashed, places + 1)
    assert 0 <= before < places
    assert after in (before, places)


def test_consistent_hashing_spreads_keys_evenly() -> None:
    counted = Counter(by_consistent_hash("t", b"key-%d" % number, 10) for number in range(20_000))
    assert set(counted) == set(range(10))
    assert max(counted.values()) < 1.2 * min(counted.values())


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_murmur2_chooses_a_partition_that_is_there(key: bytes, partitions: int) -> None:
    assert 0 <= (by_murmur2("t", key, partitions) or 0) < partitions
    assert by_murmur2("t", None, partitions) is None


def test_round_robin_takes_turns_in_each_topic() -> None:
    turns = RoundRobin()
    assert [turns("a", b"same", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert turns("b", None, 3) == 0


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(WrongUse, match="chose partition 7 of t, which has 3"):
        choose(lambda topic, key, partitions: 7, "t", b"k", 3)


def test_the_partitioner_of_the_guide_is_installed_and_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (function,) = re.findall(r"^def by_country\(.*?\n\n", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (entry_point,) = re.findall(r"^by-country = \"(countries:\w+)\"$", GUIDE.read_text(), flags=re.MULTILINE)
    info = tmp_path / "countries-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: countries\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[millpond.partitioners]\nby-country = {entry_point}\n")
    (tmp_path / "countries.py").write_text(function)
    monkeypatch.syspath_prepend(tmp_path)
    by_country = named("by-country")
    assert choose(by_country, "t", b"DE-17", 4) == choose(by_country, "t", b"DE-99", 4) == sum(b"DE") % 4


def test_a_partitioner_nobody_offers_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidSetting, match="murmur2, consistent, round-robin, sticky"):
        named("by-colour")
