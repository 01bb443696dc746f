"""Try the services of a client: files, terminals, elicitation.

Each method sends requests and checks the results. It raises `Violation`, or `Skip` if the client
does not offer the service. `probe` decides when to call them.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.testing.conformance.checks import Skip, expect
from dragoman.testing.conformance.conversation import Answer, Conversation, Message
from dragoman.wire import codes

PRINTED = "ab☃" * 40
"""The output of a terminal: characters of one and of three bytes."""
LIMIT = 52
"""The output limit, in bytes, of a terminal that prints `PRINTED`. The cut falls inside a
character."""


def offers(capabilities: Message, path: str) -> bool:
    """Return whether a client offers a capability, given by its dotted name: as true or an
    object."""
    value: Any = capabilities
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value is True or isinstance(value, dict)


class Services:
    """Checks the services that a client offers in one session."""

    def __init__(
        self, conversation: Conversation, session: str, cwd: str, capabilities: Message
    ) -> None:
        self._conversation = conversation
        self._session = session
        self._cwd = Path(cwd)
        self._capabilities = capabilities

    async def _ask(self, method: str, **params: object) -> Answer:
        return await self._conversation.ask(method, {"sessionId": self._session, **params})

    def _require(self, *paths: str) -> None:
        for path in paths:
            if not offers(self._capabilities, path):
                raise Skip(f"the client does not offer {path}")

    # -- services that are not offered

    async def refused(self) -> None:
        """Check that requests for services that are not offered are refused."""
        path = str(self._cwd / "dragoman-conformance.txt")
        tried = 0
        for capability, method, params in (
            ("fs.readTextFile", "fs/read_text_file", {"path": path}),
            ("fs.writeTextFile", "fs/write_text_file", {"path": path, "content": ""}),
            ("terminal", "terminal/create", {"command": sys.executable, "args": ["-V"]}),
            ("elicitation.form", "elicitation/create", FORM),
            ("elicitation.url", "elicitation/create", URL),
        ):
            if not offers(self._capabilities, capability):
                tried += 1
                answer = await self._ask(method, **params)
                expect(
                    answer.error is not None or _not_accepted(answer),
                    f"{method} works although the client does not offer {capability}",
                    answer.message,
                )
        if not tried:
            raise Skip("the client offers everything")

    # -- files

    async def files(self) -> None:
        """Check that a new file is written, and can be read completely and by lines."""
        self._require("fs.readTextFile", "fs.writeTextFile")
        with self._file() as path:
            text = "one\ntwo ☃\nthree\nfour\n"
            (await self._ask("fs/write_text_file", path=path, content=text)).result()
            expect(_bytes_of(path) == text.encode(), "the file does not have the written content")
            expect(
                await self._read(path) == text, "reading the file does not return what was written"
            )
            part = await self._read(path, line=2, limit=2)
            good = part.splitlines() == ["two ☃", "three"]
            expect(good, "reading lines 2 and 3 returns something else", part)

    async def wrong_paths(self) -> None:
        """Check that a missing file and a relative path are refused with their error codes."""
        self._require("fs.readTextFile")
        with self._file() as path:
            missing = await self._ask("fs/read_text_file", path=path)
            good = missing.code == codes.NOT_FOUND
            expect(good, "a missing file is not refused with -32002", missing.message)
        relative = await self._ask("fs/read_text_file", path="some/file.txt")
        good = relative.code == codes.INVALID_PARAMS
        expect(good, "a relative path is not refused with -32602", relative.message)

    async def _read(self, path: str, **part: int) -> str:
        answer = await self._ask("fs/read_text_file", path=path, **part)
        content = answer.fields().get("content")
        expect(isinstance(content, str), "a file that was read has no content", answer.message)
        return str(content)

    @contextlib.contextmanager
    def _file(self) -> Iterator[str]:
        """Context manager that yields an unused path in the session's directory.

        The file is removed afterwards.
        """
        path = self._cwd / f"dragoman-conformance-{secrets.token_hex(8)}.txt"
        try:
            yield str(path)
        finally:
            path.unlink(missing_ok=True)

    # -- terminals

    async def terminal(self) -> None:
        """Check that a command runs to its end, and that its terminal is gone after its release."""
        self._require("terminal")
        id = await self._run("import sys; print('hello'); sys.exit(3)")
        exit = (await self._ask("terminal/wait_for_exit", terminalId=id)).fields()
        expect(exit.get("exitCode") == 3, "the exit code is not that of the command", exit)
        output = (await self._ask("terminal/output", terminalId=id)).fields()
        expect(
            str(output.get("output")).strip() == "hello",
            "the output is not that of the command",
            output,
        )
        expect(output.get("truncated") is False, "the output counts as truncated", output)
        status = output.get("exitStatus")
        told = isinstance(status, dict) and status.get("exitCode") == 3
        expect(told, "the output response has no exit status", output)
        (await self._ask("terminal/release", terminalId=id)).result()
        again = await self._ask("terminal/output", terminalId=id)
        expect(again.error is not None, "a released terminal can be read", again.message)

    async def truncated(self) -> None:
        """Check that output over the limit loses its start, and that no partial character is
        left."""
        self._require("terminal")
        program = f"import sys; sys.stdout.buffer.write({PRINTED!r}.encode()); sys.exit(0)"
        id = await self._run(program, outputByteLimit=LIMIT)
        (await self._ask("terminal/wait_for_exit", terminalId=id)).result()
        output = (await self._ask("terminal/output", terminalId=id)).fields()
        text = str(output.get("output"))
        expect(output.get("truncated") is True, "the output does not count as truncated", output)
        expect(len(text.encode()) <= LIMIT, "more than the limit is kept", output)
        expect(text and PRINTED.endswith(text), "the kept output is not its end", output)
        (await self._ask("terminal/release", terminalId=id)).result()

    async def killed(self) -> None:
        """Check that the output and the exit status of a killed terminal can still be read."""
        self._require("terminal")
        program = "import time; print('begun', flush=True); time.sleep(600)"
        id = await self._run(program)
        (await self._ask("terminal/kill", terminalId=id)).result()
        (await self._ask("terminal/wait_for_exit", terminalId=id)).result()
        (await self._ask("terminal/output", terminalId=id)).result()
        (await self._ask("terminal/release", terminalId=id)).result()

    async def _run(self, program: str, **more: object) -> str:
        command = {"command": sys.executable, "args": ["-I", "-S", "-c", program]}
        answer = await self._ask("terminal/create", **command, cwd=str(self._cwd), **more)
        id = answer.fields().get("terminalId")
        expect(isinstance(id, str), "a new terminal has no id", answer.message)
        return str(id)

    # -- questions

    async def form(self) -> None:
        """Check that a form is accepted, declined or cancelled."""
        self._require("elicitation.form")
        answer = await self._ask("elicitation/create", **FORM)
        action = answer.fields().get("action")
        known = action in ("accept", "decline", "cancel")
        expect(known, "a form is not accepted, declined or cancelled", answer.message)

    async def unknown_way(self) -> None:
        """Check that an elicitation in an unknown mode is not accepted."""
        if not offers(self._capabilities, "elicitation"):
            raise Skip("the client does not offer elicitation")
        params = {"mode": "dragoman-telepathy", "message": "Think of a number"}
        answer = await self._ask("elicitation/create", **params)
        good = answer.code == codes.INVALID_PARAMS or _not_accepted(answer)
        expect(good, "it is not refused with -32602", answer.message)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _not_accepted(answer: Answer) -> bool:
    if answer.error is not None:
        return False
    return answer.fields().get("action") in ("decline", "cancel")


FORM: Message = {
    "mode": "form",
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string", "title": "Colour"}},
    },
}

URL: Message = {
    "mode": "url",
    "message": "Look at this",
    "url": "https://example.invalid/conformance",
    "elicitationId": "dragoman-url-1",
}
