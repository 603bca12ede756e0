// Where the viewer is: `#/jobs/ID?from=1&to=2`. Everything that a link should carry is in it.
import { useEffect, useState } from "preact/hooks";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

/** How long an address waits that is written once what it shows was drawn, in milliseconds. */
const DRAWN = 300;
/** What the address is about to be. */
let next: string | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
addEventListener("hashchange", (event) => event.isTrusted && dropNext());
addEventListener("pagehide", writeNext);

const current = (): string => next ?? location.hash;

export function place(hash: string = current()): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  return { path: parts.map(decoded), query: new URLSearchParams(query) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function href(path: readonly string[], query?: URLSearchParams | Record<string, string>): string {
  const text = new URLSearchParams(query).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Go there; `quiet` replaces the entry in the history, for what is no step of its own. */
export function go(to: string, quiet = false): void {
  if (to === current()) return;
  if (quiet) {
    next = to;
    writeNext();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    writeNext();
    location.hash = to;
  }
}

/** Go there quietly, for what is drawn at once: browsers have much to do for another address, it is written afterwards. */
export function goOnceDrawn(to: string): void {
  if (to === current()) return;
  clearTimeout(timer);
  next = to;
  timer = setTimeout(writeNext, DRAWN);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function writeNext(): void {
  if (next !== null) history.replaceState(null, "", next);
  dropNext();
}

function dropNext(): void {
  clearTimeout(timer);
  next = null;
}

export function usePlace(): Place {
  const [now, setNow] = useState(() => place());
  useEffect(() => {
    const moved = () => setNow(place());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return now;
}

/** The query with some names changed; an empty value takes the name out. */
export function changed(query: URLSearchParams, values: Record<string, string | null>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  return next;
}
