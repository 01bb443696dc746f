from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.errors import ProgramNotFound, SpawnError
from dragoman.transports.process.windows import (
    CreateProcessPlan,
    RealFiles,
    Shim,
    WindowsHandle,
    batch_command_line,
    find_program,
    plan_command,
    read_shim,
)

NPM = "C:\\Users\\me\\AppData\\Roaming\\npm"
NODE = "C:\\Program Files\\nodejs"
ENVIRONMENT = {
    "Path": f'C:\\Windows\\System32;"{NODE}";{NPM};relative;.',
    "PathExt": ".COM;.EXE;.BAT;.CMD;.VBS;.JS",
    "SystemRoot": "C:\\Windows",
}

NPM_SHIM = """@ECHO off\r
GOTO start\r
:find_dp0\r
SET dp0=%~dp0\r
EXIT /b\r
:start\r
SETLOCAL\r
CALL :find_dp0\r
\r
IF EXIST "%dp0%\\node.exe" (\r
  SET "_prog=%dp0%\\node.exe"\r
) ELSE (\r
  SET "_prog=node"\r
  SET PATHEXT=%PATHEXT:;.JS;=;%\r
)\r
\r
endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & "%_prog%" FLAGS "%dp0%\\SCRIPT" %*\r
"""

NPM_EXE_SHIM = """@ECHO off
GOTO start
:find_dp0
SET dp0=%~dp0
EXIT /b
:start
SETLOCAL
CALL :find_dp0
"%dp0%\\node_modules\\agent\\bin\\agent.exe"   %*
"""

OLD_NPM_SHIM = """@IF EXIST "%~dp0\\node.exe" (
  "%~dp0\\node.exe"  "%~dp0\\node_modules\\agent\\cli.js" %*
) ELSE (
  @SETLOCAL
  @SET PATHEXT=%PATHEXT:;.JS;=;%
  node  "%~dp0\\node_modules\\agent\\cli.js" %*
)
"""

PNPM_SHIM = """@SETLOCAL
@IF NOT DEFINED NODE_PATH (
  @SET "NODE_PATH=C:\\store\\agent\\node_modules;C:\\store\\node_modules"
) ELSE (
  @SET "NODE_PATH=C:\\store\\agent\\node_modules;C:\\store\\node_modules;%NODE_PATH%"
)
@IF EXIST "%~dp0\\node.exe" (
  "%~dp0\\node.exe"  "%~dp0\\global\\5\\node_modules\\agent\\cli.js" %*
) ELSE (
  @SET PATHEXT=%PATHEXT:;.JS;=;%
  node  "%~dp0\\global\\5\\node_modules\\agent\\cli.js" %*
)
"""

YARN_SHIM = '@"%~dp0\\..\\npm-inner\\agent.cmd"   %*\r\n'

BERRY_SHIM = (
    "@goto #_undefined_# 2>NUL || @title %COMSPEC% & @setlocal & "
    '@"C:\\Program Files\\nodejs\\node.exe" "%~dp0\\..\\agent\\cli.js" %*\n'
)


