"""Connect stdin and stdout to the broker of a plan, for `dragoman broker attach`.

Starts the broker if none runs and sends it the policy; then bytes are copied without parsing. A
broker that hangs ends it.
"""

from __future__ import annotations

import msgspec

from dragoman.broker.client import liveness
from dragoman.broker.client.connect import complete, spec_of
from dragoman.broker.client.find_or_start import ensure
from dragoman.broker.client.hello import open_stream
from dragoman.broker.methods import TERMS
from dragoman.broker.spec import BrokerSpec
from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.run_plan import RunPlan
from dragoman.client.options import ConnectOptions
from dragoman.errors import BrokerError
from dragoman.policy import unattended
from dragoman.rpc.splice import join
from dragoman.rpc.tasks import TaskOwner
from dragoman.transports.stdio import open_stdio


async def attach(plan: RunPlan) -> int:
    """Speak with the broker of a plan until stdin ends or the broker does. Raises `BrokerError` if
    the broker does not answer any more."""

    async def prepare(spec: BrokerSpec) -> BrokerSpec:
        return await complete(plan.way, spec, inherit=plan.env)

    spec = spec_of(
        plan.way,
        ConnectOptions(
            budgets=plan.budgets,
            inherit=plan.env,
            env=plan.lineage,
            max_line_size=plan.max_line_size,
        ),
        workspace=plan.workspace,
        ttl=plan.ttl,
        max_idle=plan.max_idle,
    )
    reached = await ensure(spec, prepare=prepare, ttl=plan.ttl)
    # A stream of its own: what the other program says is not read here.
    stream = await open_stream(reached.endpoint.address)
    await reached.connection.aclose()
    # Before anything that the other program says, which does not know of it.
    policy = unattended(plan.whole_policy, peer=plan.name)
    terms = {"jsonrpc": "2.0", "method": TERMS, "params": {"policy": policy}}
    stream.write(msgspec.json.encode(terms) + b"\n")
    endpoint, hung = reached.endpoint, False

    async def close_if_hung() -> None:
        nonlocal hung
        await liveness.wait_hung(endpoint.address)
        hung = True
        await stream.aclose()

    tasks = TaskOwner("broker attach")
    tasks.start(close_if_hung(), "watch the broker")
    try:
        await join(await open_stdio(), stream)
    finally:
        await tasks.aclose()
    if hung:
        raise BrokerError(liveness.unanswered(endpoint.name, liveness.PROBE_TIMEOUT))
    return ExitCode.OK
