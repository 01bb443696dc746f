"""ARCHITECTURE.md is true: its packages are the directories, and its invariants have guards."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import Struct

from dragoman import dialects
from tests.docs.markdown import ROOT, section, table

UNIT_TESTS = ROOT / "tests" / "unit"

LIFTED = {
    # Rules of ruff that keep one thing in one place, and the modules where that place is.
    "TID251": {
        "rpc/tasks.py",
        "transports/process/guard.py",
        "transports/listener.py",
        "transports/process/stream.py",
        "transports/process/windows.py",
    },
    "BLE001": {
        "agent/sync_handlers.py",
        "agent/speech/base.py",
        "client/sync.py",
        "rpc/responder.py",
        "rpc/standby.py",
        "rpc/tasks.py",
    },
}

BROAD = {
    # Modules that catch any exception and do not raise it again: it becomes a response on the wire
    # or the result of a task, or it is logged because one observer must not stop the others.
    "agent/server.py",
    "agent/speech/base.py",
    "agent/sync_handlers.py",
    "broker/server/jobs.py",
    "broker/server/process.py",
    "client/acp/inbound.py",
    "client/acp/session.py",
    "client/base.py",
    "client/sync.py",
    "fleet/connection.py",
    "rpc/calls.py",
    "rpc/connection.py",
    "rpc/lanes.py",
    "rpc/responder.py",
    "rpc/standby.py",
    "rpc/tasks.py",
    "rpc/trace.py",
    "store/writer.py",
    "transports/process/stream.py",
}

MAKERS = {
    # What creates directories and files, and the modules that may do it themselves: those that do
    # it for all others, those that write where an agent wants it, those that only move a log or a
    # damaged store aside, and the script that installs on another machine.
    r"\bmkdir\(|makedirs\(": {
        "client/folders.py",
        "client/services/named_paths.py",
        "client/services/path_walk.py",
        "verify/environment.py",
        "runs/git.py",
        "delegation/worktree/isolation.py",
        "setup/remote_scripts/install.py",
    },
    r"os\.replace\(|os\.link\(|mkstemp|write_bytes\(|O_TRUNC|\bopen\([^)]*\"[wx]b?\"": {
        "cli/entry.py",
        "client/services/files.py",
        "config/safe_files.py",
        "store/ledger/events_file.py",
        "store/damage.py",
        "setup/remote_scripts/install.py",
    },
    # A workspace's `files.write_text` is `client/services/files.py`.
    r"O_CREAT|\.touch\(|(?<!files)(?<!files\(\))\.write_text\(|\bopen\([^)]*\"ab?\"": {
        # For all others, and for an agent.
        "client/services/files.py",
        "config/safe_files.py",
        # A lock: several processes open the same file, and none may replace it.
        "broker/lock.py",
        # Logs: several processes append to the same file.
        "broker/client/launch.py",
        "rpc/trace.py",
        "scout/store.py",
        "store/ledger/events_file.py",
        "verify/canary_mcp_server.py",
        # Empty files: only their name or time says something.
        "cli/broker_stdio.py",
        "fleet/results.py",
        "runs/cancel_by_file.py",
        "store/daily_retention.py",
        # An empty file with private permissions, which SQLite then fills.
        "store/database.py",
        # The input and output of a command, and a file of git, in directories of their own.
        "runs/host_commands.py",
        "delegation/worktree/bundle.py",
    },
    # `copyfileobj` writes to an open file.
    r"shutil\.(?:copy2?|copyfile|copytree|move)\(": {
        # The index of git, whose time has to be kept: `safe_files` gives a file a new one.
        "runs/git.py",
    },
    # `packed` is an archive in memory.
    r"(?:Zip|Tar)File\((?!packed\b)[^)]*\"[wxa]|tarfile\.open\(|gzip\.open\(": set[str](),
    r"\.renames?\(": {
        # A directory that is complete before it gets its name: `safe_files` only has files.
        "delegation/worktree/records.py",
        "delegation/worktree/sent_tree.py",
        # Moves a damaged file aside, without reading or writing it.
        "console/review_comments.py",
    },
    r"\bsymlink\(|symlink_to\(|hardlink_to\(": {
        # From a path that is too long for a socket to the short one.
        "broker/question_sockets.py",
        # Installs on another machine, with only its standard library.
        "setup/remote_scripts/install.py",
    },
    # `tempfile` creates private directories and files under new names.
    r"\bimport tempfile|from tempfile": {
        # Unnamed files: the list of processes to end, and output and piped lines that are too long
        # for the memory.
        "transports/process/guard.py",
        "cli/output/terminal.py",
        "cli/read_input.py",
        # A file for the bundle while it arrives, in our own directory, removed afterwards.
        "delegation/host_receiver.py",
        # Directories of files for git, in which it writes itself.
        "delegation/worktree/scratch.py",
        # The new directory of a worktree, which is renamed when it is complete.
        "delegation/worktree/records.py",
        # Wheels to send to another machine, and the script that unpacks them there.
        "setup/hosts.py",
        "setup/remote_scripts/install.py",
        # Working directories for other programs: one that is asked for its version, and a peer that
        # is verified.
        "transports/process/query.py",
        "verify/environment.py",
    },
}

STARTERS = {
    # What starts tasks and threads, and the modules that own what they start: each ends its tasks
    # with itself. The threads are daemons for calls that cannot be interrupted.
    r"\bcreate_task\(|\bensure_future\(": {
        "client/sync.py",
        "rpc/standby.py",
        "rpc/tasks.py",
        "transports/listener.py",
        "transports/process/child.py",
    },
    # Awaited by `together` and `all_ended`, so that no work outlives the first failure.
    r"\bgather\(\*|asyncio\.gather\(": {"rpc/tasks.py"},
    # Waited for by `in_thread`, which has a timeout.
    r"\bto_thread\(|run_in_executor\(": {"rpc/tasks.py"},
    r"\bThread\(\s*target": {
        "agent/sync_handlers.py",
        # Opens a browser, which may run as long as the command.
        "cli/console.py",
        "cli/read_input.py",
        "client/sync.py",
        "rpc/tasks.py",
        "store/writer.py",
        "transports/threaded_pipes.py",
        "transports/process/child.py",
    },
}

UNDECODABLE = {
    # What the JSON decoder raises, as a tuple: the rest of the tree imports it. `redaction` is
    # below `wire`.
    r"(MsgspecError|DecodeError),[^)]*(UnicodeDecodeError|RecursionError)": {
        "redaction/redactor.py",
        "wire/messages.py",
    },
}

ANALYSERS = {
    # What makes msgspec analyse a type. The decoders of `stdio_entry` and `wire.messages` are
    # created once, when these are loaded, for types that only they decode.
    r"msgspec\.convert\(|(json\.Decoder\(|decode\([^)]*type=)(?!str\b|list\[str\]|dict\[)": {
        "mcp_server/stdio_entry.py",
        "decoders.py",
        "wire/messages.py",
    },
}

DOCUMENT = ROOT / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "dragoman"


def packages() -> set[str]:
    """Return the directories with code, and the modules, directly below the package."""
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    modules = {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    return folders | modules


def invariants() -> list[str]:
    text = "\n".join(section(DOCUMENT, "Invariants"))
    return re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]


def contracts() -> list[dict[str, object]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, object]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def test_the_table_names_every_package_and_no_other() -> None:
    named = [
        name
        for cells in table(section(DOCUMENT, "Packages"))
        for name in re.findall(r"`(\w+)`", cells[0])
    ]
    assert sorted(named) == sorted(packages())


def test_the_modules_listed_for_a_package_exist() -> None:
    text = DOCUMENT.read_text("utf-8")
    listed = [
        (package, name)
        for package, lines in re.findall(r"^### `(\w+)`: .*\n([^#]*)", text, re.MULTILINE)
        for names in re.findall(r"^- ((?:`\w+`(?:, )?)+)", lines, re.MULTILINE)
        for name in re.findall(r"\w+", names)
    ]
    assert {"retention", "host_link"} <= {name for _, name in listed}
    missing = [
        f"{package}.{name}"
        for package, name in listed
        if not (SOURCE / package / name).is_dir() and not (SOURCE / package / f"{name}.py").exists()
    ]
    assert missing == []


def test_invariants_are_numbered_without_a_gap() -> None:
    numbers = re.findall(r"^(\d+)\. ", "\n".join(section(DOCUMENT, "Invariants")), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert numbers


def test_every_invariant_names_a_guard_that_exists() -> None:
    known = {f"contract `{contract['id']}`" for contract in contracts()}
    missing = []
    for number, text in enumerate(invariants(), 1):
        flat = " ".join(text.split())
        _, _, guard = flat.partition("Guard: ")
        named = re.findall(r"contract `\w+`", guard)
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", guard)
        if not named and not tests:
            missing.append(f"{number} has no guard")
        missing.extend(f"{number}: {name}" for name in named if name not in known)
        for path, name in tests:
            file = ROOT / path
            if not file.exists() or (name and f"def {name}(" not in file.read_text("utf-8")):
                missing.append(f"{number}: {path}::{name}")
    assert missing == []


def test_every_pure_package_stands_in_the_contract_that_keeps_it_pure() -> None:
    pure = {
        name
        for cells in table(section(DOCUMENT, "Packages"))
        if cells[2] == "nothing"
        for name in re.findall(r"`(\w+)`", cells[0])
    }
    (contract,) = [contract for contract in contracts() if contract["id"] == "quiet"]
    assert contract["source_modules"] == [f"dragoman.{name}" for name in sorted(pure)]


def test_every_package_but_transports_may_not_open_sockets_itself() -> None:
    by_id = {contract["id"]: contract.get("source_modules") for contract in contracts()}
    others = {f"dragoman.{name}" for name in packages()} - {"dragoman.transports"}
    pure, rim = by_id["quiet"], by_id["rim"]
    assert isinstance(pure, list) and isinstance(rim, list)
    assert sorted(rim) == sorted(others - set(pure))


def imported(path: Path) -> set[str]:
    """The names of the modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=module, names=names):
                found |= {f"{module}.{each.name}" for each in names}
    return found


