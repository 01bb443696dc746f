"""How another program starts this one."""

from __future__ import annotations

from pathlib import Path

from dragoman.setup.install.program import this_program


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_installed_command_is_named_by_its_full_path_and_a_link_is_kept(
    tmp_path: Path,
) -> None:
    real = executable(tmp_path / "venv" / "bin" / "dragoman")
    link = tmp_path / "bin" / "dragoman"
    link.parent.mkdir()
    link.symlink_to(real)
    assert this_program(str(link)) == (str(link),)


def test_a_module_that_is_run_names_the_command_beside_its_interpreter(tmp_path: Path) -> None:
    command = executable(tmp_path / "bin" / "dragoman")
    module = tmp_path / "dragoman" / "__main__.py"
    assert this_program(str(module), interpreter=str(tmp_path / "bin" / "python")) == (
        str(command),
    )


def test_without_a_command_the_interpreter_runs_the_package(tmp_path: Path) -> None:
    python = str(tmp_path / "bin" / "python")
    assert this_program("/x/__main__.py", interpreter=python) == (python, "-m", "dragoman")
    folder = tmp_path / "dragoman"
    folder.mkdir()
    assert this_program(str(folder), interpreter=python)[0] == python


def test_the_words_of_this_process_begin_with_a_full_path() -> None:
    assert Path(this_program()[0]).is_absolute()
