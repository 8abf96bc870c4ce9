"""The options of a run, said once for `run`, `run_sync` and `Runtime`, and checked before anything happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from typing_extensions import TypedDict, TypeVar

from overt._agent_checks import check_callback, check_hooks, check_rules, shown, tools_to_approve
from overt.clock import Clock
from overt.errors import DefinitionError, MissingDeps, NoModel
from overt.journal.store import Store
from overt.message import AssistantMessage, Message, Model, SystemMessage, ToolMessage, UserMessage
from overt.policy import Budget, ResumePolicy, RetryPolicy
from overt.request import Answer, Request, WaitFor

if TYPE_CHECKING:
    from overt.agent import Agent
    from overt.guardrail import Guardrail, OutputGuardrail, PromptGuardrail
    from overt.hooks import Hooks, MetricEvent
    from overt.policy import LimitDecision, LimitInfo
    from overt.prices import Prices
    from overt.upgrade import Upgrade

__all__ = ("Options", "check_run", "check_store", "model_of")

DepsT = TypeVar("DepsT", default=None)


class Options(TypedDict, Generic[DepsT], total=False):
    """Everything a run may be told; each may be left out."""

    model: Model | str
    """The run's model, for every agent that names none."""
    deps: DepsT
    """Handed to tools as `ctx.deps`; never stored."""
    store: Store
    """Where the journal is kept. Left out: in memory."""
    run_id: str
    """Id of the run; left out, one is made up. One that exists is refused."""
    resume_policy: ResumePolicy
    """What an answer to a parked run does with the work since the checkpoint. `REWIND` if left out: it is replayed, and
    tools reachable in a wake that may be suspended must be idempotent."""
    history: Sequence[Message]
    """Messages the transcript begins with: each tool call in them with its result right after."""
    budget: Budget
    """Caps of the root: the whole tree's bill."""
    guardrails: Sequence[Guardrail]
    """Rules on the calls of every agent of the tree, asked together with each agent's own."""
    input_guardrails: Sequence[PromptGuardrail]
    """Rules on the prompts of every agent of the tree."""
    output_guardrails: Sequence[OutputGuardrail]
    """Rules on the final answers of every agent of the tree."""
    guardrail_timeout: float
    """Seconds an async guardrail may take before it denies; 30 if left out."""
    wait_for: WaitFor
    """Answers requests at once, where no agent's own does. See `WaitFor` for what that asks of tools."""
    on_pending: Callable[[Request], Awaitable[None]]
    """Told, at least once, of every request that no interpreter answers, after it is durable."""
    verify_answer: Callable[[Request, Answer[Any]], bool | Awaitable[bool]]
    """Asked before an answer is accepted; false refuses it, and so does an exception."""
    on_limit: Callable[[LimitInfo], LimitDecision | Awaitable[LimitDecision]]
    """Asked where a cap is spent, before the call or batch that does not fit. Left out: stop. Not asked where
    `max_wall` runs out in the middle of a call, which ends the call, nor about the rounds of a completion gate. While
    it is asked about `max_wall`, that ends nothing. Whoever goes on with a run that was cut off meanwhile asks it
    again."""
    hooks: Hooks
    """Functions around the model calls and tools of every agent; an agent's own replace them one by one."""
    on_metric: Callable[[MetricEvent], None]
    """Told of each model call, tool and stretch of every agent that has none of its own."""
    clock: Clock
    """Where time comes from. Left out: the machine's."""
    inbox_cap: int
    """Items a handle's inbox holds; 8 if left out."""
    max_concurrent_turns: int
    """Model calls at once, in the whole tree; 8 if left out."""
    max_divergences: int
    """Questions a replay may ask otherwise than before, per wake; 2 if left out."""
    shutdown: float
    """Seconds `close` waits before it interrupts; 0.2 if left out."""
    claim: float
    """Seconds a driver's claim on the run lasts without renewal; 30 if left out."""
    max_result_chars: int
    """Characters the model sees of one tool result; 100,000 if left out."""
    retry: RetryPolicy
    """How often a failed model call is made again, and after which wait. Left out: twice, after about 0.5 and 1 s."""
    prices: Prices
    """What model calls cost: `PriceTable({...})` or `GenAIPrices()`. Left out: nothing is priced, and `max_cost` is
    refused. Not stored: given again at `open`, for what is bought from then on."""
    redact: Sequence[str]
    """Names of JSON fields whose values are "[redacted]" in what tools return (text, metadata, errors), in the data of
    their questions, in `ModelError.detail` and in what guardrails say, for everybody, before anything is recorded.
    Whole names, whatever their case, at any depth. Arguments, answers, `ctx.once` values and what models write are
    recorded as they are. Recorded with the run: left out at `open`, the recorded ones hold."""
    upgrade: Upgrade
    """What has changed in the code since runs were stored; for `Runtime.open`, no effect on a run that begins."""
    on_drift: Literal["refuse", "accept"]
    """What `Runtime.open` does where the code does not fit the run: `refuse` (`SpecDrift`) if left out. `accept` goes
    on in spite of what can be accepted, and records that for good; what it then means, each `Drift` says in `how`."""