def test_scripts_for_other_machines_need_only_the_standard_library() -> None:
    scripts = SOURCE / "setup" / "remote_scripts"
    needed = {name.partition(".")[0] for path in scripts.glob("*.py") for name in imported(path)}
    assert needed and needed <= sys.stdlib_module_names


def test_no_module_imports_a_script_for_other_machines() -> None:
    users = [path for path in SOURCE.rglob("*.py") if "remote_scripts" in str(imported(path))]
    assert users == []
    assert not (SOURCE / "setup" / "remote_scripts" / "__init__.py").exists()


def test_the_bans_are_lifted_only_where_the_thing_belongs() -> None:
    lifted: dict[str, set[str]] = {rule: set() for rule in LIFTED}
    for path in SOURCE.rglob("*.py"):
        for rules in re.findall(r"# noqa: ([A-Z0-9, ]+)", path.read_text(encoding="utf-8")):
            for rule in re.findall(r"[A-Z]+[0-9]+", rules):
                if rule in lifted:
                    lifted[rule].add(path.relative_to(SOURCE).as_posix())
    assert lifted == LIFTED


def test_only_these_modules_catch_any_exception_and_do_not_raise_it_again() -> None:
    broad = {"Exception", "BaseException", "FOREIGN"}
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ExceptHandler):
                continue
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            is_broad = any(kind is None or ast.unparse(kind) in broad for kind in kinds)
            if is_broad and not any(isinstance(each, ast.Raise) for each in ast.walk(node)):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == BROAD


