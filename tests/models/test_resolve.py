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


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:m", "OPENAI_BASE_URL"),
        ("openai-responses:m", "OPENAI_BASE_URL"),
        ("anthropic:m", "ANTHROPIC_BASE_URL"),
        ("google:gemini-3-m", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
@pytest.mark.parametrize("first", ["http://127.0.0.1:1/first", None])
async def test_a_model_stays_with_the_endpoint_it_was_made_for(
    name: str, variable: str, first: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only that host may see again is told by where the model was made to ask, so nothing moves it later."""
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(key, "key-of-nobody")
    monkeypatch.delenv(variable, raising=False)
    if first:
        monkeypatch.setenv(variable, first)
    model: Any = resolve(name)
    monkeypatch.setenv(variable, "http://127.0.0.1:2/later")
    if name.startswith("google"):
        at, known = (await model._api())._http_options.base_url, model._host
    elif name.startswith("anthropic"):
        at, known = (await model._own_client()).base_url, model._provider
    else:
        at, known = (await model._endpoint._own_client()).base_url, model._endpoint.host
    host = str(known).rpartition(":")[2]
    assert (host == "127.0.0.1") == (first is not None)
    assert str(at).startswith(first or f"https://{host}")


@pytest.mark.parametrize(
    ("name", "variable"),
    [("openai:m", "OPENAI_API_KEY"), ("anthropic:m", "ANTHROPIC_API_KEY"), ("google:m", "GEMINI_API_KEY")],
)
async def test_a_key_is_read_at_each_call(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv(variable, "key-one")
    model: Any = resolve(name)
    owner = getattr(model, "_endpoint", model)
    client = owner._api if name.startswith("google") else owner._own_client
    first = await client()
    assert await client() is first
    monkeypatch.setenv(variable, "key-two")
    assert (first.api_key, (await client()).api_key) == ("key-one", "key-two")
