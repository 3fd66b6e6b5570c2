"""Names and parameters that GraphBolt's users know are here, or listed as replaced or different with the reason."""

import ast
import inspect
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.datapipes.pipeline.fluent import find_stage
from tests import graphbolt_surface as theirs

KINDS = inspect.Parameter
ANY = object()


def parse(signature: str) -> list[inspect.Parameter]:
    """Return the parameters of a signature in the table."""
    given = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(given, ast.FunctionDef)
    arguments = given.args
    first = len(arguments.args) - len(arguments.defaults)
    defaults = dict(zip([part.arg for part in arguments.args[first:]], arguments.defaults, strict=True))
    parameters = [
        KINDS(part.arg, KINDS.POSITIONAL_OR_KEYWORD, default=value_of(defaults.get(part.arg)))
        for part in arguments.args
    ]
    parameters += [
        KINDS(part.arg, KINDS.KEYWORD_ONLY, default=value_of(default))
        for part, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return parameters


def value_of(default: ast.expr | None) -> Any:
    if default is None:
        return KINDS.empty
    value = ast.literal_eval(default)
    return ANY if value is ... else value


def find(name: str) -> Any:
    """Return what has a name, or None: a stage for a fluent name."""
    if name in theirs.FLUENT and name not in theirs.SURFACE:
        return find_stage(name)
    found: Any = gf
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None) if inspect.isclass(found) else getattr(found, part, None)
    if found is None and "." in name:
        owner, _, field = name.partition(".")
        found = getattr(gf, owner, None) and getattr(gf, owner).__dict__.get("__dataclass_fields__", {}).get(field)
    return found


def complaints(name: str) -> list[str]:
    """Say what of a name is not as it was; nothing for what is missing."""
    signature = theirs.SURFACE.get(name)
    found = find(name)
    if signature is None or found is None:
        return []
    ours = list(inspect.signature(found).parameters.values())
    if "." in name:
        ours = ours[1:]
    wrong = []
    wanted = parse(signature)
    by_name = {parameter.name: parameter for parameter in ours}
    for place, parameter in enumerate(wanted):
        if (name, parameter.name) in theirs.DIFFERENT:
            continue
        own = by_name.get(parameter.name)
        if own is None:
            wrong.append(f"{parameter.name} is missing")
        elif parameter.kind is KINDS.POSITIONAL_OR_KEYWORD and (
            own.kind is not KINDS.POSITIONAL_OR_KEYWORD or ours.index(own) != place
        ):
            wrong.append(f"{parameter.name} is not at place {place}")
        elif parameter.default is ANY:
            if own.default is KINDS.empty:
                wrong.append(f"{parameter.name} has no default")
        elif parameter.default is not KINDS.empty and own.default != parameter.default:
            wrong.append(f"{parameter.name} is {own.default} by default, not {parameter.default}")
    known = {parameter.name for parameter in wanted} | {own for kind, own in theirs.DIFFERENT if kind == name}
    for own in ours:
        needed = own.default is KINDS.empty and own.kind not in (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD)
        if needed and own.name not in known and "*args" not in signature:
            wrong.append(f"{own.name} is needed, and was not there")
    return wrong


KNOWN = [*theirs.SURFACE, *(name for name in theirs.FLUENT if name not in theirs.SURFACE)]
HERE = [name for name in KNOWN if name not in theirs.REPLACED]


@pytest.mark.parametrize("name", HERE)
def test_a_name_is_here_and_is_called_as_it_was(name: str) -> None:
    assert find(name) is not None, "add it, or list it with the reason in REPLACED"
    assert complaints(name) == []


@pytest.mark.parametrize("name", sorted(theirs.FLUENT.keys() - theirs.REPLACED.keys()))
def test_a_fluent_name_is_of_its_stage(name: str) -> None:
    stage = find_stage(name)
    assert stage is not None
    assert stage.__name__ == theirs.FLUENT[name]


@pytest.mark.parametrize("name", theirs.REPLACED)
def test_what_was_replaced_is_not_here(name: str) -> None:
    assert name in KNOWN
    assert find(name) is None


@pytest.mark.parametrize("name", [name for name in theirs.REPLACED if "." not in name and name not in theirs.FLUENT])
def test_the_error_of_what_was_replaced_says_what_to_do(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; .*(instead|leave it out|makes the graph)"):
        getattr(gf, name)


@pytest.mark.parametrize(("name", "parameter"), theirs.DIFFERENT)
def test_what_differs_differs(name: str, parameter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {key: reason for key, reason in theirs.DIFFERENT.items() if key != (name, parameter)}
    monkeypatch.setattr(theirs, "DIFFERENT", reasons)
    assert any(text.startswith(f"{parameter} ") for text in complaints(name))


def test_what_differs_is_known_and_has_a_reason() -> None:
    assert all(name in theirs.SURFACE for name, _ in theirs.DIFFERENT)
    assert all(reason for reason in [*theirs.REPLACED.values(), *theirs.DIFFERENT.values()])
