"""A model that is recorded once, and replayed from a file."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, cast, final

from anyio.lowlevel import checkpoint

from overt.errors import DefinitionError, ModelError
from overt.message import Model, ModelDelta, ModelRequest, ModelResponse, StreamingModel
from overt.models import resolve
from overt.models.assemble import Assembler
from overt.testing._cassette_asked import Fields, Questions, differences, nearest, shown
from overt.testing._cassette_file import (
    CassetteError,
    Outcome,
    Recorded,
    Tape,
    delta_fields,
    error_fields,
    read_tape,
    write_tape,
)
from overt.testing._chunks import chunks

__all__ = ("Cassette", "CassetteError")

_PIECE = 16


@final
class Cassette:
    """A model whose replies are recorded once from a real one, into a file, and come from that file ever after.

    ```python
    from overt import Agent
    from overt.testing import Cassette, MockModel

    scout = Agent("scout", does="Looks things up.")

    def test_the_scout_finds_it() -> None:
        asked = MockModel(["In A1."])  # a name in earnest: model="openai:gpt-5-mini"
        with Cassette("scout.jsonl", model=asked) as model:
            result, _ = scout.run_sync("Where is it?", model=model)
        print(result.text, len(asked.requests))

    test_the_scout_finds_it()
    test_the_scout_finds_it()
    #> In A1. 1
    #> In A1. 0
    ```

    The first time, and never in CI, the model is asked and the file written; commit it. From then on neither the model,
    its key nor its package is needed.

    **What is replayed.** A request gets the reply that was recorded for the same one: the same messages, tools,
    settings, schema and model, whoever asks and in whatever order, so runs and children may work side by side. Each
    reply is used once; equal requests get theirs in the order they were recorded in. Not compared are names of agents
    and handles, metadata of tool results, the deadline, ids of calls (their order counts), and
    `ModelRequest.max_output_tokens`, which depends on what is left of a budget. A request that was not recorded is a
    `ModelError` of type `"NotRecorded"`, which says where the nearest recorded one differs; the block then ends with
    an `AssertionError` that says the same, and so it does where replies were left over.

    **What is recorded.** Requests, replies with usage and finish reasons, pieces of those that were streamed, and
    `ModelError`s as values; a run that retried retries again, after the same wait, on its clock. Never keys or headers,
    of which a request has none. A call that is cancelled, or raises anything else, leaves nothing. The file is written
    whole when the block ends, and not at all if it raises. It has a line of JSON for each message, piece and reply; a
    transcript that goes on is not repeated.

    A reply that was recorded whole is streamed in pieces of 16 characters, and a stream is put together where the whole
    is asked for. Works on asyncio and on trio, and for many runs at once. One object is for one test.

    Args:
        path: The file. Folders are made when it is written.
        model: What is recorded: a model, or a name for `overt.models.resolve`. Not asked, and of a name not even made,
            in a replay; there it only has to be the one that was recorded, by its name.
        mode: `"record"` replaces the file; `"replay"` needs it. `"auto"` replays a file that is there, and records
            where there is none, unless the environment variable `CI` is set.
        redact: Applied to every text of messages and replies: what is recorded is what it returns, and so is what is
            compared with that. For data of the host that has no place in a file, and for what differs from run to run,
            such as the date. What it has changed it has to leave alone; a replay gives the run redacted replies.
        allow_unused: Whether a block may end with replies that were not used.

    Attributes:
        name: Name of the recorded model.
        provider: Its provider, for prices; empty where it has none.
        structured_output: Whether it honours `ModelRequest.output_schema`.
        mode: `"record"` or `"replay"`: what it does.

    Raises:
        CassetteError: The file is missing and may not be recorded here, is damaged, or was recorded from another model.
        DefinitionError: There is nothing to record, or the model cannot be made.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: Model | str | None = None,
        mode: Literal["auto", "record", "replay"] = "auto",
        redact: Callable[[str], str] | None = None,
        allow_unused: bool = False,
    ) -> None:
        if mode not in ("auto", "record", "replay"):
            raise DefinitionError(f"Cassette: mode is 'auto', 'record' or 'replay', not {mode!r}")
        self._path = Path(path)
        self._allow_unused = allow_unused
        self._questions = Questions(redact)
        self._lock = threading.Lock()
        self._open = False
        self._missed: list[str] = []
        self._source: Model | None = None
        self.mode: Literal["record", "replay"] = _mode(self._path, mode, model is not None)
        if self.mode == "replay":
            self._tape = read_tape(self._path)
            _same_model(self._path, self._tape, model)
        else:
            if model is None:
                raise DefinitionError(f"Cassette {self._path}: give the model= that is to be recorded")
            self._source = resolve(model) if isinstance(model, str) else model
            provider: object = getattr(self._source, "provider", None)
            self._tape = Tape(
                self._source.name,
                provider if isinstance(provider, str) else "",
                bool(getattr(self._source, "structured_output", False)),
                model if isinstance(model, str) else "",
            )
        self.name: str = self._tape.model
        self.provider: str = self._tape.provider
        self.structured_output: bool = self._tape.structured_output

    @property
    def unused(self) -> tuple[str, ...]:
        """The recorded calls that nobody has asked for yet, in words."""
        return tuple(shown(at, call.asked) for at, call in enumerate(self._tape.calls, 1) if not call.used)

    @property
    def missed(self) -> tuple[str, ...]:
        """What was asked and is not recorded, as the errors said it."""
        return tuple(self._missed)

    def __enter__(self) -> Self:
        """Begin a recording, or a replay that is to be complete."""
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what was recorded, or see that the replay was complete.

        Raises:
            AssertionError: A request was not recorded, or a reply was not used.
            CassetteError: Nothing was recorded.
        """
        self._open = False
        if error is not None:
            for told in self._missed:
                error.add_note(told)
            return
        if self.mode == "record":
            self._write()
            return
        if self._missed:
            raise AssertionError(self._missed[0])
        if self.unused and not self._allow_unused:
            listed = "".join(f"\n  {told}" for told in self.unused)
            raise AssertionError(f"cassette {self._path}: replies that nobody has asked for:{listed}")

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Give the recorded reply; of a recording, the model's.

        Args:
            request: What is asked.

        Returns:
            The reply.

        Raises:
            ModelError: What was recorded as one; or the request was not recorded, of type `"NotRecorded"`.
            CassetteError: Something would be recorded outside of the block.
        """
        if self._source is None:
            await checkpoint()
            outcome = self._take(request)
            whole = outcome.response()
            if whole is not None:
                return whole
            assembler = Assembler()
            for delta in outcome.pieces():
                assembler.add(delta)
            if (failure := outcome.failure()) is not None:
                raise failure
            return assembler.response()
        call = self._begin(request)
        try:
            response = await self._source.generate(request)
        except ModelError as error:
            call.outcome = Outcome(error=self._questions.redacted(error_fields(error)))
            raise
        call.outcome = Outcome(reply=self._reply(response))
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Give the recorded reply in its pieces; of a recording, the model's.

        Args:
            request: What is asked.

        Yields:
            The pieces.

        Raises:
            ModelError: As `generate`, also after some pieces.
            CassetteError: As `generate`.
        """
        if self._source is None:
            outcome = self._take(request)
            whole = outcome.response()
            for delta in outcome.pieces() if whole is None else chunks(whole, _PIECE):
                await checkpoint()
                yield delta
            if (failure := outcome.failure()) is not None:
                raise failure
            return
        if not isinstance(self._source, StreamingModel):
            for delta in chunks(await self.generate(request), _PIECE):
                yield delta
            return
        call = self._begin(request)
        said: list[ModelDelta] = []
        try:
            deltas = self._source.stream(request)
            try:
                async for delta in deltas:
                    said.append(delta)
                    yield delta
            finally:
                if hasattr(deltas, "aclose"):
                    await cast("AsyncGenerator[ModelDelta]", deltas).aclose()
        except ModelError as error:
            fields = self._questions.redacted(error_fields(error))
            call.outcome = Outcome(deltas=self._pieces(said), error=fields)
            raise
        call.outcome = Outcome(deltas=self._pieces(said))

    # -------------------------------------------------------------- replaying

    def _take(self, request: ModelRequest) -> Outcome:
        """Return what was recorded for a request, and use it up."""
        asked = self._questions.of(request, self.name)
        digest = asked.digest
        with self._lock:
            same = [call for call in self._tape.calls if call.digest == digest]
            for call in same:
                if not call.used:
                    call.used = True
                    return call.outcome or Outcome()
            told = f"cassette {self._path} has no reply for {shown(None, asked)}. "
            if same:
                at = self._tape.calls.index(same[-1]) + 1
                told += f"The same was recorded {_times(len(same))}, last as call {at}, and has been used."
            elif (found := nearest(asked, self._tape.calls)) is not None:
                told += f"Nearest is {shown(found + 1, self._tape.calls[found].asked)}; it differs in "
                told += "; ".join(differences(asked, self._tape.calls[found].asked)) + "."
            else:
                told += "It holds none."
            told += " If that is meant, delete the file and record it again."
            self._missed.append(told)
        raise ModelError(told, type="NotRecorded")

    # -------------------------------------------------------------- recording

    def _begin(self, request: ModelRequest) -> Recorded:
        """Note a request, in its place among the others; it counts once it has an outcome."""
        if not self._open:
            raise CassetteError(
                f"cassette {self._path} is recorded inside its block: with Cassette(…) as model: …"
            )
        call = Recorded(self._questions.of(request, self.name), used=True)
        with self._lock:
            self._tape.calls.append(call)
        return call

    def _reply(self, response: ModelResponse) -> Fields:
        fields = cast("Fields", response.model_dump(mode="json", exclude_defaults=True))
        return self._questions.redacted(fields)

    def _pieces(self, said: list[ModelDelta]) -> tuple[Fields, ...]:
        pieces = tuple(delta_fields(delta) for delta in said)
        if not self._questions.redacts:
            return pieces
        # A name may be cut by two pieces, so the whole is what counts.
        whole, ended = _whole(said)
        redacted = ModelResponse.model_validate(self._reply(whole))
        if redacted == whole:
            return pieces
        cut = tuple(delta_fields(delta) for delta in chunks(redacted, _PIECE))
        return cut if ended else tuple(piece for piece in cut if "finish_reason" not in piece)

    def _write(self) -> None:
        if not any(call.outcome is not None for call in self._tape.calls):
            raise CassetteError(f"cassette {self._path}: the model was not asked, so nothing is recorded")
        write_tape(self._path, self._tape)


def _whole(said: list[ModelDelta]) -> tuple[ModelResponse, bool]:
    """Return what was streamed, put together, and whether it came to its end."""
    assembler = Assembler()
    for delta in said:
        assembler.add(delta)
    ended = any(delta.finish_reason is not None for delta in said)
    if not ended:
        assembler.add(ModelDelta(finish_reason="unknown"))
    return assembler.response(), ended


def _mode(
    path: Path, mode: Literal["auto", "record", "replay"], has_model: bool
) -> Literal["record", "replay"]:
    if mode != "auto":
        return mode
    if path.exists():
        return "replay"
    if not has_model:
        raise CassetteError(f"there is no cassette {path}, and no model= to record it from")
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise CassetteError(
            f"there is no cassette {path}, and nothing is recorded where CI is set: record it elsewhere and commit it"
        )
    return "record"


def _same_model(path: Path, tape: Tape, model: Model | str | None) -> None:
    """See that a model is the one that was recorded."""
    if model is None:
        return
    recorded, name = tape.model, model if isinstance(model, str) else model.name
    if isinstance(model, str) and tape.written:
        recorded = tape.written
    elif isinstance(model, str):
        # What a name is made into has the rest of it for its name.
        name = model.partition(":")[2]
    if name != recorded:
        raise CassetteError(
            f"cassette {path} was recorded from {recorded!r}, not from {name!r}: delete the file and record it again"
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
