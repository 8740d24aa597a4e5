// What the hub knows, kept current by its event stream. The stream first names a position; the state is read after it, then
// events say which runs to read again. While the hub is unreachable, the last state stays visible.
import { Problem, call, request } from "./api.js";
import { keepClosed, withKept } from "./drafts.js";
import { batch, computed, signal } from "./lib.js";
import { signedOut } from "./session.js";

/** Runs that the pages list. */
const RUNS_MAX = 1000;
/** Events within this time are handled together, in milliseconds. */
const TOGETHER_MS = 60;
/** More runs than this are read as one list. */
const SINGLE_RUNS_MAX = 8;
const RETRY_MS_MIN = 250;
const RETRY_MS_MAX = 5000;
/** The hub writes at least every 15 s. */
const SILENCE_MS_MAX = 40_000;
/** Events of one history that are kept, and the part of the whole history that a first read covers. */
export const EVENTS_KEPT = 10_000;
const HISTORY_EVENTS = 20_000;
const HISTORIES_MAX = 20;

/** @typedef {import("./contract.js").Run} Run */
/** @typedef {import("./contract.js").Event} HubEvent */

export const runs = signal(/** @type {Map<string, Run>} */ (new Map()));
export const attention = signal(/** @type {import("./contract.js").Attention} */ ({ requests: [], runs: [], mentions: [], requests_more: 0, runs_more: 0, mentions_more: false }));
export const connection = signal(/** @type {"connecting" | "live" | "reconnecting"} */ ("connecting"));
export const isLoaded = signal(false);
export const runsMore = signal(0);
export const now = signal(Date.now());
/** The newest event of any run; pages that read more subscribe to it. */
export const lastEvent = signal(/** @type {HubEvent | null} */ (null));
/** Incremented when everything was read again. */
export const generation = signal(0);
export const needsCount = computed(() => {
    const { requests, runs: stopped, mentions, requests_more, runs_more } = attention.value;
    return requests.length + requests_more + stopped.length + runs_more + mentions.length;
});

/** The ids of requests and runs that an action is about, until the hub has replied. */
export const busy = signal(/** @type {Set<string>} */ (new Set()));
/** The cards of requests: the open ones, and closed ones that somebody writes in. */
export const requests = computed(() => withKept(attention.value.requests));

/** @param {import("./contract.js").Attention} needs */
function takeAttention(needs) {
    keepClosed(attention.peek().requests, needs.requests, (message) => busy.peek().has(message));
    attention.value = needs;
}

setInterval(() => {
    now.value = Date.now();
}, 1000);

/** Finds a run by id or name. @param {string} key */
export function findRun(key) {
    return runs.value.get(key) ?? [...runs.value.values()].find((run) => run.name === key);
}

/** @param {Run[]} found @param {boolean} isAll */
function store(found, isAll) {
    const next = isAll ? new Map() : new Map(runs.value);
    for (const run of found) next.set(run.run_id, run);
    runs.value = next;
}

export async function loadAll() {
    const [list, needs] = await Promise.all([call("runs", { all: true, limit: RUNS_MAX }), call("attention", { limit: 500 })]);
    batch(() => {
        store(list.runs, true);
        // A run that needs somebody may be older than the list.
        store(needs.runs, false);
        runsMore.value = list.more;
        takeAttention(needs);
        isLoaded.value = true;
        generation.value += 1;
    });
}

/** @type {Set<string>} */
const changed = new Set();
let isDue = false;
let isReading = false;

function soon() {
    isDue = true;
    if (isReading) return;
    isReading = true;
    setTimeout(async () => {
        while (isDue) {
            isDue = false;
            const ids = [...changed];
            changed.clear();
            try {
                await readAgain(ids);
            } catch {
                // The stream breaks too, and everything is read again when it is back.
                if (connection.value === "live") await new Promise((done) => setTimeout(done, RETRY_MS_MIN));
            }
        }
        isReading = false;
    }, TOGETHER_MS);
}

/** @param {string[]} ids */
async function readAgain(ids) {
    if (ids.length > SINGLE_RUNS_MAX) return loadAll();
    const [needs, ...found] = await Promise.all([call("attention", { limit: 500 }), ...ids.map((run) => readOne(run))]);
    batch(() => {
        takeAttention(needs);
        store(found.filter((run) => run !== null), false);
        const gone = ids.filter((_, at) => found[at] === null);
        if (gone.length) {
            const next = new Map(runs.value);
            for (const id of gone) next.delete(id);
            runs.value = next;
        }
    });
}

