"""`dataclass`: the standard library's, made in a fifth of the time, and frozen values built in two thirds of it.

The standard one writes and compiles the source of up to seven methods when a class is declared. A broker declares some
250 classes before it listens, and that was a third of its start. Here only `__init__` is compiled then; a comparison, a
hash and a repr are compiled when the first value is asked for one, and most classes never are.

Invariant: to everybody else these are dataclasses: `fields`, `replace`, `asdict`, `match`, `copy`, `pickle` and type
checkers see no difference. What is seldom wanted is left to the standard library: no slots, an order, inheritance,
fields that `__init__` does not take.
Pure. Driven by every module that declares values.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = ["dataclass"]

C = TypeVar("C")
Fields = tuple["dataclasses.Field[Any]", ...]
Method = Callable[..., Any]


def _dataclass(declared: type[C] | None = None, /, **wanted: bool) -> type[C] | Callable[[type[C]], type[C]]:
    if declared is None:
        return lambda declared: _made(declared, **wanted)
    return _made(declared, **wanted)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _made(
    declared: type[C], *, eq: bool = True, frozen: bool = False, kw_only: bool = False, **wanted: bool
) -> type[C]:
    own = declared.__dict__
    is_plain = wanted == {"slots": True} and not any(map(dataclasses.is_dataclass, declared.__mro__))
    if not is_plain or any(isinstance(each, dataclasses.Field) and not each.init for each in own.values()):
        return dataclasses.dataclass(eq=eq, frozen=frozen, kw_only=kw_only, **wanted)(declared)
    if not declared.__doc__:  # it would be made of the signature, which is slow to find out
        declared.__doc__ = f"{declared.__name__}({', '.join(own.get('__annotations__', ()))})"
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(declared)
    params = made.__dataclass_params__  # type: ignore[attr-defined]
    params.init, params.repr, params.eq, params.frozen = True, True, eq, frozen  # for subclasses, which look there
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    methods: dict[str, Method | None] = {"__init__": _init(made, fields, frozen=frozen)}
    methods["__repr__"] = _on_first_call(made, "__repr__", lambda: _repr(made, fields))
    if eq:
        methods["__eq__"] = _on_first_call(made, "__eq__", lambda: _eq(made, fields))
        methods["__hash__"] = _on_first_call(made, "__hash__", lambda: _hash(made, fields)) if frozen else None
    if frozen:
        methods |= _FROZEN
    for name, method in methods.items():
        # A class that says how it is compared, and not how it is hashed, has None there.
        if own.get(name) is None:
            setattr(made, name, method)
    return made


def _init(made: type, fields: Fields, *, frozen: bool) -> Method:
    given: dict[str, object] = {}
    by_position, by_keyword = ["self"], ["*"]
    body = []
    for field in fields:
        name, value = field.name, field.name
        parameter = name
        if field.default is not dataclasses.MISSING:
            given[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            given |= {f"_make_{name}": field.default_factory, "_MADE": _MADE}
            parameter, value = f"{name}=_MADE", f"_make_{name}() if {name} is _MADE else {name}"
        (by_keyword if field.kw_only else by_position).append(parameter)
        if frozen:
            given[f"_set_{name}"] = made.__dict__[name].__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = [*by_position, *(by_keyword if len(by_keyword) > 1 else ())]
    method = _compiled(made, f"__init__({', '.join(parameters)})", body or ["pass"], given)
    method.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return method


def _repr(made: type, fields: Fields) -> Method:
    shown = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields if field.repr)
    return recursive_repr("...")(
        _compiled(made, "__repr__(self)", [f"return f'{{self.__class__.__qualname__}}({shown})'"])
    )


def _eq(made: type, fields: Fields) -> Method:
    compared = [field.name for field in fields if field.compare]
    body = ["if other.__class__ is not self.__class__: return NotImplemented"]
    return _compiled(
        made, "__eq__(self, other)", [*body, f"return {_tuple('self', compared)} == {_tuple('other', compared)}"]
    )


def _hash(made: type, fields: Fields) -> Method:
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    return _compiled(made, "__hash__(self)", [f"return hash({_tuple('self', hashed)})"])


def _tuple(of: str, names: Iterable[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _compiled(made: type, signature: str, body: Iterable[str], given: Mapping[str, object] | None = None) -> Method:
    """A method whose source can use what is given, by name, and what is in the module of its class."""
    name = signature.partition("(")[0]
    lines = (f"\n  {line}" for line in body)
    source = f"def make({', '.join(given or ())}):\n def {signature}:{''.join(lines)}\n return {name}"
    found: dict[str, Callable[..., Method]] = {}
    exec(source, sys.modules[made.__module__].__dict__, found)  # as `dataclasses` does; all text in it is ours
    method = found["make"](**given or {})
    method.__qualname__ = f"{made.__qualname__}.{name}"
    return method


def _on_first_call(made: type, name: str, compiled: Callable[[], Method]) -> Method:
    """Stands in for a method until somebody calls it."""

    def stand_in(*arguments: object) -> Any:  # noqa: ANN401
        method = compiled()
        setattr(made, name, method)
        return method(*arguments)

    return stand_in


class _Made:
    def __repr__(self) -> str:
        return "<factory>"


_MADE: Final = _Made()
"""The default of a parameter whose value is made anew for each."""


def _refuse_setting(_: object, name: str, __: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(_: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:  # noqa: ANN401
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:  # noqa: ANN401
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN: Final[dict[str, Method]] = {
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
