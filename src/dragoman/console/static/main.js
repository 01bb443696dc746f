import { render } from "preact";
import { signal } from "@preact/signals";
import { html } from "./html.js";
import { login, loginProblem, notice, online, start } from "./connection.js";
import { Inbox, unseen, waiting } from "./inbox.js";
import { Session } from "./session.js";
import { Work } from "./work.js";

const route = signal(location.hash);

addEventListener("hashchange", () => {
  // A link that logs in may be opened in a page that is open already.
  if (location.hash.startsWith("#token=")) {
    location.reload();
    return;
  }
  route.value = location.hash;
  notice.value = "";
  document.getElementById("main")?.focus();
});

function Page() {
  const [, name = "", id = ""] = route.value.split("/");
  if (name === "session") return html`<${Session} key=${id} id=${decodeURIComponent(id)} />`;
  return name === "work" ? html`<${Work} />` : html`<${Inbox} />`;
}

function Login() {
  return html`<main class="login"><h1>dragoman console</h1>
    ${loginProblem.value && html`<p class="problem" role="alert">${loginProblem.value}</p>`}
    <p>This browser is not logged in. Make a link on the machine where dragoman runs, and open it here:</p>
    <pre>dragoman console link</pre></main>`;
}

function App() {
  if (login.value === "checking") return html`<p class="empty">Loading …</p>`;
  if (login.value === "needed") return html`<${Login} />`;
  const open = waiting().length + unseen().length;
  const here = route.value.split("/")[1] || "inbox";
  const link = (name, words) => html`<a href=${name === "inbox" ? "#/" : `#/${name}`} aria-current=${here === name ? "page" : undefined}>${words}</a>`;
  document.title = `${waiting().length ? `(${waiting().length}) ` : ""}dragoman console`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <nav aria-label="Screens"><strong>dragoman</strong>${link("inbox", `Inbox${open ? ` (${open})` : ""}`)}${link("work", "Work")}
      <span class="connection ${online.value ? "on" : "off"}" role="status">${online.value ? "connected" : "connecting …"}</span></nav>
    <main id="main" tabindex="-1"><${Page} /></main>
    <p class="toast" role="status" aria-live="polite">${notice.value}</p>`;
}

render(html`<${App} />`, document.getElementById("app"));
start();
