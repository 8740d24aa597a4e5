// The sign-in of this tab. Its token is in memory only: what a page stores lies in clear text in the browser's profile. A reload
// continues with a resume code, which works once and only from the same browser. Each tab has a sign-in of its own.
import { signal } from "./lib.js";

const RESUME = "adj-resume";
/** How long a tab waits for another tab to offer a code, and then for the code, in milliseconds. */
const OFFER_MS = 300;
const CODE_MS = 5000;
/** Pauses between tries to reach the hub, in milliseconds. */
const RETRY_MS_MIN = 250;
const RETRY_MS_MAX = 5000;

/** @type {string | null} */
let token = null;
/** A renewal that is under way. @type {Promise<boolean> | null} */
let renewing = null;
/** Why the browser is not signed in. */
export const signedOut = signal(/** @type {string | null} */ (null));

/** The token for the next call. */
export function currentToken() {
    return token;
}

/** @param {string} path @param {object} body @param {RequestInit} [more] */
function post(path, body, more = {}) {
    /** @type {Record<string, string>} */
    const headers = { "content-type": "application/json" };
    if (token && path !== "/sign-in") headers.authorization = `Bearer ${token}`;
    return fetch(path, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store", ...more });
}

/**
 * Exchanges a code, or a resume code, for a token. Returns why it could not, or null.
 * @param {{code: string} | {resume: string}} body @returns {Promise<string | null>}
 */
async function exchange(body) {
    for (let pause = RETRY_MS_MIN; ; pause = Math.min(pause * 2, RETRY_MS_MAX)) {
        let reply;
        try {
            reply = await post("/sign-in", body);
        } catch {
            // The hub restarts.
            await new Promise((again) => setTimeout(again, pause));
            continue;
        }
        const said = await reply.json().catch(() => ({}));
        if (!reply.ok) return said.detail ?? reply.statusText;
        // The code that was used is dead.
        sessionStorage.setItem(RESUME, said.resume);
        token = said.token;
        signedOut.value = null;
        return null;
    }
}

/** Continues the sign-in of the page that was here before. */
async function resume() {
    const code = sessionStorage.getItem(RESUME);
    if (!code) return false;
    sessionStorage.removeItem(RESUME);
    return (await exchange({ resume: code })) === null;
}

const channel = new BroadcastChannel("adj-sign-in");
/** What the question of this tab waits for. @type {{id: string, offered: () => void, code: (code: string | null) => void} | null} */
let asking = null;

channel.onmessage = ({ data }) => {
    if (data?.ask && token && !renewing) void offer(data.ask);
    else if (asking && data?.to === asking.id) {
        if (data.code === undefined) asking.offered();
        else asking.code(data.code);
    }
};

/** Gets a code for another tab, unless a third one does. @param {string} to */
async function offer(to) {
    channel.postMessage({ to });
    const give = async () => {
        const reply = await post("/sign-in/tab", {});
        if (reply.ok) channel.postMessage({ to, code: (await reply.json()).code });
    };
    try {
        // Pages from another machine without TLS have no locks.
        if (!navigator.locks) await give();
        else await navigator.locks.request(`adj-sign-in ${to}`, { ifAvailable: true }, (lock) => (lock ? give() : undefined));
    } catch {
        // The other tab stops waiting by itself.
    }
}

/** Signs in with a code of another tab. */
async function askTabs() {
    const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const code = await new Promise((done) => {
        let timer = setTimeout(() => done(null), OFFER_MS);
        asking = {
            id,
            offered: () => {
                clearTimeout(timer);
                timer = setTimeout(() => done(null), CODE_MS);
            },
            code: done,
        };
        channel.postMessage({ ask: id });
    });
    asking = null;
    return code !== null && (await exchange({ code })) === null;
}

/** Takes the code out of the address and signs in with it, or continues an earlier sign-in. Returns whether the tab is signed in. */
export async function signIn() {
    const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
    let problem = null;
    if (code) {
        history.replaceState(null, "", location.pathname);
        problem = await exchange({ code });
        if (problem === null) return true;
    }
    if (token === null) {
        const entry = /** @type {PerformanceNavigationTiming | undefined} */ (performance.getEntriesByType("navigation")[0]);
        // A duplicated tab has the resume code of its original, whose sign-in would end with it.
        const isSameTab = entry?.type === "reload" || entry?.type === "back_forward";
        const isIn = isSameTab ? (await resume()) || (await askTabs()) : (await askTabs()) || (await resume());
        if (!isIn) signedOut.value = problem ?? "this browser is not signed in";
    }
    return token !== null;
}

/** Signs in again after a token has ended. Returns whether there is another one. @param {string | null} ended */
export function renew(ended) {
    if (token !== ended) return Promise.resolve(token !== null);
    renewing ??= (async () => {
        token = null;
        try {
            if (await askTabs()) return true;
            sessionStorage.removeItem(RESUME);
            signedOut.value = "the sign-in has expired or was revoked";
            return false;
        } finally {
            renewing = null;
        }
    })();
    return renewing;
}

/** Ends the sign-in when the page goes. Called after those that send what is pending. */
export function endWithPage() {
    addEventListener("pagehide", () => {
        // Without a hub, the sign-in ends by its time.
        if (token) post("/sign-out", {}, { keepalive: true }).catch(() => {});
    });
    addEventListener("pageshow", ({ persisted }) => {
        // It comes back from the browser's cache, with a token that is about to end.
        if (persisted && token) {
            renewing ??= resume().finally(() => {
                renewing = null;
            });
        }
    });
}
