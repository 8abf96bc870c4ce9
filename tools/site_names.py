"""What the reference shows: public names where users import them from, and no others. An extension of griffe.

A class is defined in one module and imported by users from another; its fields may come from a base that is nobody's
business. Here every public name is put where users find it, with all that belongs to it, and every annotation says
where its names are public. A module is public if it has a stub in `stubs/`.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any, cast

import griffe

__all__ = ("PublicNames", "homes", "public_modules", "public_names")

ROOT = Path(__file__).parent.parent
PACKAGE = "overt"
# Of an attribute these say what its class says already.
QUIET_LABELS = {
    "class-attribute",
    "dataclass",
    "instance-attribute",
    "module-attribute",
    "pydantic-field",
    "pydantic-model",
    "writable",
}
TYPE_PARAMETERS = ("TypeVar(", "ParamSpec(", "TypeVarTuple(")
BOUNDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
"""How a bound of a field reads; what is not here says nothing to a reader that its annotation does not."""


def public_modules() -> list[str]:
    """Return the modules users import from: those with a stub that names something."""
    stubs = ROOT / "stubs"
    paths = [
        path.relative_to(stubs) for path in sorted(stubs.rglob("*.pyi")) if path.read_text("utf-8").strip()
    ]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return sorted(names, key=lambda name: (name.count("."), name))


def public_names(package: griffe.Module) -> dict[str, griffe.Object]:
    """Return every name of a public module, and what it names."""
    found: dict[str, griffe.Object] = {}
    for path in public_modules():
        module = _module(package, path)
        for name in module.exports or ():
            target = _target(module.members[str(name)])
            if target.is_module and module.imports.get(str(name)) == f"{target.path}.{name}":
                # `from overt.tool import tool`: importers get the function, griffe the module of that name.
                target = _target(target.members[str(name)])
            found[f"{path}.{name}"] = target
    return found


def _target(member: griffe.Object | griffe.Alias) -> griffe.Object:
    return member.final_target if isinstance(member, griffe.Alias) else member


def homes(names: dict[str, griffe.Object]) -> dict[str, str]:
    """Return where each public thing is described, by the path of its definition.

    That is where it is defined, if that is a public module, else the first public module that has it.
    """
    found: dict[str, str] = {}
    for public, target in names.items():
        if public == target.path:
            found[target.path] = public
        else:
            found.setdefault(target.path, public)
    return found


class PublicNames(griffe.Extension):
    """Puts every public name where users import it from."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the tree of the package once it is there as a whole."""
        if pkg.path != PACKAGE:
            return
        names = public_names(pkg)
        at = homes(names)
        things = {target.path: target for target in names.values()}
        for thing in things.values():
            if isinstance(thing, griffe.Class):
                _complete(thing, at)
        for thing in things.values():
            _settle(thing, at)
        for path, home in at.items():
            thing = things[path]
            others = [name for name, target in names.items() if target is thing and name != home]
            _move(thing, home, others, _module(pkg, home.rpartition(".")[0]))


def _module(package: griffe.Module, path: str) -> griffe.Module:
    return cast("griffe.Module", package if path == PACKAGE else package[path.removeprefix(f"{PACKAGE}.")])


# ------------------------------------------------------------------ what a class shows


def _complete(cls: griffe.Class, at: dict[str, str]) -> None:
    """Give a class what it inherits from bases that are not public, and drop what is not to be shown."""
    own = {name: member for name, member in cls.members.items() if _shown(name, member)}
    hidden = [base for base in cls.mro() if base.path not in at]
    for base in hidden:
        for name, member in base.members.items():
            if name not in own and _shown(name, member):
                taken = copy.copy(cast("griffe.Object", member))
                taken.parent = cls
                taken.docstring = copy.copy(taken.docstring)
                own[name] = taken
    cls.members.clear()
    for number, (name, member) in enumerate(own.items()):
        cls.members[name] = member
        # Members are shown in the order of their lines, and these come of several files.
        cls.members[name].lineno = number
    bases = [base for one in (cls, *hidden) for base in one.bases if not _ours(base) or _path(base) in at]
    bases.sort(key=lambda base: str(base).startswith(("Generic", "Protocol")))
    cls.bases[:] = [base for number, base in enumerate(bases) if str(base) not in map(str, bases[:number])]
    # The template of pydantic models lists every field twice.
    cls.extra.get("mkdocstrings", {}).pop("template", None)
    _describe(cls)


def _shown(name: str, member: griffe.Object | griffe.Alias) -> bool:
    if name == "__init__":
        return True
    return not name.startswith("_") and not member.is_alias and name != "model_config"


def _path(name: str | griffe.Expr) -> str:
    return name if isinstance(name, str) else name.canonical_path


def _ours(name: str | griffe.Expr) -> bool:
    return _path(name).startswith(f"{PACKAGE}.")


def _describe(cls: griffe.Class) -> None:
    """Say of each attribute where it is shown what the docstring of its class says, and what bounds it."""
    if cls.docstring is not None:
        sections = cls.docstring.parsed
        for section in list(sections):
            if isinstance(section, griffe.DocstringSectionAttributes):
                left = [told for told in section.value if not _tell(cls, told.name, told.description)]
                if left:
                    section.value = left
                else:
                    sections.remove(section)
    for name, member in cls.members.items():
        bounds = member.extra.get("griffe_pydantic", {}).get("constraints", {})
        read = [text.format(_number(str(bounds[key]))) for key, text in BOUNDS.items() if key in bounds]
        if read:
            told = member.docstring.value if member.docstring is not None else ""
            _tell(cls, name, f"{told}\n\nBounds: {', '.join(read)}.".strip(), again=True)


