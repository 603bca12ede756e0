import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refusal, read } from "../api/client";
import { type Connection, connection, onConnection, onReturn } from "../api/connection";
import { drawWaiting } from "../charts/scheduler";
import { onZone } from "../format";

export interface ReadState<T> {
  data: T | null;
  error: Refusal | null;
  busy: boolean;
  reload: () => void;
}

/** Retry after the time that an error names, and once an unreachable server answers again. */
export function useRetry(error: Refusal | null, reload: () => void): void {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    if (error === null || error.wait === null) return;
    const timer = setTimeout(() => latest.current(), error.wait * 1000);
    return () => clearTimeout(timer);
  }, [error]);
  useEffect(() => onReturn(() => latest.current()), []);
}

/** Return the state of the connection; renders again when it changes. */
export function useConnection(): Connection {
  const [, setTurn] = useState(0);
  useEffect(() => onConnection(() => setTurn((now) => now + 1)), []);
  return connection();
}

/** Read a URL of the API. The last response stays until the next one has arrived. */
export function useRead<T>(url: string | null): ReadState<T> {
  const [state, setState] = useState<{ url: string | null; data: T | null; error: Refusal | null; busy: boolean }>({
    url: null,
    data: null,
    error: null,
    busy: url !== null,
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (url === null) return;
    const gone = new AbortController();
    setState((last) => ({ ...last, busy: true }));
    read<T>(url, gone.signal).then(
      (data) => setState({ url, data, error: null, busy: false }),
      (error: unknown) => {
        if (error instanceof Refusal) setState((last) => ({ ...last, url, error, busy: false }));
      },
    );
    return () => gone.abort();
  }, [url, turn]);
  const reload = useCallback(() => setTurn((now) => now + 1), []);
  useRetry(state.error, reload);
  return { data: state.data, error: state.error, busy: state.busy, reload };
}

/** Make calls that change something. `perform` returns true on success, else it sets `error`. */
export function useAction() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refusal | null>(null);
  const perform = async (work: () => Promise<unknown>): Promise<boolean> => {
    setBusy(true);
    setError(null);
    try {
      await work();
      return true;
    } catch (problem) {
      if (!(problem instanceof Refusal)) throw problem;
      setError(problem);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, perform, clear: () => setError(null) };
}

/** Poll a URL of the API every `ms` milliseconds while the tab is visible. Requests never overlap. A 403 ends the polling. */
export function useReadEvery<T>(url: string | null, ms: number): ReadState<T> {
  const asked = useRead<T>(url);
  const latest = useRef(asked);
  latest.current = asked;
  useEffect(() => {
    const timer = setInterval(() => {
      const { busy, error, reload } = latest.current;
      if (!busy && error?.status !== 403 && !document.hidden) reload();
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
  return asked;
}

/** Render again when the viewer changes the time zone. */
export function useZone(): void {
  const [, setTurn] = useState(0);
  useEffect(() => onZone(() => setTurn((now) => now + 1)), []);
}

/** Measure the width of an element in CSS pixels. */
export function useWidth<T extends HTMLElement>() {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!element.current) return;
    setWidth(element.current.clientWidth);
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return { element, width };
}

/** Margin around the viewport in CSS pixels within which an element counts as near. */
const NEAR = 300;
const DRAW_ALL = "jobmeter-draw-all";

/** Observe an element: `near` is true near the viewport and once everything must be drawn, `inSight` in the viewport. */
export function useVisibility(element: RefObject<HTMLElement>, come: () => void): { near: boolean; inSight: RefObject<boolean> } {
  const [near, setNear] = useState(false);
  const inSight = useRef(false);
  const latest = useRef(come);
  latest.current = come;
  useLayoutEffect(() => {
    const mine = element.current;
    if (!mine) return;
    const { top, bottom } = mine.getBoundingClientRect();
    if (top < innerHeight + NEAR && bottom > -NEAR) setNear(true);
    inSight.current = top < innerHeight && bottom > 0;
    const watch = new IntersectionObserver((entries) => setNear(entries[entries.length - 1]!.isIntersecting), { rootMargin: `${NEAR}px` });
    const sight = new IntersectionObserver((entries) => {
      inSight.current = entries[entries.length - 1]!.isIntersecting;
      if (inSight.current) latest.current();
    });
    const all = () => setNear(true);
    watch.observe(mine);
    sight.observe(mine);
    addEventListener(DRAW_ALL, all);
    addEventListener("beforeprint", all);
    return () => {
      watch.disconnect();
      sight.disconnect();
      removeEventListener(DRAW_ALL, all);
      removeEventListener("beforeprint", all);
    };
  }, []);
  return { near, inSight };
}

/** Draw elements outside the viewport too. Resolves when done. */
export async function drawAll(): Promise<void> {
  dispatchEvent(new Event(DRAW_ALL));
  for (let frame = 0; frame < 3; frame += 1) await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  drawWaiting();
}

/** Return the width of the window in CSS pixels; renders again when it changes. */
export function useWindowWidth(): number {
  const [width, setWidth] = useState(innerWidth);
  useEffect(() => {
    const resized = () => setWidth(innerWidth);
    addEventListener("resize", resized);
    return () => removeEventListener("resize", resized);
  }, []);
  return width;
}

/** Return true if the theme is dark; renders again when it changes. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const update = () => setDark(isDark());
    const query = matchMedia("(prefers-color-scheme: dark)");
    query.addEventListener("change", update);
    window.addEventListener("jobmeter-theme", update);
    return () => {
      query.removeEventListener("change", update);
      window.removeEventListener("jobmeter-theme", update);
    };
  }, []);
  return dark;
}

export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Return true from the first time on that the condition is true. */
export function useLatch(condition: boolean): boolean {
  const was = useRef(false);
  was.current ||= condition;
  return was.current;
}

/** Distance from the end in CSS pixels within which a log counts as scrolled to its end. */
const NEAR_END = 40;

/** Keep a followed log scrolled to its newest line, unless the viewer has scrolled up. */
export function useScrollToEnd(lines: unknown, following: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    if (following && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, following]);
  const onScroll = () => {
    const mine = box.current;
    if (mine) atEnd.current = mine.scrollHeight - mine.scrollTop - mine.clientHeight < NEAR_END;
  };
  return { box, onScroll, toEnd: () => (atEnd.current = true) };
}

/** Debounce a value. Values of the same `name` count as equal. */
export function useDebounced<T>(value: T, ms: number, name: unknown = value): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [name, ms]);
  return rested;
}

/** Close a menu on Escape, which restores the focus, and on a click outside. */
export function useMenu() {
  const ref = useRef<HTMLDetailsElement>(null);
  const close = () => {
    if (ref.current) ref.current.open = false;
  };
  useEffect(() => {
    const outside = (event: Event) => {
      if (ref.current?.open && !ref.current.contains(event.target as Node)) close();
    };
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !ref.current?.open) return;
      close();
      ref.current.querySelector("summary")?.focus();
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", escape);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", escape);
    };
  }, []);
  return { ref, close };
}
