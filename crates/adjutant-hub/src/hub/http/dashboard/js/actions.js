// What a person does. Actions that cannot be taken back are sent after five seconds, during which they can be undone; answers
// are sent at once. Each has an idempotency key, so that it can be repeated after the hub was unreachable, and takes effect once.
import { Problem, call } from "./api.js";
import { signal } from "./lib.js";
import { release, releaseUnused } from "./drafts.js";
import { busy, refresh, whenLive } from "./state.js";

/** How long an action can be undone, in milliseconds. */
export const UNDO_MS = 5000;
const NOTICE_MS = 8000;

/**
 * A call about a request or a run, and what is said when it is done.
 * @template {import("./contract.js").CallName} Name
 * @typedef {{name: Name, body: import("./contract.js").Body<Name>, about: string, done: string | ((reply: import("./contract.js").Reply<Name>) => string), run?: string, keepalive?: boolean}} Action
 */
/** @typedef {{id: number, label: string, about: string, due: number, send: (keepalive: boolean) => void, timer: number}} Later */
export const later = signal(/** @type {Later[]} */ ([]));
export const notices = signal(/** @type {{id: number, text: string, tone: string}[]} */ ([]));
/** Text of the live region. */
export const announced = signal("");
let last = 0;

/** @param {string} text @param {"good" | "bad"} tone */
export function notify(text, tone) {
    const id = ++last;
    notices.value = [...notices.value.slice(-4), { id, text, tone }];
    announced.value = text;
    setTimeout(() => dismiss(id), tone === "bad" ? NOTICE_MS * 2 : NOTICE_MS);
}

/** @param {number} id */
export function dismiss(id) {
    notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** @param {string} about @param {boolean} isBusy */
function mark(about, isBusy) {
    const next = new Set(busy.value);
    if (isBusy) next.add(about);
    else next.delete(about);
    busy.value = next;
}

/**
 * Sends a call now, and again when the hub is back.
 * @template {import("./contract.js").CallName} Name
 * @param {Action<Name>} action @returns {Promise<import("./contract.js").Reply<Name> | undefined>}
 */
export async function send({ name, body, about, done, run, keepalive }) {
    const key = crypto.randomUUID();
    mark(about, true);
    try {
        for (;;) {
            try {
                const reply = await call(name, body, { key, keepalive });
                notify(typeof done === "string" ? done : done(reply), "good");
                return reply;
            } catch (error) {
                if (!(error instanceof Problem) || error.status !== 0 || keepalive) throw error;
                await new Promise((again) => setTimeout(again, 250));
                await whenLive();
            }
        }
    } catch (error) {
        const { message, hint } = /** @type {Problem} */ (error);
        notify(hint ? `${message} (${hint})` : message, "bad");
        return undefined;
    } finally {
        mark(about, false);
        if (run) refresh(run);
    }
}

/**
 * Sends a call after five seconds, unless it is undone.
 * @template {import("./contract.js").CallName} Name
 * @param {string} label @param {Action<Name>} action @param {(isDone: boolean) => void} [then]
 */
export function sendLater(label, action, then) {
    const id = ++last;
    const sending = (/** @type {boolean} */ keepalive) => {
        if (!drop(id)) return;
        void send({ ...action, keepalive }).then((reply) => then?.(reply !== undefined));
    };
    mark(action.about, true);
    const timer = setTimeout(() => sending(false), UNDO_MS);
    later.value = [...later.value, { id, label, about: action.about, due: Date.now() + UNDO_MS, send: sending, timer }];
    announced.value = `${label} in 5 seconds. Press z to undo.`;
}

/** @param {number} id */
function drop(id) {
    const found = later.value.find((entry) => entry.id === id);
    if (!found) return undefined;
    clearTimeout(found.timer);
    later.value = later.value.filter((entry) => entry !== found);
    mark(found.about, false);
    return found;
}

/** Takes back an action that was not sent yet. Without an id, the newest one. @param {number} [id] */
export function undo(id = later.value.at(-1)?.id) {
    const found = id === undefined ? undefined : drop(id);
    if (found) notify(`Undone: ${found.label}`, "good");
}

// A page that is closed sends what it has announced.
addEventListener("pagehide", () => {
    for (const entry of later.value) entry.send(true);
});

/** Forgets what was written about a request that this page has answered. If it could not, the text stays. @param {string} message */
function settled(message) {
    return (/** @type {boolean} */ isDone) => (isDone ? release(message) : releaseUnused(message));
}

/** @param {import("./contract.js").Request} request @param {string} answer */
export async function answer(request, answer) {
    const reply = await send({
        name: "answer",
        body: { answers: [{ message_id: request.message_id, answer, content_hash: request.content_hash }] },
        about: request.message_id,
        run: request.run_id,
        done: `Answered ${request.number} of ${request.run_name}`,
    });
    settled(request.message_id)(reply !== undefined);
}

/** @param {import("./contract.js").Request} request @param {"approve" | "deny"} decision @param {{reason?: string, changes?: import("./contract.js").Changes, same?: boolean}} [more] */
export function decide(request, decision, more = {}) {
    const word = decision === "approve" ? "Approve" : "Deny";
    sendLater(`${word} ${request.number} of ${request.run_name}`, {
        name: "answer",
        body: { answers: [{ message_id: request.message_id, decision, content_hash: request.content_hash, ...more }] },
        about: request.message_id,
        run: request.run_id,
        done: `${decision === "approve" ? "Approved" : "Denied"} ${request.number} of ${request.run_name}`,
    }, settled(request.message_id));
}

/** The calls that name one run. @typedef {{[Name in import("./contract.js").CallName]: {run: string} extends Pick<import("./contract.js").Body<Name>, keyof import("./contract.js").Body<Name> & "run"> ? Name : never}[import("./contract.js").CallName]} RunCall */

/**
 * Makes a call about a run after five seconds.
 * @template {RunCall} Name
 * @param {import("./contract.js").Run} run @param {Name} name @param {string} label @param {string} done
 * @param {Omit<import("./contract.js").Body<Name>, "run">} [body] @param {(reply: import("./contract.js").Reply<Name>) => string} [say]
 */
export function onRun(run, name, label, done, body, say) {
    sendLater(`${label} ${run.name}`, { name, body: /** @type {import("./contract.js").Body<Name>} */ ({ ...body, run: run.run_id }), about: run.run_id, run: run.run_id, done: say ?? `${done} ${run.name}` });
}

/** Makes a call about a run at once. @template {RunCall} Name @param {import("./contract.js").Run} run @param {Name} name @param {string} done */
export function nowOnRun(run, name, done) {
    return send({ name, body: /** @type {import("./contract.js").Body<Name>} */ ({ run: run.run_id }), about: run.run_id, run: run.run_id, done: `${done} ${run.name}` });
}
