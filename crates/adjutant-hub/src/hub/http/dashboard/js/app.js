// The frame: navigation, the state of the connection, the page, notices.
import { announced, dismiss, later, notices, undo } from "./actions.js";
import { Help, Merge, merging } from "./dialogs.js";
import { helpOpen, listen } from "./keys.js";
import { effect, html, render, signal, useEffect } from "./lib.js";
import { Board } from "./pages/board.js";
import { Chats } from "./pages/chats.js";
import { Inbox } from "./pages/inbox.js";
import { Agents, Pools } from "./pages/pools.js";
import { RunPage } from "./pages/run.js";
import { Timeline } from "./pages/timeline.js";
import { Tree } from "./pages/tree.js";
import { Button, Guard } from "./parts.js";
import { endWithPage, signIn, signedOut } from "./session.js";
import { attention, connection, follow, isLoaded, needsCount, now } from "./state.js";
import { NotFound } from "./not-found.js";
import { clean, duration } from "./text.js";

const PAGES = { board: ["Board", Board], inbox: ["Inbox", Inbox], chats: ["Chats", Chats], timeline: ["Timeline", Timeline], tree: ["Tree", Tree], pools: ["Pools", Pools], agents: ["Agents", Agents] };
const route = signal(location.hash);

/** The parts of an address; null if it is not one. @param {string} hash */
function parts(hash) {
    try {
        return hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    } catch {
        return null;
    }
}

function Frame() {
    const [word = "", ...rest] = parts(route.value) ?? ["malformed"];
    const name = word || "board";
    const page = Object.hasOwn(PAGES, name) ? PAGES[/** @type {keyof typeof PAGES} */ (name)] : undefined;
    const isRun = name === "run" && Boolean(rest[0]);
    const title = isRun ? "Run" : (page?.[0] ?? "Page not found");
    // The parts of a run are one page: what is selected or written there stays.
    const key = isRun ? pageOf(route.value) : route.value;
    useEffect(() => {
        document.title = `${needsCount.value ? `(${needsCount.value}) ` : ""}${title} – Adjutant`;
    }, [title, needsCount.value]);
    return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => {
            event.preventDefault();
            document.querySelector("main")?.focus();
        }}>Skip to the content</a>
        <header class="top">
            <strong class="brand">Adjutant</strong>
            <nav aria-label="Pages">
                ${Object.entries(PAGES).map(
                    ([word, [label]]) => html`<a href=${`#/${word}`} aria-current=${word === name ? "page" : undefined}>
                        ${label}${word === "inbox" && needsCount.value > 0 && html` <span class="badge" aria-label=${`${needsCount.value} need you`}>${needsCount.value}</span>`}
                    </a>`,
                )}
            </nav>
            <${Connection} />
            <button type="button" class="quiet" aria-keyshortcuts="?" onClick=${() => (helpOpen.value = true)}>Keys <kbd aria-hidden="true">?</kbd></button>
        </header>
        ${connection.value === "reconnecting" && !signedOut.value && html`<p class="banner" role="alert">The hub does not answer. Reconnecting … What you see is the last known state; runs continue. Any <code>adj</code> command starts the hub.</p>`}
        ${signedOut.value !== null && html`<p class="banner" role="alert">No access: ${signedOut.value}. <code>adj ui</code> opens the dashboard signed in.</p>`}
        <main id="main" tabindex="-1" aria-label=${title}>
            ${isLoaded.value ? html`<${Guard} key=${key}>${isRun ? html`<${RunPage} id=${rest[0]} tab=${rest[1] || "log"} />` : page ? html`<${page[1]} args=${rest} />` : html`<${NotFound} title="Page not found" what=${`There is no page at ${route.value}`} />`}<//>` : html`<p class="first">${signedOut.value === null ? "Connecting to the hub …" : html`Run <code>adj ui</code> in a terminal of this machine. From another machine: <code>ssh -L ${location.port || 7317}:127.0.0.1:${location.port || 7317} HOST adj ui</code>`}</p>`}
        </main>
        <${Notices} />
        <p class="unseen" aria-live="polite">${announced.value}</p>
        ${helpOpen.value && html`<${Help} />`}
        ${merging.value && html`<${Merge} run=${merging.value} />`}`;
}

function Connection() {
    const word = signedOut.value !== null ? "signed out" : connection.value;
    return html`<span class=${`connection ${word.replace(" ", "-")}`} role="status"><span aria-hidden="true">${word === "live" ? "●" : "○"}</span> ${word}</span>`;
}

function Notices() {
    return html`<div class="notices" role="region" aria-label="Notices">
        ${later.value.map((entry) => html`<p class="notice later" key=${entry.id}>
            <span>${clean(entry.label)} in ${duration(entry.due - now.value)}</span>
            <span class="line"><button type="button" aria-keyshortcuts="z" onClick=${() => undo(entry.id)}>Undo <kbd aria-hidden="true">z</kbd></button><${Button} label="Send now" onClick=${() => entry.send(false)} /></span>
        </p>`)}
        ${notices.value.map((notice) => html`<p class=${`notice ${notice.tone}`} key=${notice.id}><span>${clean(notice.text)}</span> <button type="button" class="quiet" aria-label="Dismiss" onClick=${() => dismiss(notice.id)}>✕</button></p>`)}
    </div>`;
}

// New requests are announced once, not more often than the list changes.
let known = /** @type {Set<string> | null} */ (null);
effect(() => {
    const { requests } = attention.value;
    if (!isLoaded.value) return;
    const fresh = known && requests.filter((request) => !known?.has(request.message_id));
    known = new Set(requests.map((request) => request.message_id));
    if (fresh?.length === 1) announced.value = `${fresh[0].run_name}: ${fresh[0].number}: ${fresh[0].question}`;
    else if (fresh?.length) announced.value = `${fresh.length} new requests`;
});

/** The page of an address. The parts of a run are one page. @param {string} hash */
function pageOf(hash) {
    return hash.split("/").slice(0, hash.startsWith("#/run/") ? 3 : 2).join("/");
}

/** Shows a page from its top. @param {string} hash */
function show(hash) {
    if (pageOf(hash) !== pageOf(route.peek())) scrollTo(0, 0);
    route.value = hash;
}

async function start() {
    if (await signIn()) await follow();
}

addEventListener("hashchange", () => {
    if (location.hash.startsWith("#code=")) void start();
    else show(location.hash);
});
if (!location.hash.startsWith("#code=")) route.value = location.hash;
else route.value = "";
listen();
endWithPage();
render(html`<${Frame} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
void start();
