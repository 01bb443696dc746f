"""The command `dragoman`. It parses, calls the hub, and prints; it decides nothing.

Only the command that runs is imported, so that `dragoman --help` loads neither an event loop nor a
protocol.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process."""
    from dragoman.cli.app import run

    run()


__all__ = ["main"]
