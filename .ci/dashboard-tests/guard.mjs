// Checks the rules of the keyboard without a page: guard.mjs SOURCES.
import assert from "node:assert/strict";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { KEYS, KeyGuard, MOVED_MS, PAUSE_MS, SEEN_MS, isRisky, needsItem } = await import(pathToFileURL(join(resolve(process.argv[2]), "js/guard.js")).href);
const key = (of, at = 0, more = {}) => ({ key: of, at, on: "page", ...more });
const control = { on: "control" };
const field = { on: "field" };

/** Types a text with a pause between its keys, and returns the keys that were not refused. */
function type(guard, text, from, pause) {
    return [...text].filter((letter, at) => guard.refuse(key(letter, from + at * pause)) === null);
}

const rules = {
    "a key acts when nothing has happened": () => {
        for (const { keys } of KEYS) for (const one of keys) assert.equal(new KeyGuard().refuse(key(one)), null, one);
        assert.equal(new KeyGuard().refuse(key("Enter", 0, control)), null);
        assert.equal(new KeyGuard().refuse(key(" ", 0, control)), null);
    },
    "keys that act need an item, and so do keys that are not listed": () => {
        for (const one of ["a", "A", "d", "e", "m", "p", "r", "x", "y", "1", "9", "q", "Z"]) assert.ok(needsItem(one), one);
        for (const one of ["/", "l", "c", "v", "o", "w"]) assert.ok(!needsItem(one), one);
    },
    "a text after its field has gone acts nowhere": () => {
        for (const pause of [20, 300, PAUSE_MS - 1]) {
            const guard = new KeyGuard();
            guard.gone(0);
            assert.deepEqual(type(guard, "that a table, make it simpler: xpyz .j", 10, pause), [], `${pause} ms`);
        }
        const guard = new KeyGuard();
        guard.gone(0);
        assert.equal(guard.refuse(key("Enter", 10)), "gone");
        assert.equal(guard.refuse(key(" ", 20, control)), "gone");
        assert.equal(guard.refuse(key("a", 20 + PAUSE_MS)), null, "after a pause");
    },
    "a click ends the wait": () => {
        const guard = new KeyGuard();
        guard.gone(0);
        guard.clicked();
        assert.equal(guard.refuse(key("a", 10)), null);
    },
    "after a letter that is no key, only keys that move are free": () => {
        const guard = new KeyGuard();
        guard.typed(0);
        for (const one of ["a", "p", "x", "m", "r", "1", "z", "Enter"]) assert.equal(guard.refuse(key(one, 10)), "words", one);
        assert.equal(guard.refuse(key("j", 20)), null);
        assert.equal(guard.refuse(key("a", 10 + PAUSE_MS)), null);
    },
    "what was just selected takes no key": () => {
        const guard = new KeyGuard();
        guard.selected(0);
        assert.equal(guard.refuse(key("a", SEEN_MS - 1)), "unseen");
        assert.equal(guard.refuse(key("a", SEEN_MS)), null);
        guard.moved(1000);
        assert.equal(guard.refuse(key("a", 1000 + MOVED_MS - 1)), "moved");
        assert.equal(guard.refuse(key("Enter", 1000 + MOVED_MS - 1)), "moved");
        assert.equal(guard.refuse(key("z", 1001)), null, "what has moved it can be undone");
        assert.equal(guard.refuse(key("a", 1000 + MOVED_MS)), null);
    },
    "a dialog takes no key before it was seen": () => {
        const guard = new KeyGuard();
        guard.opens();
        for (const on of [{}, control, field]) assert.equal(guard.refuse(key("Enter", 1e6, on)), "unseen");
        guard.shown(1e6);
        // Keys that were pressed before its first frame, and arrive later.
        assert.equal(guard.refuse(key("Enter", 1e6 - 50, control)), "unseen");
        assert.equal(guard.refuse(key(" ", 1e6 + SEEN_MS - 1, control)), "unseen");
        assert.equal(guard.refuse(key("Escape", 1e6)), null);
        assert.equal(guard.refuse(key("Tab", 1e6)), null);
        assert.equal(guard.refuse(key("Enter", 1e6 + SEEN_MS, control)), null);
        guard.typed(2e6);
        assert.equal(guard.refuse(key("Enter", 2e6 + 10, control)), "words");
    },
    "keys that are held act once": () => {
        const held = { isRepeat: true };
        const guard = new KeyGuard();
        for (const one of ["a", "m", "x", "z", "Enter"]) assert.equal(guard.refuse(key(one, 0, held)), "repeat", one);
        assert.equal(guard.refuse(key("Enter", 0, { ...held, ...field })), "repeat");
        assert.equal(guard.refuse(key(" ", 0, { ...held, ...control })), null, "a held space bar presses when it goes up");
        assert.equal(guard.refuse(key("j", 0, held)), null);
        assert.equal(guard.refuse(key("b", 0, { ...held, ...field })), null);
    },
    "compositions and modifiers act nowhere": () => {
        const guard = new KeyGuard();
        assert.equal(guard.refuse(key("Enter", 0, { ...field, isComposing: true })), "composing");
        assert.equal(guard.refuse(key("a", 0, { isComposing: true })), "composing");
        assert.equal(guard.refuse(key("a", 0, { ...field, isComposing: true })), null, "the text goes on");
        for (const on of [field, control]) {
            assert.equal(guard.refuse(key("Enter", 0, { ...on, hasModifier: true })), "modified");
            assert.equal(guard.refuse(key("Enter", 0, { ...on, hasShift: true })), "modified");
        }
        assert.equal(guard.refuse(key("Enter", 0, { ...field, isLines: true, hasShift: true })), null, "a new line");
        assert.equal(guard.refuse(key("A", 0, { hasShift: true })), null);
    },
    "text goes into its field, and Enter sends it": () => {
        const guard = new KeyGuard();
        guard.gone(0);
        for (const one of ["a", " ", "z", "Backspace", "Enter"]) assert.equal(guard.refuse(key(one, 1, field)), null, one);
    },
    "a risk is high unless it is stated to be low or medium": () => {
        for (const risk of ["high", "HIGH", "critical", "deletes the database", "very low?", "lowest of all evils"]) assert.ok(isRisky(risk), risk);
        for (const risk of [null, undefined, "", "  ", "low", "Low: local files", "medium", "moderate", "none"]) assert.ok(!isRisky(risk), String(risk));
    },
};
for (const [rule, check] of Object.entries(rules)) {
    try {
        check();
    } catch (error) {
        throw new Error(rule, { cause: error });
    }
}
console.log(`guard: ${Object.keys(rules).length} rules hold`);