class FakeFiles:
    """A file system without case, as on Windows."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {path.lower(): text for path, text in files.items()}

    def is_file(self, path: str) -> bool:
        return path.lower() in self._files

    def read_text(self, path: str) -> str:
        return self._files.get(path.lower(), "")


def npm_shim(script: str = "node_modules\\agent\\cli.js", flags: str = "") -> str:
    return NPM_SHIM.replace("SCRIPT", script).replace("FLAGS", flags)


def with_node(files: Mapping[str, str]) -> FakeFiles:
    return FakeFiles({f"{NODE}\\node.exe": "", **files})


def plan(files: FakeFiles, *argv: str, folder: str | None = None) -> CreateProcessPlan:
    return plan_command(argv, environment=ENVIRONMENT, folder=folder, files=files)


# -- searching ------------------------------------------------------------------------------------


def find(files: FakeFiles, program: str, folder: str | None = None) -> str:
    return find_program(program, environment=ENVIRONMENT, folder=folder, files=files).lower()


def test_the_search_goes_by_folder_first_and_by_extension_second() -> None:
    files = FakeFiles({f"{NPM}\\agent.exe": "", f"{NODE}\\agent.cmd": ""})
    assert find(files, "agent") == f"{NODE}\\agent.cmd".lower()
    files = FakeFiles({f"{NPM}\\agent.cmd": "", f"{NPM}\\agent.exe": ""})
    assert find(files, "agent") == f"{NPM}\\agent.exe".lower()


def test_a_file_without_extension_is_not_a_program() -> None:
    files = FakeFiles({f"{NPM}\\agent": "#!/bin/sh", f"{NPM}\\agent.cmd": ""})
    assert find(files, "agent") == f"{NPM}\\agent.cmd".lower()
    with pytest.raises(ProgramNotFound):
        find(FakeFiles({f"{NPM}\\agent": ""}), "agent")


def test_a_name_with_extension_means_that_file() -> None:
    files = FakeFiles({f"{NPM}\\agent.cmd": "", f"{NPM}\\agent.exe": ""})
    assert find(files, "agent.cmd") == f"{NPM}\\agent.cmd".lower()
    assert find(FakeFiles({f"{NPM}\\agent.1.2.exe": ""}), "agent.1.2").endswith("agent.1.2.exe")


def test_the_current_folder_and_relative_folders_are_not_searched() -> None:
    with pytest.raises(ProgramNotFound):
        find(FakeFiles({"agent.exe": "", "relative\\agent.exe": ""}), "agent")


def test_a_path_counts_from_the_working_folder() -> None:
    files = FakeFiles({"C:\\work\\bin\\agent.exe": ""})
    assert find(files, "bin\\agent", "C:\\work") == "c:\\work\\bin\\agent.exe"
    assert find(files, "./bin/agent.exe", "C:\\work") == "c:\\work\\bin\\agent.exe"
    assert find(files, "C:\\work\\bin\\agent") == "c:\\work\\bin\\agent.exe"


def test_without_pathext_the_usual_extensions_count() -> None:
    found = find_program(
        "agent", environment={"PATH": "C:\\bin"}, files=FakeFiles({"C:\\bin\\agent.cmd": ""})
    )
    assert found == "C:\\bin\\agent.cmd"


# -- shims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (npm_shim(), "node_modules\\agent\\cli.js"),
        (OLD_NPM_SHIM, "node_modules\\agent\\cli.js"),
        (PNPM_SHIM, "global\\5\\node_modules\\agent\\cli.js"),
    ],
    ids=["npm", "old npm", "pnpm"],
)
def test_a_shim_is_replaced_by_node_and_its_script(text: str, script: str) -> None:
    files = with_node({f"{NPM}\\agent.cmd": text, f"{NPM}\\{script}": ""})
    planned = plan(files, "agent", "--acp", "a b")
    assert planned.program == f"{NODE}\\node.exe"
    assert planned.command_line == f'"{NODE}\\node.exe" {NPM}\\{script} --acp "a b"'


def test_a_node_beside_the_shim_is_preferred() -> None:
    for text in (npm_shim(), OLD_NPM_SHIM):
        files = with_node(
            {
                f"{NPM}\\agent.cmd": text,
                f"{NPM}\\node.exe": "",
                f"{NPM}\\node_modules\\agent\\cli.js": "",
            }
        )
        assert plan(files, "agent").program == f"{NPM}\\node.exe"


def test_flags_for_node_in_a_shim_are_kept() -> None:
    text = npm_shim(flags="--no-warnings --expose-gc")
    script = f"{NPM}\\node_modules\\agent\\cli.js"
    planned = plan(with_node({f"{NPM}\\agent.cmd": text, script: ""}), "agent")
    assert planned.command_line == f'"{NODE}\\node.exe" --no-warnings --expose-gc {script}'


def test_a_shim_for_a_native_program_starts_that() -> None:
    target = f"{NPM}\\node_modules\\agent\\bin\\agent.exe"
    files = FakeFiles({f"{NPM}\\agent.cmd": NPM_EXE_SHIM, target: ""})
    assert plan(files, "agent", "x").command_line == f"{target} x"


def test_a_shim_before_a_shim_is_followed() -> None:
    inner = "C:\\Users\\me\\AppData\\Roaming\\npm-inner"
    files = with_node(
        {
            f"{NPM}\\agent.cmd": YARN_SHIM,
            f"{inner}\\agent.cmd": npm_shim(),
            f"{inner}\\node_modules\\agent\\cli.js": "",
        }
    )
    assert plan(files, "agent").command_line.endswith(f"{inner}\\node_modules\\agent\\cli.js")


def test_a_shim_that_names_its_node_outright_is_followed() -> None:
    files = with_node(
        {
            "C:\\work\\node_modules\\.bin\\agent.cmd": BERRY_SHIM,
            "C:\\work\\node_modules\\agent\\cli.js": "",
        }
    )
    planned = plan(files, "node_modules\\.bin\\agent", folder="C:\\work")
    assert planned.program == f"{NODE}\\node.exe"
    assert planned.command_line.endswith("C:\\work\\node_modules\\agent\\cli.js")


def test_shims_in_a_circle_are_refused() -> None:
    files = FakeFiles({f"{NPM}\\agent.cmd": '@"%~dp0\\agent.cmd" %*'})
    with pytest.raises(SpawnError, match="not a program"):
        plan(files, "agent")


def test_the_module_path_of_a_shim_is_handed_on() -> None:
    files = with_node(
        {f"{NPM}\\agent.cmd": PNPM_SHIM, f"{NPM}\\global\\5\\node_modules\\agent\\cli.js": ""}
    )
    expected = "C:\\store\\agent\\node_modules;C:\\store\\node_modules"
    assert plan(files, "agent").environment == {"NODE_PATH": expected}
    environment = {**ENVIRONMENT, "NODE_PATH": "C:\\mine"}
    planned = plan_command(["agent"], environment=environment, files=files)
    assert planned.environment == {"NODE_PATH": f"{expected};C:\\mine"}


def test_a_shim_whose_target_is_gone_is_named() -> None:
    files = with_node({f"{NPM}\\agent.cmd": npm_shim()})
    with pytest.raises(SpawnError, match=r"cli\.js, which does not exist"):
        plan(files, "agent")


def test_a_shim_without_node_is_named() -> None:
    script = f"{NPM}\\node_modules\\agent\\cli.js"
    with pytest.raises(ProgramNotFound, match=r"agent\.cmd needs it") as caught:
        plan(FakeFiles({f"{NPM}\\agent.cmd": npm_shim(), script: ""}), "agent")
    assert caught.value.program == "node"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@echo hello %*",
        'set "SECRET=1"\nnode "%~dp0\\cli.js" %*',
        'del C:\\x & node "%~dp0\\cli.js" %*',
        'node "%~dp0\\cli.js" %* | more',
        'node "%~dp0\\cli.js" > out.txt %*',
        'node "%~dp0\\%WHICH%.js" %*',
        '"%NODE_EXE%" "%~dp0\\cli.js" %*',
        'node "%~dp0\\cli.js" %*\nnode "%~dp0\\other.js" %*',
        'node "%~dp0\\cli.js" fixed',
    ],
)
def test_a_batch_file_that_does_more_is_not_taken_for_a_shim(text: str) -> None:
    files = with_node({f"{NPM}\\x.cmd": text, f"{NPM}\\cli.js": "", f"{NPM}\\other.js": ""})
    assert read_shim(f"{NPM}\\x.cmd", environment=ENVIRONMENT, files=files) is None


def test_a_shim_says_what_it_starts() -> None:
    files = with_node({f"{NPM}\\x.cmd": '@node "%~dp0cli.js" %*', f"{NPM}\\cli.js": ""})
    found = read_shim(f"{NPM}\\x.cmd", environment=ENVIRONMENT, files=files)
    assert found == Shim(f"{NODE}\\node.exe", (f"{NPM}\\cli.js",), "")


# -- cmd.exe --------------------------------------------------------------------------------------


def test_another_batch_file_goes_through_the_system_shell_with_quotes() -> None:
    files = FakeFiles({"C:\\my tools\\build.bat": "@echo off\ncall other.exe %1\n"})
    environment = {**ENVIRONMENT, "Path": "C:\\my tools", "COMSPEC": "C:\\evil.exe"}
    planned = plan_command(["build", "--acp", "a&b | c", ""], environment=environment, files=files)
    assert planned.program == "C:\\Windows\\System32\\cmd.exe"
    assert planned.command_line == (
        'cmd.exe /d /e:on /v:off /s /c ""C:\\my tools\\build.bat" --acp "a&b | c" """'
    )


