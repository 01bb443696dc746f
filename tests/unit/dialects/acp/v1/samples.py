"""One message of every shape, written by hand after what real agents and clients send.

Every sample is in canonical form: it holds no field at its default and no null, so that decoding
and encoding it gives the same JSON again. `STABLE` and `UNSTABLE` pair a type with a sample.
"""

from __future__ import annotations

from typing import Any

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import handshake, services, sessions, updates

META = {"vendor.example/trace": {"id": 7, "tags": ["a", None, 1.5]}}

TEXT = {"type": "text", "text": "Hello, wörld 👋"}
ANNOTATED_TEXT = {
    "type": "text",
    "text": "for you",
    "annotations": {
        "audience": ["user", "assistant"],
        "lastModified": "2026-01-02T03:04:05Z",
        "priority": 0.5,
        "_meta": META,
    },
    "_meta": META,
}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
LINK = {
    "type": "resource_link",
    "uri": "file:///w/a.py",
    "name": "a.py",
    "title": "A",
    "description": "a file",
    "mimeType": "text/x-python",
    "size": 12,
}
TEXT_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "file:///w/a.py", "text": "x = 1\n", "mimeType": "text/x-python"},
}
BLOB_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "file:///w/a.bin", "blob": "aGk=", "_meta": META},
}
BLOCKS: list[dict[str, Any]] = [
    TEXT,
    ANNOTATED_TEXT,
    IMAGE,
    AUDIO,
    LINK,
    TEXT_RESOURCE,
    BLOB_RESOURCE,
]

DIFF = {"type": "diff", "path": "/w/a.py", "oldText": "x\n", "newText": "y\n"}
TOOL_CONTENT: list[dict[str, Any]] = [
    {"type": "content", "content": TEXT},
    DIFF,
    {"type": "diff", "path": "/w/new.py", "newText": ""},
    {"type": "terminal", "terminalId": "t1"},
]
TOOL_UPDATE = {
    "toolCallId": "call_1",
    "title": "touch made.txt",
    "name": "run_shell_command",
    "kind": "execute",
    "status": "pending",
    "content": TOOL_CONTENT,
    "locations": [{"path": "/w/a.py", "line": 3}, {"path": "/w/b.py"}],
    "rawInput": {"command": "touch made.txt", "commands": ["touch made.txt"]},
    "rawOutput": "done",
    "_meta": META,
}
MODES = {
    "currentModeId": "default",
    "availableModes": [
        {"id": "default", "name": "Default", "description": "asks"},
        {"id": "https://agent.example/modes#plan", "name": "Plan"},
    ],
}
SELECT = {
    "type": "select",
    "id": "model",
    "name": "Model",
    "description": "which model",
    "category": "model",
    "currentValue": "fast",
    "options": [
        {"value": "fast", "name": "Fast", "description": "small"},
        {"value": "slow", "name": "Slow"},
    ],
}
GROUPED_SELECT = {
    "type": "select",
    "id": "effort",
    "name": "Effort",
    "category": "thought_level",
    "currentValue": "low",
    "options": [
        {"group": "g1", "name": "Cheap", "options": [{"value": "low", "name": "Low"}]},
        {"group": "g2", "name": "Dear", "options": []},
    ],
}
BOOLEAN = {"type": "boolean", "id": "auto_approve", "name": "Auto", "currentValue": False}
CONFIG_OPTIONS: list[dict[str, Any]] = [SELECT, GROUPED_SELECT, BOOLEAN]
MODELS = {
    "currentModelId": "fake-model",
    "availableModels": [
        {"modelId": "fake-model", "name": "Fake", "description": "not a model"},
        {"modelId": "other", "name": "Other", "_meta": {"contextLimit": 1000}},
    ],
}
SERVERS: list[dict[str, Any]] = [
    {
        "name": "files",
        "command": "/usr/bin/files",
        "args": ["--root", "/w"],
        "env": [{"name": "A", "value": "1"}],
    },
    {"name": "bare", "command": "/usr/bin/bare", "args": [], "env": []},
    {
        "type": "http",
        "name": "web",
        "url": "https://mcp.example",
        "headers": [{"name": "Authorization", "value": "Bearer x"}],
    },
    {"type": "sse", "name": "old", "url": "https://sse.example", "headers": []},
]
FORM = {
    "type": "object",
    "title": "Release",
    "description": "what to release",
    "properties": {
        "name": {
            "type": "string",
            "title": "Name",
            "minLength": 1,
            "maxLength": 20,
            "pattern": "^[a-z]+$",
            "format": "email",
            "default": "main",
        },
        "channel": {"type": "string", "enum": ["stable", "beta"]},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small", "description": "tiny"}],
        },
        "ratio": {"type": "number", "minimum": 0.5, "maximum": 1.5, "default": 0.75},
        "count": {"type": "integer", "minimum": 0, "maximum": 9, "default": 3},
        "sure": {"type": "boolean", "description": "really", "default": False},
        "tags": {
            "type": "array",
            "items": {"type": "string", "enum": ["a", "b"]},
            "minItems": 1,
            "maxItems": 2,
            "default": ["a"],
        },
        "titled": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
    },
    "required": ["name"],
}

