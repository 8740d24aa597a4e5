// An address without a page, with a way back.
import { html } from "./lib.js";
import { clean } from "./text.js";

/** @param {{title: string, what: string, run?: string, name?: string}} props */
export function NotFound({ title, what, run, name }) {
    return html`<section class="not-found" aria-labelledby="not-found">
        <h1 id="not-found">${title}</h1>
        <p>${clean(what)}</p>
        <p class="line">${run && html`<a href=${`#/run/${run}`}>${clean(name ?? run)}</a>`}<a href="#/board">Board</a><a href="#/inbox">Inbox</a></p>
        <p class="dim">All runs: <code>adj ps --all</code></p>
    </section>`;
}
