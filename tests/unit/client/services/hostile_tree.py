"""A workspace beside things that are none of its business, with every kind of link between them.

Whoever uses it does what a hostile peer would do, and then asks `assert_nothing_escaped`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CANARY = "the canary outside"


@dataclass(frozen=True)
class HostileTree:
    base: Path
    before: dict[str, str]

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def second(self) -> Path:
        return self.base / "second"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    def path(self, template: str) -> str:
        """A path with {root}, {second}, {outside} and {base} filled in."""
        return (
            template.replace("{root}", str(self.root))
            .replace("{second}", str(self.second))
            .replace("{outside}", str(self.outside))
            .replace("{base}", str(self.base))
        )

    def assert_nothing_escaped(self) -> None:
        """What lies outside is as it was, and nothing half-written lies inside."""
        assert outside_state(self.base) == self.before
        assert [path for path in self.base.rglob(".dragoman-*")] == []


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """A temporary folder in memory where there is such a thing: links cost time on a disk."""
    memory = "/dev/shm"
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder).resolve()


def outside_state(base: Path) -> dict[str, str]:
    """Everything below `base` that is in no root: names, kinds and contents."""
    state: dict[str, str] = {}
    for folder, folders, files in os.walk(base):
        if Path(folder) == base:
            folders[:] = [name for name in folders if name not in ("root", "second", "kept")]
            files = [name for name in files if name not in ("root", "second")]
        for name in folders:
            state[os.path.join(folder, name)] = f"folder {os.listdir(os.path.join(folder, name))}"
        for name in files:
            path = os.path.join(folder, name)
            state[path] = Path(path).read_text() if os.path.isfile(path) else "special"
    return state


def build(base: Path, *, long_chain: bool = True) -> HostileTree:
    root, second, outside = base / "root", base / "second", base / "outside"
    for folder in (root / "dir" / "deep", second, outside / "dir", base / "root-evil"):
        folder.mkdir(parents=True)
    (root / "file.txt").write_text("inside\n")
    (root / "dir" / "inner.txt").write_text("inner\n")
    (root / "dir" / "deep" / "low.txt").write_text("low\n")
    (root / " spaced .txt.").write_text("spaced\n")
    (root / "back\\slash").write_text("backslash\n")
    (second / "two.txt").write_text("two\n")
    for secret in ("outside/secret.txt", "outside/dir/secret.txt", "root-evil/secret.txt", "s.txt"):
        (base / secret).write_text(CANARY)
    links = {
        "in_file": "file.txt",
        "in_absolute": str(root / "file.txt"),
        "in_dir": "dir",
        "in_dir_slash": "dir/",
        "in_file_slash": "file.txt/",
        "in_up_and_down": "dir/../file.txt",
        "in_out_and_in": "../root/file.txt",
        "to_second": str(second / "two.txt"),
        "to_second_relative": "../second/two.txt",
        "here": ".",
        "out_file": str(outside / "secret.txt"),
        "out_relative": "../outside/secret.txt",
        "out_dir": str(outside),
        "out_dir_relative": "../outside",
        "out_new": str(outside / "new.txt"),
        "out_new_relative": "../outside/new.txt",
        "out_sibling": "../root-evil/secret.txt",
        "out_chain": "dir/out_deep",
        "dir/out_deep": "../out_file",
        "dir/up": "..",
        "dir/up_up": "../..",
        "up": "..",
        "slash": "/",
        "dangling": "missing.txt",
        "dangling_deep": "fresh/folder/missing.txt",
        "loop_a": "loop_b",
        "loop_b": "loop_a",
        "self": "self",
        "loop_dir": "loop_dir/x",
        "proc_root": "/proc/self/root",
        "proc_cwd": "/proc/self/cwd",
        "proc_environ": "/proc/self/environ",
        "proc_fd": "/proc/self/fd/0",
        "sys": "/sys",
        "dev_null": "/dev/null",
        "dev_zero": "/dev/zero",
        "dev_fd": "/dev/fd/0",
        "dev_stdin": "/dev/stdin",
        "passwd": "/etc/passwd",
        "home": "~",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    for number in range(60 if long_chain else 0):
        (root / f"many{number}").symlink_to(f"many{number + 1}" if number < 59 else "file.txt")
    os.mkfifo(root / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    try:
        here = os.open(root, os.O_PATH)
        # The name of a socket has to be short, however deep the folder is.
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    finally:
        listener.close()
    return HostileTree(base, outside_state(base))
