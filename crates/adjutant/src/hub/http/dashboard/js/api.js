// Calls to the hub. The token is in the memory of the tab (sessionStorage) and in the header of each request, nowhere else.
import { signal } from "./lib.js";

const KEY = "adj-token";
/** How long a new tab waits for the token of another tab, in milliseconds. */
const OTHER_TAB_MS = 300;

/** @type {string | null} */
let token = sessionStorage.getItem(KEY);
/** Why the browser is not signed in. */
export const signedOut = signal(/** @type {string | null} */ (null));

export class Problem extends Error {
    /** @param {number} status 0: the hub cannot be reached @param {string} code @param {string} message @param {string} [hint] */
    constructor(status, code, message, hint) {
        super(message);
        this.status = status;
        this.code = code;
        this.hint = hint;
    }
}

const channel = new BroadcastChannel("adj-token");
channel.onmessage = (event) => {
    if (event.data === "ask" && token) channel.postMessage({ token });
    else if (event.data?.token && !token) keep(event.data.token);
};

/** @param {string} found */
function keep(found) {
    token = found;
    sessionStorage.setItem(KEY, found);
    signedOut.value = null;
}

/** Takes the code out of the address and exchanges it for a token. Returns whether the browser is signed in. */
export async function signIn() {
    const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
    if (code) {
        history.replaceState(null, "", location.pathname);
        try {
            const reply = await fetch("/sign-in", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ code }) });
            const said = await reply.json();
            if (reply.ok) keep(said.token);
            else if (!token) signedOut.value = said.detail;
        } catch {
            if (!token) signedOut.value = "the hub cannot be reached";
        }
    }
    if (!token) {
        channel.postMessage("ask");
        await new Promise((done) => setTimeout(done, OTHER_TAB_MS));
    }
    if (!token && !signedOut.value) signedOut.value = "this browser is not signed in";
    return token !== null;
}

function forget() {
    token = null;
    sessionStorage.removeItem(KEY);
    signedOut.value = "the sign-in has expired or was revoked";
}

/**
 * Sends a request with the token.
 * @param {string} path @param {RequestInit & {headers?: Record<string, string>}} init
 */
export async function request(path, init) {
    const sent = token;
    let reply;
    try {
        reply = await fetch(path, { ...init, headers: { ...init.headers, authorization: `Bearer ${sent}` }, cache: "no-store" });
    } catch (error) {
        if (init.signal?.aborted) throw error;
        throw new Problem(0, "unreachable", "the hub cannot be reached");
    }
    if (reply.status === 401 && sent === token) forget();
    if (!reply.ok) {
        const said = /** @type {Partial<import("./contract.js").Problem>} */ (await reply.json().catch(() => ({})));
        throw new Problem(reply.status, said.code ?? "internal", said.detail ?? reply.statusText, said.hint);
    }
    return reply;
}

/**
 * Makes a call. The types are those of the API's description.
 * @template {import("./contract.js").CallName} Name
 * @param {Name} name @param {import("./contract.js").Body<Name>} [body] @param {{key?: string, signal?: AbortSignal, keepalive?: boolean}} [options]
 * @returns {Promise<import("./contract.js").Reply<Name>>}
 */
export async function call(name, body, { key, signal: stop, keepalive } = {}) {
    /** @type {Record<string, string>} */
    const headers = { "content-type": "application/json" };
    if (key) headers["idempotency-key"] = key;
    const reply = await request(`/api/v1/${name}`, { method: "POST", headers, body: JSON.stringify(body ?? {}), signal: stop, keepalive });
    try {
        return await reply.json();
    } catch {
        throw new Problem(0, "unreachable", "the hub has ended during the call");
    }
}