UPDATES: list[dict[str, Any]] = [
    {"sessionUpdate": "user_message_chunk", "content": TEXT},
    {"sessionUpdate": "agent_message_chunk", "content": TEXT, "messageId": "m1"},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ""}},
    {"sessionUpdate": "agent_thought_chunk", "content": ANNOTATED_TEXT, "_meta": META},
    *({"sessionUpdate": "agent_message_chunk", "content": block} for block in BLOCKS),
    {"sessionUpdate": "tool_call", "toolCallId": "call_1", "title": "read"},
    {"sessionUpdate": "tool_call", **TOOL_UPDATE},
    {"sessionUpdate": "tool_call_update", "toolCallId": "call_1"},
    {"sessionUpdate": "tool_call_update", **TOOL_UPDATE},
    {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [], "locations": []},
    {
        "sessionUpdate": "plan",
        "entries": [{"content": "look", "priority": "high", "status": "in_progress"}],
    },
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [
            {"name": "init", "description": "begin", "input": {"hint": "what"}},
            {"name": "help", "description": ""},
        ],
    },
    {"sessionUpdate": "current_mode_update", "currentModeId": "plan"},
    {"sessionUpdate": "config_option_update", "configOptions": CONFIG_OPTIONS},
    {"sessionUpdate": "session_info_update"},
    {"sessionUpdate": "session_info_update", "title": "A", "updatedAt": "2026-01-02T03:04:05Z"},
    {"sessionUpdate": "session_info_update", "title": None},
    {"sessionUpdate": "usage_update", "used": 10, "size": 1000},
    {
        "sessionUpdate": "usage_update",
        "used": 0,
        "size": 0,
        "cost": {"amount": 0.25, "currency": "USD"},
    },
    {"sessionUpdate": "notice", "severity": "info", "title": "Hi", "description": "there"},
    {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress"},
    {
        "sessionUpdate": "compaction_update",
        "compactionId": "k",
        "status": "failed",
        "summary": None,
        "error": "too long",
    },
    {
        "sessionUpdate": "compaction_update",
        "compactionId": "k",
        "status": "completed",
        "summary": [TEXT],
    },
    {"sessionUpdate": "compaction_summary_chunk", "compactionId": "k", "content": TEXT},
]

CLIENT_CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {
        "compaction": {},
        "configOptions": {"boolean": {}},
        "notices": {},
    },
    "auth": {"terminal": True},
    "elicitation": {"form": {}, "url": {"_meta": META}},
}
AGENT_CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True},
    "sessionCapabilities": {
        "list": {},
        "delete": {},
        "additionalDirectories": {},
        "resume": {},
        "close": {},
    },
    "auth": {"logout": {}},
    "_meta": META,
}
AUTH_METHODS: list[dict[str, Any]] = [
    {"id": "oauth", "name": "Log in", "description": "with your account"},
    {"id": "key", "name": "Key", "_meta": {"api-key": {"provider": "example"}}},
    {"type": "terminal", "id": "login", "name": "Login", "args": ["login"], "env": {"A": "1"}},
    {
        "type": "env_var",
        "id": "env",
        "name": "Key in the environment",
        "vars": [{"name": "KEY", "label": "Key"}, {"name": "URL", "secret": False}],
        "link": "https://agent.example/keys",
    },
]
SESSION = {"sessionId": "s1"}
TERMINAL = {"sessionId": "s1", "terminalId": "t1"}
CHOICES = {"modes": MODES, "configOptions": CONFIG_OPTIONS, "models": MODELS, "_meta": META}

