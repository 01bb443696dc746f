"""An agent in memory that does everything right, except for the faults it is told to have.

A fault has the name of the check that has to find it, with a letter behind it where there are
several. It uses plain `json` and nothing of dragoman but a stream in memory, so that what judges
and what is judged have nothing in common.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from dragoman.errors import ConnectionLost
from dragoman.testing.conformance import Report, check_stream
from dragoman.testing.conformance.agents import DEFAULT_TIMEOUT
from dragoman.transports.base import Stream
from dragoman.transports.memory import MemoryStream, memory_pair

SILENCE = 0.2
"""Seconds to wait for an answer that will not come."""

Reply = dict[str, Any]

NUMBERS = itertools.count()


async def checked(*faults: str, only: tuple[str, ...] = (), silent: bool = False) -> Report:
    """The report about an agent with these faults."""
    store: dict[str, list[str]] = {}

    async def open_stream() -> Stream:
        near, far = memory_pair()
        FaultyAgent(far, frozenset(faults), store)
        return near

    timeout = SILENCE if silent else DEFAULT_TIMEOUT
    return await check_stream(
        open_stream,
        subject="faulty",
        cwd="/somewhere",
        turns=True,
        only=only,
        timeout=timeout,
        turn_timeout=timeout,
    )


class FaultyAgent:
    """One connection to it. `store` has what was said in which session, for all connections."""

    def __init__(
        self, stream: MemoryStream, faults: frozenset[str], store: dict[str, list[str]]
    ) -> None:
        self.stream = stream
        self.faults = faults
        self.store = store
        self.ready = False
        self.running: dict[str, Any] = {}
        self.rest = b""
        stream.start(self)

    def has(self, fault: str) -> bool:
        return fault in self.faults

    # -- the stream

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if self.has("large_line_is_taken") and len(line) > 100_000:
                self.stream.close()
                return
            self.line(line)

    def stream_ended(self, failure: ConnectionLost) -> None:
        pass

    def raw(self, data: bytes) -> None:
        self.stream.write(data)

    def send(self, **members: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", **members}, ensure_ascii=False)
        self.raw(text.encode() + b"\n")

    def refuse(self, id: Any, code: int = -32601) -> None:
        self.send(id=id, error={"code": code, "message": "No"})

    def update(self, session: str, update: str, **members: Any) -> None:
        params: Reply = {"sessionId": session, "update": {"sessionUpdate": update, **members}}
        if self.has("custom_fields_stay_in_meta c"):
            params["custom"] = 1
        self.send(method="session/update", params=params)

    def say(self, session: str, kind: str, text: str) -> None:
        self.update(session, kind, content={"type": "text", "text": text})

    # -- messages

    def line(self, line: bytes) -> None:
        if not line.strip():
            if self.has("blank_and_crlf_lines_are_taken"):
                self.stream.close()
            return
        if line.endswith(b"\r") and self.has("blank_and_crlf_lines_are_taken b"):
            return
        try:
            message = json.loads(line)
        except ValueError:
            self.odd("garbage_is_survived", -32700)
            return
        if isinstance(message, list):
            self.odd("batch_is_survived", -32600)
        elif not isinstance(message, dict) or not message:
            self.odd("scalar_is_survived", -32600)
        elif "method" not in message:
            if self.has("stray_answer_is_survived"):
                self.stream.close()
        elif "id" not in message:
            self.notification(message["method"], message.get("params"))
        elif message["id"] is None:
            self.odd("null_id_is_survived", -32600)
        else:
            self.request(message["id"], message["method"], message.get("params"))

    def odd(self, fault: str, code: int) -> None:
        if self.has(fault):
            self.stream.close()
        else:
            self.refuse(None, code)

    def notification(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            id = self.running.get(params["sessionId"])
            if id is not None:
                self.cancelled(id, params["sessionId"])
            elif self.has("cancel_without_a_turn_is_ignored"):
                self.refuse(None)
        elif method == "$/cancel_request":
            sessions = [s for s, id in self.running.items() if id == params["requestId"]]
            if sessions:
                self.called_off(sessions[0])
            elif self.has("cancelling_an_unknown_request_is_ignored"):
                self.refuse(None)
        elif self.has("unknown_notification_is_ignored"):
            self.refuse(None)

    def request(self, id: Any, method: str, params: Any) -> None:
        if self.has("ids_are_echoed_as_they_came") and id == "7":
            id = 7
        if self.has("text_is_utf8") and isinstance(id, str) and not id.isascii():
            id = id.encode("ascii", "replace").decode()
        handler = METHODS.get(method)
        if self.has("offers nothing") and method in OPTIONAL:
            handler = None
        if (
            method != "initialize"
            and not self.ready
            and not self.has("session_needs_the_handshake")
        ):
            self.refuse(id, -32600)
        elif handler is None:
            self.unknown(id, method)
        elif params is None:
            self.refuse(id, -32603 if self.has("missing_params_are_refused") else -32602)
        else:
            handler(self, id, params)

    def unknown(self, id: Any, method: str) -> None:
        if self.has("unknown_extension_is_refused") and method.startswith("_"):
            self.send(id=id, result={})
        elif self.has("unknown_method_is_refused") and not method.startswith("_"):
            self.refuse(id, -32600)
        elif self.has("every_request_is_answered_once"):
            self.refuse(id)
            self.refuse(id)
        else:
            self.refuse(id)

    # -- methods

    def initialize(self, id: Any, params: Reply) -> None:
        version = params.get("protocolVersion")
        again, self.ready = self.ready, True
        if again and self.has("second_handshake_changes_nothing"):
            self.send(id=id, result={"protocolVersion": 7})
            return
        if not isinstance(version, int):
            text = isinstance(version, str)
            fault = "version_as_text_is_refused" if text else "strange_version_is_refused"
            self.refuse(id, -32603 if self.has(fault) else -32602)
            return
        if version == 0 and self.has("version_zero_is_answered"):
            self.send(id=id, result={"protocolVersion": "zero"})
            return
        capabilities = params.get("clientCapabilities")
        if capabilities is None and self.has("bare_handshake_is_enough"):
            self.refuse(id, -32602)
            return
        offered = capabilities or {}
        if offered.get("terminal") is True and self.has("full_capabilities_are_served"):
            self.stream.close()
            return
        if offered.get("terminal") == 3 and self.has("malformed_capabilities_count_as_absent"):
            self.refuse(id, -32602)
            return
        if offered.get("terminal") == 3 and self.has("malformed_capabilities_count_as_absent b"):
            self.stream.close()
            return
        self.greet(id, version, offered)

    def greet(self, id: Any, version: int, offered: Reply) -> None:
        result: Reply = {
            "protocolVersion": 1,
            "agentInfo": {"name": "faulty", "version": "1"},
            "agentCapabilities": {
                "loadSession": True,
                "sessionCapabilities": {"list": {}, "delete": {}, "resume": {}, "close": {}},
            },
            "authMethods": [{"id": "a", "name": "A"}],
        }
        if self.has("initialize_is_answered"):
            result["protocolVersion"] = "1"
        if self.has("initialize_is_answered b"):
            result["agentCapabilities"] = []
        if self.has("own_version_is_kept"):
            result["protocolVersion"] = 5 if version == 1 else 1
        if self.has("newer_version_is_negotiated_down"):
            result["protocolVersion"] = version
        if self.has("agent_names_itself"):
            del result["agentInfo"]
        if self.has("agent_names_itself b"):
            result["agentInfo"] = {"name": 5}
        if self.has("capabilities_are_well_formed"):
            result["agentCapabilities"]["sessionCapabilities"]["list"] = True
        if self.has("login_methods_are_well_formed"):
            result["authMethods"] = [{"id": "a"}]
        if self.has("terminal_login_is_not_pressed_on_others"):
            result["authMethods"] = [{"id": "a", "name": "A", "type": "terminal"}]
        if self.has("methods_not_advertised_are_refused") or self.has("offers nothing"):
            result["agentCapabilities"] = {}
        if self.has("custom_fields_stay_in_meta"):
            result["models"] = []
        if self.has("output_is_only_messages"):
            self.raw(b"Loading...\n")
        if self.has("output_is_only_messages b"):
            self.raw(b'{"jsonrpc":"2.0","method":"x","params":"\xff"}\n')
        if self.has("output_is_only_messages c"):
            self.raw(b"[]\n")
        if self.has("messages_are_well_formed"):
            self.raw(b'{"method":"_x"}\n')
        if self.has("messages_are_well_formed b"):
            self.raw(b'{"jsonrpc":"2.0","id":5555,"result":1,"error":{}}\n')
        self.send(id=id, result=result)

    def authenticate(self, id: Any, params: Reply) -> None:
        if params["methodId"] == "a" or self.has("unknown_login_method_is_refused"):
            self.send(id=id, result={})
        else:
            self.refuse(id, -32602)

    def new(self, id: Any, params: Reply) -> None:
        if not params["cwd"].startswith("/") and not self.has("relative_folder_is_refused"):
            self.refuse(id, -32602)
            return
        same = self.has("new_sessions_have_ids_of_their_own")
        session = "s" if same else f"s{next(NUMBERS)}"
        self.store[session] = []
        result: Reply = {
            "sessionId": session,
            "modes": {
                "currentModeId": "ask",
                "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
            },
            "configOptions": self.options(),
        }
        if self.has("new_sessions_have_ids_of_their_own b"):
            result["sessionId"] = 5
        if self.has("modes_are_well_formed"):
            result["modes"]["currentModeId"] = "other"
        if self.has("modes_are_offered_as_an_option_too"):
            result["configOptions"] = []
        if self.has("modes_are_offered_as_an_option_too b"):
            result["configOptions"][0]["currentValue"] = "code"
        if self.has("every_option_has_a_value"):
            del result["configOptions"][1]["currentValue"]
        if self.has("boolean_options_are_not_sent_unasked"):
            flag = {"id": "b", "name": "B", "type": "boolean", "currentValue": True}
            result["configOptions"].append(flag)
        if self.has("custom_fields_stay_in_meta b"):
            result["custom"] = 1
        if self.has("nothing_is_asked_that_was_not_offered"):
            self.send(id=1, method="fs/read_text_file", params={"path": "/etc/passwd"})
        self.send(id=id, result=result)
        self.update(session, "available_commands_update", availableCommands=[])

    def options(self) -> list[Reply]:
        return [
            {
                "id": "mode", "name": "Mode", "category": "mode", "type": "select",
                "currentValue": "ask",
                "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
            },
            {
                "id": "model", "name": "Model", "type": "select", "currentValue": "big",
                "options": [
                    {"group": "g", "name": "G", "options": [{"value": "big", "name": "Big"}]}
                ],
            },
        ]  # fmt: skip

    def set_mode(self, id: Any, params: Reply) -> None:
        known = params["modeId"] in ("ask", "code")
        if self.has("unknown_mode_is_refused"):
            known = True
        if self.has("current_mode_can_be_set"):
            known = False
        if known:
            self.send(id=id, result={})
        else:
            self.refuse(id, -32602)

    def set_option(self, id: Any, params: Reply) -> None:
        known = params["configId"] in ("mode", "model") and params["value"] in ("ask", "big")
        if known:
            missing = self.has("setting_an_option_returns_all_of_them")
            self.send(id=id, result={"configOptions": self.options()[missing:]})
        elif self.has("unknown_option_is_refused") or (
            params["configId"] == "mode" and self.has("unknown_option_is_refused b")
        ):
            self.send(id=id, result={"configOptions": self.options()})
        else:
            self.refuse(id, -32602)

    def listed(self, id: Any, params: Reply) -> None:
        if params.get("cursor") and not self.has("invalid_cursor_is_refused"):
            self.refuse(id, -32602)
            return
        if self.has("list_of_sessions_is_a_list"):
            self.send(id=id, result={})
            return
        if self.has("listing_changes_nothing"):
            self.store[f"listed-{len(self.store)}"] = []
        entries = [{"sessionId": session, "cwd": "/somewhere"} for session in self.store]
        if self.has("listed_sessions_are_well_formed"):
            entries = [{"sessionId": "s"}]
        self.send(id=id, result={"sessions": entries})

    def delete(self, id: Any, params: Reply) -> None:
        session = params["sessionId"]
        found = self.store.get(session)
        if not self.has("deleted_session_is_not_listed"):
            self.store.pop(session, None)
        if found is None and self.has("deleting_twice_succeeds"):
            self.refuse(id, -32002)
        else:
            self.send(id=id, result={})

    def close(self, id: Any, params: Reply) -> None:
        if self.has("closed_session_is_closed"):
            self.refuse(id, -32603)
            return
        running = self.running.get(params["sessionId"])
        if running is not None and not self.has("closing_cancels_the_turn"):
            self.cancelled(running, params["sessionId"])
        self.send(id=id, result={})

    def load(self, id: Any, params: Reply) -> None:
        session = params["sessionId"]
        said = self.store.get(session)
        if said is None and not self.has("loading_no_session_is_refused"):
            self.refuse(id, -32002)
            return
        late = self.has("loading_replays_before_it_answers c")
        if late:
            self.send(id=id, result=None)
        for text in said or ():
            if self.has("loading_replays_before_it_answers"):
                text = "something"
            if not self.has("loading_replays_before_it_answers b"):
                self.say(session, "user_message_chunk", text)
            self.say(session, "agent_message_chunk", "OK")
        if self.has("loading_replays_before_it_answers d"):
            self.send(id=id, result=None)
            self.say(session, "agent_message_chunk", "and more")
        elif not late:
            self.send(id=id, result=None)

    def resume(self, id: Any, params: Reply) -> None:
        if params["sessionId"] not in self.store:
            self.refuse(id, -32002)
            return
        if self.has("resuming_does_not_replay"):
            self.say(params["sessionId"], "user_message_chunk", "again")
        self.send(id=id, result={})

    # -- turns

    def prompt(self, id: Any, params: Reply) -> None:
        session = params["sessionId"]
        if session not in self.store and not self.has("prompt_to_no_session_is_refused"):
            self.refuse(id, -32002)
            return
        blocks = params["prompt"]
        if any(block["type"] != "text" for block in blocks) and self.has(
            "links_are_accepted_in_prompts"
        ):
            self.refuse(id, -32602)
            return
        text = blocks[0]["text"]
        if text.startswith("Count"):
            self.running[session] = id
            self.say(session, "agent_message_chunk", "one")
            return
        self.store.setdefault(session, []).append(text)
        if not self.has("turn_ends_with_a_stop_reason"):
            self.answer(session)
        reason = "finished" if self.has("turn_ends_with_a_stop_reason b") else "end_turn"
        if self.has("turn_ends_with_a_stop_reason c"):
            reason = "cancelled"
        self.send(id=id, result={"stopReason": reason})
        if self.has("nothing_is_said_after_the_answer"):
            self.say(session, "agent_message_chunk", "by the way")

    def answer(self, session: str) -> None:
        status = "done" if self.has("updates_are_well_formed") else "completed"
        self.update(session, "tool_call", toolCallId="t", title="T", kind="read", status=status)
        self.say(session, "agent_message_chunk", "OK")

    def cancelled(self, id: Any, session: str) -> None:
        if self.has("cancelled_turn_says_so b"):
            return
        del self.running[session]
        if self.has("cancelled_turn_says_so"):
            self.refuse(id, -32603)
        else:
            self.send(id=id, result={"stopReason": "cancelled"})
        if self.has("nothing_is_said_after_a_cancelled_answer"):
            self.say(session, "agent_message_chunk", "by the way")

    def called_off(self, session: str) -> None:
        if self.has("ignores calling off"):
            return
        id = self.running.pop(session)
        if not self.has("cancelled_request_is_still_answered"):
            self.refuse(id, -32603 if self.has("cancelled_request_is_still_answered b") else -32800)


METHODS: dict[str, Callable[[FaultyAgent, Any, Reply], None]] = {
    "initialize": FaultyAgent.initialize,
    "authenticate": FaultyAgent.authenticate,
    "session/new": FaultyAgent.new,
    "session/set_mode": FaultyAgent.set_mode,
    "session/set_config_option": FaultyAgent.set_option,
    "session/list": FaultyAgent.listed,
    "session/delete": FaultyAgent.delete,
    "session/close": FaultyAgent.close,
    "session/load": FaultyAgent.load,
    "session/resume": FaultyAgent.resume,
    "session/prompt": FaultyAgent.prompt,
}

OPTIONAL = ("session/list", "session/delete", "session/close", "session/load", "session/resume")
