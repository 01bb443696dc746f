// An agent written with the official TypeScript SDK: the peer of our client. It plays the scenes of
// tests/interop/script.json, as the agents in tests/interop do, and knows nothing of dragoman.
//
//   node agent.mjs SDK SCRIPT      the SDK's module and script.json

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdkPath, scriptPath] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdkPath));
const { methods, RequestError } = acp;
const script = JSON.parse(readFileSync(scriptPath, "utf8"));

const opened = new Map();
const stops = new Map();
const told = [];
let loggedIn = false;
let sessions = 0;
const settings = { mode: "ask", depth: "flat", loud: false };

const modes = {
  currentModeId: "ask",
  availableModes: [
    { id: "ask", name: "Ask" },
    { id: "plan", name: "Plan" },
  ],
};

const configOptions = () => [
  {
    type: "select",
    id: "depth",
    name: "Depth",
    currentValue: settings.depth,
    options: [
      { value: "flat", name: "Flat" },
      { value: "deep", name: "Deep" },
    ],
  },
  { type: "boolean", id: "loud", name: "Loud", currentValue: settings.loud },
];

function remember(sessionId, params) {
  if (basename(params.cwd) === "locked" && !loggedIn) {
    throw RequestError.authRequired();
  }
  opened.set(sessionId, {
    cwd: params.cwd,
    folders: params.additionalDirectories ?? [],
    servers: (params.mcpServers ?? []).map((server) => server.name),
  });
}

function known(sessionId) {
  if (!opened.has(sessionId)) throw RequestError.resourceNotFound(sessionId);
}

const update = (client, sessionId, value) =>
  client.notify(methods.client.session.update, { sessionId, update: value });

const say = (client, sessionId, text) =>
  update(client, sessionId, {
    sessionUpdate: "agent_message_chunk",
    content: { type: "text", text },
  });

const scenes = {
  where: (client, sessionId) => say(client, sessionId, JSON.stringify(opened.get(sessionId))),

  settings: (client, sessionId) =>
    say(client, sessionId, JSON.stringify([settings.mode, settings.depth, settings.loud])),

  async content(client, sessionId, prompt) {
    for (const content of prompt) {
      await update(client, sessionId, { sessionUpdate: "agent_message_chunk", content });
    }
  },

  async updates(client, sessionId) {
    for (const value of script.updates) await update(client, sessionId, value);
  },

  async cancel(client, sessionId) {
    const stopped = new Promise((resolve) => stops.set(sessionId, resolve));
    await say(client, sessionId, "waiting");
    await stopped;
    await say(client, sessionId, "stopped");
    return { stopReason: "cancelled" };
  },

  async files(client, sessionId) {
    const { readTextFile, writeTextFile } = methods.client.fs;
    const folder = opened.get(sessionId).cwd;
    const path = join(folder, "made.txt");
    await client.request(writeTextFile, { sessionId, path, content: "one\ntwo\nthree\n" });
    const whole = await client.request(readTextFile, { sessionId, path });
    const part = await client.request(readTextFile, { sessionId, path, line: 2, limit: 1 });
    let code = 0;
    try {
      await client.request(readTextFile, { sessionId, path: join(folder, "missing.txt") });
    } catch (error) {
      code = error.code;
    }
    await say(client, sessionId, JSON.stringify([whole.content, part.content, code]));
  },

  async terminals(client, sessionId) {
    const hello = await client.createTerminal({
      sessionId,
      command: process.execPath,
      args: ["-e", "console.log('hello', process.env.GREETED)"],
      env: [{ name: "GREETED", value: "world" }],
      cwd: opened.get(sessionId).cwd,
      outputByteLimit: 1000,
    });
    const ended = await hello.waitForExit();
    const output = await hello.currentOutput();
    await hello.release();
    const endless = await client.createTerminal({
      sessionId,
      command: process.execPath,
      args: ["-e", "setInterval(() => {}, 1000000)"],
    });
    const running = await endless.currentOutput();
    await endless.kill();
    const killed = await endless.waitForExit();
    await endless.release();
    const heard = {
      output: output.output,
      truncated: output.truncated,
      code: ended.exitCode,
      running: running.exitStatus == null,
      killed: killed.signal != null || ![0, null].includes(killed.exitCode),
    };
    await say(client, sessionId, JSON.stringify(heard));
  },

  async permission(client, sessionId) {
    const answers = [];
    for (const title of ["Allowed", "Forbidden"]) {
      const { outcome } = await client.request(methods.client.session.requestPermission, {
        sessionId,
        toolCall: { toolCallId: title, title, kind: "execute" },
        options: [
          { optionId: "no", name: "No", kind: "reject_once" },
          { optionId: "yes", name: "Yes", kind: "allow_once" },
        ],
      });
      answers.push(outcome.optionId ?? null);
    }
    await say(client, sessionId, JSON.stringify(answers));
  },

  async elicitation(client, sessionId) {
    const create = methods.client.elicitation.create;
    const form = await client.request(create, {
      mode: "form",
      sessionId,
      message: "Who are you?",
      requestedSchema: {
        type: "object",
        properties: {
          name: { type: "string", title: "Name", minLength: 1 },
          age: { type: "integer", minimum: 0 },
          sure: { type: "boolean", default: false },
        },
        required: ["name"],
      },
    });
    const url = await client.request(create, {
      mode: "url",
      sessionId,
      message: "Go there",
      elicitationId: "e1",
      url: "https://example.com/go",
    });
    await client.notify(methods.client.elicitation.complete, { elicitationId: "e1" });
    await say(client, sessionId, JSON.stringify([form, url]));
  },

  async extensions(client, sessionId) {
    const answer = await client.request("_test/ask", { number: 20 });
    await client.notify("_test/told", { number: 21 });
    await say(client, sessionId, JSON.stringify({ answer, told }));
  },
};

