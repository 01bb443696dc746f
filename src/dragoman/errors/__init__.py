"""Every error dragoman raises on purpose, in one tree.

It owns the classes and the three answers each gives: whose fault it is (`blame`), whether the
same thing may be tried again (`retryable`), and whether the other side may already have acted
(`may_have_run`). It imports nothing of dragoman, so every package may use it.

    DragomanError
    ├── UsageError                  the caller asked for something that cannot be done here
    │   ├── RequestInProgress       a second request on a connection that allows one at a time
    │   ├── MessageTooLong          an outbound line over the limit; nothing was written
    │   ├── AddressInUse            somebody else already listens there
    │   ├── Unsupported             the other side did not say that it can do this
    │   ├── TurnInProgress          a second prompt in a session whose turn is still running
    │   ├── SessionUnusable         the session was given up; open another
    │   ├── InputTimeout            stdin did not end in time; nothing was started
    │   ├── UnknownSession          no stored session has this name or id
    │   │   └── SessionLost         the agent has lost it; what was said is stored
    │   ├── UnknownJob              no job has this id
    │   ├── FrontMatterInvalid      a file's front matter cannot be read, or edited safely
    │   ├── ClientFileInvalid       another program's configuration cannot be edited safely
    │   ├── DelegationInvalid       a value of delegate_to names no peer with such a role
    │   ├── UnknownPeer             no peer has this name
    │   ├── UnknownRole             no peer at all claims this role
    │   ├── RoleNotClaimed          the peer does not claim this role
    │   ├── NoPeer                  nobody can be asked for a role; every peer has its reason
    │   ├── PolicyNotEnforced       the policy restricts a peer that does not ask for permission
    │   ├── WrongLaunch             a command line that is known not to be an agent's
    │   └── ConfigInvalid           a configuration or descriptor that cannot be used
    ├── SpawnError                  a program could not be started
    │   ├── ProgramNotFound         there is no such program
    │   └── NotInstalled            none of the ways to start a peer is there, or it cannot run here
    ├── ConnectError                a connection could not be opened; nothing was sent
    ├── ConnectionLost              the connection is over; every pending call gets one of these
    │   ├── ConnectionClosed        by us
    │   ├── ConnectionEnded         by them: end of stream
    │   │   └── ProcessExited       by them: the process is gone
    │   ├── ConnectionBroken        by the world: a read or write failed
    │   ├── PeerUnresponsive        by us: they did not answer any more
    │   ├── LineTooLong             by them: a line over the size limit
    │   └── Overflow                a bounded buffer was full and nobody emptied it
    ├── CallError                   one call failed; the connection goes on
    │   ├── CallTimeout             no answer in time
    │   │   └── BudgetExceeded      a turn used up one of its time budgets
    │   ├── RemoteError             the other side answered with an error
    │   │   ├── CallCancelled       it says that the request was cancelled
    │   │   └── AuthRequired        it wants a login first
    │   └── InvalidAnswer           the other side answered with something that is no answer
    ├── ServiceError                a file or terminal service did not do what the peer asked for
    │   ├── ArgumentInvalid         an argument that can never be right: a relative path, a NUL byte
    │   ├── NotPermitted            whoever guards what the peer may do did not allow it
    │   ├── PathRefused             the path leaves the workspace, or names no ordinary file
    │   ├── FileMissing             there is no such file in the workspace
    │   ├── NotText                 the file is not UTF-8 text
    │   ├── TooLarge                more than the service reads or writes at once
    │   ├── FileFailed              by the world: the disk is full, read-only or broken
    │   ├── TerminalUnknown         no terminal has this id, or it was released
    │   └── TooManyTerminals        the peer has as many terminals as it may have
    ├── BrokerError                 a warm broker did not do what it is for
    │   ├── BrokerBusy              as many requests wait there as may; nothing was sent on
    │   └── BrokerUnavailable       no broker can be had here; a direct start may still work
    ├── StoreError                  the file of sessions and jobs cannot be used as it stands
    │   ├── StoreConflict           what should be stored does not fit what is stored
    │   ├── StoreBusy               another process holds it for too long
    │   ├── StoreFull               by the world: no space is left, or no more may be used
    │   ├── StoreRefused            by the world: the file or its folder may not be written or read
    │   ├── StoreCorrupt            the file is damaged, or no file of ours
    │   └── StoreTooNew             a newer dragoman has written it
    ├── IsolationFailed             a worktree of its own for a job could not be made or used
    │   └── FilterFailed            a filter of git failed, or only the repository defines it
    ├── AdapterFailed               the Python adapter of a peer failed by itself
    ├── ProtocolMismatch            the two sides have no common protocol version
    └── HandshakeFailed             the other side did not answer as an agent does

`error_class` is the stable name of a kind of failure: telemetry, exit codes and other languages
use it, so it never changes once published.
"""

