"""Run an agent and pass its first bytes on; then the agent is killed, and so is this program.

python -m tests.faults.cut_output SIZE COMMAND...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> None:
    left = int(sys.argv[1])
    with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE) as agent:  # noqa: TID251 - a program
        assert agent.stdout is not None
        while left and (data := os.read(agent.stdout.fileno(), left)):
            os.write(1, data)
            left -= len(data)
        if not left:
            agent.kill()
            agent.wait()
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
