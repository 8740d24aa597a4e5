// Chats: the list, and one of them.
import { send } from "../actions.js";
import { call } from "../api.js";
import { sent as removeSent, text as draftText } from "../drafts.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Age, Failure, useRead } from "../parts.js";
import { connection, generation, whenLive } from "../state.js";
import { Said, clean, clock, count } from "../text.js";

/** How long one read waits for new entries, in milliseconds. */
const WAIT_MS = 20_000;
const ENTRIES_MAX = 500;

/** @param {{args: string[]}} props */
export function Chats({ args }) {
    const open = Number(args?.[0]) || null;
    const { data, error } = useRead(() => call("chats", { limit: 200 }), [generation.value, open]);
    const chats = data?.chats ?? [];
    return html`<div class="bar"><h1>Chats</h1><p class="totals">${count(chats.length, "chat", "chats")}</p></div>
        <${Failure} error=${error} />
        <div class="split">
            <section aria-label="All chats"><ul class="list">
                ${chats.map((chat) => html`<li key=${chat.chat_id}><a class=${`card small chat ${chat.chat_id === open ? "current" : ""}`} data-item="" data-open="" href=${`#/chats/${chat.chat_id}`} aria-current=${chat.chat_id === open ? "true" : undefined}>
                    <span class="row"><strong>${clean(chat.title || `chat ${chat.chat_id}`)}</strong><span class="grow"></span>${chat.unread > 0 && html`<span class="badge">${chat.unread} unread</span>`}<${Age} at=${chat.last_at} class="age" /></span>
                    <span class="row dim">${chat.kind} · ${count(chat.participant_count, "participant", "participants")} · ${count(chat.last_seq, "entry", "entries")}</span>
                </a></li>`)}
                ${data && chats.length === 0 && html`<li class="empty">No chats. Runs start them, or: adj chat start TITLE</li>`}
            </ul></section>
            ${open ? html`<${Chat} key=${open} id=${open} />` : html`<p class="empty">Choose a chat.</p>`}
        </div>`;
}

/** @param {{id: number}} props */
function Chat({ id }) {
    const [state, setState] = useState(/** @type {{chat: import("../contract.js").Reply<"chat">["chat"] | null, entries: import("../contract.js").Entry[], error: any}} */ ({ chat: null, entries: [], error: null }));
    const field = draftText(`chat ${id}`);
    const text = field.value;
    const end = useRef(/** @type {HTMLElement | null} */ (null));
    useEffect(() => {
        const stop = new AbortController();
        const read = async () => {
            /** @type {number | undefined} */
            let after;
            /** @type {import("../contract.js").Entry[]} */
            let entries = [];
            while (!stop.signal.aborted) {
                try {
                    const page = await call("chat", { chat_id: id, after, limit: 200, wait_ms: after === undefined ? 0 : WAIT_MS }, { signal: stop.signal });
                    const changed = new Map((page.changed ?? []).map((entry) => [entry.seq, entry]));
                    entries = [...entries.map((entry) => changed.get(entry.seq) ?? entry), ...page.messages].slice(-ENTRIES_MAX);
                    after = page.cursor;
                    setState({ chat: page.chat, entries, error: null });
                } catch (error) {
                    if (stop.signal.aborted) return;
                    if (/** @type {any} */ (error).status !== 0) return setState((before) => ({ ...before, error }));
                    await new Promise((again) => setTimeout(again, 500));
                    await whenLive();
                }
            }
        };
        void read();
        return () => stop.abort();
    }, [id]);
    useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [state.entries.length]);
    const { chat, entries } = state;
    return html`<section aria-label="Chat" class="chat-page">
        <${Failure} error=${state.error} />
        ${chat && html`<h2>${clean(chat.title || `chat ${id}`)}</h2><p class="dim">${(chat.participants ?? []).map((who) => clean(who.name)).join(", ")}</p>`}
        ${chat && entries.length === 0 && html`<p class="empty">No entries yet.</p>`}
        <div class="talk-box" role="log" aria-label="Entries" tabindex="0"><ol class="talk">${entries.map((entry) => html`<li class=${`said-by ${entry.kind}`} key=${entry.seq}><span class="dim"><strong>${clean(entry.name)}</strong> · ${clock(entry.at)}${entry.key && ` · ${clean(entry.key)}`}${entry.pinned && " · pinned"}${entry.revision > 0 && " · edited"}</span><p><${Said} text=${entry.text} /></p></li>`)}</ol><span ref=${end}></span></div>
        <form class="line" onSubmit=${async (/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            if (!text.trim()) return;
            const sent = await send({ name: "say", body: { chat_id: id, message: text }, about: `chat-${id}`, done: (reply) => (reply.answering.length ? `Posted; ${reply.answering.join(", ")} will answer` : "Posted") });
            if (sent) removeSent(`chat ${id}`, text);
        }}><input data-key="r" aria-label="Message" placeholder=${connection.value === "live" ? "Message (r); @name mentions" : "The hub does not answer"} value=${text} onInput=${(/** @type {any} */ event) => (field.value = event.target.value)} autocomplete="off" /><button type="submit" disabled=${!text.trim()}>Post</button></form>
    </section>`;
}
