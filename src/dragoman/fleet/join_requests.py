"""Answer the requests of machines that join a team with a join code.

Every coordinator does this, even one that does not lead: a code is known only where it was created,
which may not be the leader's machine. If two of them have the same directory, both answer, and the
machine takes the first answer. `team` issues the tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from nats.aio.msg import Msg

from dragoman.broker.error_codec import describe
from dragoman.errors import DragomanError, FleetError, UsageError
from dragoman.fleet import subjects
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.credentials import JoinReply, JoinRequest
from dragoman.fleet.records import decode, encode
from dragoman.fleet.team import FleetFolder
from dragoman.rpc.tasks import in_thread

UNKNOWN_DELAY: Final = 1.0
"""Seconds after which the leader answers that a code is unknown. A coordinator that knows the code
answers earlier."""


class JoinRequests:
    """Admits members whose join codes are in the fleet directory. `leads` returns whether this
    coordinator leads now."""

    def __init__(
        self,
        connection: FleetConnection,
        folder: FleetFolder,
        *,
        team: str,
        leads: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._team = team
        self._leads = leads

    async def start(self) -> None:
        await self._connection.subscribe(subjects.JOINS, self.on_request)

    async def on_request(self, message: Msg) -> None:
        """Answer a join request. A code that is unknown here is refused only by the leader, and
        later than a coordinator that knows the code would answer."""
        if not message.reply:
            return
        code_id = message.subject.partition(".")[2]
        try:
            request = decode(message.data, JoinRequest)
            known = await in_thread(
                str(self._folder.file),
                lambda _: self._folder.expects(code_id, request.public, team=self._team),
            )
            if not known:
                if not self._leads():
                    return
                await asyncio.sleep(UNKNOWN_DELAY)
                raise UsageError(
                    "this join code was already used, replaced by a newer one, or revoked, or no "
                    "coordinator is running on the machine where it was created"
                )
            token = await in_thread(
                str(self._folder.file),
                lambda _: self._folder.admit(
                    code_id, request.public, team=self._team, now=int(time.time())
                ),
                changes_disk=True,
            )
            reply = JoinReply(token=token)
        except DragomanError as error:
            reply = JoinReply(error=str(error), failure=describe(error))
        except OSError as error:
            failure = FleetError(f"the coordinator cannot write the fleet's keys: {error}")
            reply = JoinReply(error=str(failure), failure=describe(failure))
        await self._connection.publish(message.reply, encode(reply))
