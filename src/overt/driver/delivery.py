"""An answer of the host on its way in: checked in full before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overt.core import inputs as i
from overt.core.suspension import check, check_list
from overt.core.views import request_view
from overt.driver.answers import text_of
from overt.driver.loop import Driver
from overt.driver.perform import answer_spec, verify
from overt.errors import RequestExpired
from overt.request import Answer

__all__ = ("checked",)


async def checked(driver: Driver, answers: Sequence[Answer[Any]]) -> tuple[i.AnswerSpec, ...]:
    """Return answers as the core takes them: all of them, or none.

    Raises:
        UnknownRequest: No such request, or no answer at all.
        AlreadyAnswered: It has its answer.
        RequestExpired: It expired; that is recorded.
        InvalidAnswer: The data does not fit, `verify_answer` refused or raised, or a request is answered twice.
    """
    check_list(driver.tree, [answer.id for answer in answers])
    return tuple([await _checked(driver, answer) for answer in answers])


async def _checked(driver: Driver, answer: Answer[Any]) -> i.AnswerSpec:
    data = text_of(answer)
    try:
        state = check(driver.tree, i.AnswerSpec(answer.id, answer.ok, data, answer.reason), driver.now())
    except RequestExpired:
        # Beside other work nobody will call `recover`: what follows from the expiry runs now.
        await driver.step(i.Expire(drive=driver.tree.root.live > 0))
        raise
    request = request_view(driver.tree, state)
    spec = answer_spec(driver, request, answer)
    await verify(driver, request, answer)
    return spec
