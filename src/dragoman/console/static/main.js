import { render } from "preact";
import { signal } from "@preact/signals";
import { Boundary } from "./boundary.js";
import { Fleet, FleetJob } from "./fleet.js";
import { html } from "./html.js";
import { hideNotice, login, loginProblem, notice, online, start } from "./connection.js";
import { Inbox, unseen, waiting } from "./inbox.js";
import { Ledger } from "./ledger.js";
import { Peers } from "./peers.js";
import { Review } from "./review.js";
import { Session } from "./session.js";
import { printed } from "./text.js";
import { Work } from "./work.js";

const route = signal(location.hash);

addEventListener("hashchange", () => {
  // A login link may be opened in a tab that already shows the console.
  if (location.hash.startsWith("#token=")) {
    location.reload();
    return;
  }
  route.value = location.hash;
  hideNotice();
  document.getElementById("main")?.focus();
});

// An address that was typed or truncated may be undecodable.
function decoded(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

function Page() {
  const [, name = "", id = "", further = ""] = route.value.split("/");
  if (name === "session") return html`<${Session} key=${id} id=${decoded(id)} />`;
  if (name === "review") return html`<${Review} key=${id} id=${decoded(id)} />`;
  if (name === "fleet" && further) return html`<${FleetJob} key=${further} team=${decoded(id)} id=${decoded(further)} />`;
  if (name === "fleet") return html`<${Fleet} />`;
  if (name === "peers") return html`<${Peers} />`;
  if (name === "ledger") return html`<${Ledger} />`;
  return name === "work" ? html`<${Work} />` : html`<${Inbox} />`;
}

function Login() {
  return html`<main class="login"><h1>dragoman console</h1>
    ${loginProblem.value && html`<p class="problem" role="alert">${loginProblem.value}</p>`}
    <p>This browser is not logged in. Create a link on the machine where dragoman runs, and open it here:</p>
    <pre>dragoman console link</pre></main>`;
}

function App() {
  if (login.value === "checking") return html`<p class="empty">Loading …</p>`;
  if (login.value === "needed") return html`<${Login} />`;
  const open = waiting().length + unseen().length;
  const at = route.value.split("/")[1] || "inbox";
  const here = at === "fleet" || at === "session" ? "work" : at;
  const link = (name, words) => html`<a href=${name === "inbox" ? "#/" : `#/${name}`} aria-current=${here === name ? "page" : undefined}>${words}</a>`;
  document.title = `${waiting().length ? `(${waiting().length}) ` : ""}dragoman console`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <nav aria-label="Screens"><strong>dragoman</strong>${link("inbox", `Inbox${open ? ` (${open})` : ""}`)}${link("work", "Work")}${link("review", "Review")}${link("peers", "Peers")}${link("ledger", "Ledger")}
      <span class="connection ${online.value ? "on" : "off"}" role="status">${online.value ? "connected" : "connecting …"}</span></nav>
    <main id="main" tabindex="-1"><${Boundary} key=${route.value}><${Page} /><//></main>
    <p class="toast" role="status" aria-live="polite">${printed(notice.value, 1000)}</p>`;
}

render(html`<${App} />`, document.getElementById("app"));
start();
