"""The reference has every public name of every public module once, with its members, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
from tools.site_names import public_modules

from tests.docs.site import inventory, site

__all__ = ("site",)

pytestmark = pytest.mark.timeout(300)

MODULES = [importlib.import_module(name) for name in public_modules()]
PUBLIC = {f"{module.__name__}.{name}": getattr(module, name) for module in MODULES for name in module.__all__}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}


def members(cls: type) -> set[str]:
    """What a class and its bases that are nobody's business define for users."""
    found: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("overt.") and (base is cls or base not in CLASSES.values()):
            found |= {
                name for name in {**vars(base), **inspect.get_annotations(base)} if not name.startswith("_")
            }
    return found - {"model_config"}


def set_in_init(cls: type) -> set[str]:
    """Attributes that are there from `__init__` on and are declared nowhere else."""
    return set(re.findall(r"^ +self\.([a-z]\w*)(?::.*)? = ", inspect.getsource(cls), re.MULTILINE))


def test_every_public_name_is_there_once_and_no_other(site: Path) -> None:
    names = [name for name, _ in inventory(site)]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    known = {name for name in names if name in PUBLIC}
    assert known == set(PUBLIC)
    inside = {name for name in set(names) - known if name.rpartition(".")[0] in CLASSES}
    assert set(names) - known == inside


def test_a_class_has_its_members_and_no_others(site: Path) -> None:
    shown: dict[str, set[str]] = {name: set() for name in CLASSES}
    for path, _ in inventory(site):
        cls, _, member = path.rpartition(".")
        if cls in shown:
            shown[cls].add(member)
    missing = {name: lost for name, cls in CLASSES.items() if (lost := members(cls) - shown[name])}
    assert missing == {}
    surplus = {
        name: shown[name] - members(cls) for name, cls in CLASSES.items() if shown[name] - members(cls)
    }
    assert {
        name: left for name, names in surplus.items() if (left := names - set_in_init(CLASSES[name]))
    } == {}


def test_what_has_two_names_is_described_once(site: Path) -> None:
    where: dict[int, set[str]] = {}
    for name, uri in inventory(site):
        if name in PUBLIC:
            where.setdefault(id(PUBLIC[name]), set()).add(uri)
    assert [places for places in where.values() if len(places) > 1] == []
    uris = {uri for _, uri in inventory(site)}
    ids = Counter(
        f"{page.parent.relative_to(site)}/#{found}"
        for page in site.glob("reference/**/*.html")
        for found in re.findall(r'<h\d id="(overt\.[^"]+)"', page.read_text("utf-8"))
    )
    # The page of all names has a heading for each module.
    assert {
        uri: times for uri, times in ids.items() if uri.partition("#")[2] not in public_modules()
    } == dict.fromkeys(uris, 1)


def test_no_private_name_is_shown(site: Path) -> None:
    names = {name for name, _ in inventory(site)}
    for page in site.glob("reference/**/*.html"):
        html = page.read_text("utf-8")
        code = re.findall(r'<div class="(?:[^"]* )?doc-signature[^"]*">.*?</div>', html, re.DOTALL)
        code += re.findall(r'<p class="doc doc-class-bases">.*?</p>', html, re.DOTALL)
        code += re.findall(r'<(?:span|b) class="doc doc-[^"]*name">.*?</', html)
        assert code or "::: " not in html
        for each in code:
            text = re.sub(r"<[^>]*>", "", each)
            assert not re.search(r"(?<!\w)_[A-Za-z]|\bFrozen\b", text), f"{page.parent.name}: {text.strip()}"
        assert set(re.findall(r'title="(overt\.[\w.]+)"', html)) <= names, page.parent.name
        assert not re.findall(r"overt\.(?:\w+\.)*_[a-z]\w*", html), page.parent.name


def test_a_field_has_its_type_default_meaning_and_bounds(site: Path) -> None:
    html = (site / "reference" / "policy" / "index.html").read_text("utf-8")
    field = html.partition('id="overt.Budget.max_turns"')[2].partition('id="overt.Budget.max_tokens"')[0]
    text = re.sub(r"<[^>]*>", "", field)
    assert "max_turns: int = 6" in text
    assert "Turns per attempt of a wake." in text
    assert "Bounds: at least 0." in text


def test_errors_a_method_raises_are_links(site: Path) -> None:
    html = (site / "reference" / "runs" / "index.html").read_text("utf-8")
    raised = html.partition('id="overt.Runtime.open"')[2].partition('id="overt.Runtime.run"')[0]
    assert 'href="../errors/#overt.errors.RunNotFound"' in raised
    assert 'href="../agents/#overt.Options"' in raised
