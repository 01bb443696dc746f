// The state of the page: it comes from the server by one WebSocket, and nothing of it is kept here
// when the page is closed.
import { batch, signal } from "@preact/signals";
import { apply, newView } from "./fold.js";

export const login = signal("checking"); // checking, needed, done
export const loginProblem = signal("");
export const rights = signal("read");
export const online = signal(false);
export const questions = signal(new Map());
export const work = signal(new Map());
export const notice = signal("");
export const clock = signal(Date.now() / 1000);

// The session that is shown: its view is changed in place, and `drawn` says that it was.
export const followed = signal(null);
export const drawn = signal(0);

const RECONNECT = [250, 500, 1000, 2000, 5000];

let socket = null;
let attempts = 0;
let frame = 0;

setInterval(() => { clock.value = Date.now() / 1000; }, 1000);

export async function call(path, body) {
  const options = body === undefined
    ? {}
    : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`/api/v1/${path}`, { ...options, credentials: "same-origin" });
  const told = response.headers.get("content-type")?.startsWith("application/json")
    ? await response.json()
    : { message: (await response.text()).trim() };
  if (response.status === 401 && path !== "login") login.value = "needed";
  if (!response.ok) throw Object.assign(new Error(told.message || `status ${response.status}`), { status: response.status, word: told.error });
  return told;
}

// Does what a button says, and shows why it could not be done.
export async function act(work_, done = "") {
  try {
    const told = await work_();
    notice.value = done;
    return told;
  } catch (error) {
    notice.value = error.message;
    return null;
  }
}

export async function start() {
  const secret = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (secret !== undefined) {
    // It must not stay in the history of the browser.
    history.replaceState(null, "", "/#/");
    try {
      await call("login", { token: secret });
    } catch (error) {
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
  socket = new WebSocket(`${scheme}//${location.host}/api/v1/events`);
  socket.onopen = () => {
    attempts = 0;
    const now = followed.value;
    if (now !== null) sendFollow(now);
  };
  socket.onmessage = (message) => take(JSON.parse(message.data));
  socket.onclose = () => {
    online.value = false;
    socket = null;
    const delay = RECONNECT[Math.min(attempts, RECONNECT.length - 1)];
    attempts += 1;
    setTimeout(again, delay);
  };
}

// A token that was revoked must end at the login, and not in a loop.
async function again() {
  try {
    rights.value = (await call("me")).rights;
    connect();
  } catch (error) {
    if (error.status === 401) return;
    const delay = RECONNECT[Math.min(attempts, RECONNECT.length - 1)];
    attempts += 1;
    setTimeout(again, delay);
  }
}

function changed(map, change) {
  const copy = new Map(map.value);
  change(copy);
  map.value = copy;
}

const TAKE = {
  snapshot(message) {
    batch(() => {
      rights.value = message.rights;
      questions.value = new Map(message.questions.map((each) => [each.id, each]));
      work.value = new Map(message.work.map((each) => [each.id, each]));
      online.value = true;
    });
  },
  question(message) {
    changed(questions, (map) => map.set(message.question.id, message.question));
  },
  settled(message) {
    changed(questions, (map) => map.delete(message.id));
  },
  work(message) {
    changed(work, (map) => map.set(message.item.id, message.item));
  },
  gone(message) {
    changed(work, (map) => map.delete(message.id));
  },
  events(message) {
    const now = followed.value;
    if (now === null || now.key !== message.session) return;
    for (const event of message.events) {
      if (event.mark !== undefined) {
        if (now.marks.has(event.mark)) continue;
        now.marks.add(event.mark);
      }
      if (event.cursor !== undefined) now.cursor = event.cursor;
      apply(now.view, event);
      now.count += 1;
    }
    if (message.caughtUp) now.caughtUp = true;
    redraw();
  },
  error(message) {
    notice.value = message.message;
  },
};

function take(message) {
  TAKE[message.type]?.(message);
}

// Many events make one picture.
function redraw() {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawn.value += 1;
  });
}

function sendFollow(now) {
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ type: "follow", session: now.key, after: now.cursor }));
  }
}

export function follow(key) {
  if (followed.value?.key === key) return;
  unfollow();
  followed.value = { key, view: newView(), marks: new Set(), cursor: null, caughtUp: false, count: 0 };
  sendFollow(followed.value);
}

export function unfollow() {
  const now = followed.value;
  if (now === null) return;
  followed.value = null;
  if (socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ type: "unfollow", session: now.key }));
  }
}
