"""Completion, help and type errors in editors, by the engines that most of them use.

Jedi and Pyright complete; Pyright and mypy check types. All read the source without running it, so
names that are loaded on first use are a trap. IPython uses Jedi, on a running program.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import jedi  # type: ignore[import-untyped]
import pytest
from jedi.api.environment import InterpreterEnvironment  # type: ignore[import-untyped]

import dragoman

NODE = shutil.which("node")
ANALYSIS_TIMEOUT = 120
"""An engine reads a few hundred files first; on a loaded machine that takes a while."""

TALK = """\
import dragoman


async def main() -> None:
    async with dragoman.connect("gemini") as peer, peer.session() as session:
        {}
"""

CASES = {
    "the names of the package": ("import dragoman\ndragoman.|", set(dragoman.__all__)),
    "an agent": (
        "from dragoman import Agent\n\nagent = Agent('x')\nagent.|",
        {"command", "new_session", "prompt", "run", "serve_unix"},
    ),
    "the turn of an agent": (
        "from dragoman import Agent, Turn\n\nagent = Agent('x')\n\n\n@agent.prompt\n"
        "async def answer(turn: Turn) -> None:\n    turn.|",
        {"ask_permission", "plan", "say", "text", "tool"},
    ),
    "a peer": (TALK.format("peer.|"), {"capabilities", "dialect", "info", "session"}),
    "a session": (TALK.format("session.|"), {"ask", "id", "prompt", "set_mode"}),
    "a turn": (
        TALK.format("async with session.prompt('x') as turn:\n            turn.|"),
        {"cancel", "result", "wait"},
    ),
    "a result": (
        TALK.format("result = await session.ask('x')\n        result.|"),
        {"denials", "ok", "outcome", "require_ok", "text"},
    ),
    "a blocking peer": (
        "from dragoman import connect_sync\n\nwith connect_sync('gemini') as peer:\n    peer.|",
        {"capabilities", "dialect", "session"},
    ),
    "a delegation": (
        "import dragoman\n\n\nasync def main() -> None:\n"
        "    done = await dragoman.delegate('review', 'x')\n    done.|",
        {"answered", "attempts", "ok", "text"},
    ),
    "events": ("from dragoman import events\nevents.|", {"MessageDelta", "Outcome", "Text"}),
    "errors": ("import dragoman\ndragoman.errors.|", {"NoPeer", "UsageError"}),
    "values of ACP": ("from dragoman import acp\nacp.|", {"PlanEntry", "TextContent"}),
    "an answer": ("from dragoman import Answer\nAnswer.|", {"ALLOW_ONCE", "REJECT_ONCE"}),
    "a package below": ("from dragoman import transports\ntransports.|", {"spawn", "memory_pair"}),
}
MISTAKES = """\
import dragoman
from dragoman import Agent, Answer, Question, Turn, events

agent = Agent("x", versoin="1")  # wrong


@agent.prompt
async def answer(turn: Turn) -> None:
    await turn.say(42)  # wrong
    turn.say("x")  # wrong


def permit(question: Question) -> Answer:
    return True  # wrong


async def main() -> None:
    async with dragoman.connect("gemini", permit="approve-all") as peer:  # wrong
        async with peer.session() as session:
            result = await session.ask(b"hi")  # wrong
            print(result.txt)  # wrong
            async with session.prompt("x") as turn:
                async for event in turn:
                    if isinstance(event, events.MessageDelta):
                        print(event.txt)  # wrong
    done = await dragoman.delegate("review", "x", fallback="some")  # wrong
    print(done.anwered, done.answered)  # wrong
    print(dragoman.spawn)  # wrong


with dragoman.connect_sync("gemini", permit=permit) as peer, peer.session() as session:
    print(session.ask("hi").text)
"""
"""A program of a user's, with mistakes that a type checker has to find, and no others."""

OPTIONS = {
    "connect": ("import dragoman\ndragoman.connect(|", ["permit", "budgets", "on_event"]),
    "connect_sync": ("import dragoman\ndragoman.connect_sync(|", ["permit", "budgets"]),
    "delegate": ("import dragoman\ndragoman.delegate(|", ["role", "prompt", "permit", "check"]),
    "Agent": ("import dragoman\ndragoman.Agent(|", ["name", "version", "modes"]),
}


def place_of(marked: str) -> tuple[str, int, int]:
    """A text without its mark, and the line and column of the mark, counted from 0."""
    before, _, after = marked.partition("|")
    lines = before.split("\n")
    return before + after, len(lines) - 1, len(lines[-1])


def shows_help(name: str, shown: str) -> bool:
    """Whether the help of a name is shown: the first line, or for Pyright what it has of
    `connect`, of which `connect_sync` takes the options."""
    return str(getattr(dragoman, name).__doc__).splitlines()[0] in shown or (
        name == "connect_sync" and "permit (default " in shown
    )


# -- Jedi


def script(text: str) -> jedi.Script:
    # In this process: the other environments are processes that Jedi does not end.
    return jedi.Script(text, environment=InterpreterEnvironment())


@pytest.mark.timeout(ANALYSIS_TIMEOUT)
@pytest.mark.parametrize("case", CASES)
def test_jedi_completes_the_public_names(case: str) -> None:
    marked, expected = CASES[case]
    text, line, column = place_of(marked)
    found = {each.name for each in script(text).complete(line + 1, column)}
    assert expected - found == set()


