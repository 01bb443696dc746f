// A client written with the official TypeScript SDK: what our agent is driven by. It plays its acts
// with the agent of tests/interop/our_agent.py and writes down how each went, as one JSON object
// on standard output: "ok", or what went wrong. Its terminals and files are made up.
//
//   node client.mjs SDK SCRIPT FOLDER COMMAND...      COMMAND starts the agent

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdkPath, scriptPath, folder, command, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdkPath));
const { methods, RequestError } = acp;
const script = JSON.parse(readFileSync(scriptPath, "utf8"));
const formAnswer = { name: "Ada", age: 36, sure: true };

// -- what the client answers, and what it keeps

const files = new Map();
const terminals = new Map();
const killed = new Set();
const released = [];
const asked = [];
const elicited = [];
// A notification can be handled behind an answer that was sent after it: this SDK asks one handler
// after another whether a message is theirs. So what a notification tells is waited for.
const urlDone = Promise.withResolvers();
const notified = Promise.withResolvers();
let updates = [];
let onUpdate = () => {};

const anything = (params) => params;
const endsByItself = (id) => terminals.get(id).cwd != null;

const app = acp
  .client({ name: "typescript" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params);
    onUpdate(params);
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    asked.push(params.toolCall.title);
    const wanted = params.toolCall.title === "Allowed" ? "allow_once" : "reject_once";
    const { optionId } = params.options.find((option) => option.kind === wanted);
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    files.set(params.path, params.content);
    return {};
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => {
    if (!files.has(params.path)) throw RequestError.resourceNotFound(params.path);
    const lines = files.get(params.path).split(/(?<=\n)/);
    const first = (params.line ?? 1) - 1;
    return { content: lines.slice(first, first + (params.limit ?? lines.length)).join("") };
  })
  .onRequest(methods.client.terminal.create, ({ params }) => {
    const terminalId = `t${terminals.size + 1}`;
    terminals.set(terminalId, params);
    return { terminalId };
  })
  .onRequest(methods.client.terminal.output, ({ params: { terminalId } }) =>
    endsByItself(terminalId)
      ? {
          output: `hello ${terminals.get(terminalId).env[0].value}\n`,
          truncated: false,
          exitStatus: { exitCode: 0 },
        }
      : { output: "", truncated: false },
  )
  .onRequest(methods.client.terminal.waitForExit, ({ params: { terminalId } }) => {
    assert(endsByItself(terminalId) || killed.has(terminalId));
    return killed.has(terminalId) ? { signal: "SIGKILL" } : { exitCode: 0 };
  })
  .onRequest(methods.client.terminal.kill, ({ params }) => {
    killed.add(params.terminalId);
    return {};
  })
  .onRequest(methods.client.terminal.release, ({ params }) => {
    released.push(params.terminalId);
    return {};
  })
  .onRequest(methods.client.elicitation.create, ({ params }) => {
    elicited.push(params);
    return params.mode === "form"
      ? { action: "accept", content: formAnswer }
      : { action: "accept" };
  })
  .onNotification(methods.client.elicitation.complete, ({ params }) => {
    urlDone.resolve(params.elicitationId);
  })
  .onRequest("_test/ask", anything, ({ params }) => ({ answered: params.number + 1 }))
  .onNotification("_test/told", anything, ({ params }) => {
    notified.resolve(params);
  });

// -- the acts

// Our agent tells its commands behind the answer that opens a session. A client that wants to see
// only what follows waits for that.
async function open(agent) {
  const announced = new Promise((resolve) => {
    onUpdate = ({ update }) => {
      if (update.sessionUpdate === "available_commands_update") resolve();
    };
  });
  const session = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
  await announced;
  updates = [];
  return session;
}

async function ask(agent, sessionId, text) {
  updates = [];
  const prompt = [{ type: "text", text }];
  const response = await agent.request(methods.agent.session.prompt, { sessionId, prompt });
  return { ...response, text: said() };
}

const said = () =>
  updates
    .filter(({ update }) => update.sessionUpdate === "agent_message_chunk")
    .map(({ update }) => update.content.text)
    .join("");

const kinds = () => updates.map(({ update }) => update.sessionUpdate);

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code;
  }
  return undefined;
}

