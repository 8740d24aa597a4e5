// Calls to the hub. The token is in the header of each request, nowhere else.
import { currentToken, renew } from "./session.js";

export class Problem extends Error {
    /** @param {number} status 0: the hub cannot be reached @param {string} code @param {string} message @param {string} [hint] */
    constructor(status, code, message, hint) {
        super(message);
        this.status = status;
        this.code = code;
        this.hint = hint;
    }
}

/**
 * Sends a request with the token, and again if the token was replaced meanwhile.
 * @param {string} path @param {RequestInit & {headers?: Record<string, string>}} init
 */
export async function request(path, init) {
    let reply = await fetchWith(currentToken(), path, init);
    if (reply.sent !== null && reply.status === 401 && (await renew(reply.sent))) reply = await fetchWith(currentToken(), path, init);
    const { response } = reply;
    if (!response.ok) {
        const said = /** @type {Partial<import("./contract.js").Problem>} */ (await response.json().catch(() => ({})));
        throw new Problem(response.status, said.code ?? "internal", said.detail ?? response.statusText, said.hint);
    }
    return response;
}

/** @param {string | null} sent @param {string} path @param {RequestInit & {headers?: Record<string, string>}} init */
async function fetchWith(sent, path, init) {
    try {
        const response = await fetch(path, { ...init, headers: { ...init.headers, authorization: `Bearer ${sent}` }, cache: "no-store" });
        return { response, sent, status: response.status };
    } catch (error) {
        if (init.signal?.aborted) throw error;
        throw new Problem(0, "unreachable", "the hub cannot be reached");
    }
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
