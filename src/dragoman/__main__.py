"""`python -m dragoman`: the command `dragoman`, where it is not on the PATH."""

from __future__ import annotations

from dragoman.cli import main

if __name__ == "__main__":
    main()
