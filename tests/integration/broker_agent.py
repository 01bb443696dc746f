"""An agent for the tests of brokers, as a program of its own.

The prompt says what to do. It is written with plain `json` and threads and nothing of dragoman, so
that it is a witness of its own and starts as fast as the interpreter does. With ``--state FOLDER``
its sessions outlive it; ``--resume`` and ``--load`` say how it can take them up again.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

LIFE_LIMIT = 120
"""Seconds after which it ends in any case, should a test lose it."""

arguments = argparse.ArgumentParser()
arguments.add_argument("--state", type=Path)
arguments.add_argument("--resume", action="store_true")
arguments.add_argument("--load", action="store_true")
arguments.add_argument("--late", action="store_true", help="replay after the answer")
arguments.add_argument("--loses", type=float, default=0.0, help="what is loaded so soon is lost")
arguments.add_argument("--modes", action="store_true")
arguments.add_argument("--at-resume", choices=["dies", "hangs", "wrong"], default="")
arguments.add_argument("--new-fails", type=Path, help="refuse sessions if this file exists")
arguments.add_argument("--fails", action="store_true", help="die before the handshake")
options = arguments.parse_args()

writing = threading.Lock()
sessions: dict[str, list[str]] = {}
cancels: dict[str, threading.Event] = {}
released = threading.Event()
answers: dict[str, queue.Queue[Any]] = {}
numbers = iter(range(1, 1_000_000))


def send(message: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    with writing:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def tell(session: str, update: dict[str, Any]) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    tell(session, {"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def ask(method: str, params: dict[str, Any]) -> Any:
    id = f"a{next(numbers)}"
    box = answers[id] = queue.Queue()
    send({"id": id, "method": method, "params": params})
    return box.get()


def save(session: str) -> None:
    if options.state is not None:
        options.state.mkdir(exist_ok=True)
        (options.state / session).write_text(json.dumps(sessions[session]))


def born(session: str) -> float:
    return float((options.state / f"{session}.born").read_text())


def recall(session: str) -> bool:
    if session in sessions:
        return True
    file = None if options.state is None else options.state / session
    if file is None or not file.exists():
        return False
    sessions[session] = json.loads(file.read_text())
    return True


def settings() -> dict[str, Any]:
    if not options.modes:
        return {}
    modes = [{"id": "plan", "name": "Plan"}, {"id": "code", "name": "Code"}]
    return {"modes": {"currentModeId": "plan", "availableModes": modes}}


def turn(session: str, text: str) -> str:
    word, _, rest = text.partition(" ")
    match word:
        case "count":
            amount, _, size = rest.partition(" ")
            for number in range(int(amount)):
                say(session, f"{session}#{number} " + "x" * int(size or 0))
        case "hang":
            say(session, "hanging")
            while not cancels[session].wait(0.05):
                pass
            return "cancelled"
        case "stubborn":
            say(session, "stubborn")
            released.wait()
        case "ask":
            outcome = ask(
                "session/request_permission",
                {
                    "sessionId": session,
                    "toolCall": {
                        "toolCallId": "t1",
                        "title": rest,
                        "kind": rest,
                        "locations": [{"path": "a"}],
                    },
                    "options": [
                        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                        {"optionId": "no", "name": "No", "kind": "reject_once"},
                    ],
                },
            )
            say(session, json.dumps(outcome))
            if "cancelled" in json.dumps(outcome):
                return "cancelled"
        case "insist":
            call = {"toolCallId": "t1", "title": rest, "kind": rest}
            options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
            asked = {"sessionId": session, "toolCall": call, "options": options}
            say(session, json.dumps(ask("session/request_permission", asked)))
        case "read":
            say(session, json.dumps(ask("fs/read_text_file", {"sessionId": session, "path": rest})))
        case "elicit":
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            params = {"sessionId": session, "mode": "form", "message": "?", "requestedSchema": form}
            say(session, json.dumps(ask("elicitation/create", params)))
        case "die":
            say(session, "dying")
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
        case "recall":
            say(session, "|".join(sessions[session]))
        case "pid":
            say(session, str(os.getpid()))
        case "think":
            say(session, "hm", "agent_thought_chunk")
            tell(session, {"sessionUpdate": "current_mode_update", "currentModeId": rest})
        case _:
            say(session, rest)
    return "end_turn"


def run(id: Any, session: str, params: dict[str, Any]) -> None:
    text = params["prompt"][0]["text"]
    stop = turn(session, text)
    sessions[session].append(text)
    save(session)
    send({"id": id, "result": {"stopReason": stop, "_meta": {"seen": params.get("_meta")}}})


def replay(session: str) -> None:
    for text in sessions[session]:
        say(session, text, "user_message_chunk")
        say(session, "as I said")


def handle(id: Any, method: str, params: dict[str, Any]) -> Any:
    session = params.get("sessionId", "")
    match method:
        case "initialize":
            can: dict[str, Any] = {"loadSession": options.load, "sessionCapabilities": {}}
            if options.resume:
                can["sessionCapabilities"] = {"resume": {}, "list": {}}
            info = {"name": "broker-agent", "version": "1"}
            return {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": info}
        case "session/new":
            if options.new_fails is not None and options.new_fails.exists():
                raise LookupError("no more sessions")
            session = f"sess-{os.getpid()}-{next(numbers)}"
            sessions[session] = []
            save(session)
            if options.loses:
                (options.state / f"{session}.born").write_text(str(time.time()))
            commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
            # Before the answer, as some agents do.
            tell(session, commands)
            return {"sessionId": session, **settings()}
        case "session/load" | "session/resume":
            match options.at_resume:
                case "dies":
                    os._exit(3)
                case "hangs":
                    return NotImplemented
                case "wrong":
                    return [1]
            if options.loses and time.time() - born(session) < options.loses:
                (options.state / session).unlink()
            if not recall(session):
                raise LookupError("no such session")
            if method == "session/load" and not options.late:
                replay(session)
            return settings()
        case "session/list":
            return {"sessions": [{"sessionId": each, "cwd": "/"} for each in sorted(sessions)]}
        case "session/set_mode" | "session/close" | "_test/echo":
            return params if method == "_test/echo" else {}
        case "session/prompt":
            if session not in sessions:
                raise LookupError("no such session")
            cancels[session] = threading.Event()
            threading.Thread(target=run, args=(id, session, params), daemon=True).start()
            return NotImplemented
        case _:
            raise KeyError(method)


def serve() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        if method is None:
            answers.pop(id).put(message.get("result", message.get("error")))
        elif id is None:
            if method == "session/cancel":
                cancels[message["params"]["sessionId"]].set()
            elif method == "_test/release":
                released.set()
            elif method == "_test/block":
                threading.Event().wait()
        else:
            params = message.get("params") or {}
            try:
                result = handle(id, method, params)
            except LookupError as error:
                missing = isinstance(error, KeyError)
                code = -32601 if missing else -32002
                send({"id": id, "error": {"code": code, "message": str(error)}})
                continue
            if result is not NotImplemented:
                send({"id": id, "result": result})
            if method == "session/load" and options.late:
                replay(params["sessionId"])


if __name__ == "__main__":
    signal.alarm(LIFE_LIMIT)
    if options.fails:
        sys.stderr.write("there is no key\n")
        sys.exit(3)
    serve()
