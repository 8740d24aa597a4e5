// Text: times, amounts, and what agents say.
import { html } from "./lib.js";

// Characters that would reorder or hide other text.
const UNSEEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{1bca0}-\u{1bca3}\u{e0000}-\u{e0fff}]/gu;
const COLOURS = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const LINK = /https?:\/\/[^\s<>"'`\u0000-\u001f]+[^\s<>"'`.,;:!?)\]}\u0000-\u001f]/g;

/** Shows unseen characters as their numbers. @param {string} text */
export function clean(text) {
    return text.replace(UNSEEN, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

/** Removes terminal colours, then cleans. @param {string} text */
export function plain(text) {
    return clean(text.replace(COLOURS, "").replace(/\r\n?/g, "\n"));
}

/** Text of somebody else, with its web addresses as links. @param {{text?: string | null}} props */
export function Said({ text }) {
    if (!text) return null;
    const shown = clean(text);
    /** @type {any[]} */
    const parts = [];
    let at = 0;
    for (const found of shown.matchAll(LINK)) {
        const url = URL.canParse(found[0]) ? new URL(found[0]) : null;
        if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) continue;
        parts.push(shown.slice(at, found.index));
        parts.push(html`<a href=${url.href} target="_blank" rel="noopener noreferrer">${found[0]}</a>`);
        at = found.index + found[0].length;
    }
    parts.push(shown.slice(at));
    return html`<bdi class="said">${parts}</bdi>`;
}

const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]);

/** The largest unit of a duration and the one after it, as the command line writes them. @param {number} ms @param {number} [most] */
export function duration(ms, most = 2) {
    let rest = Math.max(0, Math.floor(ms / 1000));
    const from = rest < 172800 ? 1 : 0;
    const first = Math.max(from, UNITS.findIndex(([, unit]) => rest >= unit));
    let shown = "";
    for (const [name, unit] of UNITS.slice(first, first + most)) {
        if (rest >= unit) shown += `${Math.floor(rest / unit)}${name}`;
        rest %= unit;
    }
    return shown || "0s";
}

/** A duration in its largest unit. @param {number} ms */
export function age(ms) {
    return duration(ms, 1);
}

/** @param {number} bytes */
export function size(bytes) {
    if (bytes < 1e6) return `${Math.ceil(bytes / 1e3)} kB`;
    if (bytes < 1e9) return `${Math.floor(bytes / 1e6)} MB`;
    return `${(Math.floor(bytes / 1e8) / 10).toFixed(1)} GB`;
}

/** Dollars to the cent; less than a cent exactly. @param {number} amount */
export function money(amount) {
    if (amount < 0.01) return `$${Number(amount.toFixed(6))}`;
    return `$${amount.toFixed(2)}`;
}

/** @param {string} time */
export function clock(time) {
    return new Date(time).toLocaleString("en-GB", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** @param {number} n @param {string} one @param {string} many */
export function count(n, one, many) {
    return `${n} ${n === 1 ? one : many}`;
}

/** Words of the contract for people: `waiting_parent_reply` is `waiting parent reply`. @param {string} word */
export function words(word) {
    return word.replaceAll("_", " ");
}
