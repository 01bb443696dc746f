"""Run scout on standard input and output."""

from __future__ import annotations

from dragoman.scout.agent import build

if __name__ == "__main__":
    build().run()
