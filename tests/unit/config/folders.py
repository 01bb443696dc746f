"""Folders of dragoman for one test, and files in them."""

from __future__ import annotations

from pathlib import Path

from dragoman.config import Config, Paths, load_config


def paths_in(folder: Path) -> Paths:
    return Paths(
        config=folder / "config",
        data=folder / "data",
        cache=folder / "cache",
        state=folder / "state",
        runtime=folder / "run",
    )


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def repository(folder: Path, text: str | None = None) -> Path:
    """A folder that is the root of a repository, with this as its project file."""
    (folder / ".git").mkdir(parents=True)
    if text is not None:
        write(folder / "dragoman.toml", text)
    return folder


def load(cwd: Path, paths: Paths, **options: object) -> Config:
    """The settings of a folder, without any variable of the machine."""
    environ = options.pop("environ", {})
    return load_config(cwd, paths, environ, **options)  # type: ignore[arg-type]
