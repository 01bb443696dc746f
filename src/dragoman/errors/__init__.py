"""Every error that dragoman raises on purpose, in one tree.

Every class answers three questions: whose fault it is (`blame`), whether a retry makes sense
(`retryable`), and whether the other side may already have acted (`may_have_run`). This package
imports nothing else of dragoman, so every package may use it.

    DragomanError
    ├── UsageError                  the caller asked for something that cannot be done here
    │   ├── RequestInProgress       a second request on a connection that allows one at a time
    │   ├── MessageTooLong          an outbound line over the limit; nothing was written
    │   ├── AddressInUse            another process already listens there
    │   ├── Unsupported             the other side did not announce this capability
    │   ├── TurnInProgress          a second prompt in a session whose turn is still running
    │   ├── SessionUnusable         the session was closed or abandoned; open another
    │   ├── InputTimeout            stdin did not end in time; nothing was started
    │   ├── UnknownSession          no stored session has this name or id
    │   │   └── SessionLost         the agent has lost it; the conversation is stored
    │   ├── UnknownJob              no job has this id
    │   ├── FrontMatterInvalid      a file's front matter cannot be read, or edited safely
    │   ├── ClientFileInvalid       another program's configuration cannot be edited safely
    │   ├── DelegationInvalid       a value of delegate_to names no peer with such a role
    │   ├── PatchChanged            a patch is not the one that was shown
    │   ├── UnknownPeer             no peer has this name
    │   ├── UnknownRole             no peer at all claims this role
    │   ├── RoleNotClaimed          the peer does not claim this role
    │   ├── NoPeer                  no peer can take a role; each has its reason
    │   ├── PolicyNotEnforced       the policy restricts a peer that does not ask for permission
    │   ├── WrongLaunch             a command line known not to start an agent
    │   └── ConfigInvalid           an invalid configuration or descriptor
    ├── SpawnError                  a program could not be started
    │   ├── ProgramNotFound         the program was not found
    │   └── NotInstalled            no launcher of a peer is installed, or it cannot run here
    ├── ConnectError                a connection could not be opened
    │   └── HostUnavailable         another machine cannot be reached, or has no fitting dragoman
    ├── ConnectionLost              the connection is over; every pending call gets one of these
    │   ├── ConnectionClosed        by us
    │   ├── ConnectionEnded         by them: end of stream
    │   │   └── ProcessExited       by them: the process is gone
    │   ├── ConnectionBroken        a read or write failed
    │   ├── PeerUnresponsive        by us: they stopped answering
    │   ├── LineTooLong             by them: a line over the size limit
    │   └── Overflow                a bounded buffer stayed full
    ├── CallError                   one call failed; the connection stays open
    │   ├── CallTimeout             no response in time
    │   │   └── BudgetExceeded      a turn used up one of its time budgets
    │   ├── PeerBusy                it still works on a request that was given up; nothing was sent
    │   ├── RemoteError             the other side responded with an error
    │   │   ├── CallCancelled       it reports that the request was cancelled
    │   │   └── AuthRequired        it requires a login
    │   └── InvalidAnswer           the response does not match the protocol
    ├── ServiceError                a file or terminal service failed
    │   ├── ArgumentInvalid         an argument that can never be valid: a relative path
    │   ├── NotPermitted            the policy or the user did not allow it
    │   ├── PathRefused             the path leaves the workspace, or is not a regular file
    │   ├── FileMissing             there is no such file in the workspace
    │   ├── NotText                 the file is not UTF-8 text
    │   ├── TooLarge                more than the service reads or writes at once
    │   ├── FileFailed              the disk is full, read-only or broken
    │   ├── TerminalUnknown         no terminal has this id, or it was released
    │   └── TooManyTerminals        the peer has the maximum number of terminals
    ├── BrokerError                 a broker failed
    │   ├── BrokerBusy              its queue is full; the request was not passed on
    │   └── BrokerUnavailable       a broker cannot be started; a direct start may still work
    ├── StoreError                  the database of sessions and jobs cannot be used
    │   ├── StoreConflict           the new data conflicts with what is stored
    │   ├── StoreBusy               another process has locked it for too long
    │   ├── StoreFull               the disk is full, or a quota is used up
    │   ├── StoreRefused            we may not read or write the file or its directory
    │   ├── StoreCorrupt            the file is damaged, or belongs to another program
    │   └── StoreTooNew             written by a newer version of dragoman
    ├── FleetError                  the fleet's server or coordinator failed
    │   ├── FleetUnreachable        it does not answer
    │   ├── FleetRefused            it refused the credentials, or has another certificate
    │   ├── FleetFull               it has no room left; nothing was accepted
    │   └── FleetConflict           a record was changed by another process
    ├── IsolationFailed             a worktree for a job could not be created or used
    │   └── FilterFailed            a git filter failed, or only the repository defines it
    ├── TurnFailed                  a turn ended without success and without an error
    ├── AdapterFailed               the Python adapter of a peer failed
    ├── ProtocolMismatch            the two sides have no common protocol version
    └── HandshakeFailed             the other side did not answer like an agent

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
    HostUnavailable,
    InvalidAnswer,
    LineTooLong,
    NotInstalled,
    Overflow,
    PeerBusy,
    PeerUnresponsive,
    ProcessExited,
    ProgramNotFound,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
    TurnFailed,
)
from dragoman.errors.services import (
    ArgumentInvalid,
    BrokerBusy,
    BrokerError,
    BrokerUnavailable,
    FileFailed,
    FileMissing,
    FilterFailed,
    FleetConflict,
    FleetError,
    FleetFull,
    FleetRefused,
    FleetUnreachable,
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
    PatchChanged,
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
    "FleetConflict",
    "FleetError",
    "FleetFull",
    "FleetRefused",
    "FleetUnreachable",
    "FrontMatterInvalid",
    "HandshakeFailed",
    "HostUnavailable",
    "InputTimeout",
    "InvalidAnswer",
    "IsolationFailed",
    "LineTooLong",
    "MessageTooLong",
    "NoPeer",
    "PatchChanged",
    "NotInstalled",
    "NotPermitted",
    "NotText",
    "Overflow",
    "PathRefused",
    "PeerBusy",
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
    "TurnFailed",
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
