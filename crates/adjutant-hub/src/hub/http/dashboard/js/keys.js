// The keyboard. Elements say which key they are for (data-key). A key that acts does so within the item with the visible focus
// (data-item) and nowhere else; the guard refuses keys that belong to a text (guard.js).
import { notify, undo } from "./actions.js";
import { KeyGuard, needsItem } from "./guard.js";
import { signal } from "./lib.js";

export const helpOpen = signal(false);
const GO = { b: "board", i: "inbox", c: "chats", t: "timeline", r: "tree", p: "pools", a: "agents" };
/** After a click or a key that was used, what it removes is not gone by itself, in milliseconds. */
const USED_MS = 300;
const CONTROLS = ["checkbox", "radio", "button", "submit"];
const FREE = "live";

const guard = new KeyGuard();
/** The current item's place, for when it has gone. */
let place = -1;
let isGo = false;
/** The element that the person has focused, and its item. */
let focused = /** @type {HTMLElement | null} */ (null);
let focusedItem = /** @type {HTMLElement | null} */ (null);
let usedAt = -Infinity;
let isByKey = false;
/** The keys that are down and were refused, by their code: a button is pressed when the space bar goes up. */
const refused = new Set();

function items() {
    return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-item]")]).filter((item) => item.getClientRects().length > 0);
}

function current() {
    return /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-item]") ?? null);
}

/** @param {HTMLElement} item */
function isInView(item) {
    const { top, bottom } = item.getBoundingClientRect();
    return bottom > (document.querySelector("header.top")?.clientHeight ?? 0) && top < innerHeight;
}

/** @param {HTMLElement | null | undefined} item */
function select(item) {
    item?.focus();
    item?.scrollIntoView({ block: "nearest" });
}

/** @param {number} step */
function move(step) {
    const all = items();
    const at = current();
    const from = at ? all.indexOf(at) : step > 0 ? place - 1 : place;
    const next = all[Math.max(0, Math.min(all.length - 1, from + step))];
    if (next !== at) guard.selected(performance.now());
    select(next);
}

/** Focuses what follows an item that is done. @param {Element | null | undefined} inside */
export function focusNext(inside) {
    const all = items();
    const at = all.findIndex((item) => inside && item.contains(inside));
    const next = all[at + 1] ?? all[at - 1];
    if (next) {
        guard.moved(performance.now());
        next.focus();
    } else document.querySelector("main")?.focus();
    showState();
}

/** Whether the page that is shown was opened by a key, so that its first item is selected. Asked once for each page. */
export function wasOpenedByKey() {
    const was = isByKey;
    isByKey = false;
    return was;
}

/** Selects the page's own item. */
export function selectPage() {
    const own = /** @type {HTMLElement | null} */ (document.querySelector("main [data-page]"));
    if (!own) return;
    guard.selected(performance.now());
    own.focus();
    showState();
}

/** @param {string} key @returns {boolean} whether the key is one of the page */
function press(key) {
    const at = current();
    const selector = `[data-key="${key}"]:not(:disabled)`;
    const inside = /** @type {HTMLElement | null | undefined} */ (document.querySelector("dialog[open]") ? null : at?.querySelector(selector));
    if (inside && at && !isInView(at)) {
        guard.moved(performance.now());
        select(at);
        notify(`Press ${key} again: the selected item was out of sight`, "bad");
        return true;
    }
    const outside = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(`main ${selector}`)]).filter((element) => !element.closest("[data-item]"));
    const found = inside ?? (outside.length === 1 && (!needsItem(key) || isField(outside[0])) ? outside[0] : null);
    if (!found) {
        if (document.querySelector(`main ${selector}`)) notify(`${key} acts on the selected item: select one with j or a click`, "bad");
        return false;
    }
    if (isField(found) || found.dataset.focus !== undefined) found.focus();
    else found.click();
    return true;
}

/** @param {HTMLElement} element */
function isField(element) {
    if (element.isContentEditable) return true;
    return ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName) && !CONTROLS.includes(/** @type {HTMLInputElement} */ (element).type);
}

/** @param {KeyboardEvent} event @returns {import("./guard.js").Key} */
function read(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey || event.getModifierState("AltGraph");
    const isLink = target.matches("a[href]");
    const isControl = target.matches("button, input, summary") || (isLink && !hasModifier && !event.shiftKey);
    return {
        key: event.key,
        // A busy page sees a key later than it was pressed.
        at: Math.min(event.timeStamp, performance.now()),
        on: isField(target) ? "field" : isControl ? "control" : "page",
        isLines: target.tagName === "TEXTAREA" || target.tagName === "SELECT",
        isRepeat: event.repeat,
        // Of a key that ends a composition, some browsers tell only the number.
        isComposing: event.isComposing || event.keyCode === 229,
        hasModifier,
        hasShift: event.shiftKey,
    };
}

/** @type {Partial<Record<import("./guard.js").Refusal, string>>} */
const WHY = {
    gone: "Keys wait for a pause: the field that you typed into has gone",
    words: "Keys wait for a pause: no field has the focus",
    moved: "The selection has moved: press the key again",
};

