"""Run an agent and forward its first bytes, then kill the agent and this program.

python -m tests.faults.cut_output SIZE FILE COMMAND...

The number of forwarded bytes is written to FILE.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    left, passed, file = int(sys.argv[1]), 0, Path(sys.argv[2])
    with subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE) as agent:  # noqa: TID251 - a program
        assert agent.stdout is not None
        while left and (data := os.read(agent.stdout.fileno(), left)):
            # Write the count first: the reader of the bytes may look at once.
            passed += len(data)
            file.write_text(str(passed))
            os.write(1, data)
            left -= len(data)
        if not left:
            agent.kill()
            agent.wait()
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
