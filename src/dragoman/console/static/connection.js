// The state of the page. The server sends it over one WebSocket; the browser stores none of it.
import { batch, signal } from "@preact/signals";
import { apply, newView } from "./fold.js";
import { loginKey, storeLoginKey } from "./login_key.js";

export const login = signal("checking"); // checking, needed, done
export const loginProblem = signal("");
export const rights = signal("read");
export const online = signal(false);
export const questions = signal(new Map());
export const work = signal(new Map());
export const notice = signal("");
// Number of changes to the review of each session. "*" counts changes that may affect any review.
export const reviewed = signal({ "*": 0 });
// Incremented when peers or the ledger have changed.
export const peersVersion = signal(0);
export const verifications = signal(new Map());
// The ids of the user's fleets, and a number that is incremented when one of them has changed.
export const fleets = signal([]);
export const fleetProblem = signal(""); // why the user's fleets cannot be read
export const fleetVersion = signal(0);
export const clock = signal(Date.now() / 1000);

// The session on screen. Its view is modified in place; incrementing `drawn` renders it again.
export const followed = signal(null);
export const drawn = signal(0);

const RECONNECT = [250, 500, 1000, 2000, 5000];

const SILENCE = 45000; // milliseconds: three messages of the server are missing
const ME_TIMEOUT = 10000; // milliseconds

let socket = null;
let heardAt = 0;
let attempts = 0;
let frame = 0;

setInterval(() => {
  clock.value = Date.now() / 1000;
  // After a sleep or a lost tunnel, a connection may be dead without an error: nothing would arrive, and
  // the page would still say that it is connected.
  if (socket !== null && Date.now() - heardAt > SILENCE) lost(socket);
}, 1000);

export async function call(path, body, signal) {
  const headers = { "x-dragoman-key": loginKey() };
  const options = body === undefined
    ? { headers }
    : { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`/api/v1/${path}`, { ...options, signal, credentials: "same-origin" }).catch((error) => {
    // The browser's own message, such as "Failed to fetch", does not say what to do.
    throw Object.assign(new Error("The console cannot be reached."), { cause: error });
  });
  const told = response.headers.get("content-type")?.startsWith("application/json")
    ? await response.json()
    : { message: (await response.text()).trim() };
  if (response.status === 401 && path !== "login") login.value = "needed";
  if (!response.ok) throw Object.assign(new Error(told.message || `status ${response.status}`), { status: response.status, word: told.error });
  return told;
}

// Run the action of a button, and show a notice: `done`, the notices in the response, or the error.
export async function act(work_, done = "") {
  try {
    const told = await work_();
    if (told?.notices?.length) tell(told.notices.join("; "), 20000);
    else tell(done, 5000);
    return told;
  } catch (error) {
    tell(error.message, 20000);
    return null;
  }
}

// A notice covers part of the page, so hide it after a while.
let forget = 0;
let toldAt = 0;
function tell(text, milliseconds) {
  clearTimeout(forget);
  toldAt = Date.now();
  notice.value = text;
  if (text) forget = setTimeout(() => { notice.value = ""; }, milliseconds);
}

// Hide the notice when another screen opens, unless it is about the action that opened this screen.
export function hideNotice() {
  if (Date.now() - toldAt > 1000) tell("", 0);
}

export async function start(secret = /^#token=([\w-]+)$/.exec(location.hash)?.[1]) {
  if (secret !== undefined) {
    // The secret must not stay in the browser history.
    history.replaceState(null, "", "/#/");
    try {
      storeLoginKey((await call("login", { token: secret, bind: true })).key);
    } catch (error) {
      // Without a response, the link is probably still unused.
      if (error.status === undefined) {
        setTimeout(start, 1000, secret);
        return;
      }
      loginProblem.value = error.message;
    }
  }
  try {
    rights.value = (await call("me")).rights;
    login.value = "done";
    connect();
  } catch (error) {
    if (error.status !== 401) setTimeout(start, 1000);
  }
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(`${scheme}//${location.host}/api/v1/events`, ["dragoman.v1", `dragoman.key.${loginKey()}`]);
  socket.onopen = () => {
    attempts = 0;
    const now = followed.value;
    if (now !== null) sendFollow(now);
  };
  heardAt = Date.now();
  socket.onmessage = (message) => {
    heardAt = Date.now();
    take(JSON.parse(message.data));
  };
  const own = socket;
  socket.onclose = () => lost(own);
}

function lost(which) {
  which.onopen = which.onmessage = which.onclose = null;
  which.close();
  if (socket !== which) return;
  online.value = false;
  socket = null;
  later();
}

