"""A client of any document that is plain `json`, over the standard input and output of a program.

It sends the documents' own messages, replaces in them only ids of sessions and the folder of the
document, answers what it is asked with the documents' answers, and checks everything that it gets
by the documents' types.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fixtures.documents import load
from tests.fixtures.documents.shapes import PARAMS, RESULTS, faults

WAIT_TIMEOUT = 40.0
"""For one message; long, because the machine may be busy with other tests."""

ANSWERS = {
    "session/request_permission": "once",
    "fs/read_text_file": "content",
    "fs/write_text_file": "written",
    "terminal/create": "terminal",
    "terminal/output": "output",
    "terminal/wait_for_exit": "exit",
    "terminal/kill": "written",
    "terminal/release": "written",
}
"""The example that answers each request from an agent."""


# Not by our own transports: nothing of dragoman is on this side.
Program = subprocess.Popen[str]  # noqa: TID251


class ReplayClient:
    """Talks with one program."""

    def __init__(self, process: Program, dialect: str, folder: Path) -> None:
        self._process = process
        self._dialect = dialect
        self._folder = str(folder)
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._id = 100
        self.examples = load(dialect)
        self.names: dict[str, str] = {}
        """What stands for an id of the document."""
        self.told: list[tuple[str, Any]] = []
        """Every notification so far."""
        self.asked: list[str] = []
        self.used: set[str] = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def next(self) -> Any:
        line = self._lines.get(timeout=WAIT_TIMEOUT)
        assert line is not None, "the program ended"
        return json.loads(line)

    # -- the documents' messages

    def play(self, name: str, **changes: Any) -> Any:
        """Send an example and return the result of it; `changes` are made in its params."""
        answer = self.answer(name, **changes)
        assert "result" in answer, (name, answer)
        found = faults(answer["result"], RESULTS[self._dialect][self.examples[name].method])
        assert not found, (name, answer, found)
        return answer["result"]

    def answer(self, name: str, **changes: Any) -> Any:
        """The same for an answer of any kind."""
        return self.answered(self.send(name, **changes))

    def send(self, name: str, **changes: Any) -> int:
        """Send an example under a new id."""
        self.used.add(name)
        message = json.loads(self._local(json.dumps(self.examples[name].message)))
        self._id += 1
        if "id" in message:
            message["id"] = self._id
        message["params"].update(changes)
        message["method"] = self.names.get(message["method"], message["method"])
        self.say(json.dumps(message))
        return self._id

    def _local(self, text: str) -> str:
        for name, here in {"/project": self._folder, **self.names}.items():
            text = text.replace(f'"{name}', f'"{here}')
        return text

    def answered(self, id: int | None) -> Any:
        """Serve the agent until a request is answered."""
        while True:
            message = self.next()
            if "method" not in message and message.get("id") == id:
                return message
            self._take(message)

    def until(self, *methods: str) -> Any:
        """Serve the agent until it sends one of these notifications."""
        while True:
            message = self.next()
            self._take(message)
            if message.get("method") in methods:
                return message["params"]

    def _take(self, message: Any) -> None:
        """Check a message from the agent, and answer it if it is a request."""
        method = message["method"]
        found = faults(message["params"], PARAMS[self._dialect][method])
        assert not found, (message, found)
        if "id" not in message:
            self.told.append((method, message["params"]))
            return
        self.asked.append(method)
        self.used.add(ANSWERS[method])
        answer = dict(self.examples[ANSWERS[method]].message)
        self.say(json.dumps({**answer, "id": message["id"]}))


@contextmanager
def replay_client(
    argv: Sequence[str], dialect: str, folder: Path, env: Mapping[str, str]
) -> Iterator[ReplayClient]:
    """A program, and a client of it; the program ends with its input."""
    with Program(
        argv,
        cwd=folder,
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            yield ReplayClient(process, dialect, folder)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT_TIMEOUT) == 0
        finally:
            process.kill()
