"""Patterns of topic names: as `re` understands them, but never slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.groups.patterns import InvalidPattern, TopicPattern

ATOMS = st.sampled_from(["a", "b", ".", r"\d", r"\w", r"\.", "[ab]", "[^a]", "[a-c1]", r"[\d-]", "-", "1"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("".join, st.lists(inner, max_size=3)),
        st.builds(lambda left, right: f"(?:{left}|{right})", inner, inner),
        st.builds(
            lambda part, repeat: f"({part}){repeat}",
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{0}", "*?", "+?"]),
        ),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, names=st.lists(st.text("ab1-.c", max_size=7), min_size=1, max_size=8))
def test_a_pattern_matches_what_re_would_match(pattern: str, names: list[str]) -> None:
    compiled = TopicPattern(pattern)
    for name in names:
        assert compiled.matches(name) == (re.fullmatch(pattern, name) is not None), (pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("^orders.*$", "orders-eu"), (r"\Aa\z", "a"), ("(^a|b$)", "a"), ("[]x]+", "]x"), (r"[\]\n]", "]"), ("a|", "")],
)
def test_a_pattern_matches(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "*a", "(?=a)", "(?P<x>a)", "(?i)a", r"\1", r"\pL", "a**", "a++", "a{,3}", "a{2,1}", "a{1001}"),
        *("[b-a]", "[a", "\\", "a$b", "a^", "[[:alpha:]]", "{", "((a{99}){99}){99}"),
        *("(" * 51 + ")" * 51, "a" * 1001),
    ],
)
def test_what_cannot_be_matched_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)


def test_a_pattern_made_to_stall_does_not() -> None:
    assert not TopicPattern("(a+)+(a*)*(a|a)*b").matches("a" * 249)
