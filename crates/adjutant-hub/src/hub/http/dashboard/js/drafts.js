// What somebody has typed and not sent. It outlives its field: a changed page, a failed call, and the end of what it was about.
import { call } from "./api.js";
import { signal } from "./lib.js";

/** Most drafts; empty ones make room. */
const DRAFTS_MAX = 1000;

/** @typedef {import("./contract.js").Request} Request */
/**
 * What is written about a request: an answer, the reason of a denial, or the changes of a delegation.
 * @typedef {{answer: string, mode: "" | "deny" | "change", reason: string, changes: {prompt: string, agent: string, cwd: string, priority: string} | null}} Draft
 */

/** @type {Map<string, import("../vendor/signals.mjs").Signal<string>>} */
const texts = new Map();
/** @type {Map<string, import("../vendor/signals.mjs").Signal<Draft>>} */
const answers = new Map();

/** @template T @param {Map<string, import("../vendor/signals.mjs").Signal<T>>} all @param {string} key @param {T} empty @param {(value: T) => boolean} isEmpty */
function of(all, key, empty, isEmpty) {
    let found = all.get(key);
    if (!found) {
        if (all.size >= DRAFTS_MAX) for (const [other, { value }] of all) if (isEmpty(value)) all.delete(other);
        found = signal(empty);
        all.set(key, found);
    }
    return found;
}

/** The text of a field, by what it is for. @param {string} key */
export function text(key) {
    return of(texts, key, "", (value) => !value);
}

/** Removes what was sent from a field; what was typed meanwhile stays. @param {string} key @param {string} sent */
export function sent(key, sent) {
    const field = text(key);
    const at = field.value.indexOf(sent);
    if (at >= 0) field.value = field.value.slice(0, at) + field.value.slice(at + sent.length);
}

/** @type {Draft} */
const EMPTY = { answer: "", mode: "", reason: "", changes: null };

/** @param {string} message */
export function draft(message) {
    return of(answers, message, EMPTY, (value) => !textOf(value));
}

/** The text of a draft, as somebody would copy it. @param {Draft} draft */
export function textOf({ answer, reason, changes }) {
    return [answer, reason, changes?.prompt ?? ""].filter((part) => part.trim()).join("\n");
}

/**
 * Requests that were closed while somebody wrote an answer, or had them selected: their cards stay in their place. `closed`: the
 * request as it is now, `removed`, or null until it was read.
 * @type {import("../vendor/signals.mjs").Signal<Map<string, {request: Request, closed: Request | "removed" | null}>>}
 */
export const kept = signal(new Map());

/** @param {string} message */
function hasFocus(message) {
    return document.activeElement?.closest("[data-message]")?.getAttribute("data-message") === message;
}

/** @param {string} message */
function hasDraft(message) {
    const found = answers.get(message);
    return found !== undefined && textOf(found.peek()) !== "";
}

/**
 * Keeps the requests that have left the list and are in use. `isPending`: an answer to it is under way.
 * @param {Request[]} before @param {Request[]} after @param {(message: string) => boolean} isPending
 */
export function keepClosed(before, after, isPending) {
    const open = new Set(after.map((request) => request.message_id));
    const next = new Map([...kept.peek()].filter(([message]) => !open.has(message)));
    for (const request of before) {
        const { message_id } = request;
        if (open.has(message_id) || next.has(message_id)) continue;
        if (hasFocus(message_id) || hasDraft(message_id) || isPending(message_id)) next.set(message_id, { request, closed: null });
        else answers.delete(message_id);
    }
    const isSame = next.size === kept.peek().size && [...next.keys()].every((message) => kept.peek().has(message));
    if (isSame) return;
    const added = [...next.keys()].filter((message) => !kept.peek().has(message));
    kept.value = next;
    for (const message of added) void readClosed(message);
}

/** @param {string} message */
async function readClosed(message) {
    /** @type {Request | "removed"} */
    let closed = "removed";
    try {
        closed = await call("request", { message_id: message });
    } catch (error) {
        // Another end is said without its details.
        if (/** @type {any} */ (error).status !== 404) return;
    }
    const entry = kept.peek().get(message);
    if (entry) kept.value = new Map(kept.peek()).set(message, { ...entry, closed });
}

/** Lets a closed request go, with its draft. @param {string} message */
export function release(message) {
    const written = answers.get(message);
    if (written) written.value = EMPTY;
    answers.delete(message);
    if (!kept.peek().has(message)) return;
    const next = new Map(kept.peek());
    next.delete(message);
    kept.value = next;
}

/** Lets a closed request go if nothing is written there and the focus is elsewhere. @param {string} message */
export function releaseUnused(message) {
    if (kept.peek().has(message) && !hasFocus(message) && !hasDraft(message)) release(message);
}

/** Puts the kept requests in their places among the open ones, which are the oldest first. @param {Request[]} open */
export function withKept(open) {
    if (kept.value.size === 0) return open;
    const all = [...open];
    for (const { request } of kept.value.values()) {
        const after = all.findIndex((other) => other.asked_at > request.asked_at);
        all.splice(after < 0 ? all.length : after, 0, request);
    }
    return all;
}
