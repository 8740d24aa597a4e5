// Which keys may act. Typing never acts, also where the field that somebody types into has gone. Knows no page: it takes times in
// milliseconds and facts, and keys.js reads them from the page.

/**
 * The keys. `acts`: what the key starts reaches a run or cannot be undone by the next key, so it takes an item with the visible
 * focus. `opens`: it leads to a page or to a field that sends nothing. The others move.
 * @type {{keys: string[], shown?: string, what: string, acts?: true, opens?: true}[]}
 */
export const KEYS = [
    { keys: ["j", "k"], shown: "j, k", what: "next, previous item" },
    { keys: ["Enter"], what: "open the item" },
    { keys: ["."], what: "first item that needs you" },
    { keys: ["r"], what: "reply", acts: true },
    { keys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"], shown: "1 … 9", what: "choose an option; Enter sends it", acts: true },
    { keys: ["a"], what: "approve", acts: true },
    { keys: ["A"], shown: "Shift+A", what: "approve what has a high or an unknown risk", acts: true },
    { keys: ["d"], what: "deny, with a reason", acts: true },
    { keys: ["e"], what: "change a delegation", acts: true },
    { keys: ["x"], what: "cancel the run", acts: true },
    { keys: ["p"], what: "pause, resume or retry", acts: true },
    { keys: ["y"], what: "mark an ended run as seen", acts: true },
    { keys: ["m"], what: "merge", acts: true },
    { keys: ["l", "c", "v", "o", "w"], shown: "l, c, v, o, w", what: "log, changes, conversation, report, raw output of the run", opens: true },
    { keys: ["z"], what: "undo, within five seconds" },
    { keys: ["/"], what: "filter", opens: true },
    { keys: ["g"], shown: "g then b, i, c, t, r, p, a", what: "go to board, inbox, chats, timeline, tree, pools, agents" },
    { keys: ["Esc"], what: "leave a field or a dialog" },
    { keys: ["?"], what: "this help" },
];
const ACTING = new Set(KEYS.flatMap(({ keys, acts }) => (acts ? keys : [])));
/** Keys that act as often as they are repeated: they move or scroll. */
const REPEATING = new Set(["j", "k", " "]);
const OPENING = new Set(KEYS.flatMap(({ keys, opens }) => (opens ? keys : [])));

/** Whether a key needs an item with the visible focus. A key that nobody has listed needs it too. @param {string} key */
export function needsItem(key) {
    return ACTING.has(key) || !OPENING.has(key);
}

/** What was selected or shown must be visible for this long before a key acts on it. */
export const SEEN_MS = 500;
/** After the selection has moved by itself, keys that act are refused for this long, as in `adj top`. */
export const MOVED_MS = 1000;
/** After the focused element has gone, or after a letter that is no key here, keys are refused until a pause of this length. */
export const PAUSE_MS = 1000;

const LOW_RISKS = /^\s*(?:none|no|minimal|negligible|low|medium|moderate|minor)\b/i;

/** Whether an approval takes a click or Shift+A: its risk is neither low, medium nor unstated. @param {string | null | undefined} risk */
export function isRisky(risk) {
    return Boolean(risk?.trim()) && !LOW_RISKS.test(risk ?? "");
}

/**
 * A key as it was pressed. `at`: when the keyboard reported it. `on`: a text field; a control, on which Enter and Space act; or
 * neither.
 * @typedef {{key: string, at: number, on: "field" | "control" | "page", isLines?: boolean, isRepeat?: boolean, isComposing?: boolean, hasModifier?: boolean, hasShift?: boolean}} Key
 */
/** Why a key is refused. @typedef {"repeat" | "composing" | "modified" | "unseen" | "gone" | "words" | "moved"} Refusal */

export class KeyGuard {
    #goneAt = -Infinity;
    #wordsAt = -Infinity;
    #movedAt = -Infinity;
    #selectedAt = -Infinity;
    /** When the open dialog was first painted; before that, never. */
    #dialogAt = -Infinity;

    /** The element that had the focus has gone by itself. @param {number} at */
    gone(at) {
        this.#goneAt = at;
    }

    /** A letter was typed that is no key here: somebody types. @param {number} at */
    typed(at) {
        this.#wordsAt = at;
    }

    /** Another item was selected, not by the person. @param {number} at */
    moved(at) {
        this.#movedAt = at;
    }

    /** The person has selected an item by a key. @param {number} at */
    selected(at) {
        this.#movedAt = -Infinity;
        this.#selectedAt = at;
    }

    /** The person has clicked: the hand and the eye are at the page. */
    clicked() {
        this.#goneAt = this.#wordsAt = this.#movedAt = this.#selectedAt = -Infinity;
    }

    /** A dialog opens; it is `shown` with its first frame. */
    opens() {
        this.#dialogAt = Infinity;
    }

    /** @param {number} at */
    shown(at) {
        this.#dialogAt = at;
    }

    closed() {
        this.#dialogAt = -Infinity;
    }

    /** From when on a key may act, if none is pressed until then. */
    get freeAt() {
        return Math.max(Math.max(this.#goneAt, this.#wordsAt) + PAUSE_MS, this.#movedAt + MOVED_MS, this.#selectedAt + SEEN_MS, this.#dialogAt + SEEN_MS);
    }

    /** Returns why a key is refused. @param {Key} key @returns {Refusal | null} */
    refuse(key) {
        const isEnter = key.key === "Enter";
        const isPress = isEnter || (key.key === " " && key.on === "control");
        const isLetter = key.key.length === 1 && key.key !== " ";
        // Text goes into its field. Enter there sends it.
        if (key.on === "field" && !isEnter) return null;
        if (key.isComposing) return isEnter || key.on !== "field" ? "composing" : null;
        if (key.on === "field" && key.isLines) return null;
        if (!isPress && !isLetter && key.key !== " ") return null;
        if (key.hasModifier || (key.hasShift && isPress)) return isPress && key.on !== "page" ? "modified" : null;
        if (key.isRepeat && !REPEATING.has(key.key)) return "repeat";
        if (key.at < this.#dialogAt + SEEN_MS) return "unseen";
        if (key.on === "field") return null;
        // Each key of a text prolongs the wait for its pause.
        if (key.at < this.#goneAt + PAUSE_MS) {
            this.#goneAt = key.at;
            return "gone";
        }
        if (key.at < this.#wordsAt + PAUSE_MS) {
            if (!isPress && isLetter && key.key !== "z" && !ACTING.has(key.key)) return null;
            this.#wordsAt = key.at;
            return "words";
        }
        if (key.at < this.#movedAt + MOVED_MS && (isPress || ACTING.has(key.key))) return "moved";
        if (key.at < this.#selectedAt + SEEN_MS && ACTING.has(key.key)) return "unseen";
        return null;
    }
}