function later() {
  const delay = RECONNECT[Math.min(attempts, RECONNECT.length - 1)];
  attempts += 1;
  setTimeout(again, delay);
}

// Check the token before reconnecting: a revoked one must lead to the login page, not to a loop.
async function again() {
  try {
    rights.value = (await call("me", undefined, AbortSignal.timeout(ME_TIMEOUT))).rights;
    connect();
  } catch (error) {
    if (error.status !== 401) later();
  }
}

function changed(map, change) {
  const copy = new Map(map.value);
  change(copy);
  map.value = copy;
}

// Each working session changes several times a second, with one message per change, and an agent may ask
// thousands of questions. Collect the changes of a map and render once; not in an animation frame, because
// a page in the background gets none.
function collected(map, interval) {
  const changes = new Map();
  const put = (id, item) => {
    if (!changes.size) setTimeout(applyAll, interval);
    changes.set(id, item);
  };
  const applyAll = () => {
    if (!changes.size) return;
    changed(map, (copy) => {
      for (const [id, item] of changes) {
        if (item === null) copy.delete(id);
        else copy.set(id, item);
      }
    });
    changes.clear();
  };
  return [put, () => changes.clear()];
}

const [workChanged, forgetWorkChanges] = collected(work, 100); // milliseconds
const [questionChanged, forgetQuestionChanges] = collected(questions, 30);

const TAKE = {
  snapshot(message) {
    batch(() => {
      rights.value = message.rights;
      questions.value = new Map(message.questions.map((each) => [each.id, each]));
      forgetWorkChanges();
      forgetQuestionChanges();
      work.value = new Map(message.work.map((each) => [each.id, each]));
      online.value = true;
      // Changes made while disconnected were not received.
      reviewed.value = { ...reviewed.value, "*": reviewed.value["*"] + 1 };
      peersVersion.value += 1;
      fleets.value = message.fleets;
      fleetProblem.value = message.fleetProblem;
      fleetVersion.value += 1;
      verifications.value = new Map(message.verifications.map((each) => [each.peer, each]));
    });
  },
  question(message) {
    questionChanged(message.question.id, message.question);
  },
  settled(message) {
    questionChanged(message.id, null);
  },
  work(message) {
    workChanged(message.item.id, message.item);
  },
  gone(message) {
    workChanged(message.id, null);
  },
  events(message) {
    const now = followed.value;
    // Events of an earlier `follow` of the same session may still arrive.
    if (now === null || now.feed !== message.feed) return;
    for (const event of message.events) {
      if (event.mark !== undefined) {
        if (now.marks.has(event.mark)) continue;
        now.marks.add(event.mark);
      }
      if (event.cursor !== undefined) now.cursor = event.cursor;
      try {
        apply(now.view, event);
      } catch (error) {
        // An unexpected event must not prevent the others.
        apply(now.view, { type: "Noticed", severity: "error", title: `an event cannot be shown: ${error.message}` });
      }
      now.count += 1;
    }
    if (message.caughtUp) now.caughtUp = true;
    redraw();
  },
  fleet(message) {
    batch(() => {
      fleets.value = message.fleets;
      fleetProblem.value = message.problem;
      fleetVersion.value += 1;
    });
  },
  peers() {
    peersVersion.value += 1;
  },
  verification(message) {
    changed(verifications, (map) => map.set(message.verification.peer, message.verification));
  },
  review(message) {
    const key = message.session ?? "*";
    reviewed.value = { ...reviewed.value, [key]: (reviewed.value[key] ?? 0) + 1 };
  },
  error(message) {
    tell(message.message, 20000);
  },
};

function take(message) {
  if (Object.hasOwn(TAKE, message.type)) TAKE[message.type](message);
}

// Render once per frame, however many events arrive.
function redraw() {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawn.value += 1;
  });
}

function sendFollow(now) {
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ type: "follow", session: now.key, after: now.cursor, feed: now.feed }));
  }
}

// Follow a session. The returned function stops it. It may be called when the next session is already
// followed, and must not stop that one: the effects of a new screen can run before those of the old
// one are cleaned up.
let feeds = 0;
export function follow(key) {
  unfollow(followed.value);
  feeds += 1;
  const now = { key, feed: feeds, view: newView(), marks: new Set(), cursor: null, caughtUp: false, count: 0 };
  followed.value = now;
  sendFollow(now);
  return () => unfollow(now);
}

function unfollow(now) {
  if (now === null || followed.value !== now) return;
  followed.value = null;
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ type: "unfollow", session: now.key }));
  }
}
