from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import overt.models
from overt.errors import DefinitionError
from overt.message import Model
from overt.models import OpenAIModel, register, resolve
from overt.testing import MockModel


def test_a_name_with_a_provider_becomes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    model = resolve("openai:gpt-5-mini")
    assert isinstance(model, OpenAIModel)
    assert isinstance(model, Model)
    assert model.name == "gpt-5-mini"
    assert resolve("openai:ft:gpt-5-mini:acme::1").name == "ft:gpt-5-mini:acme::1"


@pytest.mark.parametrize("model", ["", "gpt-5-mini", "openai:", "openai: ", ":gpt-5-mini"])
def test_what_is_not_provider_and_name_is_refused(model: str) -> None:
    with pytest.raises(DefinitionError, match="provider:name"):
        resolve(model)


def test_an_unknown_provider_names_the_known_ones() -> None:
    with pytest.raises(
        DefinitionError, match=r"unknown provider 'acme'.*openai.*register\('acme', factory\)"
    ):
        resolve("acme:x")


def test_a_missing_key_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(DefinitionError, match="OPENAI_API_KEY"):
        resolve("openai:gpt-5-mini")


def test_a_missing_package_is_told_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "overt.models.openai", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(DefinitionError, match=r"pip install 'overt\[openai\]'"):
        resolve("openai:gpt-5-mini")


def test_a_host_registers_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overt.models, "_factories", {})
    register("house", lambda name: MockModel(["x"], name=name))
    assert resolve("house:small:1").name == "small:1"
    with pytest.raises(DefinitionError, match="house, openai"):
        resolve("acme:x")
    register("openai", lambda name: MockModel(["x"], name=f"ours-{name}"))
    assert resolve("openai:a").name == "ours-a"
    for wrong in ("", " ", "a:b"):
        with pytest.raises(DefinitionError, match="without a colon"):
            register(wrong, lambda name: MockModel(["x"], name=name))
    nothing: Any = lambda name: None  # noqa: E731 - what a factory without its `return` does
    register("forgot", nothing)
    with pytest.raises(
        DefinitionError, match="'forgot:a': the factory registered for 'forgot' made a NoneType"
    ):
        resolve("forgot:a")


def test_importing_models_loads_no_provider() -> None:
    code = "import sys, overt.models, overt.testing; sys.exit(any(m in sys.modules for m in ('openai', 'httpx2')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = overt.models.Nothing
