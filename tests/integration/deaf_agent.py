"""An agent that stops to answer at a stage of a call, and ignores every signal that it can.

`start`, `session` and `prompt` block its whole process; with `cancel` it goes on reading and
answers neither the prompt nor its cancellation.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

STAGE = sys.argv[1]


def block() -> None:
    while True:
        time.sleep(3600)


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def send(method: str, params: dict[str, Any]) -> None:
    write({"method": method, "params": params})


def answer(id: Any, result: dict[str, Any]) -> None:
    write({"id": id, "result": result})


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if STAGE == "start":
    block()
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            answer(message["id"], {"protocolVersion": 1, "agentCapabilities": {}})
        case "session/new":
            if STAGE == "session":
                block()
            answer(message["id"], {"sessionId": "s1"})
        case "session/prompt" if STAGE == "prompt":
            # As agents do while their model does not answer.
            commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
            send("session/update", {"sessionId": "s1", "update": commands})
            block()
# The end of its input does not end it either.
block()
