// Checks the files of the dashboard: files.mjs SOURCES NODE_MODULES. The vendored ones are those of their packages, and all together
// are small enough.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const FIRST_LOAD_BYTES_MAX = 68 * 1024;
const PATHS = { preact: "./preact.mjs", "preact/hooks": "./hooks.mjs", "@preact/signals-core": "./signals-core.mjs" };
const [sources, modules] = process.argv.slice(2);

for (const { file, package: name, version, from } of JSON.parse(readFileSync(join(sources, "vendor/vendor.json"), "utf8")).files) {
    assert.equal(JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8")).version, version, name);
    const original = readFileSync(join(modules, name, from), "utf8");
    const expected = original.replace(/\/\/# sourceMappingURL=\S*\n?/g, "").replace(/from ?["']([^"']+)["']/g, (found, module) => (PATHS[module] ? `from"${PATHS[module]}"` : found));
    assert.equal(readFileSync(join(sources, "vendor", file), "utf8").trimEnd(), expected.trimEnd(), `vendor/${file} is not that of ${name} ${version}`);
}

let total = 0;
for (const entry of readdirSync(sources, { recursive: true })) {
    if (/\.(js|mjs|css|html|svg)$/.test(entry)) total += gzipSync(readFileSync(join(sources, entry)), { level: 9 }).length;
}
console.log(`files: ${(total / 1024).toFixed(1)} KB, each compressed with gzip`);
assert.ok(total <= FIRST_LOAD_BYTES_MAX, `${total} bytes`);
