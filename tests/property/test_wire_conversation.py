"""Two peers talk through a channel that loses, repeats and reorders lines.

A stream does not do that, but a program on the other side can: it forgets to respond, responds
twice, or in any order. In every case, a request settles at most once, and with its own response.
The profile decides how many conversations are tried, see tests/conftest.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import event as label
from hypothesis import given
from hypothesis import strategies as st

from dragoman.wire import codes
from dragoman.wire.messages import Id, Request
from dragoman.wire.peer import (
    End,
    Event,
    Failed,
    PeerState,
    Repeated,
    ResultReceived,
    Stray,
    Unanswered,
)

# A step is two bytes: what to do, then at which side and with which of the things there. Both sides
# count their ids up from zero, so equal ids are in use in both directions nearly all the time.
WORK = ["ask", "ask", "ask", "answer", "answer", "answer", "refuse", "abandon"]
TRAVEL = ["deliver", "deliver", "deliver", "deliver", "deliver", "repeat", "lose", "burst"]
conversations = st.binary(min_size=80, max_size=240)


@dataclass
class Side:
    """One end, and a plain model of its state."""

    name: str
    peer: PeerState[str]
    outbound: list[bytes] = field(default_factory=list)
    """Lines on their way to the other side."""
    waiting: dict[Id, str] = field(default_factory=dict)
    given_up: set[Id] = field(default_factory=set)
    settled: set[Id] = field(default_factory=set)
    working: dict[Id, str] = field(default_factory=dict)
    """Requests of the other side that arrived and are not answered, with their content."""
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def asked(self) -> int:
        return len(self.waiting) + len(self.given_up) + len(self.settled)

    def ask(self) -> None:
        wanted = self.asked
        question = f"{self.name}{wanted}"
        id, line = self.peer.request("ask", question, question)
        assert id == wanted
        self.waiting[id] = question
        self.outbound.append(line)

    def do(self, what: str, choice: int) -> None:
        if what == "ask":
            self.ask()
        elif what == "abandon" and self.waiting:
            id = list(self.waiting)[choice % len(self.waiting)]
            self.peer.abandon(id)
            del self.waiting[id]
            self.given_up.add(id)
        elif what in ("answer", "refuse") and self.working:
            id = list(self.working)[choice % len(self.working)]
            question = self.working.pop(id)
            self.outbound.append(
                self.peer.result(id, question)
                if what == "answer"
                else self.peer.failure(id, 1, question)
            )

    def receive(self, lines: list[bytes]) -> None:
        events = self.peer.receive(b"".join(line + b"\n" for line in lines))
        assert len(events) == len(lines)
        for event in events:
            self.seen[event.why if isinstance(event, Stray) else type(event).__name__] += 1
            self.take(event)

    def take(self, event: Event[str]) -> None:
        match event:
            case Request(id=id, params=params):
                assert id not in self.working
                self.working[id] = msgspec.json.decode(params, type=str)
            case Repeated(request=request, reply=reply):
                assert request.id in self.working
                self.outbound.append(reply)
            case ResultReceived(slot=slot, id=id, result=result):
                assert self.waiting.pop(id) == slot
                assert msgspec.json.decode(result) == slot
                self.settled.add(id)
            case Failed(slot=slot, id=id, error=error):
                assert self.waiting.pop(id) == slot
                # Its own refusal, or the error that this request was sent twice.
                assert error.message == slot or error.code == codes.INVALID_REQUEST
                self.settled.add(id)
            case Stray(id=id, why="late"):
                assert id is not None
                self.given_up.remove(id)
                self.settled.add(id)
            case Stray(id=id, why=why):
                assert why == "duplicate"
                assert id in self.settled
            case _:
                raise AssertionError(event)

    def check(self, other: Side) -> None:
        assert self.peer.unanswered == [
            Unanswered(id, "ask", question) for id, question in self.waiting.items()
        ]
        assert all(self.peer.is_open(id) == (id in self.working) for id in range(other.asked))


def travel(sender: Side, receiver: Side, how: str, choice: int, count: int) -> None:
    lines = sender.outbound
    index = choice % len(lines)
    match how:
        case "deliver":
            receiver.receive([lines.pop(index)])
        case "repeat":
            receiver.receive([lines[index]] * count)
        case "lose":
            del lines[index]
        case "burst":
            taken = lines[index : index + count]
            del lines[index : index + count]
            receiver.receive(taken[::-1])


@pytest.mark.timeout(300)
@given(conversation=conversations)
def test_a_request_settles_once_at_most_and_with_its_own_answer(conversation: bytes) -> None:
    sides = [
        Side("client", PeerState(End.CLIENT)),
        Side("agent", PeerState(End.AGENT, jsonrpc=False)),
    ]
    for first, second in zip(conversation[::2], conversation[1::2], strict=False):
        what = (WORK + TRAVEL)[first % 16]
        side, other = sides if second & 1 else sides[::-1]
        choice, count = second >> 1 & 7, 1 + (second >> 4 & 3)
        if what in TRAVEL:
            if not side.outbound:
                side, other = other, side
            if side.outbound:
                travel(side, other, what, choice, count)
        else:
            side.do(what, choice)
        side.check(other)
        other.check(side)
    for kind, times in (sides[0].seen + sides[1].seen).items():
        label(f"{kind}: {'many' if times > 5 else 'a few'}")
