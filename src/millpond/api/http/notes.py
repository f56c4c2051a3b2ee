"""What is written below the fields of our types, for OpenAPI: said once, where the field is.

    class Growth(Struct):
        total: PositiveInt
        \"\"\"How many the topic shall have.\"\"\"

Reads the source of the modules the types are in. Driven by openapi.py, once.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import inspect as types


def structs_in(kind: Any) -> Iterator[type]:  # noqa: ANN401
    """Every struct that a type is made of."""
    seen: set[type] = set()
    open_ones: list[object] = [types.type_info(kind)]
    while open_ones:
        match open_ones.pop():
            case types.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                open_ones += [each.type for each in fields]
                yield cls
            case types.UnionType(types=choices):
                open_ones += choices
            case types.ListType(item_type=inner) | types.VarTupleType(item_type=inner):
                open_ones.append(inner)
            case types.DictType(value_type=inner) | types.Metadata(type=inner):
                open_ones.append(inner)


@cache
def notes_of(struct: type) -> dict[str, str]:
    """By field, those of the types it inherits from among them."""
    notes: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if cls.__module__.startswith("millpond."):
            notes |= _in_module(cls.__module__).get(cls.__name__, {})
    return notes


@cache
def _in_module(name: str) -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except OSError:  # installed without its source, and described without its notes
        return {}
    return {each.name: dict(_notes(each)) for each in tree.body if isinstance(each, ast.ClassDef)}


def _notes(of: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(of.body, of.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
