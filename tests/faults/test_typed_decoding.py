"""Several threads that are the first to decode a type, at the same moment."""

from __future__ import annotations

from tests.faults.children import child

ROUNDS = 150
"""Without a lock, the process dies in one of the first rounds."""

PROGRAM = """
import json, sys, threading
from typing import Literal
import msgspec
from dragoman.wire.decoders import convert_typed, decode_typed

# Switch between threads as often as possible.
sys.setswitchinterval(1e-6)
names = [f"n{number}" for number in range(20)]
value = {name: [{name: "a" for name in names}] for name in names}
data = msgspec.json.encode(value)

def use(first, hint, inner):
    first.wait()
    assert decode_typed(data, hint).n0[0].n1 == "a"
    assert convert_typed(value, hint).n0[0].n1 == "a"
    assert decode_typed(data, dict[str, list[inner]])["n0"][0].n1 == "a"
    used.append(hint)

used = []
for _ in range(int(sys.argv[1])):
    inner = msgspec.defstruct("Inner", [(name, Literal["a", "b"] | None) for name in names])
    outer = msgspec.defstruct("Outer", [(name, list[inner]) for name in names])
    first = threading.Barrier(3)
    threads = [threading.Thread(target=use, args=(first, outer, inner)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(json.dumps(len(used)))
"""


def test_a_type_can_be_used_first_by_several_threads_at_once() -> None:
    with child(PROGRAM, str(ROUNDS)) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"{3 * ROUNDS}\n")
