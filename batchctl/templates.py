"""Prompt templates: Jinja2 in its sandbox, a missing column is an error, values print as they are spelled.

A template sees every column under its name, and the whole row as `row` (`row["a name with spaces"]`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from batchctl.rowjson import spell, to_json

MAX_CHARS = 200_000_000
"""The longest text a template with logic may make: more than any provider's batch file holds."""

_MAX_STEPS = 1_000_000  # passes through loops and macros of one rendering
_MAX_POWER = 10_000
_STEP = "_batchctl_step"
_KEPT_GLOBALS = ("range", "namespace")


class TemplateProblem(ValueError):
    """A template that cannot be compiled, or not be rendered for a row. `line` is 1-based in the template."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, line


class MissingColumn(TemplateProblem):
    """The template uses a column that the row does not have."""

    def __init__(self, column: str) -> None:
        super().__init__(f"there is no column {column!r}")
        self.column = column


class PromptTemplate:
    """One compiled template. Plain text with `{{ column }}` in it, the usual case, is filled in without Jinja2."""

    def __init__(self, source: str, *, max_chars: int = MAX_CHARS) -> None:
        """Raises TemplateProblem."""
        environment = _environment()
        self.source = source
        try:
            tree = environment.parse(source)
            self.columns = _columns(tree)
            _refuse_other_files(tree)
            self._pattern, self._names = _plain(tree)
            self._template = None if self._pattern is not None else _compile(environment, tree)
        except TemplateSyntaxError as error:
            raise TemplateProblem(error.message or "not a template", error.lineno) from None
        except RecursionError:
            raise TemplateProblem("nested too deeply") from None
        self._max_chars = max_chars

    @property
    def is_constant(self) -> bool:
        """True where the text is the same for every row."""
        return self._pattern is not None and not self._names

    def render(self, values: Mapping[str, Any]) -> str:
        """The text for one row. Raises MissingColumn and TemplateProblem."""
        if self._pattern is None:
            return self._render_logic(values)
        try:
            cells = [values[name] for name in self._names]
        except KeyError as error:
            raise MissingColumn(error.args[0]) from None
        return self._pattern % tuple([cell if type(cell) is str else spell(cell) for cell in cells])

    def _render_logic(self, values: Mapping[str, Any]) -> str:
        assert self._template is not None
        context = self._template.new_context({**values, "row": values, _STEP: _Steps()})
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.root_render_func(context):
                parts.append(part)
                size += len(part)
                if size > self._max_chars:
                    raise TemplateProblem(f"the template makes more than {self._max_chars:,} characters of this row")
        except TemplateProblem:
            raise
        except UndefinedError as error:
            said = str(error)
            missing = next((name for name in self.columns if name not in values and f"'{name}'" in said), None)
            raise (MissingColumn(missing) if missing else TemplateProblem(_plain_words(error))) from None
        except SecurityError as error:
            raise TemplateProblem(f"the template does what is not allowed: {error}") from None
        except (RecursionError, MemoryError):
            raise TemplateProblem("the template does not end, or makes too much") from None
        except Exception as error:
            # A template runs whatever expressions it holds, so anything may come out of it.
            raise TemplateProblem(f"the template fails on this row: {_plain_words(error)}") from error
        return "".join(parts)


class _Steps:
    """Counts loops, so that a template cannot run for ever."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> str:
        self.taken += 1
        if self.taken > _MAX_STEPS:
            raise TemplateProblem(f"the template takes more than {_MAX_STEPS:,} steps for this row")
        return ""


class _Sandbox(SandboxedEnvironment):
    """Jinja2's sandbox; it also refuses arithmetic whose result alone would fill the memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        for one, other in ((left, right), (right, left)):
            if operator == "*" and isinstance(one, int) and hasattr(other, "__len__") and len(other) * one > MAX_CHARS:
                raise SecurityError("a text or list repeated that often")
        if operator == "**" and isinstance(right, int) and abs(right) > _MAX_POWER:
            raise SecurityError("a power that large")
        return super().call_binop(context, operator, left, right)


@cache
def _environment() -> SandboxedEnvironment:
    environment = _Sandbox(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, finalize=spell, cache_size=0
    )
    environment.globals = {name: environment.globals[name] for name in _KEPT_GLOBALS}
    environment.filters["tojson"] = lambda value: to_json(value).decode()  # Jinja2's own escapes for HTML
    return environment


def _compile(environment: SandboxedEnvironment, tree: nodes.Template) -> Template:
    repeated: tuple[type[nodes.For | nodes.Macro | nodes.CallBlock], ...] = (nodes.For, nodes.Macro, nodes.CallBlock)
    for node in tree.find_all(repeated):
        call = nodes.Call(nodes.Name(_STEP, "load"), [], [], None, None)
        node.body.insert(0, nodes.Output([call]).set_lineno(node.lineno, override=True))
    code = environment.compile(tree)
    return Template.from_code(environment, code, environment.make_globals(None))


def _plain(tree: nodes.Template) -> tuple[str | None, tuple[str, ...]]:
    """A %-pattern and the columns to fill it with; None where the template is more than that."""
    pattern: list[str] = []
    names: list[str] = []
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None, ()
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                pattern.append(node.data.replace("%", "%%"))
            elif isinstance(node, nodes.Name) and node.name != "row" and node.name not in _KEPT_GLOBALS:
                pattern.append("%s")
                names.append(node.name)
            else:
                return None, ()
    return "".join(pattern), tuple(names)


def _columns(tree: nodes.Template) -> tuple[str, ...]:
    """Columns the template names, in order: free names, and `row["name"]` or `row.name`."""
    free = find_undeclared_variables(tree) - {"row", *_KEPT_GLOBALS}
    found: dict[str, None] = {}
    for node in _walk(tree):
        if isinstance(node, nodes.Name) and node.name in free:
            found[node.name] = None
        elif isinstance(node, nodes.Getitem | nodes.Getattr) and _is_row(node.node):
            if isinstance(node, nodes.Getattr):
                name = None if hasattr(dict, node.attr) else node.attr  # `row.items` is the method
            else:
                name = node.arg.value if isinstance(node.arg, nodes.Const) else None
            if isinstance(name, str):
                found[name] = None
    return tuple(found)


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    yield node
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _is_row(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "row"


def _refuse_other_files(tree: nodes.Template) -> None:
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise TemplateProblem("a template cannot take in other files; write the text here", node.lineno)


def _plain_words(error: Exception) -> str:
    return str(error).replace("'dict object'", "the value") or type(error).__name__