STABLE: list[tuple[Any, dict[str, Any]]] = [
    *((v1.ContentBlock, block) for block in BLOCKS),
    *((v1.ToolCallContent, item) for item in TOOL_CONTENT),
    *((v1.SessionConfigOption, option) for option in CONFIG_OPTIONS),
    *((v1.McpServer, server) for server in SERVERS),
    *((v1.AuthMethod, method) for method in AUTH_METHODS),
    *((v1.SessionNotification, {"sessionId": "s1", "update": update}) for update in UPDATES),
    (v1.ToolCallUpdate, TOOL_UPDATE),
    (v1.ClientCapabilities, CLIENT_CAPABILITIES),
    (v1.AgentCapabilities, AGENT_CAPABILITIES),
    (
        v1.InitializeRequest,
        {
            "protocolVersion": 1,
            "clientCapabilities": CLIENT_CAPABILITIES,
            "clientInfo": {"name": "dragoman", "title": "Dragoman", "version": "1"},
        },
    ),
    (
        v1.InitializeResponse,
        {
            "protocolVersion": 1,
            "agentCapabilities": AGENT_CAPABILITIES,
            "authMethods": AUTH_METHODS,
            "agentInfo": {"name": "scout", "version": "1"},
        },
    ),
    (v1.AuthenticateRequest, {"methodId": "oauth"}),
    (v1.AuthenticateResponse, {}),
    (v1.LogoutRequest, {}),
    (v1.LogoutResponse, {"_meta": META}),
    (v1.NewSessionRequest, {"cwd": "/w", "mcpServers": []}),
    (
        v1.NewSessionRequest,
        {"cwd": "/w", "mcpServers": SERVERS, "additionalDirectories": ["/x"], "_meta": META},
    ),
    (v1.NewSessionResponse, SESSION),
    (v1.NewSessionResponse, SESSION | CHOICES),
    (v1.LoadSessionRequest, {"sessionId": "s1", "cwd": "/w", "mcpServers": SERVERS}),
    (v1.LoadSessionResponse, {}),
    (v1.LoadSessionResponse, CHOICES),
    (v1.ResumeSessionRequest, {"sessionId": "s1", "cwd": "/w"}),
    (v1.ResumeSessionRequest, {"sessionId": "s1", "cwd": "/w", "mcpServers": SERVERS}),
    (v1.ResumeSessionResponse, CHOICES),
    (v1.ListSessionsRequest, {}),
    (v1.ListSessionsRequest, {"cwd": "/w", "cursor": "next"}),
    (v1.ListSessionsResponse, {"sessions": []}),
    (
        v1.ListSessionsResponse,
        {
            "sessions": [
                {
                    "sessionId": "s1",
                    "cwd": "/w",
                    "additionalDirectories": ["/x"],
                    "title": "A",
                    "updatedAt": "2026-01-02T03:04:05Z",
                    "_meta": META,
                },
                {"sessionId": "s2", "cwd": "/w"},
            ],
            "nextCursor": "more",
        },
    ),
    (v1.CloseSessionRequest, SESSION),
    (v1.CloseSessionResponse, {}),
    (v1.DeleteSessionRequest, SESSION),
    (v1.DeleteSessionResponse, {}),
    (v1.SetSessionModeRequest, {"sessionId": "s1", "modeId": "plan"}),
    (v1.SetSessionModeResponse, {}),
    (
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s1", "configId": "model", "value": "fast"},
    ),
    (
        v1.SetSessionConfigOptionRequest,
        {"sessionId": "s1", "configId": "auto", "type": "boolean", "value": True},
    ),
    (v1.SetSessionConfigOptionResponse, {"configOptions": CONFIG_OPTIONS}),
    (v1.PromptRequest, {"sessionId": "s1", "prompt": BLOCKS}),
    (v1.PromptResponse, {"stopReason": "end_turn", "_meta": META}),
    (v1.CancelNotification, SESSION),
    (v1.CancelRequestNotification, {"requestId": 0}),
    (v1.CancelRequestNotification, {"requestId": "a-b"}),
    (v1.SetSessionModelRequest, {"sessionId": "s1", "modelId": "other"}),
    (v1.SetSessionModelResponse, {}),
    (
        v1.RequestPermissionRequest,
        {
            "sessionId": "s1",
            "toolCall": TOOL_UPDATE,
            "options": [
                {"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"},
                {"optionId": "cancel", "name": "Reject", "kind": "reject_once"},
            ],
        },
    ),
    (v1.RequestPermissionResponse, {"outcome": {"outcome": "selected", "optionId": "cancel"}}),
    (v1.RequestPermissionResponse, {"outcome": {"outcome": "cancelled"}}),
    (v1.ReadTextFileRequest, {"sessionId": "s1", "path": "/w/a", "line": 1, "limit": 1000}),
    (v1.ReadTextFileResponse, {"content": ""}),
    (v1.WriteTextFileRequest, {"sessionId": "s1", "path": "/w/a", "content": "x"}),
    (v1.WriteTextFileResponse, {}),
    (v1.CreateTerminalRequest, {"sessionId": "s1", "command": "ls"}),
    (
        v1.CreateTerminalRequest,
        {
            "sessionId": "s1",
            "command": "ls",
            "args": ["-l"],
            "env": [{"name": "A", "value": "1"}],
            "cwd": "/w",
            "outputByteLimit": 1000,
        },
    ),
    (v1.CreateTerminalResponse, {"terminalId": "t1"}),
    (v1.TerminalOutputRequest, TERMINAL),
    (v1.TerminalOutputResponse, {"output": "", "truncated": False}),
    (
        v1.TerminalOutputResponse,
        {"output": "x", "truncated": True, "exitStatus": {"exitCode": 0}},
    ),
    (v1.WaitForTerminalExitRequest, TERMINAL),
    (v1.WaitForTerminalExitResponse, {"signal": "SIGTERM"}),
    (v1.KillTerminalRequest, TERMINAL),
    (v1.KillTerminalResponse, {}),
    (v1.ReleaseTerminalRequest, TERMINAL),
    (v1.ReleaseTerminalResponse, {}),
    (
        v1.CreateElicitationRequest,
        {
            "mode": "form",
            "message": "What?",
            "sessionId": "s1",
            "toolCallId": "call_1",
            "requestedSchema": FORM,
        },
    ),
    (
        v1.CreateElicitationRequest,
        {
            "mode": "url",
            "message": "Open it",
            "requestId": 3,
            "elicitationId": "e1",
            "url": "https://agent.example/login",
        },
    ),
    (
        v1.CreateElicitationResponse,
        {
            "action": "accept",
            "content": {"a": "x", "b": 1, "c": 1.5, "d": True, "e": ["y"]},
        },
    ),
    (v1.CreateElicitationResponse, {"action": "decline"}),
    (v1.CreateElicitationResponse, {"action": "cancel", "_meta": META}),
    (v1.CompleteElicitationNotification, {"elicitationId": "e1"}),
]

