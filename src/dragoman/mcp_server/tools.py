"""Declare the MCP tools: names, argument schemas and descriptions.

A description says when to call the tool and how not to use its result, because the model gets no
other instructions. `tool_handlers` runs the tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

MAX_WAIT: Final = 600.0
"""Maximum number of seconds that a call may wait for a job. Hosts time out after some minutes."""

Role = Annotated[
    str,
    Meta(
        min_length=1,
        description="The kind of work, for example research, review, plan or execute. "
        "list_peers shows which peer claims which.",
    ),
]
Prompt = Annotated[
    str,
    Meta(
        min_length=1,
        description="The whole task in words. The peer does not see your conversation: say what "
        "is wanted, which files matter and what the answer should look like.",
    ),
]
Workspace = Annotated[
    str,
    Meta(
        description="The absolute path of the directory to work in. Empty: the first root of this "
        "client, or the directory that this server was started in."
    ),
]
PeerName = Annotated[str, Meta(min_length=1, description="The name of a peer, as in list_peers.")]
Session = Annotated[
    str,
    Meta(
        description="A name of your choice, to talk to this peer again later: the same name "
        "continues the same conversation. Empty: a conversation for this prompt alone."
    ),
]
JobId = Annotated[str, Meta(min_length=1, description="The id of a job, such as j-01h9x2k7ab.")]
Timeout = Annotated[
    float,
    Meta(ge=0, description="Time limit for the whole work, in seconds. 0: as the user configured."),
]


class _Arguments(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base class of the arguments of a tool."""


class Delegate(_Arguments):
    role: Role
    prompt: Prompt
    workspace: Workspace = ""
    peer: Annotated[str, Meta(description="Only this peer. Empty: the best suited one.")] = ""
    tier: Annotated[
        Literal["", "fast", "standard", "strong"],
        Meta(description="How capable the model should be. Empty: as the user configured."),
    ] = ""
    isolate: Annotated[
        bool,
        Meta(description="Work in a copy (a git worktree) and return a patch instead."),
    ] = False
    fallback: Annotated[
        Literal["", "all", "peers", "none"],
        Meta(
            description="What to try after a failure: all (other peers, then a local model and a "
            "search without a model), peers (only other peers), or none. Empty: as the user "
            "configured."
        ),
    ] = ""
    timeout: Timeout = 0.0


class AskPeer(_Arguments):
    peer: PeerName
    prompt: Prompt
    workspace: Workspace = ""
    session: Session = ""
    fresh: Annotated[
        bool,
        Meta(
            description="Start a new session if the peer has lost the old one, instead of failing."
        ),
    ] = False
    timeout: Timeout = 0.0


class StartJob(_Arguments):
    prompt: Prompt
    role: Annotated[str, Meta(description="As in delegate. Give this or peer.")] = ""
    peer: Annotated[str, Meta(description="As in ask_peer. Give this or role.")] = ""
    workspace: Workspace = ""
    session: Session = ""
    timeout: Timeout = 0.0


class JobStatus(_Arguments):
    job: JobId


class JobResult(_Arguments):
    job: JobId
    wait: Annotated[
        float,
        Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for its end. 0: do not wait."),
    ] = 0.0


class CancelJob(_Arguments):
    job: JobId


class ListPeers(_Arguments):
    workspace: Workspace = ""


class Explain(_Arguments):
    role: Role
    workspace: Workspace = ""
    tier: Annotated[
        Literal["", "fast", "standard", "strong"], Meta(description="As in delegate.")
    ] = ""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool: how it is listed, and the type of its arguments."""

    name: str
    title: str
    description: str
    arguments: type[_Arguments]
    reads_only: bool = False
    works: bool = False
    """Whether the tool prompts a peer."""
    tells_outcome: bool = False

    @property
    def described(self) -> dict[str, Any]:
        """The tool as listed to a client."""
        told: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.reads_only,
                "openWorldHint": self.works,
            },
        }
        return told | ({"outputSchema": OUTCOME} if self.works or self.tells_outcome else {})

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without ``$ref``, which some hosts do not resolve."""
        _, components = msgspec.json.schema_components([self.arguments])
        schema: dict[str, Any] = components[self.arguments.__name__]
        schema.pop("title", None)
        return schema


_HONEST: Final = "If it fails, say so: never present an answer of your own as the peer's."

OUTCOME: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean", "description": "Whether the work is done."},
        "outcome": {"type": "string", "description": "How it ended, in a word."},
        "text": {"type": "string", "description": "What the peer said."},
        "job": {"type": ["string", "null"], "description": "The id of the job."},
    },
    "required": ["ok", "outcome"],
}
"""Output schema of the tools that prompt a peer or return the result of a job."""

TOOLS: Final = (
    McpTool(
        "delegate",
        "Delegate work by its kind",
        "Delegate a task to another coding agent of this user. You name the kind of work; "
        "dragoman chooses among the agents that are installed, enabled and healthy, in the user's "
        "order or by past results. Waits for the end, which may take minutes; start_job does not "
        "wait. The result says which agent answered, why each attempt was made, and which files "
        f"were changed. {_HONEST}",
        Delegate,
        works=True,
    ),
    McpTool(
        "ask_peer",
        "Ask one named agent",
        "Ask one particular coding agent of this user, by its name, and wait for its answer. With "
        "a session you can continue the conversation. No other agent is tried if it fails. "
        + _HONEST,
        AskPeer,
        works=True,
    ),
    McpTool(
        "start_job",
        "Start work without waiting",
        "Like delegate (with role) or ask_peer (with peer), but returns the id of a job at once. "
        "Use it for long work or to let several peers work at the same time; job_result has the "
        "answer later. A delegation by role is cancelled when this server exits.",
        StartJob,
        works=True,
    ),
    McpTool(
        "job_status",
        "Show the state of a job",
        "Says whether a job is waiting, running or ended, and what its peer did last. "
        "Does not wait.",
        JobStatus,
        reads_only=True,
    ),
    McpTool(
        "job_result",
        "Get the answer of a job",
        "Returns the result of a job, or its output so far if it is still running. Can wait for "
        f"the end. {_HONEST}",
        JobResult,
        reads_only=True,
        tells_outcome=True,
    ),
    McpTool(
        "cancel_job",
        "Cancel a job",
        "Stop a job in its agent. Its output and changes until then are kept.",
        CancelJob,
    ),
    McpTool(
        "list_peers",
        "List the known agents",
        "Lists every coding agent that dragoman knows on this machine: whether it is installed "
        "and enabled, and which roles it claims. Starts nothing.",
        ListPeers,
        reads_only=True,
    ),
    McpTool(
        "explain",
        "Explain which agent would be chosen",
        "Explains which agents would get a task of this kind now, in which order, and why the "
        "others would not. Starts nothing.",
        Explain,
        reads_only=True,
    ),
)

INSTRUCTIONS: Final = (
    "dragoman lets you delegate work to other coding agents of this user. Call list_peers once to "
    "see which exist, delegate for work of a kind, ask_peer for one agent by name, start_job and "
    "job_result for long work. Peers work under the user's permission policy, which you cannot "
    "change. A failed call says what happened: pass that on, and do not answer in the peer's place."
)