/** Refuses keys before any element sees them. @param {KeyboardEvent} event */
function guardKey(event) {
    findFocus();
    const why = guard.refuse(read(event));
    if (!why) {
        refused.delete(event.code);
        return;
    }
    refused.add(event.code);
    event.preventDefault();
    event.stopImmediatePropagation();
    isGo = false;
    const text = WHY[why];
    if (text) notify(text, "bad");
    showState();
}

/** @param {KeyboardEvent} event */
function guardRelease(event) {
    if (refused.delete(event.code) || (event.key === " " && !isField(/** @type {HTMLElement} */ (event.target)) && downOn !== event.target)) event.preventDefault();
    if (event.key === " ") downOn = null;
}

/** Where the space bar went down. @type {EventTarget | null} */
let downOn = null;

/** @param {KeyboardEvent} event */
function onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === " ") downOn = target;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const isTyping = isField(target);
    if (event.key === "Escape") {
        if (isTyping) {
            const at = current();
            focused = at;
            guard.selected(performance.now());
            (at ?? target).focus();
            if (document.activeElement === target) target.blur();
        }
        return;
    }
    if (isTyping) return;
    const isLetter = event.key.length === 1 && event.key !== " ";
    if (document.querySelector("dialog[open]")) {
        if (isLetter) guard.typed(event.timeStamp);
        return showState();
    }
    let isDone = true;
    if (isGo) {
        isGo = false;
        const page = GO[/** @type {keyof typeof GO} */ (event.key)];
        if (page) go(`#/${page}`);
        else isDone = false;
    } else if (event.key === "g") isGo = true;
    else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    else if (event.key === "?") helpOpen.value = true;
    else if (event.key === "z") undo();
    else if (event.key === ".") {
        const first = /** @type {HTMLElement | null} */ (document.querySelector("main [data-needs]"));
        if (first) {
            if (first !== current()) guard.selected(performance.now());
            select(first);
        } else go("#/inbox");
    } else if (event.key === "Enter" && target.dataset.item !== undefined) {
        const link = /** @type {HTMLElement | null} */ (target.matches("a") ? target : target.querySelector("[data-open]"));
        isByKey = true;
        link?.click();
    } else isDone = isLetter && isPlain(event) && press(event.key);
    if (isDone) {
        usedAt = performance.now();
        event.preventDefault();
    } else if (isLetter) {
        // Somebody types where no field is: nothing stays selected on which a later letter could act.
        guard.typed(event.timeStamp);
        if (current()) {
            focused = null;
            document.querySelector("main")?.focus({ preventScroll: true });
        }
    }
    showState();
}

/** Whether a letter was pressed as the keys are named: only capitals take Shift. @param {KeyboardEvent} event */
function isPlain(event) {
    const isCapital = /^\p{Lu}$/u.test(event.key);
    return isCapital === event.shiftKey || !/^\p{L}$/u.test(event.key);
}

/** @param {string} hash */
function go(hash) {
    isByKey = true;
    location.hash = hash;
}

/** Notices when the focused element has gone, and keeps the focus on one that was only moved. */
function findFocus() {
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    if (active && active !== document.body) {
        focused = active;
        return;
    }
    if (!focused) return;
    const was = focused;
    if (was.isConnected && was.getClientRects().length > 0 && !was.matches(":disabled")) {
        was.focus({ preventScroll: true });
        if (document.activeElement === was) return;
    }
    focused = null;
    if (performance.now() - usedAt > USED_MS) guard.gone(performance.now());
    // Where a field has gone, nothing is selected, because the text may go on after any pause.
    const item = isField(was) || !focusedItem?.isConnected ? null : focusedItem;
    (item ?? /** @type {HTMLElement | null} */ (document.querySelector("main")))?.focus({ preventScroll: true });
    showState();
}

let stateTimer = 0;

/** Shows in the page whether keys act. */
function showState() {
    clearTimeout(stateTimer);
    const left = guard.freeAt - performance.now();
    document.documentElement.dataset.keys = left > 0 ? "wait" : FREE;
    if (left > 0 && left !== Infinity) stateTimer = setTimeout(showState, left + 1);
}

/** A dialog is being opened. Keys count when it was seen. */
export function dialogOpens() {
    guard.opens();
    showState();
    // After the first frame, so that keys which were pressed before it do not count.
    requestAnimationFrame(() =>
        setTimeout(() => {
            guard.shown(performance.now());
            showState();
        }),
    );
}

export function dialogCloses() {
    guard.closed();
    usedAt = performance.now();
    showState();
}

export function listen() {
    addEventListener("keydown", guardKey, { capture: true });
    addEventListener("keyup", guardRelease, { capture: true });
    addEventListener("keydown", onKey);
    addEventListener("focusin", (event) => {
        focused = /** @type {HTMLElement} */ (event.target);
        const at = current();
        focusedItem = at;
        if (at) place = items().indexOf(at);
    });
    const clicked = (/** @type {Event} */ event) => {
        usedAt = performance.now();
        if (event.type !== "pointerdown") return findFocus();
        // What the pointer takes the focus from has not gone.
        focused = null;
        isByKey = false;
        guard.clicked();
        showState();
    };
    for (const name of ["pointerdown", "pointerup", "click", "submit"]) addEventListener(name, clicked, { capture: true });
    new MutationObserver(findFocus).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["disabled", "hidden", "open"] });
    showState();
}
