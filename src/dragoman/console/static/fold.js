// Folds a stream of events into the current view of a session: the counterpart of dragoman.events.fold.
// tests/console/test_console_fold.py checks that both give the same results. Only `order` is specific
// to the page: messages, tools and ends of turns in order of arrival.

export function newView() {
  return {
    title: null, cwd: null, model: null, mode: null,
    messages: [], tools: new Map(), plans: new Map(),
    options: [], modes: [], commands: [], usage: new Map(), changes: [],
    turns: [], running: false, waiting: new Set(), notices: [], failures: [],
    open: false, prompt: null,
    order: [], version: 0, byId: new Map(),
  };
}

// `memo` renders an item again only if its version has changed.
function touch(item) {
  item.version = (item.version || 0) + 1;
}

function put(view, kind, item) {
  const entry = { kind, id: `${kind}-${view.order.length}`, item };
  view.order.push(entry);
  return item;
}

// Index the messages by id: a session can have thousands, and every delta has to find its message.
function remember(view, message) {
  if (message.message_id !== null) view.byId.set(`${message.role} ${message.message_id}`, message);
}

function newMessage(view, role, messageId) {
  const message = { role, message_id: messageId ?? null, text: "", blocks: [], version: 1 };
  view.messages.push(message);
  remember(view, message);
  return put(view, "message", message);
}

function messageFor(view, role, messageId) {
  if (role === "user" && view.prompt !== null) {
    const prompt = view.prompt;
    view.prompt = null;
    view.open = true;
    prompt.message_id = messageId;
    remember(view, prompt);
    prompt.text = "";
    prompt.blocks = [];
    return prompt;
  }
  view.prompt = null;
  const last = view.messages[view.messages.length - 1];
  if (messageId !== null) {
    const known = view.byId.get(`${role} ${messageId}`);
    if (known !== undefined) return known;
  } else if (view.open && last && last.role === role && last.message_id === null) {
    return last;
  }
  view.open = true;
  return newMessage(view, role, messageId);
}

function fill(message, blocks) {
  message.text = blocks.filter((block) => block.type === "text").map((block) => block.text).join("");
  message.blocks = blocks.filter((block) => block.type !== "text");
  touch(message);
}

function toolFor(view, id) {
  view.open = false;
  view.prompt = null;
  let tool = view.tools.get(id);
  if (tool === undefined) {
    tool = {
      tool_id: id, title: "", name: null, kind: "other", status: "pending", input: null,
      output: null, printed: "", content: [], locations: [], changes: [], stage: "unknown",
      exit_code: null, error: null, version: 0,
    };
    view.tools.set(id, tool);
    put(view, "tool", tool);
  }
  touch(tool);
  return tool;
}

const CLEARED = { title: "", content: [], locations: [] };
const PATCHED = [
  "title", "name", "kind", "input", "output", "content", "locations", "exit_code", "error",
];
const OVER = new Set(["completed", "failed", "declined", "cancelled"]);
const STAGES = new Map([["completed", "applied"], ["failed", "failed"], ["declined", "declined"]]);

function planFor(view, id) {
  let plan = view.plans.get(id);
  if (plan === undefined) {
    plan = { entries: [], text: "" };
    view.plans.set(id, plan);
  }
  return plan;
}

function lastText(view) {
  const parts = [];
  for (let at = view.messages.length - 1; at >= 0; at--) {
    const message = view.messages[at];
    if (message.role === "user") break;
    if (message.role === "agent") parts.unshift(message.text);
  }
  return parts.join("");
}

