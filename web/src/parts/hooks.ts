import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal, read } from "../api/client";
import { onZone } from "../format";

export interface Asked<T> {
  data: T | null;
  error: Refusal | null;
  busy: boolean;
  again: () => void;
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
  return { data: state.data, error: state.error, busy: state.busy, again: () => setTurn((now) => now + 1) };
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
  useEffect(() => {
    if (!element.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return { element, width };
}

/** The theme that is shown, told again when it changes. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const tell = () => setDark(isDark());
    const query = matchMedia("(prefers-color-scheme: dark)");
    query.addEventListener("change", tell);
    window.addEventListener("jobmeter-theme", tell);
    return () => {
      query.removeEventListener("change", tell);
      window.removeEventListener("jobmeter-theme", tell);
    };
  }, []);
  return dark;
}

export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A value that follows another one once that has rested. */
export function useRested<T>(value: T, ms: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return rested;
}
