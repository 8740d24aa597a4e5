// Typing never acts: what happens to a text, and to the keys, when what it was written for goes away.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";

/** Types like a person: about eight keys a second. */
const DELAY = { delay: 40 };

/**
 * The tests, by their rule.
 * @param {{site: any, page: any, main: any, base: string, go: any, item: any, request: any, notice: any, live: any, press: any, call: any}} t
 */
export function typing({ site, page, main, base, go, item, request, notice, live, press, call }) {
    const closed = (text, how) => page.locator(".request.closed", { hasText: text }).locator(".kept", { hasText: how });
    const isOpen = async (run) => assert.equal((await call("requests", { run })).requests.length, 1, `the request of ${run} is open`);
    /** Asserts that nothing was sent, and nothing waits to be sent. */
    const nothingActed = async () => {
        assert.equal(await page.locator(".notice.later").count(), 0);
        assert.deepEqual(await page.locator(".notice", { hasText: /^(Approved|Denied|Merged|Cancelled|Started|Answered|Marked|Paused)/ }).allTextContents(), []);
    };
    const discard = async (text) => {
        await page.locator(".kept", { hasText: text }).getByRole("button", { name: "Discard text" }).click();
        await page.locator(".kept", { hasText: text }).waitFor({ state: "detached" });
    };
    /** An approval that is the next item of each list. */
    const danger = async (name) => {
        site.start(name, `approve "rm -rf /srv/${name}"`);
        await request(`/srv/${name}`).waitFor();
    };
    const field = (text) => request(text).getByRole("textbox");
    const cancel = (...names) => names.forEach((name) => site.run("cancel", name));

    const tests = {
        "words after their question was answered approve nothing": async () => {
            await go("inbox");
            site.start("taken", 'ask "Which table?"\nsleep 300s');
            await request("Which table?").waitFor();
            await danger("danger-1");
            await danger("danger-2");
            await field("Which table?").click();
            await page.keyboard.type("I think ", DELAY);
            site.run("reply", "taken", "the blue one");
            await closed("Which table?", "was answered by person meanwhile: the blue one").waitFor();
            await page.keyboard.type("that a table is fine", DELAY);
            await press("Enter");
            assert.equal(await field("Which table?").inputValue(), "I think that a table is fine");
            await nothingActed();
            await isOpen("danger-1");
            await isOpen("danger-2");
            // It stays when the focus leaves it, and on the other pages.
            await page.locator("h1").click();
            await go("board");
            assert.equal(await field("Which table?").inputValue(), "I think that a table is fine");
            await main.grantPermissions(["clipboard-read", "clipboard-write"]);
            await page.getByRole("button", { name: "Copy text" }).click();
            await notice("Copied");
            assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "I think that a table is fine");
            await page.getByRole("button", { name: "Send as a message to taken" }).click();
            await notice("Message to taken");
            await page.locator(".request.closed").waitFor({ state: "detached" });
            cancel("taken", "danger-1", "danger-2");
        },

        "words after their run has ended merge nothing": async () => {
            site.start("endless", "write end.txt Hello\nask \"Go on?\"", "--clone");
            await go(`run/${site.show("endless").run_id}/conversation`);
            const message = page.getByLabel("Message to the run");
            await message.click();
            await page.keyboard.type("please ", DELAY);
            site.run("reply", "endless", "yes");
            await site.ended("endless");
            await page.locator(".kept", { hasText: "endless has ended meanwhile" }).waitFor();
            await page.keyboard.type("make it simpler", DELAY);
            await press("Enter");
            assert.equal(await message.inputValue(), "please make it simpler");
            assert.equal(await page.getByRole("dialog").count(), 0);
            await nothingActed();
            assert.deepEqual(readdirSync(site.work).filter((name) => name === "end.txt"), []);
            // On another part of the run, and back.
            await page.getByRole("link", { name: "Report" }).click();
            await page.locator(".report").waitFor();
            await page.getByRole("link", { name: "Conversation" }).click();
            assert.equal(await message.inputValue(), "please make it simpler");
            await discard("endless has ended");
            assert.equal(await message.count(), 0);
        },

        "words without a field retry, see and answer nothing": async () => {
            site.start("broken-1", "fail 3");
            site.start("broken-2", "fail 3");
            site.start("last", 'ask "Which database?"\nsleep 300s');
            await go("inbox");
            for (const name of ["broken-1", "broken-2"]) await item(name).waitFor();
            await field("Which database?").click();
            await page.keyboard.type("I would ", DELAY);
            // The whole card goes: the text has no field any more.
            await page.evaluate(() => (location.hash = "#/timeline"));
            await page.locator("h1", { hasText: "Timeline" }).waitFor();
            await page.evaluate(() => (location.hash = "#/inbox"));
            await request("Which database?").waitFor();
            await page.keyboard.type("rather prefer that you drop the table, yes a1", DELAY);
            await press("Enter");
            await nothingActed();
            const unseen = (await call("attention")).runs.filter((run) => run.attention.is_new).map((run) => run.name);
            // The newer end comes first, and either may have ended later.
            assert.deepEqual(unseen.filter((name) => name.startsWith("broken-")).sort(), ["broken-1", "broken-2"]);
            assert.equal(await field("Which database?").inputValue(), "I would ", "the draft is kept");
            cancel("last");
            await discard("was withdrawn");
        },

        "a card stays through expiry and withdrawal while somebody writes": async () => {
            await go("inbox");
            site.start("brief", `tool ask_parent ${JSON.stringify({ question: "Now or never?", expires_s: 5, wait_s: 0 })}\nsleep 300s`);
            await field("Now or never?").click();
            await page.keyboard.type("never", DELAY);
            await closed("Now or never?", "has expired meanwhile").waitFor({ timeout: 20_000 });
            assert.equal(await field("Now or never?").inputValue(), "never");
            await discard("has expired");
            cancel("brief");

            site.start("doomed", 'approve "rm -rf /srv/doomed"');
            await request("/srv/doomed").waitFor();
            await request("/srv/doomed").getByRole("button", { name: "Deny" }).click();
            await page.keyboard.type("not a", DELAY);
            cancel("doomed");
            await closed("/srv/doomed", "was withdrawn meanwhile").waitFor();
            await page.keyboard.type(" good day", DELAY);
            await press("Enter");
            assert.equal(await request("/srv/doomed").getByRole("textbox").inputValue(), "not a good day");
            await nothingActed();
            await discard("was withdrawn");

            site.start("chief-2", 'delegate "port the manual" [agent: reviewer]');
            await request("port the manual").getByRole("button", { name: "Change" }).click();
            await page.keyboard.type("first ", DELAY);
            cancel("chief-2");
            await closed("port the manual", "was withdrawn meanwhile").waitFor();
            await page.keyboard.type("a map", DELAY);
            assert.match(await request("port the manual").getByLabel("Task").inputValue(), /first a map/);
            await discard("was withdrawn");
        },

        "an answer that comes too late keeps its text": async () => {
            await go("inbox");
            const tab = await main.newPage();
            await tab.goto(`${base}/#/inbox`);
            site.start("contested", 'ask "Whose turn?"\nsleep 300s');
            await request("Whose turn?").waitFor();
            await field("Whose turn?").click();
            await page.keyboard.type("mine, ", DELAY);
            const other = tab.locator(".request", { hasText: "Whose turn?" });
            await other.getByRole("textbox").fill("theirs");
            await other.getByRole("button", { name: "Send" }).click();
            await closed("Whose turn?", "meanwhile: theirs").waitFor();
            await page.keyboard.type("always", DELAY);
            assert.equal(await field("Whose turn?").inputValue(), "mine, always");
            await discard("meanwhile");
            await tab.close();
            // Answered between the key and the hub: the page hears of it only by the refusal.
            site.start("raced", 'ask "Who is first?"\nsleep 300s');
            await request("Who is first?").waitFor();
            await page.route("**/api/v1/answer", async (route) => {
                site.run("reply", "raced", "me");
                await route.continue();
            });
            await field("Who is first?").fill("a long text");
            await press("Enter");
            await notice("already answered");
            await page.unroute("**/api/v1/answer");
            await closed("Who is first?", "meanwhile: me").waitFor();
            assert.equal(await field("Who is first?").inputValue(), "a long text");
            await discard("meanwhile");
            cancel("contested", "raced");
        },

        "a list that is rendered again keeps the caret": async () => {
            site.start("steady-1", 'ask "Keep the caret?"\nsleep 300s');
            await go("board");
            await field("Keep the caret?").click();
            await page.keyboard.type("one three", DELAY);
            for (let n = 0; n < 5; n += 1) await press("ArrowLeft");
            await danger("beside-1");
            site.start("beside-2", "fail 3");
            await item("beside-2").waitFor();
            cancel("beside-1");
            await request("/srv/beside-1").waitFor({ state: "detached" });
            await page.keyboard.type("two ", DELAY);
            assert.equal(await field("Keep the caret?").inputValue(), "one two three");
            await press("Control+A", "Delete");
            await page.locator("h1").click();
            cancel("steady-1");
            await request("Keep the caret?").waitFor({ state: "detached" });
        },

        "words over a selected item approve nothing": async () => {
            await go("inbox");
            await danger("words");
            await isOpen("words");
            for (const text of ["just a jar", "ja", "jaja", ". a", "yes a"]) {
                // So that j selects the approval.
                await request("/srv/words").focus();
                await page.locator("h1").click();
                await page.keyboard.type(text, DELAY);
                await nothingActed();
            }
            // Words before the selection: it falls, so that no later letter acts on it.
            await page.locator("h1").click();
            await request("/srv/words").focus();
            await live();
            await page.keyboard.type("so a", DELAY);
            await nothingActed();
            assert.equal(await page.evaluate(() => document.activeElement?.closest("[data-item]")), null);
            await isOpen("words");
            cancel("words");
            await request("/srv/words").waitFor({ state: "detached" });
        },

        "held keys, modifiers and compositions act nowhere": async () => {
            await go("inbox");
            await danger("held-down");
            await request("/srv/held-down").focus();
            await live();
            for (const modifier of ["Control", "Alt", "Meta", "Shift"]) await press(`${modifier}+a`);
            await nothingActed();
            await request("/srv/held-down").focus();
            await live();
            await page.evaluate(() => {
                const send = (more) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "a", code: "KeyA", bubbles: true, cancelable: true, ...more }));
                send({ isComposing: true });
                send({ keyCode: 229 });
                send({ repeat: true });
            });
            await nothingActed();
            // The button itself, with Enter held down: the repeats do nothing.
            await request("/srv/held-down").getByRole("button", { name: "Deny" }).focus();
            await page.keyboard.down("Enter");
            await request("/srv/held-down").getByRole("textbox").waitFor();
            await page.keyboard.type("a", DELAY);
            for (let n = 0; n < 5; n += 1) await page.keyboard.down("Enter");
            await page.keyboard.up("Enter");
            await nothingActed();
            await isOpen("held-down");
            cancel("held-down");
            await discard("was withdrawn");
        },

        "a dialog that a held key has opened confirms nothing": async () => {
            site.start("mergeable", "write merged.txt Hello", "--clone");
            await site.ended("mergeable");
            await go(`run/${site.show("mergeable").run_id}`);
            const button = page.getByRole("button", { name: "Merge …" });
            const dialog = page.getByRole("dialog", { name: "Merge mergeable" });
            for (const opening of ["Enter", "m"]) {
                await button.focus();
                await live();
                await page.keyboard.down(opening);
                for (let n = 0; n < 3; n += 1) await page.keyboard.down(opening);
                await page.keyboard.up(opening);
                await dialog.waitFor();
                for (let n = 0; n < 3; n += 1) await press("Enter", "Space");
                assert.ok(await dialog.isVisible());
                await nothingActed();
                await press("Escape");
                await dialog.waitFor({ state: "detached" });
            }
            // Words that were meant for a field: a letter of them opens the dialog, and their Enter confirms nothing.
            await button.focus();
            await live();
            await page.keyboard.type("make it simpler", DELAY);
            await press("Enter");
            await nothingActed();
            assert.deepEqual(readdirSync(site.work).filter((name) => name === "merged.txt"), []);
            await press("Escape");
            await dialog.waitFor({ state: "detached" });
            // Seen, then confirmed.
            await button.focus();
            await live();
            await press("m");
            await dialog.waitFor();
            await live();
            await press("Enter");
            await notice("Merged mergeable");
            assert.ok(readdirSync(site.work).includes("merged.txt"));
        },

        "a high risk takes a click or Shift+A": async () => {
            await go("inbox");
            site.start("risk-1", 'approve "drop the archive" [risk: high]\nsay end');
            const card = request("drop the archive");
            await card.focus();
            await live();
            await press("a");
            await nothingActed();
            await card.focus();
            await live();
            await press("Shift+A");
            await notice("Approved");
            await site.ended("risk-1");
            site.start("risk-2", 'approve "drop the backup" [risk: removes all copies]\nsay end');
            await request("drop the backup").getByRole("button", { name: "Approve" }).click();
            await notice("Approved");
            await site.ended("risk-2");
        },

        "an item that is selected is approved with one key, also when another has gone": async () => {
            await go("inbox");
            await danger("first");
            await danger("second");
            await request("/srv/first").focus();
            await live();
            site.run("approve", "first");
            await closed("/srv/first", "was answered by person").waitFor();
            // The selection stays on the card of the closed one, which takes no key.
            await press("a");
            await nothingActed();
            // Keys that follow a change of the list too soon are refused.
            await live();
            await press("j");
            await request("/srv/first").waitFor({ state: "detached" });
            await live();
            await press("a");
            await notice("Approved Q");
            await site.ended("second");
        },

        "messages and comments that are not sent stay": async () => {
            const { chat_id } = site.json("chat", "start", "Drafts");
            await go(`chats/${chat_id}`);
            await page.getByLabel("Message", { exact: true }).fill("half a th");
            await go("board");
            await go(`chats/${chat_id}`);
            assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "half a th");
            // What is typed while a message is sent is not removed with it.
            let release;
            await page.route("**/api/v1/say", async (route) => {
                await new Promise((done) => (release = done));
                await route.continue();
            });
            await page.getByLabel("Message", { exact: true }).press("Enter");
            await page.getByLabel("Message", { exact: true }).pressSequentially("ought");
            release();
            await notice("Posted");
            await page.unroute("**/api/v1/say");
            assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "ought");
            await page.getByLabel("Message", { exact: true }).fill("");

            site.start("commented", "write c.txt Hello", "--clone");
            await site.ended("commented");
            const run = `run/${site.show("commented").run_id}`;
            await go(`${run}/changes`);
            await page.getByRole("button", { name: "Comment on line 1" }).click();
            await page.keyboard.type("first");
            await press("Enter");
            await page.getByRole("button", { name: "Comment on line 1" }).click();
            await page.keyboard.type("half");
            await go(`${run}/report`);
            await page.locator(".report").waitFor();
            await go(`${run}/changes`);
            await page.locator("p.comment", { hasText: "first" }).waitFor();
            assert.equal(await page.getByRole("textbox", { name: "Comment on line 1" }).inputValue(), "half");
        },
    };
    // Each test asserts what was done since it began.
    const clear = () => page.evaluate(() => document.querySelectorAll(".notice [aria-label=Dismiss]").forEach((button) => button.click()));
    return Object.entries(tests).map(([rule, test]) => /** @type {[string, () => Promise<void>]} */ ([rule, () => clear().then(test)]));
}
