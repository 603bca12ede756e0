import type { RefObject } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refusal, read } from "../api/client";
import { type Connection, connection, onConnection, onReturn } from "../api/connection";
import { drawWaiting } from "../charts/turns";
import { onZone } from "../format";

export interface Asked<T> {
  data: T | null;
  error: Refusal | null;
  busy: boolean;
  again: () => void;
}

/** Ask again by itself: after the time that a refusal names, and once a server that was away answers again. */
export function useAgain(error: Refusal | null, again: () => void): void {
  const latest = useRef(again);
  latest.current = again;
  useEffect(() => {
    if (error === null || error.wait === null) return;
    const timer = setTimeout(() => latest.current(), error.wait * 1000);
    return () => clearTimeout(timer);
  }, [error]);
  useEffect(() => onReturn(() => latest.current()), []);
}

/** Whether the server answers; draws again when that changes. */
export function useConnection(): Connection {
  const [, setTurn] = useState(0);
  useEffect(() => onConnection(() => setTurn((now) => now + 1)), []);
  return connection();
}

/** What the server answers to a question; the last answer stays until the next one is there. */
export function useRead<T>(url: string | null): Asked<T> {
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
  const again = useCallback(() => setTurn((now) => now + 1), []);
  useAgain(state.error, again);
  return { data: state.data, error: state.error, busy: state.busy, again };
}

/**
 * What the server answers to a question that is asked again and again, in milliseconds, while the page is looked at.
 *
 * A slow answer is waited for. What the key may not see is asked for once.
 */
export function useReadEvery<T>(url: string | null, ms: number): Asked<T> {
  const asked = useRead<T>(url);
  const latest = useRef(asked);
  latest.current = asked;
  useEffect(() => {
    const timer = setInterval(() => {
      const { busy, error, again } = latest.current;
      if (!busy && error?.status !== 403 && !document.hidden) again();
    }, ms);
    return () => clearInterval(timer);
  }, [ms]);
  return asked;
}

/** Draw again when the viewer chooses another zone. */
export function useZone(): void {
  const [, setTurn] = useState(0);
  useEffect(() => onZone(() => setTurn((now) => now + 1)), []);
}

/** The width of an element, in CSS pixels. */
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

/** How far beyond the window, in CSS pixels, something counts as near. */
const NEAR = 300;
const DRAW_ALL = "jobmeter-draw-all";

/** Whether an element is in sight, and whether it is or is near it; the latter, too, when everything has to be drawn. */
export function useSight(element: RefObject<HTMLElement>, come: () => void): { near: boolean; inSight: RefObject<boolean> } {
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

/** Have what is out of sight drawn too; resolves when it is. */
export async function drawAll(): Promise<void> {
  dispatchEvent(new Event(DRAW_ALL));
  for (let frame = 0; frame < 3; frame += 1) await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  drawWaiting();
}

/** The width of the window, in CSS pixels. */
export function useWindowWidth(): number {
  const [width, setWidth] = useState(innerWidth);
  useEffect(() => {
    const resized = () => setWidth(innerWidth);
    addEventListener("resize", resized);
    return () => removeEventListener("resize", resized);
  }, []);
  return width;
}

/** Whether the theme is dark; updates when it changes. */
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

/** True from the first time on that the condition was. */
export function useOnce(condition: boolean): boolean {
  const was = useRef(false);
  was.current ||= condition;
  return was.current;
}

/** How near its end a log is where it is read to its end, in CSS pixels. */
const NEAR_END = 40;

/** The box of a log that shows its newest lines while it is followed; who has scrolled up to read stays there. */
export function useNewest(lines: unknown, following: boolean) {
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

/** A value that follows another one once that has rested; values of the same name count as the same. */
export function useRested<T>(value: T, ms: number, name: unknown = value): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [name, ms]);
  return rested;
}

/** A menu that closes by Escape, which gives the focus back, and by a click outside of it. */
export function useClosing() {
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
