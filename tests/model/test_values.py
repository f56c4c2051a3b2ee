"""Every shape of value is declared twice, here and with the standard library, and both are asked the same."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, get_type_hints

import pytest

from millpond.model import values

Decorator = Callable[..., Any]


def plain(dataclass: Decorator) -> type[Any]:
    @dataclass(slots=True)
    class Value:
        first: int
        second: "list[int]" = field(default_factory=list)
        known: ClassVar[int] = 3

    return Value


def frozen(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Value:
        """Said by itself."""

        first: int
        second: str = "two"

        def __post_init__(self) -> None:
            assert self.second, "empty"

        @property
        def length(self) -> int:
            return len(self.second)

    return Value


def by_keyword(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Value:
        hidden: bytes = field(default=b"", repr=False)
        first: int
        second: object = field(default=None, compare=False)
        third: object = field(default=None, hash=False)

    return Value


def mixed(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Value:
        first: int
        second: int = field(default=2, kw_only=True)
        third: tuple[int, ...] = ()

    return Value


def with_own_methods(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Value:  # noqa: PLW1641 - a hash is made for it
        first: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    return Value


def with_own_hash(dataclass: Decorator) -> type[Any]:
    @dataclass(slots=True)
    class Value:
        first: int

        def __hash__(self) -> int:
            return 7

    return Value


def of_nothing(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Value:
        pass

    return Value


def of_identity(dataclass: Decorator) -> type[Any]:
    @dataclass(slots=True, eq=False)
    class Value:
        first: int

    return Value


def ordered(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True, order=True)
    class Value:
        first: int

    return Value


def without_slots(dataclass: Decorator) -> type[Any]:
    @dataclass
    class Value:
        first: int

    return Value


def inherited(dataclass: Decorator) -> type[Any]:
    @dataclass(frozen=True, slots=True)
    class Base:
        first: int

    @dataclass(frozen=True, slots=True)
    class Value(Base):
        second: int = 2

    return Value


def with_a_field_of_its_own(dataclass: Decorator) -> type[Any]:
    @dataclass(slots=True)
    class Value:
        first: int
        second: int = field(default=2, init=False)

    return Value


SHAPES = [
    plain,
    frozen,
    by_keyword,
    mixed,
    with_own_methods,
    with_own_hash,
    of_identity,
    ordered,
    without_slots,
    inherited,
    with_a_field_of_its_own,
]


def asked(question: Callable[[], object]) -> object:
    try:
        return question()
    except Exception as error:
        return type(error), str(error)


def told(cls: type[Any]) -> dict[str, object]:
    """All that can be said of a class and its values, whichever of two classes it is."""
    one, same = cls(first=1), cls(first=1)
    other = dataclasses.replace(one, first=5)
    has_identity = "__eq__" not in cls.__dict__
    return {
        "signature": str(inspect.signature(cls)),
        "hints": get_type_hints(cls.__init__),
        "fields": [(each.name, each.type, each.kw_only, each.compare) for each in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "slots": getattr(cls, "__slots__", None),
        "name": (cls.__qualname__, cls.__init__.__qualname__),
        "repr": [repr(one), repr(one), repr(other)],
        "dict": dataclasses.asdict(one),
        "equal": [one == same, one == same, one != same, one == other, one == "1", asked(lambda: one < same)],
        "hash": None if has_identity else [asked(lambda: hash(one)), asked(lambda: hash(one) == hash(same))],
        "copies": None if has_identity else [copy.copy(one) == one, copy.deepcopy(one) == one],
        "set": asked(lambda: setattr(one, "first", 2)),
        "deleted": asked(lambda: delattr(one, "first")),
        "wrong": [
            asked(lambda: cls(1, 2, 3, 4, 5)),
            asked(lambda: cls(fourth=4)),
            asked(lambda: repr(cls(1, second=""))),
        ],
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_behaves_as_the_standard_librarys_does(shape: Callable[[Decorator], type[Any]]) -> None:
    assert told(shape(values.dataclass)) == told(shape(dataclasses.dataclass))


def test_values_of_nothing_are_all_alike() -> None:
    made = of_nothing(values.dataclass)
    assert (made() == made(), len({made(), made()}), repr(made())) == (True, 1, "of_nothing.<locals>.Value()")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().first = 1


def test_a_default_that_is_made_is_made_anew() -> None:
    made = plain(values.dataclass)
    made(1).second.append(1)
    assert made(1).second == []
    assert made(1, [2]).second == [2]


def test_a_value_that_holds_itself_can_be_shown() -> None:
    value = plain(values.dataclass)(1)
    value.second.append(value)
    assert repr(value).endswith("Value(first=1, second=[...])")


@values.dataclass(frozen=True, slots=True)
class Sent:
    first: int
    second: str


class Special(Sent):
    pass


def test_a_frozen_value_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, "x"))) == Sent(1, "x")


def test_a_subclass_that_is_asked_first_leaves_the_base_its_own_methods() -> None:
    assert (repr(Special(1, "x")), repr(Sent(1, "x"))) == ("Special(first=1, second='x')", "Sent(first=1, second='x')")
    assert Special(1, "x") == Special(1, "x") != Sent(1, "x")


def test_the_standard_librarys_dataclass_can_inherit_from_one_of_these() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Longer(Sent):
        third: int

    assert dataclasses.astuple(Longer(1, "x", 3)) == (1, "x", 3)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Loose", (Sent,), {}))


def test_nothing_but_the_constructor_is_compiled_before_it_is_called() -> None:
    made = frozen(values.dataclass)
    assert [getattr(made, name).__name__ for name in ("__init__", "__eq__", "__hash__", "__repr__")] == [
        "__init__",
        *["stand_in"] * 3,
    ]
    assert made(1) == made(1)
    assert made.__eq__.__name__ == "__eq__"