_LEAST = {"inbox_cap": 1, "max_concurrent_turns": 1, "max_divergences": 0, "max_result_chars": 1}


_KNOWN = frozenset(Options.__annotations__)
_POLICIES = tuple(ResumePolicy)
_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


def check_run(
    agent: Agent[Any, Any], agents: Mapping[str, Agent[Any, Any]], options: Mapping[str, object]
) -> None:
    """Check everything that can be wrong with a run before it starts.

    Args:
        agent: The entry agent.
        agents: Every agent it reaches, by name.
        options: As given by the host.

    Raises:
        DefinitionError: An option is unknown or out of range, or the teams do not resolve.
        MissingDeps: An agent declares `deps_type`, and there are no `deps`.
        NoModel: An agent has no model, and neither has the run nor the entry agent.
    """
    if unknown := options.keys() - _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        hint = f"; say it as budget=Budget({min(unknown)}=…)" if min(unknown) in Budget.model_fields else ""
        raise DefinitionError(f"unknown option {min(unknown)!r}{hint}; the options are {known}")
    check_store(options.get("store"))
    _check_functions(options)
    _check_rules(agents, options)
    _check_policy(options)
    _check_upgrade(options)
    _check_history(options.get("history", ()))
    budget = options.get("budget")
    if budget is not None and not isinstance(budget, Budget):
        raise DefinitionError(f"option 'budget' has to be a Budget, not {type(budget).__name__}")
    for place, given in (("the run", budget), *((f"agent {a.name!r}", a.budget) for a in agents.values())):
        if given is not None and given.max_cost is not None and options.get("prices") is None:
            raise DefinitionError(
                f"{place}: max_cost needs prices, or nothing would ever reach it: "
                "prices=PriceTable({...}) or prices=GenAIPrices()"
            )
    _check_buying(options)
    for name, least in _LEAST.items():
        if name not in options:
            continue
        value = options[name]
        if not isinstance(value, int) or value < least:
            raise DefinitionError(f"option {name!r} has to be an int of at least {least}, not {value!r}")
    for name in ("shutdown", "claim", "guardrail_timeout"):
        if name not in options:
            continue
        value = options[name]
        if (
            not isinstance(value, (int, float))
            or not 0 <= value < float("inf")
            or (name != "shutdown" and not value)
        ):
            raise DefinitionError(f"option {name!r} has to be a positive number of seconds, not {value!r}")
    _check_redact(options.get("redact", ()))
    run_id = options.get("run_id", "run")
    if not isinstance(run_id, str) or not run_id.strip():
        raise DefinitionError(f"option 'run_id' has to be a non-empty str, not {run_id!r}")
    for member in agents.values():
        if member.deps_type not in (None, type(None)) and options.get("deps") is None:
            raise MissingDeps(
                f"agent {member.name!r} is declared with deps_type={_name(member.deps_type)}: "
                "give the run deps=…"
            )
        model_of(member, entry=agent, options=options)


def _check_buying(options: Mapping[str, object]) -> None:
    retry = options.get("retry")
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise DefinitionError(
            f"option 'retry' has to be a RetryPolicy such as RetryPolicy(max_retries=2), not {shown(retry)}"
        )
    prices = options.get("prices")
    if prices is not None and (isinstance(prices, type) or not callable(getattr(prices, "price", None))):
        raise DefinitionError(
            f"option 'prices' has to be an object with a method price(call), such as PriceTable({{...}}), "
            f"not {shown(prices)}"
        )


def _check_redact(given: object) -> None:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise DefinitionError(
            f"option 'redact' has to be a list of field names, not {shown(given)}: redact=[…]"
        )
    for name in cast("Sequence[object]", given):
        if not isinstance(name, str) or not name.strip():
            raise DefinitionError(f"option 'redact' has to be a list of field names, and has {name!r:.80}")


def check_store(store: object) -> None:
    """Check the option `store`.

    Raises:
        DefinitionError: It is no store.
    """
    if store is None:
        return
    if isinstance(store, type) or not (hasattr(store, "append") and hasattr(store, "claim")):
        given = f"the class {store.__name__}" if isinstance(store, type) else type(store).__name__
        raise DefinitionError(f"option 'store' has to be a store such as SQLiteStore(path), not {given}")