def users_of(patterns: Iterable[str]) -> dict[str, set[str]]:
    """Return the modules in which each pattern occurs. Test doubles for agents do what real ones
    do."""
    found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        for pattern in found:
            if re.search(pattern, text) and not name.startswith("testing/"):
                found[pattern].add(name)
    return found


def test_folders_and_files_are_made_in_one_place() -> None:
    assert users_of(MAKERS) == MAKERS


def test_what_the_decoder_raises_is_listed_in_one_place() -> None:
    assert users_of(UNDECODABLE) == UNDECODABLE


def test_types_are_analysed_in_one_place() -> None:
    assert {
        pattern: {name for name in names if not name.startswith("dialects/")}
        for pattern, names in users_of(ANALYSERS).items()
    } == ANALYSERS


def test_a_dialects_module_analyses_its_types_when_it_is_imported() -> None:
    late = []
    for found in pkgutil.walk_packages(dialects.__path__, "dragoman.dialects."):
        module = importlib.import_module(found.name)
        structs = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Struct)
        ]
        if any(struct.__module__ == found.name for struct in structs):
            last = ast.parse(inspect.getsource(module)).body[-1]
            if ast.unparse(last) != "analyse(__name__)":
                late.append(found.name)
    assert late == []


def test_a_module_of_some_length_says_what_it_leaves_to_others() -> None:
    short = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if len((text := path.read_text("utf-8")).splitlines()) > 40
        and "\n" not in (ast.get_docstring(ast.parse(text)) or "")
    ]
    assert short == [], "their docstrings have one line: a second sentence says where the rest is"


