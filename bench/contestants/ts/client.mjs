// The client of bench/works.py, written with the official TypeScript SDK as its examples are: the
// same works, timed in the same way, with the figures as one line of JSON on standard output.
//
//   node --expose-gc client.mjs SDK WORK SIZE COMMAND...      COMMAND starts the agent

import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdkPath, work, sizeText, command, ...args] = process.argv.slice(2);
const size = Number(sizeText);
const acp = await import(pathToFileURL(sdkPath));
const { methods } = acp;

const WARM_UP = 200;
const ROUNDS = 3;
const IN_FLIGHT = 64;
const SESSION_UPDATES = 100;

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const readers = new Map();

// Checks that each update is the next one expected.
function expect(sessionId, count) {
  const { promise, resolve, reject } = Promise.withResolvers();
  readers.set(sessionId, { seen: 0, count, resolve, reject });
  return promise;
}

const app = acp
  .client({ name: "bench" })
  .onNotification(methods.client.session.update, ({ params }) => {
    const reader = readers.get(params.sessionId);
    if (params.update.content.text !== `part ${reader.seen} of the answer `) {
      reader.reject(new Error(`update ${reader.seen} is not the one expected`));
    } else if (++reader.seen === reader.count) reader.resolve();
  })
  .onRequest(methods.client.session.requestPermission, () => ({
    outcome: { outcome: "selected", optionId: "allow" },
  }));

// CPU seconds of a living process, all threads.
const processCpu = (pid) =>
  readdirSync(`/proc/${pid}/task`)
    .map((thread) => Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "utf8").split(" ")[0]))
    .reduce((sum, nanoseconds) => sum + nanoseconds, 0) / 1e9;

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

async function rounds(setMode, once) {
  const walls = [];
  const cpus = [];
  const below = [];
  for (let round = 0; round < ROUNDS; round++) {
    await setMode("collect");
    globalThis.gc();
    const agent = processCpu(child.pid);
    const own = processCpu(process.pid);
    const at = performance.now();
    await once();
    walls.push((performance.now() - at) / 1e3);
    const spentBelow = processCpu(child.pid) - agent;
    cpus.push(processCpu(process.pid) - own + spentBelow);
    below.push(spentBelow);
  }
  return { wall: median(walls), cpu: median(cpus), agent_cpu: median(below) };
}

const works = {
  async stream({ setMode, turn }) {
    await turn(`stream ${WARM_UP}`, WARM_UP);
    return await rounds(setMode, () => turn(`stream ${size}`, size));
  },

  async sequential({ setMode }) {
    for (let number = 0; number < WARM_UP; number++) await setMode("code");
    const latencies = [];
    const figures = await rounds(setMode, async () => {
      let before = performance.now();
      for (let number = 0; number < size; number++) {
        await setMode("code");
        const after = performance.now();
        latencies.push((after - before) / 1e3);
        before = after;
      }
    });
    return { ...figures, p50: median(latencies) };
  },

  async in_flight({ setMode }) {
    const allOf = async (requests) => {
      let left = requests;
      const oneAfterAnother = async () => {
        while (left-- > 0) await setMode("code");
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, oneAfterAnother));
    };
    await allOf(WARM_UP);
    return await rounds(setMode, () => allOf(size));
  },

  async asks({ setMode, prompt }) {
    await prompt(`ask ${WARM_UP}`);
    return await rounds(setMode, () => prompt(`ask ${size}`));
  },

  async sessions({ setMode, open, turnOf }) {
    const opened = [];
    for (let number = 0; number < size; number++) opened.push(await open());
    const allOf = (updates) =>
      Promise.all(opened.map((id) => turnOf(id, `together ${size} ${updates}`, updates)));
    await allOf(1);
    return await rounds(setMode, () => allOf(SESSION_UPDATES));
  },
};

const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
await app.connectWith(stream, async (agent) => {
  await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  const open = async () =>
    (await agent.request(methods.agent.session.new, { cwd: "/workspace", mcpServers: [] })).sessionId;
  const promptOf = (sessionId, text) =>
    agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  const turnOf = async (sessionId, text, count) => {
    const finished = expect(sessionId, count);
    await promptOf(sessionId, text);
    await finished;
  };
  const sessionId = await open();
  const figures = await works[work]({
    open,
    turnOf,
    prompt: (text) => promptOf(sessionId, text),
    turn: (text, count) => turnOf(sessionId, text, count),
    setMode: (modeId) => agent.request(methods.agent.session.setMode, { sessionId, modeId }),
  });
  process.stdout.write(`${JSON.stringify(figures)}\n`);
});
child.stdin.end();
await new Promise((resolve) => child.once("exit", resolve));
process.exit(0);