@pytest.mark.timeout(ANALYSIS_TIMEOUT)
@pytest.mark.parametrize("name", OPTIONS)
def test_jedi_shows_the_options_and_the_help(name: str) -> None:
    marked, options = OPTIONS[name]
    text, line, column = place_of(marked)
    (signature,) = script(text).get_signatures(line + 1, column)
    shown = [each.name for each in signature.params]
    assert [each for each in options if each not in shown] == []
    assert shows_help(name, signature.docstring())


def test_the_engine_of_ipython_completes_the_names_of_a_running_program() -> None:
    found = {
        each.name for each in jedi.Interpreter("dragoman.", [{"dragoman": dragoman}]).complete()
    }
    assert set(dragoman.__all__) - found == set()
    session = jedi.Interpreter("dragoman.Agent('x').", [{"dragoman": dragoman}])
    assert {"prompt", "run"} <= {each.name for each in session.complete()}


# -- Pyright


class LanguageServer:
    """Pyright's language server, asked as an editor asks it."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], folder: Path) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._folder = folder
        self._number = 0

    def send(self, method: str, params: Any, id: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self._write(message if id is None else {**message, "id": id})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._stdin.flush()

    def _read(self) -> dict[str, Any]:
        size = 0
        while line := self._stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        assert size, "the language server is gone"
        return cast("dict[str, Any]", json.loads(self._stdout.read(size)))

    def call(self, method: str, params: Any) -> Any:
        self._number += 1
        self.send(method, params, self._number)
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]
            if "method" in message and "id" in message:
                # It asks for its settings; the defaults are right, but for the interpreter.
                items = (message.get("params") or {}).get("items", ())
                python = {"pythonPath": sys.executable}
                result = [python if item.get("section") == "python" else None for item in items]
                self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def at(self, method: str, marked: str) -> Any:
        text, line, character = place_of(marked)
        uri = (self._folder / f"case{self._number}.py").as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})
        place = {"line": line, "character": character}
        return self.call(method, {"textDocument": {"uri": uri}, "position": place})


def pyright_program(name: str) -> Path:
    spec = importlib.util.find_spec("pyright")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).with_name("dist") / name


@contextmanager
def language_server(folder: Path) -> Iterator[LanguageServer]:
    assert NODE is not None
    program = pyright_program("langserver.index.js")
    # An editor starts it in this way, too: nothing of dragoman is in between.
    process = subprocess.Popen(  # noqa: TID251
        [NODE, str(program), "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        server = LanguageServer(process.stdin, process.stdout, folder)
        root = folder.as_uri()
        able = {"workspace": {"configuration": True}, "textDocument": {"completion": {}}}
        folders = [{"uri": root, "name": "x"}]
        hello = {"processId": None, "rootUri": root, "capabilities": able}
        server.call("initialize", {**hello, "workspaceFolders": folders})
        server.send("initialized", {})
        yield server
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    if NODE is None:
        pytest.skip("Pyright runs on Node.js, and there is no `node` here")
    with language_server(tmp_path_factory.mktemp("project")) as server:
        yield server


@pytest.mark.timeout(ANALYSIS_TIMEOUT)
@pytest.mark.parametrize("case", CASES)
def test_pyright_completes_the_public_names(pyright: LanguageServer, case: str) -> None:
    marked, expected = CASES[case]
    answer = pyright.at("textDocument/completion", marked)
    assert expected - {each["label"] for each in answer["items"]} == set()


@pytest.mark.timeout(ANALYSIS_TIMEOUT)
@pytest.mark.parametrize("name", OPTIONS)
def test_pyright_shows_the_options_and_the_help(pyright: LanguageServer, name: str) -> None:
    marked, options = OPTIONS[name]
    (signature,) = pyright.at("textDocument/signatureHelp", marked)["signatures"]
    assert [each for each in options if f"{each}: " not in signature["label"]] == []
    hover = pyright.at("textDocument/hover", marked.replace("(|", "|"))
    assert shows_help(name, hover["contents"]["value"])


# -- types


def lines_with_errors(checker: str, file: Path) -> set[int]:
    """The lines of a file that a type checker complains about."""
    if checker == "mypy":
        cache = f"--cache-dir={file.parent / 'cache'}"
        words = [sys.executable, "-m", "mypy", "--strict", cache, str(file)]
    else:
        assert NODE is not None
        words = [NODE, str(pyright_program("index.js")), "--pythonpath", sys.executable, str(file)]
    done = subprocess.run(
        words,
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=ANALYSIS_TIMEOUT,
        check=False,
    )
    found = re.findall(rf"{file.name}:(\d+)(?::\d+)?(?: -|:) error", done.stdout)
    assert found, done.stdout + done.stderr
    return set(map(int, found))


@pytest.mark.timeout(ANALYSIS_TIMEOUT)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_finds_the_mistakes_of_a_user_and_no_others(
    checker: str, tmp_path: Path
) -> None:
    if checker == "pyright" and NODE is None:
        pytest.skip("Pyright runs on Node.js, and there is no `node` here")
    file = tmp_path / "program.py"
    file.write_text(MISTAKES)
    wrong = {at for at, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
    assert lines_with_errors(checker, file) == wrong
