"""The streams of a team on the server, with their limits, and the consumers that read them.

A full stream rejects new messages instead of dropping old ones, so no accepted message is lost
before it reaches the age limit. `coordinator` processes the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import BadRequestError, NotFoundError

from dragoman.errors import FleetUnreachable
from dragoman.fleet import subjects
from dragoman.fleet.records import FleetLimits
from dragoman.rpc.tasks import cancellable

DEFAULT_SIZE: Final = 10 * 1024**3
"""Disk size in bytes of a team without a limit of its own."""

_DAY: Final = 24 * 3600.0
_DEDUPLICATE: Final = 120.0
"""Seconds for which the server recognises a message that is sent again."""

SUBMISSIONS: Final = "submissions"
REPORTS: Final = "reports"
"""Consumers of the inbox. New jobs have a separate consumer, so that jobs that wait for room do not
delay the reports of workers."""

FILTERS: Final = {
    SUBMISSIONS: [subjects.submission("*", "*")],
    REPORTS: [subjects.cancellation("*", "*"), subjects.result("*", "*", "*")],
}

FETCH: Final = 100
"""Number of messages to request at once."""

READ_TIMEOUT: Final = 5.0
"""Seconds to wait for the next messages while a whole stream is read."""

IDLE_TIMEOUT: Final = 60.0
"""Seconds after which the server removes the consumer of a reader that is gone."""

ACK_WAIT: Final = 10.0
"""Seconds after which the server redelivers an inbox message that was not acknowledged."""

PENDING_SIZE: Final = (FETCH + 1) * 1024 * 1024
"""Maximum number of bytes that a stream reader may have received but not processed: one fetch of
messages of the maximum size. A dropped inbox message is not acknowledged, so it is redelivered."""


def stream_configs(
    disk_size: int, *, replicas: int = 1, keep_days: float = FleetLimits().keep_days
) -> tuple[StreamConfig, ...]:
    """Return the configurations of a team's streams, which together may use `disk_size` bytes, or
    `DEFAULT_SIZE` if it is not positive."""
    keep = keep_days * _DAY
    size = DEFAULT_SIZE if disk_size <= 0 else disk_size
    common: dict[str, Any] = {
        "storage": StorageType.FILE,
        "num_replicas": replicas,
        "allow_direct": True,
    }
    return (
        StreamConfig(
            name=subjects.INBOX,
            subjects=list(subjects.INBOX_SUBJECTS),
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
            max_bytes=size * 10 // 100,
            duplicate_window=_DEDUPLICATE,
            **common,
        ),
        StreamConfig(
            name=subjects.EVENTS,
            subjects=[subjects.EVENT_SUBJECTS],
            discard=DiscardPolicy.NEW,
            max_bytes=size * 35 // 100,
            max_age=keep,
            duplicate_window=_DEDUPLICATE,
            **common,
        ),
        StreamConfig(
            name=subjects.OBJECTS,
            subjects=[subjects.OBJECT_SUBJECTS],
            discard=DiscardPolicy.NEW,
            discard_new_per_subject=True,
            max_msgs_per_subject=1,
            max_bytes=size * 40 // 100,
            max_age=keep,
            duplicate_window=_DEDUPLICATE,
            **common,
        ),
        StreamConfig(
            name=subjects.JOBS,
            subjects=[subjects.JOB_SUBJECTS],
            discard=DiscardPolicy.NEW,
            max_msgs_per_subject=1,
            max_bytes=size * 10 // 100,
            max_age=keep,
            allow_rollup_hdrs=True,
            **common,
        ),
        StreamConfig(
            name=subjects.FLEET,
            subjects=[subjects.FLEET_SUBJECTS],
            discard=DiscardPolicy.NEW,
            max_msgs_per_subject=1,
            max_bytes=256 * 1024,
            **common,
        ),
    )


async def ensure_streams(
    jetstream: JetStreamContext,
    disk_size: int,
    *,
    replicas: int = 1,
    keep_days: float = FleetLimits().keep_days,
) -> None:
    """Create the streams, or update their configuration. Raises `FleetUnreachable` if that
    fails."""
    try:
        for config in stream_configs(disk_size, replicas=replicas, keep_days=keep_days):
            try:
                await cancellable(jetstream.add_stream(config))
            except BadRequestError:
                await cancellable(jetstream.update_stream(config))
    except NatsError as error:
        raise FleetUnreachable(f"cannot set up the fleet's streams: {error}") from error


# -- consumers


async def take_inbox(jetstream: JetStreamContext) -> None:
    """Replace the consumers of the inbox, so that the previous coordinator can no longer read from
    it."""
    for name, wanted in FILTERS.items():
        try:
            await cancellable(jetstream.delete_consumer(subjects.INBOX, name))
        except NotFoundError:
            pass
        config = ConsumerConfig(
            durable_name=name,
            filter_subjects=wanted,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            max_ack_pending=FETCH * 2,
        )
        await cancellable(jetstream.add_consumer(subjects.INBOX, config))


async def stream_reader(
    jetstream: JetStreamContext, consumer: str, stream: str
) -> JetStreamContext.PullSubscription:
    return await cancellable(
        jetstream.pull_subscribe_bind(
            consumer, stream, pending_msgs_limit=FETCH * 2, pending_bytes_limit=PENDING_SIZE
        )
    )


async def read_all(jetstream: JetStreamContext, stream: str, handle: Callable[[Msg], None]) -> None:
    """Call `handle` with each message that is in a stream now."""
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=IDLE_TIMEOUT,
        mem_storage=True,
    )
    info = await cancellable(jetstream.add_consumer(stream, config))
    reader = await stream_reader(jetstream, info.name, stream)
    left = info.num_pending or 0
    # One request at a time: several were measured to be no faster.
    while left > 0:
        for message in await cancellable(reader.fetch(min(left, FETCH), timeout=READ_TIMEOUT)):
            left -= 1
            handle(message)
    await cancellable(reader.unsubscribe())