/** Reads a run. `null`: it does not exist any more. @param {string} run @returns {Promise<Run | null>} */
async function readOne(run) {
    try {
        return await call("run", { run });
    } catch (error) {
        if (/** @type {Problem} */ (error).status === 404) return null;
        throw error;
    }
}

/** Reads one run again after an action. @param {string} id */
export function refresh(id) {
    changed.add(id);
    soon();
}

/** @param {HubEvent} event */
function take(event) {
    lastEvent.value = event;
    if (event.run_id) changed.add(event.run_id);
    soon();
}

/** @type {string | null} */
let position = null;
/** @type {(() => void)[]} */
let waiting = [];

/** Resolves when the hub is there. */
export function whenLive() {
    return connection.value === "live" ? Promise.resolve() : new Promise((done) => waiting.push(() => done(undefined)));
}

/** Follows the events until the browser is signed out. */
export async function follow() {
    let delay = RETRY_MS_MIN;
    while (!signedOut.value) {
        try {
            await read(() => {
                delay = RETRY_MS_MIN;
            });
        } catch {
            // Shown as the state of the connection.
        }
        if (signedOut.value) break;
        connection.value = isLoaded.value ? "reconnecting" : "connecting";
        const wait = delay;
        await new Promise((done) => {
            const timer = setTimeout(done, wait);
            addEventListener("online", () => (clearTimeout(timer), done(undefined)), { once: true });
        });
        delay = Math.min(delay * 2, RETRY_MS_MAX);
    }
}

/** Reads one stream to its end. @param {() => void} begun */
async function read(begun) {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE_MS_MAX);
    try {
        /** @type {Record<string, string>} */
        const headers = position === null ? {} : { "last-event-id": position };
        const reply = await request("/api/v1/events", { headers, signal: stop.signal });
        const reader = /** @type {ReadableStream<any>} */ (reply.body).pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            clearTimeout(silence);
            silence = setTimeout(() => stop.abort(), SILENCE_MS_MAX);
            const parts = (rest + value).split("\n\n");
            rest = parts.pop() ?? "";
            for (const part of parts) {
                const field = fields(part);
                if (field.id) position = field.id;
                if (field.event === "start") {
                    await loadAll();
                    begun();
                    connection.value = "live";
                    for (const done of waiting.splice(0)) done();
                } else if (field.data) {
                    take(JSON.parse(field.data));
                }
            }
        }
    } finally {
        clearTimeout(silence);
        stop.abort();
    }
}

/** @param {string} part */
function fields(part) {
    /** @type {Record<string, string>} */
    const found = {};
    for (const line of part.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
    }
    return found;
}

/**
 * What was read of histories, by run; for all runs under an empty name. Only what follows is read again.
 * @type {Map<string, {events: HubEvent[], after: number, reading: Promise<HubEvent[]> | null}>}
 */
const histories = new Map();

/** Reads the history of a run, or the newest part of that of all runs. @param {string} [run] @returns {Promise<HubEvent[]>} */
export function history(run) {
    let known = histories.get(run ?? "");
    if (!known) {
        if (histories.size >= HISTORIES_MAX) histories.delete(/** @type {string} */ (histories.keys().next().value));
        known = { events: [], after: run ? 0 : Math.max(0, Number(position) - HISTORY_EVENTS), reading: null };
        histories.set(run ?? "", known);
    }
    const { reading } = known;
    const next = (reading ?? Promise.resolve()).catch(() => {}).then(() => readHistory(/** @type {any} */ (known), run));
    known.reading = next;
    return next;
}

/** @param {{events: HubEvent[], after: number}} known @param {string} [run] */
async function readHistory(known, run) {
    for (;;) {
        const page = await call("events", { after: known.after, run, limit: 1000 });
        if (page.events.length) known.events = known.events.concat(page.events).slice(-EVENTS_KEPT);
        if (page.cursor <= known.after) return known.events;
        known.after = page.cursor;
        if (page.events.length === 0) return known.events;
    }
}
