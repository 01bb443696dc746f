"""Several threads decode a type for the first time at the same moment."""

from __future__ import annotations

from tests.faults.children import child

ROUNDS = 150
"""Without a lock, and without `analyse`, the process dies in one of the first rounds."""

PROGRAM = """
import json, sys, threading
from typing import Literal
import msgspec
from dragoman.decoders import convert_typed, decode_typed

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


ANALYSED = """
import json, sys, threading, types
from typing import Literal
import msgspec
from dragoman.dialects import analyse

sys.setswitchinterval(1e-6)
names = [f"n{number}" for number in range(20)]
data = msgspec.json.encode({"type": "T1"} | {name: "a" for name in names})

def use(first, members):
    union = members[0]
    for member in members[1:]:
        union |= member
    first.wait()
    for hint in (list[union], dict[str, list[union]], members[0] | members[1]):
        msgspec.json.Decoder(hint)
    assert msgspec.json.decode(data, type=union).n1 == "a"
    used.append(union)

used = []
module = sys.modules["types_of_a_dialect"] = types.ModuleType("types_of_a_dialect")
for _ in range(int(sys.argv[1])):
    members = [
        msgspec.defstruct(
            f"T{number}",
            [(name, Literal["a", "b"] | None) for name in names],
            tag=True,
            module=module.__name__,
        )
        for number in range(10)
    ]
    vars(module).update({member.__name__: member for member in members})
    analyse(module.__name__)
    first = threading.Barrier(3)
    threads = [threading.Thread(target=use, args=(first, members)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(json.dumps(len(used)))
"""

DIALECTS = """
import gc, importlib, json, pkgutil
import msgspec
from dragoman import dialects, events

def types(package):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                if value.__module__ == found.name:
                    yield value

def analysed(struct):
    return any(type(each).__name__ == "StructInfo" for each in gc.get_referents(struct))

print(json.dumps([{analysed(each) for each in types(room)} == {state}
    for room, state in ((dialects, True), (events, False))]))
"""


def test_analysed_types_can_be_combined_by_several_threads_at_once() -> None:
    with child(ANALYSED, str(ROUNDS)) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"{3 * ROUNDS}\n")


def test_a_dialect_analyses_all_its_own_types_and_no_event() -> None:
    """A type of another package would be analysed without the lock of `dragoman.decoders`."""
    with child(DIALECTS) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "[true, true]\n")


def test_a_type_can_be_used_first_by_several_threads_at_once() -> None:
    with child(PROGRAM, str(ROUNDS)) as process:
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, f"{3 * ROUNDS}\n")
