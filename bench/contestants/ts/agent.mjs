// The agent of bench/script.py, written with the official TypeScript SDK as its examples are.
//
//   node --expose-gc agent.mjs SDK

import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const acp = await import(pathToFileURL(process.argv[2]));
const { methods } = acp;

let sessions = 0;
let together = [];
let allSent = Promise.withResolvers();

const update = (client, sessionId, text) =>
  client.notify(methods.client.session.update, {
    sessionId,
    update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
  });

const ask = (client, sessionId) =>
  client.request(methods.client.session.requestPermission, {
    sessionId,
    toolCall: { toolCallId: "call-1", title: "Edit src/main.py" },
    options: [
      { optionId: "allow", name: "Allow", kind: "allow_once" },
      { optionId: "allow-always", name: "Always allow", kind: "allow_always" },
      { optionId: "reject", name: "Reject", kind: "reject_once" },
    ],
  });

async function turnTogether(client, sessionId, count, updates) {
  together.push(sessionId);
  if (together.length < count) return await allSent.promise;
  for (let number = 0; number < updates; number++) {
    for (const member of together) await update(client, member, `part ${number} of the answer `);
  }
  together = [];
  allSent.resolve();
  allSent = Promise.withResolvers();
}

acp
  .agent({ name: "bench" })
  .onRequest(methods.agent.initialize, ({ params }) => ({
    protocolVersion: params.protocolVersion,
    agentCapabilities: {},
  }))
  .onRequest(methods.agent.session.new, () => ({
    sessionId: `0193e7c2-3b1f-7a10-8000-${String(++sessions).padStart(12, "0")}`,
  }))
  .onRequest(methods.agent.session.setMode, ({ params }) => {
    if (params.modeId === "collect") globalThis.gc();
    return {};
  })
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const { sessionId } = params;
    const { text } = params.prompt[0];
    const [word, ...numbers] = text.slice(0, 40).split(" ");
    if (word === "stream") {
      for (let number = 0; number < +numbers[0]; number++) {
        await update(client, sessionId, `part ${number} of the answer `);
      }
    } else if (word === "ask") {
      for (let number = 0; number < +numbers[0]; number++) await ask(client, sessionId);
    } else if (word === "together") {
      await turnTogether(client, sessionId, +numbers[0], +numbers[1]);
    } else {
      await update(client, sessionId, text);
    }
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