const anything = (params) => params;

acp
  .agent({ name: "scripted" })
  .onRequest(methods.agent.initialize, ({ params }) => ({
    protocolVersion: params.protocolVersion,
    agentInfo: { name: "scripted", title: params.clientInfo.name, version: "1" },
    agentCapabilities: {
      loadSession: true,
      promptCapabilities: { image: true, audio: true, embeddedContext: true },
      mcpCapabilities: { http: true, sse: true },
      sessionCapabilities: {
        list: {},
        resume: {},
        close: {},
        delete: {},
        additionalDirectories: {},
      },
      auth: { logout: {} },
    },
    authMethods: [{ id: "door", name: "Door", description: "Knock" }],
  }))
  .onRequest(methods.agent.authenticate, () => {
    loggedIn = true;
    return {};
  })
  .onRequest(methods.agent.logout, () => {
    loggedIn = false;
    return {};
  })
  .onRequest(methods.agent.session.new, ({ params }) => {
    const sessionId = `s${++sessions}`;
    remember(sessionId, params);
    return { sessionId, modes, configOptions: configOptions() };
  })
  .onRequest(methods.agent.session.load, async ({ params, client }) => {
    known(params.sessionId);
    remember(params.sessionId, params);
    await update(client, params.sessionId, {
      sessionUpdate: "user_message_chunk",
      content: { type: "text", text: "earlier" },
    });
    await say(client, params.sessionId, "later");
    return { modes, configOptions: configOptions() };
  })
  .onRequest(methods.agent.session.resume, ({ params }) => {
    known(params.sessionId);
    remember(params.sessionId, params);
    return { modes, configOptions: configOptions() };
  })
  .onRequest(methods.agent.session.list, ({ params }) => {
    const number = Number(params.cursor ?? 0);
    const ids = [...opened.keys()];
    const page = {
      sessions: [
        {
          sessionId: ids[number],
          cwd: opened.get(ids[number]).cwd,
          title: `Session ${number}`,
          updatedAt: "2026-01-02T03:04:05Z",
        },
      ],
    };
    return number + 1 < ids.length ? { ...page, nextCursor: String(number + 1) } : page;
  })
  .onRequest(methods.agent.session.close, ({ params }) => {
    known(params.sessionId);
    return {};
  })
  .onRequest(methods.agent.session.delete, ({ params }) => {
    opened.delete(params.sessionId);
    return {};
  })
  .onRequest(methods.agent.session.setMode, ({ params }) => {
    settings.mode = params.modeId;
    return {};
  })
  .onRequest(methods.agent.session.setConfigOption, ({ params }) => {
    settings[params.configId] = params.value;
    return { configOptions: configOptions() };
  })
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const scene = scenes[params.prompt[0].text];
    return (await scene(client, params.sessionId, params.prompt)) ?? { stopReason: "end_turn" };
  })
  .onNotification(methods.agent.session.cancel, ({ params }) => stops.get(params.sessionId)())
  .onRequest("_test/double", anything, ({ params }) => ({ doubled: params.number * 2 }))
  .onRequest("_test/slow", anything, async ({ signal }) => {
    told.push(["slow", "begun"]);
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    told.push(["slow", "cancelled"]);
    throw RequestError.requestCancelled();
  })
  .onNotification("_test/told", anything, ({ params }) => {
    told.push(["test/told", params]);
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
