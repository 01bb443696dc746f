"""The canaries of the verification ladder for peers that have no real model behind them.

Owns the prompts that the fake model and the chaos agent understand. With them every rung can be
climbed offline, also the one that needs a model to fail.
"""

from __future__ import annotations

from typing import Final

from dragoman.verify.canary_prompts import Canaries

TRIGGERS: Final = Canaries(
    echo="Please say {token} once more",
    slow="SLOW",
    slower="SLOW",
    write="WRITE:{path}:{text}",
    shell="SHELL:{command}",
    tool="TOOL:{tool}:{}",
    failure="HTTP:400",
)
