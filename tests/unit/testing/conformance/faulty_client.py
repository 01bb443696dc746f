"""A client in memory that does everything right, except for the faults it is told to have.

A fault has the name of the check that has to find it, with a letter behind it where there are
several. It keeps its files in a folder of the test and its terminals in its imagination; it uses
plain `json` and nothing of dragoman but a stream in memory.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from dragoman.errors import ConnectionLost
from dragoman.testing.conformance import Report
from dragoman.testing.conformance.probe import Probe, Scenario
from dragoman.testing.conformance.probe_services import LIMIT, PRINTED
from dragoman.transports.memory import MemoryStream, memory_pair

PATIENCE = 20.0
"""Seconds for a conversation in memory, in which nothing waits for the world."""

SILENCE = 0.2
"""Seconds to wait for an answer that will not come."""

PROMPTS = ("hello", "once more", "cancel")


async def probed(
    *faults: str,
    folder: Path,
    silent: bool = False,
    scenario: Scenario = "main",
    prompts: tuple[str, ...] = PROMPTS,
) -> Report:
    """The report about a client with these faults, after it has said all its prompts."""
    near, far = memory_pair()
    probe = Probe(far, scenario=scenario, timeout=SILENCE if silent else PATIENCE)
    FaultyClient(near, frozenset(faults), folder, list(prompts))
    async with asyncio.timeout(PATIENCE):
        return await probe.run()


class FaultyClient:
    """One connection of it. It goes away when its last prompt was answered."""

    def __init__(
        self, stream: MemoryStream, faults: frozenset[str], folder: Path, prompts: list[str]
    ) -> None:
        self.stream = stream
        self.faults = faults
        self.folder = folder
        self.prompts = prompts
        self.session = ""
        self.rest = b""
        self.held: Any = None
        self.cancelling = False
        self.ended = False
        self.mute = False
        self.terminals: dict[str, dict[str, Any]] = {}
        stream.start(self)
        self.begin()

    def has(self, fault: str) -> bool:
        return fault in self.faults

    # -- the stream

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if not self.ended:
                self.line(line)

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended = True

    def end(self) -> None:
        self.ended = True
        self.stream.close()

    def raw(self, data: bytes) -> None:
        if not self.ended:
            self.stream.write(data)

    def send(self, **members: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def ask(self, id: int, method: str, **params: Any) -> None:
        self.send(id=id, method=method, params=params)

    def refuse(self, id: Any, code: int = -32601) -> None:
        self.send(id=id, error={"code": code, "message": "No"})

    # -- what it says

    def begin(self) -> None:
        if self.has("input_is_only_messages"):
            self.raw(b"hello?\n")
        if self.has("messages_are_well_formed"):
            self.raw(b'{"method":"_x"}\n')
        if self.has("handshake_comes_first"):
            self.ask(1, "session/new", cwd="/", mcpServers=[])
            return
        params: dict[str, Any] = {
            "protocolVersion": 1,
            "clientInfo": {"name": "faulty", "version": "1"},
            "clientCapabilities": {
                "fs": {"readTextFile": True, "writeTextFile": True},
                "terminal": True,
                "elicitation": {"form": {}},
            },
        }
        if self.has("version_is_a_whole_number"):
            params["protocolVersion"] = "1"
        if self.has("capabilities_are_told"):
            params["clientCapabilities"]["elicitation"] = {"form": True}
        if self.has("capabilities_are_told b"):
            params["clientCapabilities"] = []
        if self.has("client_names_itself"):
            del params["clientInfo"]
        if self.has("custom_fields_stay_in_meta"):
            params["custom"] = 1
        if self.has("offers nothing"):
            del params["clientCapabilities"]
        self.ask(0, "initialize", **params)

    def answered(self, id: Any, message: dict[str, Any]) -> None:
        if id == 0:
            version = message["result"]["protocolVersion"]
            if version != 1 and not self.has("unknown_version_ends_it"):
                self.end()
                return
            if self.has("only_advertised_methods_are_called"):
                self.ask(50, "session/list")
            self.open()
        elif id == 1:
            if "result" not in message:
                self.end()
                return
            self.session = message["result"]["sessionId"]
            self.prompt()
        elif id in (2, 22):
            self.prompts.pop(0)
            self.prompt()

    def open(self) -> None:
        params: dict[str, Any] = {"cwd": str(self.folder), "mcpServers": []}
        if self.has("session_folder_is_absolute"):
            params["cwd"] = "here"
        if self.has("servers_are_always_listed"):
            del params["mcpServers"]
        if self.has("servers_are_always_listed b"):
            params["mcpServers"] = 5
        if self.has("only_advertised_content_is_sent b"):
            params["mcpServers"] = [{"type": "http", "name": "n", "url": "u", "headers": []}]
        if self.has("only_advertised_content_is_sent c"):
            params["additionalDirectories"] = ["/other"]
        self.ask(1, "session/new", **params)

    def prompt(self) -> None:
        if not self.prompts:
            if self.has("late_updates_are_survived"):
                # It stays, and only when nobody waits for it any more does it go.
                asyncio.get_running_loop().call_later(4 * SILENCE, self.end)
            else:
                self.end()
            return
        block = {"type": "text", "text": self.prompts[0]}
        if self.has("only_advertised_content_is_sent"):
            block = {"type": "image", "data": "", "mimeType": "image/png"}
        self.ask(2, "session/prompt", sessionId=self.session, prompt=[block])
        if self.has("one_prompt_at_a_time"):
            self.ask(22, "session/prompt", sessionId=self.session, prompt=[block])

    # -- what it hears

    def line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            if self.has("noise_is_survived") and line:
                self.end()
            return
        if not isinstance(message, dict) or not message:
            if self.has("odd_json_is_survived"):
                self.end()
        elif "method" not in message:
            if message["id"] in (0, 1, 2, 22):
                self.answered(message["id"], message)
            elif message["id"] != 50 and self.has("stray_answer_is_survived"):
                self.end()
        elif "id" in message:
            self.request(message["id"], message["method"], message.get("params") or {})
        else:
            self.notification(message["method"], message["params"])

    def notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "session/update":
            self.update(params["update"])
        elif method == "elicitation/complete":
            if self.has("unknown_question_done_is_ignored"):
                self.end()
        elif method == "$/cancel_request":
            if params["requestId"] == self.held:
                self.held = None
                if not self.has("called_off_permission_is_answered"):
                    self.refuse(params["requestId"], -32800)
        elif self.has("unknown_notification_is_ignored"):
            self.refuse(None)

    def update(self, update: dict[str, Any]) -> None:
        kind = update["sessionUpdate"]
        text = str(update.get("content"))
        if (
            (kind == "dragoman_update_of_tomorrow" and self.has("unknown_updates_are_survived"))
            or (update.get("kind") == 7 and self.has("malformed_updates_are_survived"))
            or (len(text) > 100_000 and self.has("large_update_is_taken"))
            or ("Stopping" in text and self.has("updates_after_a_cancel_are_taken"))
        ):
            self.end()
        elif kind == "usage_update" and update["used"] == 10:
            self.mute = self.has("late_updates_are_survived")
        elif "Cancel this turn" in text:
            self.cancelling = True

    def cancel(self) -> None:
        if self.has("cancel_is_a_notification"):
            self.ask(77, "session/cancel", sessionId=self.session)
        else:
            self.send(method="session/cancel", params={"sessionId": self.session})
        if self.held is not None:
            self.decide(self.held, "open_questions_are_cancelled")
            self.held = None

    def decide(self, id: Any, fault: str) -> None:
        outcome: dict[str, str] = {"outcome": "cancelled"}
        if self.has(fault):
            outcome = {"outcome": "selected", "optionId": "42"}
        self.send(id=id, result={"outcome": outcome})

    def request(self, id: Any, method: str, params: dict[str, Any]) -> None:
        if self.mute:
            return
        if method == "session/request_permission":
            self.permission(id, params)
        elif method.startswith(("fs/", "terminal/", "elicitation/")):
            self.service(id, method, params)
        elif self.has("unknown_extension_is_refused") and method.startswith("_dragoman/no"):
            self.send(id=id, result={})
        elif self.has("unknown_method_is_refused") and method.startswith("dragoman"):
            self.refuse(id, -32600)
        elif self.has("ids_are_echoed_as_they_came") and id == "0":
            self.refuse(0)
        else:
            self.refuse(id)

    def permission(self, id: Any, params: dict[str, Any]) -> None:
        if not params:
            self.refuse(id, -32603 if self.has("missing_params_are_refused") else -32602)
        elif params["options"][0]["optionId"] == "x":
            outcome: dict[str, str] = {"outcome": "cancelled"}
            if self.has("unknown_kinds_are_not_chosen"):
                outcome = {"outcome": "selected", "optionId": "x"}
            self.send(id=id, result={"outcome": outcome})
        elif self.cancelling and self.held is None and not self.has("answers at once"):
            if self.prompts and self.prompts[0] == "cancel":
                self.held = id
                self.cancel()
                self.prompts[0] = "cancelled"
            else:
                self.decide(id, "questions_after_a_cancel_are_cancelled")
        elif self.cancelling:
            self.decide(id, "open_questions_are_cancelled")
            self.cancel()
            self.faults -= {"answers at once"}
            self.prompts[0] = "cancelled"
        elif self.has("called_off_permission_is_answered") and self.held is None and self.asked():
            self.held = id
        else:
            option = "nonsense" if self.has("permission_gets_an_offered_option") else "42"
            result = {"outcome": {"outcome": "selected", "optionId": option}}
            if self.has("permission_gets_an_offered_option b"):
                result = {"outcome": {}}
            self.send(id=id, result=result)

    def asked(self) -> bool:
        """Whether this is the second usual question, which is the one that is called off."""
        first, self.asked_before = getattr(self, "asked_before", False), True
        return first

    # -- services

    def service(self, id: Any, method: str, params: dict[str, Any]) -> None:
        if self.has("offers nothing"):
            if self.has("services_not_offered_are_refused"):
                self.send(id=id, result={"content": "secret"})
            else:
                self.refuse(id)
        elif method == "fs/write_text_file":
            path = Path(params["path"])
            if path.is_absolute() and not self.has("files_are_written_and_read"):
                path.write_text(params["content"], "utf-8")
            self.send(id=id, result=None)
        elif method == "fs/read_text_file":
            self.read(id, params)
        elif method == "elicitation/create":
            self.elicit(id, params)
        else:
            self.terminal(id, method.removeprefix("terminal/"), params)

    def read(self, id: Any, params: dict[str, Any]) -> None:
        path = Path(params["path"])
        if not path.is_absolute():
            self.refuse(id, -32603 if self.has("wrong_paths_are_refused b") else -32602)
        elif not path.exists():
            if self.has("wrong_paths_are_refused"):
                self.send(id=id, result={"content": ""})
            else:
                self.refuse(id, -32002)
        else:
            lines = path.read_text("utf-8").splitlines(keepends=True)
            start = (params.get("line") or 1) - 1
            if self.has("files_are_written_and_read b"):
                start = params.get("line") or 0
            lines = lines[start:][: params.get("limit")]
            self.send(id=id, result={"content": "".join(lines)})

    def elicit(self, id: Any, params: dict[str, Any]) -> None:
        if params["mode"] != "form":
            if self.has("unknown_way_of_asking_is_refused"):
                self.send(id=id, result={"action": "accept", "content": {}})
            else:
                self.refuse(id, -32602)
        else:
            wrong = self.has("form_is_accepted_declined_or_cancelled")
            self.send(id=id, result={"action": "perhaps" if wrong else "decline"})

    def terminal(self, id: Any, verb: str, params: dict[str, Any]) -> None:
        if verb == "create":
            name = f"t{len(self.terminals)}"
            program = params["args"][-1]
            code = 3 if "sys.exit(3)" in program else 0
            output = "hello\n" if code else PRINTED
            limited = params.get("outputByteLimit") is not None
            if limited:
                kept = output.encode()[-LIMIT:]
                output = kept.decode("utf-8", "ignore")
                if self.has("terminal_output_loses_its_beginning"):
                    output = PRINTED[:20]
            self.terminals[name] = {"code": code, "output": output, "truncated": limited}
            self.send(id=id, result={"terminalId": name})
            return
        terminal = self.terminals.get(params["terminalId"])
        if terminal is None:
            self.refuse(id, -32002)
        elif verb == "wait_for_exit":
            wrong = self.has("terminals_run_and_are_released")
            self.send(id=id, result={"exitCode": 0 if wrong else terminal["code"]})
        elif verb == "output":
            if terminal.get("killed") and self.has("killed_terminal_can_be_read"):
                self.refuse(id, -32002)
                return
            status = {"exitCode": terminal["code"]}
            self.send(
                id=id,
                result={
                    "output": terminal["output"],
                    "truncated": terminal["truncated"],
                    "exitStatus": status,
                },
            )
        elif verb == "kill":
            terminal["killed"] = True
            self.send(id=id, result={})
        else:
            if not self.has("terminals_run_and_are_released b"):
                del self.terminals[params["terminalId"]]
            self.send(id=id, result={})