def test_no_module_is_longer_than_600_lines() -> None:
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path.name: size for path, size in sizes.items() if size > 600} == {}


UNIMPORTED = {
    # Loaded by the name of a dialect or command, with a prefix.
    "agent/speech/chained.py",
    "agent/speech/oneshot.py",
    "agent/speech/tagged.py",
    "agent/speech/threads.py",
    "cli/serve_acp.py",
    # Programs.
    "cli/reference.py",
    # The names of the last release.
    "bridge.py",
    # Run in the interpreter of another machine.
    "setup/remote_scripts/install.py",
    "setup/remote_scripts/probe.py",
    # For the users of the test kit.
    "testing/conformance/probe_agent.py",
    "testing/faults.py",
    "testing/reduction.py",
    "testing/scripted.py",
}
"""Modules that no other module imports or names."""


def test_every_module_is_used_by_another() -> None:
    used = Counter[str]()
    known: dict[str, tuple[str, set[str]]] = {}
    for path in SOURCE.rglob("*.py"):
        names = set[str]()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ImportFrom(module=str() as module):
                    names |= {module, *(f"{module}.{each.name}" for each in node.names)}
                case ast.Import():
                    names |= {each.name for each in node.names}
                case ast.Constant(value=str() as text):
                    # A module that is loaded by name when it is needed.
                    names |= {text, f"dragoman.{text}", f"{'.'.join(path.parts[-2:-1])}.{text}"}
        used.update(names)
        if path.name not in ("__init__.py", "__main__.py"):
            name = path.relative_to(SOURCE).as_posix()
            known[name] = (f"dragoman.{name.removesuffix('.py').replace('/', '.')}", names)
    unused = set()
    for name, (module, own) in known.items():
        short = ".".join(module.split(".")[-2:])
        if not any(used[each] > (each in own) for each in (module, short)):
            unused.add(name)
    assert unused == UNIMPORTED


NOT_QUIET = {
    # Counts how often jobs and workers are compared.
    "fleet/test_schedule.py",
    # Tells which of two ways a message was decoded.
    "dialects/acp/v1/test_codec.py",
    # Needs a module that exists only in the test.
    "dialects/test_init.py",
}
"""Tests of pure packages that replace something."""

PURE = ("wire", "events", "redaction", "errors", "dialects")
PURE_TESTS = (
    *(f"{package}/**/test_*.py" for package in PURE),
    "delegation/routing/test_*.py",
    "delegation/bandit/test_*.py",
    "fleet/test_schedule.py",
)


