// An editor written with the official TypeScript SDK: what `dragoman serve acp` is driven by. It
// plays its acts with a peer behind the door and writes down how each went, as one JSON object on
// standard output: "ok", or what went wrong.
//
//   node editor.mjs SDK FOLDER PEER ROLE COMMAND...      COMMAND starts the agent

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdkPath, folder, peer, role, command, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(sdkPath));
const { methods } = acp;

let updates = [];
let onUpdate = () => {};
const asked = [];
let answer = "allow_once";

const app = acp
  .client({ name: "typescript-editor" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params);
    onUpdate(params);
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    asked.push(params);
    const { optionId } = params.options.find((option) => option.kind === answer);
    return { outcome: { outcome: "selected", optionId } };
  });

const said = (sessionId) =>
  updates
    .filter((one) => one.sessionId === sessionId)
    .filter(({ update }) => update.sessionUpdate === "agent_message_chunk")
    .map(({ update }) => update.content.text)
    .join("");

const values = ({ configOptions }) =>
  Object.fromEntries(configOptions.map((option) => [option.id, option.currentValue]));

async function ask(agent, sessionId, text) {
  updates = [];
  const prompt = [{ type: "text", text }];
  const response = await agent.request(methods.agent.session.prompt, { sessionId, prompt });
  return { ...response, text: said(sessionId) };
}

const set = async (agent, sessionId, configId, value) =>
  values(
    await agent.request(methods.agent.session.setConfigOption, { sessionId, configId, value }),
  );

const open = async (agent) =>
  (await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] })).sessionId;

let session;

const acts = {
  async handshake(agent) {
    const hello = await agent.request(methods.agent.initialize, {
      protocolVersion: 1,
      clientCapabilities: {},
    });
    assert.equal(hello.agentInfo.name, "dragoman");
    assert.equal(hello.agentCapabilities.loadSession, true);
  },

  async "choosing a peer shows its options"(agent) {
    session = await open(agent);
    const chosen = await set(agent, session, "peer", peer);
    assert.equal(chosen.peer, peer);
    assert(Object.keys(chosen).length > 2, JSON.stringify(chosen));
  },

  async "a prompt is answered in pieces"(agent) {
    const { stopReason, text } = await ask(agent, session, "CHUNKS:12 please");
    assert.equal(stopReason, "end_turn");
    assert.equal(text.trim().split(/\s+/).length, 12);
    assert(updates.length > 2);
  },

  async "permission is the editor's to give"(agent) {
    const allowed = join(folder, "allowed.txt");
    await ask(agent, session, `WRITE:${allowed}:content`);
    assert.equal(readFileSync(allowed, "utf8"), "content");
    answer = "reject_once";
    const refused = join(folder, "refused.txt");
    await ask(agent, session, `WRITE:${refused}:content`);
    assert(!existsSync(refused));
    assert.equal(asked.length, 2);
    assert(asked.every(({ sessionId }) => sessionId === session));
  },

  async "a cancel reaches the peer while another session works"(agent) {
    const other = await open(agent);
    await set(agent, other, "peer", "scout");
    updates = [];
    const speaks = new Promise((resolve) => {
      onUpdate = ({ update }) => {
        if (update.sessionUpdate === "agent_message_chunk") resolve();
      };
    });
    // A session of its own: whoever takes over is told its prompts, and would be slow, too.
    const stopped = await open(agent);
    await set(agent, stopped, "peer", peer);
    const slow = agent.request(methods.agent.session.prompt, {
      sessionId: stopped,
      prompt: [{ type: "text", text: "SLOW" }],
    });
    await speaks;
    await agent.request(methods.agent.session.prompt, {
      sessionId: other,
      prompt: [{ type: "text", text: "where is amberwood defined?" }],
    });
    assert.match(said(other), /amberwood/);
    await agent.notify(methods.agent.session.cancel, { sessionId: stopped });
    assert.equal((await slow).stopReason, "cancelled");
    assert.match((await ask(agent, session, "and now")).text, /and now/);
  },

  async "a peer that takes over has a brief"(agent) {
    const fresh = await open(agent);
    await set(agent, fresh, "peer", "scout");
    await ask(agent, fresh, "where is amberwood defined?");
    await set(agent, fresh, "peer", peer);
    const { text } = await ask(agent, fresh, "go on");
    assert.match(text, new RegExp(`^${peer} takes over with a brief: 1 message`));
  },

  async "the router delegates to a real peer"(agent) {
    const { stopReason, text } = await ask(agent, session, `/delegate ${role} CHUNKS:3`);
    assert.equal(stopReason, "end_turn");
    assert.notEqual(text.trim(), "");
    const calls = updates.map(({ update }) => update).filter(({ toolCallId }) => toolCallId);
    assert.equal(calls[0].title, `Delegate ${role}`);
    assert.equal(calls.at(-1).status, "completed");
    assert.equal(calls.at(-1).rawOutput.answered, peer);
    assert.match(calls.at(-1).content[0].content.text, /it claims/);
  },

  async "sessions are listed and loaded"(agent) {
    const { sessions } = await agent.request(methods.agent.session.list, { cwd: folder });
    assert(sessions.some(({ sessionId }) => sessionId === session));
    updates = [];
    const loaded = await agent.request(methods.agent.session.load, {
      sessionId: session,
      cwd: folder,
      mcpServers: [],
    });
    assert.equal(values(loaded).peer, peer);
    const prompts = updates
      .filter(({ update }) => update.sessionUpdate === "user_message_chunk")
      .map(({ update }) => update.content.text);
    assert.equal(prompts[0], "CHUNKS:12 please");
    assert.equal(prompts.at(-1), "CHUNKS:3");
  },
};

const child = spawn(command, args, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const verdicts = {};
await app.connectWith(stream, async (agent) => {
  for (const [name, act] of Object.entries(acts)) {
    try {
      await act(agent);
      verdicts[name] = "ok";
    } catch (error) {
      verdicts[name] = `${error?.stack ?? error} ${JSON.stringify(error?.data ?? null)}`;
    }
  }
});
const ended = new Promise((resolve) => child.on("exit", resolve));
child.stdin.end();
verdicts.end = (await ended) === 0 ? "ok" : "the agent did not end as it should";
console.log(JSON.stringify(verdicts));
process.exit(0);
