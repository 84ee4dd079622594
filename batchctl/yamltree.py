"""YAML read with the line of everything in it, and without YAML's traps: nothing is guessed, all problems are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Place = tuple[str | int, ...]

_MAX_NODES = 200_000  # aliases of aliases grow without end
_TAG = "tag:yaml.org,2002:"
_READ_AS = {"bool": "true or false", "int": "a number", "float": "a number", "timestamp": "a date", "null": "nothing"}
_JSON_SCALARS = frozenset({"str", "bool", "int", "float", "null"})


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands. `line` is its key's, `text_line` the first line of its text (1-based)."""

    line: int
    text_line: int
    spelled: str | None = None  # a plain scalar as it is written
    read_as: str | None = None  # what YAML makes of a plain scalar, where that is no text


@dataclass(slots=True)
class Tree:
    """A YAML document: its value, a `Spot` for each place in it, and what is wrong: (line, place, what; fix)."""

    value: Any = None
    spots: dict[Place, Spot] = field(default_factory=dict)
    problems: list[tuple[int, Place, str]] = field(default_factory=list)

    def spot(self, place: Place) -> Spot:
        """The spot of `place`, or of the nearest thing around it that is there."""
        while place and place not in self.spots:
            place = place[:-1]
        return self.spots.get(place, Spot(1, 1))


def read_tree(text: str) -> Tree:
    """Read one document of plain data (what JSON can hold). Never raises for what is in `text`."""
    tree = Tree()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"not YAML: {error.problem or error.context}; check indentation, colons and quotes"
        tree.problems.append((mark.line + 1 if mark else 1, (), what))
    except yaml.YAMLError as error:
        tree.problems.append((1, (), f"not YAML: {' '.join(str(error).split())}; save the file as UTF-8 text"))
    except RecursionError:
        tree.problems.append((1, (), "nested too deeply; make it flatter"))
    else:
        if root is not None:
            _Reader(tree).read(root)
    return tree


class _Reader:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._scalars = yaml.constructor.SafeConstructor()
        self._open: set[int] = set()
        self._count = 0

    def read(self, root: yaml.Node) -> None:
        self._tree.spots[()] = _spot(root, root)
        try:
            self._tree.value = self._value(root, ())
        except RecursionError:
            self._problem(root, (), "nested too deeply; make it flatter")

    def _problem(self, node: yaml.Node, place: Place, what: str) -> None:
        self._tree.problems.append((node.start_mark.line + 1, place, what))

    def _value(self, node: yaml.Node, place: Place) -> Any:
        self._count += 1
        if id(node) in self._open or self._count > _MAX_NODES:
            if self._count <= _MAX_NODES + 1:
                self._problem(node, place, "an alias that repeats itself without end; write the value out")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._pairs(node, place))
            if isinstance(node, yaml.SequenceNode):
                return [self._item(item, item, (*place, number)) for number, item in enumerate(node.value)]
            return self._scalar(node, place)
        finally:
            self._open.discard(id(node))

    def _item(self, node: yaml.Node, key: yaml.Node, place: Place) -> Any:
        self._tree.spots[place] = _spot(node, key)
        return self._value(node, place)

    def _pairs(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, Any]]:
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self._problem(key, place, "a key that is no text; write KEY: VALUE")
            elif key.tag == f"{_TAG}merge":
                self._problem(key, (*place, name), "merging with << is not supported; write the keys out")
            elif key.tag != f"{_TAG}str":
                self._problem(key, (*place, name), f'YAML reads this key as {_read_as(key)}; quote it: "{name}"')
            elif name in first_lines:
                what = f"the key is there twice, first on line {first_lines[name]}; keep one of the two"
                self._problem(key, (*place, name), what)
            else:
                first_lines[name] = key.start_mark.line + 1
                yield name, self._item(value, key, (*place, name))

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind not in _JSON_SCALARS:
            fix = f'quote it: "{node.value}"' if kind in _READ_AS else "leave the tag out"
            self._problem(node, place, f"YAML reads `{node.value}` as {_read_as(node)}; {fix}")
            return node.value
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, yaml.YAMLError):
            self._problem(node, place, f"`{node.value}` is no valid {kind}; quote it if it is text")
            return node.value
        if isinstance(value, float) and not math.isfinite(value):
            self._problem(node, place, f"`{node.value}` is no number that JSON has; give a finite one")
            return None
        return value


def _read_as(node: yaml.Node) -> str:
    kind = node.tag.removeprefix(_TAG)
    return _READ_AS.get(kind, node.tag)


def _spot(node: yaml.Node, key: yaml.Node) -> Spot:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        return Spot(key.start_mark.line + 1, line)
    if node.style in ("|", ">"):
        line += 1
    plain = node.style is None
    kind = node.tag.removeprefix(_TAG)
    return Spot(key.start_mark.line + 1, line, node.value if plain else None, _READ_AS.get(kind) if plain else None)
