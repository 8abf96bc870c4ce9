"""What is asked of a [`Model`][overt.Model], as checks to run on any implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from overt.testing._model_checks import ModelBench, ModelCheck
from overt.testing._model_replies import FAILURE_CHECKS, REPLY_CHECKS
from overt.testing._model_requests import REQUEST_CHECKS
from overt.testing._model_runs import RUN_CHECKS

__all__ = ("MODEL_CHECKS", "model_conformance")

MODEL_CHECKS: Final[tuple[ModelCheck, ...]] = (*REPLY_CHECKS, *FAILURE_CHECKS, *REQUEST_CHECKS, *RUN_CHECKS)
"""Asked of every model, as far as its provider has the like."""


async def model_conformance(make_bench: Callable[[], ModelBench]) -> Mapping[str, str]:
    """Check that a model does what is asked of every model, on the event loop this is awaited in.

    ```python
    from overt.testing import ModelBench, model_conformance

    def make_bench() -> ModelBench:
        raise NotImplementedError  # your model, and a provider in the process that answers it

    async def test_my_model() -> None:
        await model_conformance(make_bench)
    ```

    `MODEL_CASES` has the answers in words and as data, and `MODEL_CHECKS` are the single checks, for a test of each:

    ```python
    import pytest

    from overt.testing import MODEL_CHECKS, ModelCheck

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=str)
    async def test_a_check(check: ModelCheck) -> None:
        if reason := check.why_not(make_bench()):
            pytest.skip(reason)
        await check(make_bench)
    ```

    Nothing here needs pytest.

    Args:
        make_bench: Makes the model under test and its provider; called for each check.

    Returns:
        Why a check was left out, by its name: what `not_applicable` says, or that the model does not stream or takes
        no schema.

    Raises:
        AssertionError: A check fails; says which, what was expected and what was found.
    """
    left_out: dict[str, str] = {}
    for check in MODEL_CHECKS:
        reason = check.why_not(make_bench())
        if reason is None:
            await check(make_bench)
        else:
            left_out[check.name] = reason
    return left_out