def _check_functions(options: Mapping[str, object]) -> None:
    for name in ("wait_for", "on_pending", "verify_answer"):
        given = options.get(name)
        if given is not None and not callable(given):
            raise DefinitionError(f"option {name!r} has to be a function, not {type(given).__name__}")
    check_callback("option 'on_limit'", options.get("on_limit"), waits=True)
    check_callback("option 'on_metric'", options.get("on_metric"))
    check_hooks("option 'hooks'", options.get("hooks"))
    clock = options.get("clock")
    if clock is None:
        return
    if isinstance(clock, type):
        raise DefinitionError(f"option 'clock' has to be a Clock, not the class {clock.__name__}")
    for method in ("now", "monotonic", "sleep"):
        if not callable(getattr(clock, method, None)):
            raise DefinitionError(
                f"option 'clock' has to be a Clock: {type(clock).__name__} has no method {method!r}"
            )


def _check_rules(agents: Mapping[str, Agent[Any, Any]], options: Mapping[str, object]) -> None:
    for field in ("guardrails", "input_guardrails", "output_guardrails"):
        if field not in options:
            continue
        given = options[field]
        if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
            raise DefinitionError(
                f"option {field!r} has to be a list of functions, not {shown(given)}: write {field}=[…]"
            )
        rules = cast("Sequence[object]", given)
        check_rules(f"option {field!r}", rules, on_calls=field == "guardrails")
        if field != "guardrails" or not rules:
            continue
        names = {tool.name for agent in agents.values() for tool in agent.tools}
        if any(agent.team for agent in agents.values()):
            names.add("task")
        for name in tools_to_approve(rules):
            if name not in names:
                listed = ", ".join(sorted(names))
                raise DefinitionError(
                    f"option 'guardrails' has require_approval({name!r}), and no agent of the run has a tool of that "
                    f"name: {f'the tools are {listed}' if listed else 'there are no tools'}"
                )


def _check_policy(options: Mapping[str, object]) -> None:
    policy = options.get("resume_policy", ResumePolicy.REWIND)
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise DefinitionError(f"option 'resume_policy' is 'rewind' or 'continue', not {policy!r}")


def _check_upgrade(options: Mapping[str, object]) -> None:
    on_drift = options.get("on_drift", "refuse")
    if on_drift not in ("refuse", "accept"):
        raise DefinitionError(f"option 'on_drift' is 'refuse' or 'accept', not {on_drift!r}")
    given = options.get("upgrade")
    if given is None:
        return
    from overt.upgrade import Upgrade

    if not isinstance(given, Upgrade):
        raise DefinitionError(
            f"option 'upgrade' has to be an Upgrade such as Upgrade(tools=…), not {shown(given)}"
        )
    check_callback("option 'upgrade': arguments", given.arguments, takes=2)
    check_callback("option 'upgrade': questions", given.questions)


def _check_history(history: object) -> None:
    """Refuse what no provider takes: it would fail at the first turn, with the provider's words."""
    if history == ():
        return
    if not isinstance(history, Sequence) or isinstance(history, (str, bytes)):
        raise DefinitionError(f"option 'history' has to be a list of messages, not {type(history).__name__}")
    open_calls: dict[str, int] = {}
    for index, message in enumerate(cast("Sequence[object]", history)):
        if not isinstance(message, _MESSAGES):
            raise DefinitionError(
                f"option 'history': item {index} has to be a message such as UserMessage(text=…), "
                f"not {type(message).__name__}"
            )
        if isinstance(message, ToolMessage):
            if message.call_id not in open_calls:
                raise DefinitionError(
                    f"option 'history': item {index} is a result of call {message.call_id!r}, which the assistant "
                    "message before it does not make, or has its result already"
                )
            del open_calls[message.call_id]
            continue
        _check_answered(open_calls)
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id in open_calls:
                    raise DefinitionError(f"option 'history': item {index} has two calls {call.id!r}")
                open_calls[call.id] = index
    _check_answered(open_calls)


def _check_answered(open_calls: Mapping[str, int]) -> None:
    for id, index in open_calls.items():
        raise DefinitionError(
            f"option 'history': call {id!r} of item {index} has no result: a ToolMessage for each call has to come "
            "right after the assistant message"
        )


def model_of(agent: Agent[Any, Any], *, entry: Agent[Any, Any], options: Mapping[str, object]) -> Model | str:
    """Return the model an agent uses: its own, else the run's, else the entry agent's.

    Raises:
        NoModel: There is none of them.
    """
    for candidate in (agent.model, options.get("model"), entry.model):
        if candidate is None:
            continue
        if not isinstance(candidate, str) and not (
            hasattr(candidate, "generate") and hasattr(candidate, "name")
        ):
            raise DefinitionError(
                f"option 'model' has to be a Model or a str, not {type(candidate).__name__}"
            )
        return cast("Model | str", candidate)
    raise NoModel(f"agent {agent.name!r} has no model: give the agent or the run model=…")


def _name(kind: object) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