const acts = {
  async handshake(agent) {
    const response = await agent.request(methods.agent.initialize, {
      protocolVersion: 1,
      clientInfo: { name: "typescript", version: "1" },
      clientCapabilities: {
        fs: { readTextFile: true, writeTextFile: true },
        terminal: true,
        elicitation: { form: {}, url: {} },
        session: { configOptions: { boolean: {} }, notices: {}, compaction: {} },
      },
    });
    assert.equal(response.protocolVersion, 1);
    assert.equal(response.agentInfo.name, "scripted");
    const capabilities = response.agentCapabilities;
    assert.equal(capabilities.loadSession, true);
    for (const name of ["list", "delete", "resume", "close", "additionalDirectories"]) {
      assert.notEqual(capabilities.sessionCapabilities[name] ?? null, null, name);
    }
    assert.notEqual(capabilities.auth.logout ?? null, null);
    assert.deepEqual(response.authMethods.map((method) => method.id), ["door"]);
  },

  async login(agent) {
    const locked = { cwd: join(folder, "locked"), mcpServers: [] };
    mkdirSync(locked.cwd);
    assert.equal(await failure(agent.request(methods.agent.session.new, locked)), -32000);
    await agent.request(methods.agent.authenticate, { methodId: "door" });
    await agent.request(methods.agent.session.new, locked);
    await agent.request(methods.agent.logout, {});
    assert.equal(await failure(agent.request(methods.agent.session.new, locked)), -32000);
  },

  async sessions(agent) {
    const { sessionId } = await agent.request(methods.agent.session.new, {
      cwd: folder,
      additionalDirectories: [join(folder, "other")],
      mcpServers: [
        { name: "local", command: "/bin/true", args: ["-x"], env: [{ name: "A", value: "1" }] },
        { type: "http", name: "web", url: "https://example.com/mcp", headers: [] },
        { type: "sse", name: "stream", url: "https://example.com/sse", headers: [] },
      ],
    });
    assert.deepEqual(JSON.parse((await ask(agent, sessionId, "where")).text), {
      cwd: folder,
      folders: [join(folder, "other")],
      servers: ["local", "web", "stream"],
    });
    const found = [];
    let cursor;
    do {
      const page = await agent.request(methods.agent.session.list, { cwd: folder, cursor });
      found.push(...page.sessions.map((session) => session.sessionId));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    assert.equal(found.at(-1), sessionId);
    await agent.request(methods.agent.session.close, { sessionId });
    const again = { sessionId, cwd: folder, mcpServers: [] };
    updates = [];
    const loaded = await agent.request(methods.agent.session.load, again);
    assert.deepEqual(kinds().slice(0, 2), ["user_message_chunk", "agent_message_chunk"]);
    assert.equal(loaded.modes.currentModeId, "ask");
    await agent.request(methods.agent.session.resume, again);
    assert.equal(JSON.parse((await ask(agent, sessionId, "where")).text).cwd, folder);
    await agent.request(methods.agent.session.delete, { sessionId });
    assert.equal(await failure(agent.request(methods.agent.session.load, again)), -32002);
  },

  async settings(agent) {
    const { sessionId } = await open(agent);
    const set = (configId, value) =>
      agent.request(methods.agent.session.setConfigOption, { sessionId, configId, ...value });
    await agent.request(methods.agent.session.setMode, { sessionId, modeId: "plan" });
    await set("depth", { value: "deep" });
    const { configOptions } = await set("loud", { type: "boolean", value: true });
    const values = configOptions.map((option) => [option.id, option.currentValue]);
    assert.deepEqual(Object.fromEntries(values), { mode: "plan", depth: "deep", loud: true });
    const { text } = await ask(agent, sessionId, "settings");
    assert.deepEqual(JSON.parse(text), ["plan", "deep", true]);
  },

  async content(agent) {
    const { sessionId } = await open(agent);
    await agent.request(methods.agent.session.prompt, { sessionId, prompt: script.blocks });
    assert.deepEqual(updates.map(({ update }) => update.content), script.blocks);
  },

  async updates(agent) {
    const { sessionId } = await open(agent);
    const { stopReason } = await ask(agent, sessionId, "updates");
    assert.equal(stopReason, "end_turn");
    assert.deepEqual(updates.map(({ update }) => update), script.updates);
  },

  async shorthands(agent) {
    const { sessionId } = await open(agent);
    const { stopReason } = await ask(agent, sessionId, "shorthands");
    assert.equal(stopReason, "max_tokens");
    assert(kinds().includes("notice"));
    const states = updates
      .filter(({ update }) => update.sessionUpdate === "tool_call_update")
      .map(({ update }) => update.status);
    assert.deepEqual(states.slice(-2), ["completed", "failed"]);
  },

  async commands(agent) {
    const { sessionId } = await open(agent);
    assert.equal((await ask(agent, sessionId, "/shout hello")).text, "HELLO");
  },

  async cancel(agent) {
    const { sessionId } = await open(agent);
    onUpdate = () => {
      onUpdate = () => {};
      agent.notify(methods.agent.session.cancel, { sessionId });
    };
    const { stopReason, text } = await ask(agent, sessionId, "cancel");
    assert.equal(stopReason, "cancelled");
    assert.equal(text, "waitingstopped");
  },

  async files(agent) {
    const { sessionId } = await open(agent);
    const { text } = await ask(agent, sessionId, "files");
    assert.deepEqual(JSON.parse(text), ["one\ntwo\nthree\n", "two\n", -32002]);
    assert.deepEqual([...files.keys()], [join(folder, "made.txt")]);
  },

  async terminals(agent) {
    const { sessionId } = await open(agent);
    const { text } = await ask(agent, sessionId, "terminals");
    assert.deepEqual(JSON.parse(text), {
      output: "hello world\n",
      truncated: false,
      code: 0,
      running: true,
      killed: true,
    });
    assert.equal(terminals.get("t1").outputByteLimit, 1000);
    assert.deepEqual(released, ["t1", "t2"]);
    assert.deepEqual([...killed], ["t2"]);
  },

  async permission(agent) {
    const { sessionId } = await open(agent);
    const { text } = await ask(agent, sessionId, "permission");
    assert.deepEqual(JSON.parse(text), ["yes", "no"]);
    assert.deepEqual(asked, ["Allowed", "Forbidden"]);
  },

  async elicitation(agent) {
    const { sessionId } = await open(agent);
    const { text } = await ask(agent, sessionId, "elicitation");
    assert.deepEqual(JSON.parse(text), [
      { action: "accept", content: formAnswer },
      { action: "accept" },
    ]);
    const [form, url] = elicited;
    assert.equal(form.requestedSchema.properties.age.type, "integer");
    assert.deepEqual(form.requestedSchema.required, ["name"]);
    assert.equal(url.url, "https://example.com/go");
    assert.equal(await urlDone.promise, "e1");
  },

  async extensions(agent) {
    const { sessionId } = await open(agent);
    assert.deepEqual(await agent.request("_test/double", { number: 21 }), { doubled: 42 });
    assert.equal(await failure(agent.request("_test/nothing", {})), -32601);
    await agent.notify("_test/told", { number: 7 });
    const { text } = await ask(agent, sessionId, "extensions");
    assert.deepEqual(JSON.parse(text), {
      answer: { answered: 21 },
      told: [["test/told", { number: 7 }]],
    });
    assert.deepEqual(await notified.promise, { number: 21 });
  },

  async cancelRequest(agent) {
    const abort = new AbortController();
    const slow = agent.request("_test/slow", {}, { cancellationSignal: abort.signal });
    abort.abort();
    // Without the cancellation it would never be answered.
    assert.equal(await failure(slow), -32800);
  },
};

// -- the play

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve(signal ?? code)));
const report = {};
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
await app.connectWith(stream, async (agent) => {
  for (const [name, act] of Object.entries(acts)) {
    try {
      await act(agent);
      report[name] = "ok";
    } catch (error) {
      report[name] = String(error?.stack ?? error);
    }
  }
});
child.stdin.end();
report["the agent's end"] = (await ended) === 0 ? "ok" : `the agent ended with ${await ended}`;
process.stdout.write(JSON.stringify(report) + "\n");
process.exit(0);
