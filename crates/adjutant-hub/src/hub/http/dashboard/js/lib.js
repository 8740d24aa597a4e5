// What every module uses: elements, hooks and signals. Text of agents is only ever a child or an attribute of an element, so
// it is never parsed as HTML.
import { Component, Fragment, h, render } from "../vendor/preact.mjs";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
import { batch, computed, effect, signal, useSignal } from "../vendor/signals.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
export { batch, Component, computed, effect, Fragment, h, render, signal, useEffect, useLayoutEffect, useMemo, useRef, useSignal, useState };
