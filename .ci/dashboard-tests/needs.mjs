// What needs the person besides requests: a change of the policies, and a run that is alive after its report.
import assert from "node:assert/strict";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the tests with their names. */
export const needs = ({ site, page, go, item, notice, live, press }) => [
    ["a change of the policies waits for the person", async () => {
        const file = join(site.env.ADJ_HOME, "config.toml");
        const before = readFileSync(file, "utf8");
        const warning = page.locator("main p.warn", { hasText: "count only when you trust them" });
        await go("inbox");
        assert.equal(await warning.count(), 0);
        site.start("editing", 'ask "Shall I edit?"');
        // It is live now.
        await page.locator("main .request", { hasText: "Shall I edit?" }).waitFor();
        // A whole file appears at once, as an editor saves it.
        writeFileSync(`${file}.new`, `${before}[[policies]]\nname = "x"\ndecision = "allow"\nany = true\n`);
        renameSync(`${file}.new`, file);
        const { change } = site.json("policy");
        assert.ok(change, "the run is live, so it waits");
        // The page learns of it with its next reading.
        site.start("asks", 'ask "Anything?"');
        for (const hash of ["inbox", "board"]) {
            await go(hash);
            await warning.waitFor();
            assert.match(await warning.textContent(), /1 of 1 change permit/);
        }
        site.run("policy", "trust", "--change", change.change);
        site.run("cancel", "asks", "editing");
        await site.ended("asks");
        await warning.waitFor({ state: "hidden" });
        writeFileSync(`${file}.new`, before);
        renameSync(`${file}.new`, file);
    }],
    ["a run that is alive after its report can be ended", async () => {
        site.run("run", "-d", "-a", "lingers", "-n", "lingering", "say awake\nreport success it builds\nhang");
        await go("board");
        await page.locator("main [data-needs]", { hasText: "it reports success, and its process has been silent since" }).waitFor();
        await go("inbox");
        await item("lingering").waitFor();
        await item("lingering").focus();
        await press("Enter");
        await page.locator("h1", { hasText: "lingering" }).waitFor();
        // Keys wait after each part of the page that appears.
        await page.locator(".log", { hasText: "awake" }).waitFor();
        await live();
        await press("x");
        await notice("Cancelled");
        await site.ended("lingering");
        await go("inbox");
        await page.locator("main [data-item]", { hasText: "lingering" }).waitFor({ state: "hidden" });
    }],
];