USAGE = {
    "totalTokens": 18,
    "inputTokens": 11,
    "outputTokens": 7,
    "thoughtTokens": 0,
    "cachedReadTokens": 1,
    "cachedWriteTokens": 2,
}
SYSTEM_PROMPT = {"mode": "append", "content": [TEXT]}
ACP_SERVER = {"type": "acp", "name": "mine", "serverId": "x1"}

UNSTABLE_UPDATES: list[dict[str, Any]] = [
    {
        "sessionUpdate": "plan_update",
        "plan": {
            "type": "items",
            "planId": "p",
            "entries": [{"content": "look", "priority": "low", "status": "pending"}],
        },
    },
    {
        "sessionUpdate": "plan_update",
        "plan": {"type": "file", "planId": "p", "uri": "file:///w/plan.md"},
    },
    {
        "sessionUpdate": "plan_update",
        "plan": {"type": "markdown", "planId": "p", "content": "# Plan"},
    },
    {"sessionUpdate": "plan_removed", "planId": "p"},
    {
        "sessionUpdate": "subagent_update",
        "sessionId": "child",
        "title": "T",
        "description": None,
        "capabilities": {"cancel": {}},
        "state": {"state": "running"},
        "cwd": "/w",
        "additionalDirectories": ["/x"],
    },
    {
        "sessionUpdate": "subagent_update",
        "sessionId": "child",
        "state": {
            "state": "idle",
            "stopReason": "error",
            "usage": USAGE,
            "error": {"code": -32603, "message": "broken", "data": {"why": 1}},
        },
    },
    {"sessionUpdate": "subagent_update", "sessionId": "child", "state": {"state": "unknown"}},
    {
        "sessionUpdate": "subagent_update",
        "sessionId": "child",
        "state": {"state": "requires_action"},
    },
    {
        "sessionUpdate": "session_message",
        "messageId": "m",
        "senderSessionId": "a",
        "recipientSessionId": "b",
        "senderMessageId": "c",
        "recipientMessageId": "d",
        "content": [TEXT],
    },
    {"sessionUpdate": "session_message", "messageId": "m", "content": None},
    {"sessionUpdate": "session_message_chunk", "messageId": "m", "content": TEXT},
]