from dragoman.errors.connections import (
    AdapterFailed,
    AuthRequired,
    BudgetExceeded,
    CallCancelled,
    CallError,
    CallTimeout,
    ConnectError,
    ConnectionBroken,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    HandshakeFailed,
    InvalidAnswer,
    LineTooLong,
    NotInstalled,
    Overflow,
    PeerUnresponsive,
    ProcessExited,
    ProgramNotFound,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
)
from dragoman.errors.services import (
    ArgumentInvalid,
    BrokerBusy,
    BrokerError,
    BrokerUnavailable,
    FileFailed,
    FileMissing,
    FilterFailed,
    IsolationFailed,
    NotPermitted,
    NotText,
    PathRefused,
    ServiceError,
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreTooNew,
    TerminalUnknown,
    TooLarge,
    TooManyTerminals,
)
from dragoman.errors.usage import (
    AddressInUse,
    Blame,
    ClientFileInvalid,
    ConfigInvalid,
    DelegationInvalid,
    DragomanError,
    FrontMatterInvalid,
    InputTimeout,
    MessageTooLong,
    NoPeer,
    PolicyNotEnforced,
    RequestInProgress,
    RoleNotClaimed,
    SessionLost,
    SessionUnusable,
    TurnInProgress,
    UnknownJob,
    UnknownPeer,
    UnknownRole,
    UnknownSession,
    Unsupported,
    UsageError,
    WrongLaunch,
)

__all__ = [
    "AdapterFailed",
    "AddressInUse",
    "ArgumentInvalid",
    "AuthRequired",
    "Blame",
    "BrokerBusy",
    "BrokerError",
    "BrokerUnavailable",
    "BudgetExceeded",
    "CallCancelled",
    "CallError",
    "CallTimeout",
    "ClientFileInvalid",
    "ConfigInvalid",
    "ConnectError",
    "ConnectionBroken",
    "ConnectionClosed",
    "ConnectionEnded",
    "ConnectionLost",
    "DelegationInvalid",
    "DragomanError",
    "FileFailed",
    "FileMissing",
    "FilterFailed",
    "FrontMatterInvalid",
    "HandshakeFailed",
    "InputTimeout",
    "InvalidAnswer",
    "IsolationFailed",
    "LineTooLong",
    "MessageTooLong",
    "NoPeer",
    "NotInstalled",
    "NotPermitted",
    "NotText",
    "Overflow",
    "PathRefused",
    "PeerUnresponsive",
    "PolicyNotEnforced",
    "ProcessExited",
    "ProgramNotFound",
    "ProtocolMismatch",
    "RemoteError",
    "RequestInProgress",
    "RoleNotClaimed",
    "ServiceError",
    "SessionLost",
    "SessionUnusable",
    "SpawnError",
    "StoreBusy",
    "StoreConflict",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreTooNew",
    "TerminalUnknown",
    "TooLarge",
    "TooManyTerminals",
    "TurnInProgress",
    "UnknownJob",
    "UnknownPeer",
    "UnknownRole",
    "UnknownSession",
    "Unsupported",
    "UsageError",
    "WrongLaunch",
]

for _error in list(globals().values()):
    if isinstance(_error, type) and issubclass(_error, DragomanError):
        # Tracebacks and documents name the package from which the classes are imported.
        _error.__module__ = __name__
