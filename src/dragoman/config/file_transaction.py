"""Change several files in one transaction: an exception restores all of them.

Keeps the previous content of each file in memory and shows changes as a unified diff.
`safe_files` reads and writes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dragoman.config.safe_files import read_file, write_file
from dragoman.errors import FileFailed, UsageError


@dataclass(frozen=True, slots=True)
class Change:
    """One file, before and after. None means that the file did not or does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None

    def diff(self) -> str:
        """Return the change as a unified diff, for display."""
        name = str(self.path)
        lines = difflib.unified_diff(
            _lines(self.before),
            _lines(self.after),
            "/dev/null" if self.before is None else name,
            "/dev/null" if self.after is None else name,
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)


class FileTransaction:
    """Changes to files, undone if the `with` block ends with an exception.

    ```
    with FileTransaction() as changes:
        changes.write(path, data)
        check_everything()
    ```
    """

    def __init__(self) -> None:
        self._before: dict[Path, bytes | None] = {}

    def write(self, path: Path, data: bytes, *, expected: bytes | None = None) -> None:
        """Replace or create a file.

        `expected` is what the caller read. If the file has changed since then, raises `UsageError`
        and writes nothing.
        """
        current = self.watch(path)
        if expected is not None and current != expected:
            raise UsageError(f"{path} was changed by another program; try again")
        if current != data:
            write_file(path, data)

    def remove(self, path: Path) -> None:
        """Delete a file, if it exists. Raises `FileFailed`."""
        self.watch(path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileFailed(
                str(path), f"it cannot be deleted: {error.strerror}", error.errno
            ) from error

    def watch(self, path: Path) -> bytes | None:
        """Remember the content of a file that other code is about to change, so that it can be
        restored. Returns the current content, or None if the file does not exist."""
        current = read_file(path)
        self._before.setdefault(path, current)
        return current

    def made(self) -> list[Change]:
        """Return one change for each file whose content has changed."""
        now = [Change(path, before, read_file(path)) for path, before in self._before.items()]
        return [change for change in now if change.before != change.after]

    def undo(self) -> None:
        """Restore every file to its content before the first change, the last file first. Tries
        them all, and then raises `FileFailed` if some could not be restored."""
        failed: list[tuple[Path, str]] = []
        for path, before in reversed(self._before.items()):
            try:
                if read_file(path) == before:
                    continue
                if before is None:
                    path.unlink(missing_ok=True)
                else:
                    write_file(path, before)
            except (OSError, FileFailed, UsageError) as error:
                failed.append((path, str(error)))
        self._before.clear()
        if failed:
            # Each reason names its file.
            reasons = "; ".join(reason for _, reason in failed)
            raise FileFailed(str(failed[0][0]), f"it could not be restored: {reasons}")

    def __enter__(self) -> FileTransaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An interrupt rolls the changes back, as an error does.
        if error is not None:
            self.undo()


def show(changes: Iterable[Change]) -> str:
    """Return several changes as one diff."""
    return "".join(change.diff() for change in changes)


def _lines(data: bytes | None) -> list[str]:
    """Return lines for a diff. Line ends other than a newline stay visible."""
    if data is None:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        lines.pop()
    return lines