UNSTABLE: list[tuple[Any, dict[str, Any]]] = [
    *(
        (updates.SessionNotification, {"sessionId": "s1", "update": update})
        for update in UPDATES + UNSTABLE_UPDATES
    ),
    (sessions.McpServer, ACP_SERVER),
    *((sessions.McpServer, server) for server in SERVERS),
    (
        handshake.InitializeRequest,
        {
            "protocolVersion": 1,
            "clientCapabilities": CLIENT_CAPABILITIES | {"subagents": {}, "plan": {}},
        },
    ),
    (
        handshake.InitializeResponse,
        {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {},
                "mcpCapabilities": {"acp": True},
                "sessionCapabilities": {
                    "systemPrompt": {"mode": {"override": {}}},
                    "fork": {},
                    "archive": {},
                    "status": {},
                    "title": {},
                    "list": {},
                },
                "auth": {"status": {}},
                "providers": {},
            },
        },
    ),
    (
        sessions.NewSessionRequest,
        {"cwd": "/w", "mcpServers": [*SERVERS, ACP_SERVER], "systemPrompt": SYSTEM_PROMPT},
    ),
    (
        sessions.LoadSessionRequest,
        {
            "sessionId": "s1",
            "cwd": "/w",
            "mcpServers": [ACP_SERVER],
            "systemPrompt": SYSTEM_PROMPT,
        },
    ),
    (
        sessions.ResumeSessionRequest,
        {
            "sessionId": "s1",
            "cwd": "/w",
            "mcpServers": [ACP_SERVER],
            "systemPrompt": SYSTEM_PROMPT,
        },
    ),
    (
        sessions.ForkSessionRequest,
        {
            "sessionId": "s1",
            "cwd": "/w",
            "mcpServers": [ACP_SERVER],
            "additionalDirectories": ["/x"],
            "systemPrompt": SYSTEM_PROMPT,
        },
    ),
    (sessions.ForkSessionResponse, SESSION | CHOICES),
    (sessions.ListSessionsRequest, {"cwd": "/w", "archived": "only"}),
    (
        sessions.ListSessionsResponse,
        {"sessions": [{"sessionId": "s1", "cwd": "/w", "archived": True}]},
    ),
    (sessions.ArchiveSessionRequest, SESSION),
    (sessions.ArchiveSessionResponse, {}),
    (sessions.UnarchiveSessionRequest, SESSION),
    (sessions.UnarchiveSessionResponse, {}),
    (sessions.SessionStatusRequest, SESSION),
    (sessions.SessionStatusResponse, {"status": "open"}),
    (sessions.SetSessionTitleRequest, {"sessionId": "s1", "title": "T"}),
    (sessions.SetSessionTitleResponse, {"title": "T"}),
    (sessions.PromptResponse, {"stopReason": "end_turn", "usage": USAGE}),
    (services.ListProvidersRequest, {}),
    (
        services.ListProvidersResponse,
        {
            "providers": [
                {
                    "providerId": "main",
                    "supported": ["openai"],
                    "required": True,
                    "current": {"apiType": "openai", "baseUrl": "http://127.0.0.1:1"},
                }
            ]
        },
    ),
    (
        services.SetProviderRequest,
        {
            "providerId": "main",
            "apiType": "openai",
            "baseUrl": "http://127.0.0.1:1",
            "headers": {"a": "b"},
        },
    ),
    (services.SetProviderResponse, {}),
    (services.DisableProviderRequest, {"providerId": "main"}),
    (services.DisableProviderResponse, {}),
    (services.AuthStatusRequest, {}),
    (
        services.AuthStatusResponse,
        {
            "state": "authenticated",
            "accounts": [
                {
                    "label": "me",
                    "active": True,
                    "name": "Me",
                    "email": "me@agent.example",
                    "organization": "Us",
                }
            ],
        },
    ),
    (services.AuthStatusUpdateNotification, {"state": "unauthenticated"}),
    (
        services.MessageMcpRequest,
        {"serverId": "x1", "requestId": "1", "method": "tools/list", "params": {}},
    ),
    (services.MessageMcpResponse, {"result": {"tools": []}}),
    (services.MessageMcpResponse, {"result": None}),
    (services.MessageMcpResponse, {"error": {"code": 1, "message": "no", "data": 2}}),
    (services.MessageMcpNotification, {"serverId": "x1", "requestId": "1", "method": "ping"}),
    (services.ProxySuccessorRequest, {"method": "session/new", "params": {"cwd": "/w"}}),
    (services.ProxySuccessorNotification, {"method": "session/cancel", "params": [1]}),
]


def name_of(pair: tuple[Any, dict[str, Any]]) -> str:
    """A name for a sample in a test report."""
    hint, sample = pair
    update = sample.get("update")
    kind = update["sessionUpdate"] if isinstance(update, dict) else sample.get("type", "")
    return f"{getattr(hint, '__name__', 'union')}-{kind}"
