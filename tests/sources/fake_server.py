"""An MCP server of the standard library alone, which starts in no time and misbehaves as it is told.

    python fake_server.py LOG [TOOLS]

LOG is a file it writes a line to for each thing that happens to it, TOOLS one with a listing in place of its own, as
JSON. It speaks the protocol of 2025-11-25.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

LOG = Path(sys.argv[1])
OBJECT: dict[str, Any] = {"type": "object"}
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
READS = {"readOnlyHint": True}
TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Say it again.", "annotations": READS,
     "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
                     "additionalProperties": False}},
    {"name": "pid", "annotations": READS, "inputSchema": OBJECT},
    {"name": "env", "annotations": READS, "inputSchema": OBJECT},
    {"name": "die", "inputSchema": OBJECT},
    {"name": "hang", "inputSchema": OBJECT},
    {"name": "hang_reading", "annotations": READS, "inputSchema": OBJECT},
    {"name": "ask", "inputSchema": OBJECT},
    {"name": "ask_twice", "inputSchema": OBJECT},
    {"name": "meet", "inputSchema": OBJECT},
    {"name": "ask_nested", "inputSchema": OBJECT},
    {"name": "ask_url", "inputSchema": OBJECT},
    {"name": "ask_javascript", "inputSchema": OBJECT},
    {"name": "url_first", "inputSchema": OBJECT},
]  # fmt: skip
if len(sys.argv) > 2:
    TOOLS = json.loads(Path(sys.argv[2]).read_text("utf-8"))
asked: dict[int, tuple[Any, str, list[Any]]] = {}
"""Questions under way: the call they belong to, its tool, and the answers before."""
number = 0
waiting: list[Any] = []


def log(*words: object) -> None:
    with LOG.open("a", encoding="utf-8") as file:
        file.write(" ".join(map(str, words)) + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(id: object, text: str, **more: Any) -> None:
    send(id=id, result={"content": [{"type": "text", "text": text}], **more})


def elicit(call: object, tool: str, answers: list[Any], params: dict[str, Any]) -> None:
    global number
    number += 1
    asked[number] = (call, tool, answers)
    log("asks", tool)
    send(id=number, method="elicitation/create", params=params)


def called(id: object, params: dict[str, Any]) -> None:
    tool, arguments = params["name"], params.get("arguments", {})
    log("call", tool, json.dumps(arguments), params.get("_meta", {}).get("overt/idempotency_key"))
    form = {"message": "Who is it for?", "requestedSchema": FORM}
    match tool:
        case "echo":
            say(id, arguments["text"], structuredContent={"text": arguments["text"]})
        case "pid":
            say(id, str(os.getpid()))
        case "env":
            # What is no message goes to the log of whoever reads it.
            sys.stdout.write(f"the token is {os.environ.get('API_TOKEN')}\n")
            say(id, json.dumps(dict(os.environ)), structuredContent=dict(os.environ))
        case "noise":
            sys.stdout.buffer.write(b"\xff\xfe no text\n")
            sys.stdout.buffer.flush()
            say(id, "heard")
        case "die":
            sys.stderr.write(f"dying with {os.environ.get('API_TOKEN')}\n")
            os._exit(3)
        case "hang" | "hang_reading":
            pass
        case "ask" | "ask_twice":
            elicit(id, tool, [], form)
        case "meet":
            # The first two are asked about once both are here.
            waiting.append(id)
            if len(waiting) >= 2:
                for one in waiting if len(waiting) == 2 else [id]:
                    elicit(one, tool, [], form)
        case "ask_nested":
            nested = {"type": "object", "properties": {"where": {"type": "object", "properties": {}}}}
            elicit(id, tool, [], {"message": "Where?", "requestedSchema": nested})
        case "ask_url":
            elicit(
                id,
                tool,
                [],
                {"mode": "url", "message": "Log in.", "url": "https://login.example/x", "elicitationId": "e"},
            )
        case "ask_javascript":
            elicit(
                id,
                tool,
                [],
                {"mode": "url", "message": "Click.", "url": "javascript:alert(1)", "elicitationId": "e"},
            )
        case "url_first":
            if Path(os.environ["VISITED"]).exists():
                say(id, "welcome")
                return
            wanted = {
                "mode": "url",
                "message": "Log in first.",
                "url": "https://login.example/",
                "elicitationId": "e1",
            }
            error = {"code": -32042, "message": "authorization needed", "data": {"elicitations": [wanted]}}
            send(id=id, error=error)
        case _:
            send(id=id, error={"code": -32602, "message": f"Unknown tool: {tool}"})


def answered(id: int, message: dict[str, Any]) -> None:
    call, tool, answers = asked.pop(id)
    if "error" in message:
        log("no answer to", tool)
        say(call, f"not asked: {message['error']['message']}", isError=True)
        return
    answers = [*answers, message["result"]]
    log("answered", tool, json.dumps(message["result"], sort_keys=True))
    if tool == "ask_twice" and len(answers) == 1:
        elicit(
            call,
            tool,
            answers,
            {"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}},
        )
    else:
        kept = [{key: answer.get(key) for key in ("action", "content")} for answer in answers]
        say(call, json.dumps(kept, sort_keys=True))


def main() -> None:
    log("begins", os.getpid())
    for line in sys.stdin:
        message = json.loads(line)
        id, method, params = message.get("id"), message.get("method"), message.get("params", {})
        match method:
            case None:
                answered(id, message)
            case "initialize":
                if os.environ.get("SLOW"):
                    continue
                server = {"name": "fake", "version": "1"}
                send(
                    id=id,
                    result={
                        "protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {}},
                        "serverInfo": server,
                    },
                )
            case "tools/list":
                send(id=id, result={"tools": TOOLS})
            case "tools/call":
                called(id, params)
            case "notifications/cancelled":
                log("cancelled", params.get("requestId"))
            case str() if id is not None:
                send(id=id, error={"code": -32601, "message": "Method not found"})
            case _:
                pass
    log("ends", os.getpid())


main()