def test_the_tests_of_pure_packages_need_no_loop_clock_file_or_double() -> None:
    banned = {"asyncio", "time", "socket", "subprocess", "threading", "tempfile", "unittest"}
    loud = set()
    for path in {path for pattern in PURE_TESTS for path in UNIT_TESTS.glob(pattern)}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Import():
                    names = {each.name.split(".")[0] for each in node.names}
                case ast.ImportFrom(module=str() as module):
                    names = {module.split(".")[0], *(each.name for each in node.names)}
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    names = {each.arg for each in node.args.args}
                case ast.Call(func=ast.Name(id="open")):
                    names = {"open"}
                case _:
                    continue
            if names & (banned | {"aio", "monkeypatch", "mocker", "tmp_path", "open"}):
                loud.add(path.relative_to(UNIT_TESTS).as_posix())
    assert loud == NOT_QUIET


SLEEPERS = {
    # The kernel does not announce that another process has started to execute its program.
    "transports/process/test_guard.py",
    # A fake client that ends only after a silence longer than the probe waits for.
    "testing/conformance/faulty_client.py",
    # A process that goes on gives no sign of it.
    "testing/test_scripted.py",
}
"""Unit tests that wait for the clock, because nothing else can be waited for."""


def test_unit_tests_do_not_sleep() -> None:
    assert {
        file.relative_to(UNIT_TESTS).as_posix()
        for file in UNIT_TESTS.rglob("*.py")
        if any(map(_sleeps, ast.walk(ast.parse(file.read_text()))))
    } == SLEEPERS


SHORTEST_TIMEOUT = 1.0
"""A wait for fewer seconds is not a bound on an event that comes: it lets time pass."""


def _sleeps(node: ast.AST) -> bool:
    """Return whether a node lets real time pass: by `sleep` or a timer, or by a wait for an event
    that does not come. A sleep of zero seconds is one iteration of the event loop."""
    match node:
        case ast.ImportFrom(module="asyncio" | "time", names=names):
            return any(each.name == "sleep" for each in names)
        case ast.Import(names=names):
            return any(each.name in ("asyncio", "time") and each.asname for each in names)
        case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
            return False
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio" | "time"), attr="sleep")):
            return True
        case ast.Call(func=ast.Attribute(attr="call_later" | "call_at")):
            return True
        case ast.Call(func=ast.Attribute(value=owner, attr="wait"), args=args, keywords=keywords):
            limits = [*args, *(each.value for each in keywords)]
            if isinstance(owner, ast.Call) and ast.unparse(owner.func).endswith("Event"):
                # An event that nothing can set.
                return bool(limits)
            return any(
                isinstance(each, ast.Constant)
                and isinstance(each.value, int | float)
                and 0 < each.value < SHORTEST_TIMEOUT
                for each in limits
            )
    return False


@pytest.mark.parametrize(
    ("code", "sleeps"),
    [
        ("asyncio.sleep(0)", False),
        ("asyncio.sleep(0.1)", True),
        ("time.sleep(delay)", True),
        ("from time import sleep", True),
        ("from asyncio import sleep as pause", True),
        ("import time as clock", True),
        ("asyncio.get_running_loop().call_later(0.1, passed.set)", True),
        ("loop.call_at(now + 1, passed.set)", True),
        ("threading.Event().wait(TINY)", True),
        ("never.wait(0.1)", True),
        ("never.wait(timeout=0.1)", True),
        ("process.wait(0)", False),
        ("answered.wait(10)", False),
        ("passed.wait()", False),
    ],
)
def test_what_lets_time_pass_in_a_unit_test_is_found(code: str, sleeps: bool) -> None:
    assert any(map(_sleeps, ast.walk(ast.parse(code)))) is sleeps


def test_tasks_and_threads_are_started_only_by_what_owns_them() -> None:
    assert users_of(STARTERS) == STARTERS