def test_every_character_with_a_meaning_is_inside_quotes() -> None:
    for character in "&|<>^()!;,= '`~*?[]{}$#\t":
        line = batch_command_line("C:\\x.cmd", [f"a{character}b"])
        assert line == f'cmd.exe /d /e:on /v:off /s /c ""C:\\x.cmd" "a{character}b""'


def test_a_backslash_at_the_end_does_not_swallow_the_quote() -> None:
    line = batch_command_line("C:\\x.cmd", ["C:\\a b\\", "C:\\plain\\"])
    assert line.endswith('"C:\\a b\\\\" C:\\plain\\"')


@pytest.mark.parametrize("word", ["%PATH%", "50%", 'say "hi"', "a\nb", "a\rb", "a\0b", '"&calc&"'])
def test_what_cannot_be_quoted_for_a_batch_file_is_refused(word: str) -> None:
    with pytest.raises(SpawnError, match="safely"):
        batch_command_line("C:\\x.cmd", ["fine", word])


def test_a_batch_file_with_an_expandable_path_is_refused() -> None:
    with pytest.raises(SpawnError):
        batch_command_line("C:\\%TEMP%\\x.cmd", [])


def test_an_exclamation_mark_is_refused_where_it_would_be_expanded() -> None:
    assert '"hi!"' in batch_command_line("C:\\x.cmd", ["hi!"], text="@echo off")
    with pytest.raises(SpawnError):
        batch_command_line("C:\\x.cmd", ["hi!"], text="SETLOCAL EnableDelayedExpansion")


