"""``python -m dragoman.testing.fake_model``: serve a fake model until stdin is closed or the
program is interrupted.

Prints only the address, on one line, so that a script can read it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Sequence

from dragoman.testing.fake_model import FakeModel


async def serve(port: int) -> None:
    """Print the address of a fake model on `port`, and run it until the standard input ends."""
    async with FakeModel(port=port) as model:
        sys.stdout.write(model.url + "\n")
        sys.stdout.flush()
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        # A daemon: a pool thread would keep an interrupted program waiting for more input.
        threading.Thread(target=_read_to_the_end, args=(loop, over), daemon=True).start()
        await over.wait()


def _read_to_the_end(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    while sys.stdin.readline():
        pass
    loop.call_soon_threadsafe(over.set)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dragoman.testing.fake_model",
        description="A model on loopback that answers by rules.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    try:
        asyncio.run(serve(parser.parse_args(argv).port))
    except OSError as error:
        sys.stderr.write(f"the fake model cannot listen: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
