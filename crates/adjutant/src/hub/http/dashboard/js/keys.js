// The keyboard. Elements say which key they are for (data-key); a key acts within the current item (data-item), or where it
// is the only one of its kind.
import { signal } from "./lib.js";
import { undo } from "./actions.js";

export const helpOpen = signal(false);
const GO = { b: "board", i: "inbox", c: "chats", t: "timeline", r: "tree", p: "pools", a: "agents" };
/** The current item's place, for when it has gone. */
let place = -1;
let isGo = false;

function items() {
    return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-item]")]).filter((item) => item.getClientRects().length > 0);
}

function current() {
    return /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-item]") ?? null);
}

/** @param {number} step */
function move(step) {
    const all = items();
    const at = current();
    const from = at ? all.indexOf(at) : step > 0 ? place - 1 : place;
    const next = all[Math.max(0, Math.min(all.length - 1, from + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
}

/** Focuses what follows an item that is done. @param {Element | null | undefined} inside */
export function focusNext(inside) {
    const all = items();
    const at = all.findIndex((item) => inside && item.contains(inside));
    const next = all[at + 1] ?? all[at - 1];
    if (next) next.focus();
    else document.querySelector("main")?.focus();
}

/** @param {string} key */
function press(key) {
    const at = current();
    const selector = `[data-key="${key}"]:not(:disabled)`;
    let found = /** @type {HTMLElement | null | undefined} */ (at?.querySelector(selector));
    if (!found) {
        const all = [...document.querySelectorAll(`dialog[open] ${selector}, main ${selector}`)];
        if (all.length === 1) found = /** @type {HTMLElement} */ (all[0]);
        else if (all.length > 1 && !at) {
            move(1);
            found = /** @type {HTMLElement | null | undefined} */ (current()?.querySelector(selector));
            // It takes a second press, so that the first one shows what it is about.
            if (found && found.tagName === "BUTTON") return true;
        }
    }
    if (!found) return false;
    if (found.tagName === "INPUT" || found.tagName === "TEXTAREA" || found.dataset.focus !== undefined) found.focus();
    else found.click();
    return true;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && !["checkbox", "radio", "button"].includes(/** @type {HTMLInputElement} */ (target).type);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
        if (isTyping) {
            (current() ?? target).focus();
            if (document.activeElement === target) target.blur();
        }
        return;
    }
    if (isTyping || document.querySelector("dialog[open]")) return;
    let isDone = true;
    if (isGo) {
        isGo = false;
        const page = GO[/** @type {keyof typeof GO} */ (event.key)];
        if (page) location.hash = `#/${page}`;
    } else if (event.key === "g") isGo = true;
    else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    else if (event.key === "?") helpOpen.value = true;
    else if (event.key === "z") undo();
    else if (event.key === ".") {
        const first = /** @type {HTMLElement | null} */ (document.querySelector("main [data-needs]"));
        if (first) first.focus();
        else location.hash = "#/inbox";
    } else if (event.key === "Enter" && target.dataset.item !== undefined) {
        const link = /** @type {HTMLElement | null} */ (target.matches("a") ? target : target.querySelector("[data-open]"));
        link?.click();
    } else isDone = event.key.length === 1 && event.key !== " " && press(event.key);
    if (isDone) event.preventDefault();
}

export function listen() {
    addEventListener("keydown", onKey);
    addEventListener("focusin", () => {
        const at = current();
        if (at) place = items().indexOf(at);
    });
}

export const KEYS = [
    ["j, k", "next, previous item"],
    ["Enter", "open the item"],
    [".", "first item that needs you"],
    ["r", "reply"],
    ["1 … 9", "choose an option; Enter sends it"],
    ["a", "approve"],
    ["d", "deny, with a reason"],
    ["e", "change a delegation"],
    ["x", "cancel the run"],
    ["p", "pause, resume or retry"],
    ["y", "mark an ended run as seen"],
    ["m", "merge"],
    ["l, c, v, o, w", "log, changes, conversation, report, raw output of the run"],
    ["z", "undo, within five seconds"],
    ["/", "filter"],
    ["g then b, i, c, t, r, p, a", "go to board, inbox, chats, timeline, tree, pools, agents"],
    ["Esc", "leave a field or a dialog"],
    ["?", "this help"],
];