def test_the_same_words_are_fine_for_a_real_program() -> None:
    files = FakeFiles({f"{NPM}\\agent.exe": ""})
    planned = plan(files, "agent", "50%", 'say "hi"', "a\nb")
    assert planned.command_line == f'{NPM}\\agent.exe 50% "say \\"hi\\"" a\nb'


def test_a_script_that_windows_cannot_start_is_refused() -> None:
    with pytest.raises(SpawnError, match="not a program"):
        plan(FakeFiles({f"{NPM}\\agent.js": ""}), "agent")


# -- the machine ----------------------------------------------------------------------------------


def test_files_that_cannot_be_read_are_empty(tmp_path: Path) -> None:
    (tmp_path / "shim.cmd").write_bytes(b"text \xff")
    files = RealFiles()
    assert files.is_file(str(tmp_path / "shim.cmd"))
    assert files.read_text(str(tmp_path / "shim.cmd")) == "text �"
    assert not files.is_file(str(tmp_path))
    assert files.read_text(str(tmp_path / "missing")) == ""


class FakePopen:
    def __init__(self, *, stubborn: bool = False) -> None:
        self.pid = 4711
        self.returncode: int | None = None
        self.done: list[str] = []
        self._stubborn = stubborn

    def send_signal(self, number: int) -> None:
        if self._stubborn:
            raise OSError("no console")
        self.done.append(f"signal {number}")

    def kill(self) -> None:
        self.done.append("kill")
        self.returncode = 1

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        self.done.append("wait")
        return 0


def test_a_windows_child_is_asked_by_ctrl_break_and_then_terminated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    popen = FakePopen()
    handle = WindowsHandle(cast(Any, popen))
    assert handle.pid == 4711
    assert handle.status() is None
    handle.signal_group(signal.SIGTERM)
    handle.signal_group(signal.SIGKILL)
    handle.signal_group(signal.SIGKILL)
    assert popen.done == ["signal 1", "kill"]
    assert handle.status() == (1, None)
    assert handle.sessions() == ()
    handle.wait()
    handle.reap()


def test_a_windows_child_without_a_console_is_left_to_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    popen = FakePopen(stubborn=True)
    WindowsHandle(cast(Any, popen)).signal_group(signal.SIGTERM)
    assert popen.done == []
