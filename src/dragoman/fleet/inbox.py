"""The consumers with which the coordinator reads the inbox, and readers of streams.

Their messages are processed by `coordinator`; `streams` creates the streams.
"""

from __future__ import annotations

from typing import Final

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from dragoman.fleet import subjects

SUBMISSIONS: Final = "submissions"
REPORTS: Final = "reports"
"""Consumers of the inbox. New jobs have a separate consumer, so that jobs that wait for room do not
delay the reports of workers."""

FILTERS: Final = {
    SUBMISSIONS: [subjects.submission("*", "*")],
    REPORTS: [subjects.cancellation("*", "*"), subjects.result("*", "*", "*")],
}

FETCH: Final = 100
"""Records to read at once."""

ACK_WAIT: Final = 10.0
"""Seconds after which the server redelivers an inbox message that was not acknowledged."""

PENDING_SIZE: Final = (FETCH + 1) * 1024 * 1024
"""Bytes that a reader of a stream may have received and not processed. It never asks for more. A
message of the inbox that would be dropped is not acknowledged, and comes again."""


async def take_inbox(jetstream: JetStreamContext) -> None:
    """Replace the consumers, so that a coordinator with the old ones can read no more."""
    for name, wanted in FILTERS.items():
        try:
            await jetstream.delete_consumer(subjects.INBOX, name)
        except NotFoundError:
            pass
        config = ConsumerConfig(
            durable_name=name,
            filter_subjects=wanted,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            max_ack_pending=FETCH * 2,
        )
        await jetstream.add_consumer(subjects.INBOX, config)


async def stream_reader(
    jetstream: JetStreamContext, consumer: str, stream: str
) -> JetStreamContext.PullSubscription:
    return await jetstream.pull_subscribe_bind(
        consumer, stream, pending_msgs_limit=FETCH * 2, pending_bytes_limit=PENDING_SIZE
    )