const RULES = {
  MessageDelta(view, event) {
    const message = messageFor(view, event.role, event.message_id ?? null);
    const block = event.block ?? null;
    if (block !== null && block.type !== "text") message.blocks.push(block);
    else message.text += event.text;
    touch(message);
  },
  MessageSet(view, event) {
    const message = messageFor(view, event.role, event.message_id ?? null);
    if ("blocks" in event) fill(message, event.blocks || []);
  },
  ToolChanged(view, event) {
    const tool = toolFor(view, event.tool_id);
    for (const name of PATCHED) {
      if (name in event) tool[name] = event[name] === null ? CLEARED[name] ?? null : event[name];
    }
    if ("status" in event && !(OVER.has(tool.status) && event.status === "pending")) {
      tool.status = event.status;
      if (tool.changes.length) tool.stage = STAGES.get(event.status) ?? tool.stage;
    }
  },
  ToolDelta(view, event) {
    const tool = toolFor(view, event.tool_id);
    if ((event.item ?? null) !== null) tool.content = [...tool.content, event.item];
    else if (event.stream === "output") tool.printed += event.text ?? "";
  },
  FilesChanged(view, event) {
    if ((event.tool_id ?? null) === null) {
      view.changes = event.changes;
      return;
    }
    const tool = toolFor(view, event.tool_id);
    tool.changes = event.changes;
    tool.stage = event.stage === "proposed" ? STAGES.get(tool.status) ?? event.stage : event.stage;
  },
  PlanSet(view, event) {
    view.plans.set(event.plan_id ?? "main", {
      entries: event.entries ?? [], text: event.text ?? "",
    });
  },
  PlanDelta(view, event) {
    planFor(view, event.plan_id ?? "main").text += event.text;
  },
  PlanRemoved(view, event) {
    view.plans.delete(event.plan_id ?? "main");
  },
  SessionOpened(view, event) {
    view.cwd = event.cwd || view.cwd;
    view.title = event.title || view.title;
    view.model = event.model || view.model;
  },
  SessionChanged(view, event) {
    if ("title" in event) view.title = event.title;
  },
  SettingsChanged(view, event) {
    for (const name of ["options", "modes", "mode", "model"]) {
      if (name in event) view[name] = event[name];
    }
  },
  CommandsChanged(view, event) {
    view.commands = event.commands;
  },
  TurnStarted(view, event) {
    if (!view.running) view.usage.delete("turn");
    view.running = true;
    view.open = false;
    if (event.prompt && event.prompt.length) {
      view.prompt = newMessage(view, "user", null);
      fill(view.prompt, event.prompt);
    }
  },
  TurnEnded(view, event) {
    view.running = false;
    view.open = false;
    view.prompt = null;
    view.waiting.clear();
    const turn = {
      outcome: event.outcome, stop: event.stop ?? "", failure: event.failure ?? null,
    };
    view.turns.push(turn);
    if ((event.usage ?? null) !== null) view.usage.set("turn", event.usage);
    if ((event.text ?? null) !== null) finalText(view, event.text);
    put(view, "turn", turn);
  },
  UsageReported(view, event) {
    view.usage.set(event.scope, event.usage);
  },
  PermissionAsked(view, event) {
    view.waiting.add(event.request_id);
  },
  PermissionAnswered(view, event) {
    view.waiting.delete(event.request_id);
  },
  InputAsked(view, event) {
    view.waiting.add(event.request_id);
  },
  InputAnswered(view, event) {
    view.waiting.delete(event.request_id);
  },
  Noticed(view, event) {
    view.notices.push(event.title);
    put(view, "notice", { title: event.title, severity: event.severity });
  },
  ErrorReported(view, event) {
    view.failures.push(event.failure);
    put(view, "notice", { title: event.failure.message, severity: "error" });
  },
};

function finalText(view, text) {
  if (!text || lastText(view) === text) return;
  const last = view.messages[view.messages.length - 1];
  if (last && last.role === "agent" && text.startsWith(last.text)) {
    last.text = text;
    touch(last);
  } else if (!lastText(view).endsWith(text)) {
    newMessage(view, "agent", null).text = text;
  }
}

export function apply(view, event) {
  if (!Object.hasOwn(RULES, event.type)) return;
  RULES[event.type](view, event);
  view.version += 1;
}

// The fields that both folds have, as plain JSON.
export function comparable(view) {
  const without = ({ version, ...rest }) => rest;
  return {
    title: view.title, cwd: view.cwd, model: view.model, mode: view.mode,
    messages: view.messages.map(without),
    tools: Object.fromEntries([...view.tools].map(([id, tool]) => [id, without(tool)])),
    plans: Object.fromEntries(view.plans),
    options: view.options, modes: view.modes, commands: view.commands, usage: Object.fromEntries(view.usage),
    changes: view.changes, turns: view.turns, running: view.running,
    waiting: [...view.waiting].sort(), notices: view.notices, failures: view.failures,
  };
}