def _number(text: str) -> str:
    """Return a number as a reader writes it: `10,000,000,000` for `1e10`."""
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return text
    return f"{number:,.0f}" if number.is_integer() else str(number)


def _tell(cls: griffe.Class, name: str, text: str, *, again: bool = False) -> bool:
    member = cls.members.get(name)
    if member is None or (member.docstring is not None and not again):
        return False
    parser = cls.docstring.parser if cls.docstring is not None else griffe.Parser.google
    member.docstring = griffe.Docstring(text, parent=cast("griffe.Object", member), parser=parser)
    return True


# ------------------------------------------------------------------ names in annotations


def _settle(thing: griffe.Object, at: dict[str, str]) -> None:
    """Write every name of its annotations as its public path, so that none has to be looked up where it was."""
    thing.labels -= QUIET_LABELS
    names = _Written(thing.package, at)
    if isinstance(thing, griffe.Class):
        thing.bases[:] = [names.written(base) for base in thing.bases]
    elif isinstance(thing, griffe.Attribute):
        thing.annotation = names.written(thing.annotation)
        # What is not public is no reader's default: a field that is set in `__init__`, a table of checks.
        thing.value = names.written(thing.value) if names.all_public(thing.value) else None
    elif isinstance(thing, griffe.Function):
        thing.returns = names.written(thing.returns)
        for parameter in list(thing.parameters):
            if re.match("_[a-z]", parameter.name):
                del thing.parameters[parameter.name]
        for parameter in thing.parameters:
            parameter.annotation = names.written(parameter.annotation)
            parameter.default = names.written(parameter.default)
        for overload in thing.overloads or ():
            _settle(overload, at)
    for section in thing.docstring.parsed if thing.docstring is not None else ():
        raises = isinstance(section, griffe.DocstringSectionRaises)
        for told in section.value if isinstance(section.value, list) else ():
            if isinstance(told, griffe.DocstringNamedElement) or raises:
                told.annotation = (names.raised if raises else names.written)(told.annotation)
    for member in thing.members.values():
        if isinstance(member, griffe.Object):
            _settle(member, at)


class _Written:
    """Expressions with public names only."""

    def __init__(self, package: griffe.Module, at: dict[str, str]) -> None:
        self.package = package
        self.at = at

    def written(self, part: Any) -> Any:
        """Return a copy of an expression; names of types that are not public are replaced by what they stand for."""
        if isinstance(part, list | tuple):
            return [self.written(item) for item in part]
        if isinstance(part, griffe.ExprName):
            return self.name(part)
        if isinstance(part, griffe.ExprAttribute):
            return self.attribute(part)
        if not isinstance(part, griffe.Expr):
            return part
        made = copy.copy(part)
        for field in dataclasses.fields(part):
            setattr(made, field.name, self.written(getattr(part, field.name)))
        return made

    def attribute(self, part: griffe.ExprAttribute) -> griffe.Expr:
        """`Status.DONE` stays as it is written, with the class where it is public."""
        values: list[str | griffe.Expr] = [self.written(part.values[0])]
        for value in part.values[1:]:
            made = copy.copy(value)
            if isinstance(made, griffe.ExprName) and isinstance(values[-1], griffe.ExprName):
                made.parent = values[-1]
            values.append(made)
        return griffe.ExprAttribute(values)

    def name(self, part: griffe.ExprName) -> griffe.Expr:
        """Return a name with the path where it is public."""
        path = part.canonical_path
        known = self.at.get(path, path)
        if known == path and self.ours(path):
            item = self.item(path)
            value = item.value if isinstance(item, griffe.Attribute) else None
            if str(value).startswith(TYPE_PARAMETERS):
                return griffe.ExprName(part.name.lstrip("_"))
            if isinstance(value, griffe.Expr) and not self.all_public(part):
                return cast("griffe.Expr", self.written(value))
        head, _, tail = known.rpartition(".")
        return griffe.ExprName(tail, parent=head or None)

    def raised(self, part: Any) -> Any:
        """Return the name of an error as it is public, also where it is known by its bare name only."""
        made = self.written(part)
        bare = f"{PACKAGE}.errors.{made}"
        return griffe.ExprName(str(made), parent=f"{PACKAGE}.errors") if bare in self.at.values() else made

    def all_public(self, part: object) -> bool:
        """Whether every name of an expression is public, or of another package."""
        if not isinstance(part, griffe.Expr):
            return True
        names = (name for name in part.iterate(flat=True) if isinstance(name, griffe.ExprName))
        return all(self.public(name.canonical_path) for name in names)

    def public(self, path: str) -> bool:
        while self.ours(path):
            if path in self.at:
                return True
            path = path.rpartition(".")[0]
        return path != PACKAGE and "(" not in path

    def ours(self, path: str) -> bool:
        return path.startswith(f"{PACKAGE}.")

    def item(self, path: str) -> object:
        try:
            return self.package[path.removeprefix(f"{PACKAGE}.")]
        except (KeyError, griffe.GriffeError):
            return None


# ------------------------------------------------------------------ where a thing is


class _Names(dict[str, griffe.Alias]):
    """The other public names of a thing: what it is called by whom else is nobody's business."""

    def __setitem__(self, name: str, alias: griffe.Alias) -> None:
        """Keep what was given at first."""


def _move(thing: griffe.Object, home: str, others: list[str], module: griffe.Module) -> None:
    name = home.rpartition(".")[2]
    thing.name = name
    thing.parent = module
    module.members[name] = thing
    _name(thing, others)


def _name(thing: griffe.Object, others: list[str]) -> None:
    thing.aliases = _Names({other: cast("griffe.Alias", thing) for other in others})
    for name, member in thing.members.items():
        if isinstance(member, griffe.Object):
            _name(member, [f"{other}.{name}" for other in others])
