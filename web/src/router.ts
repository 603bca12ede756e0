// Hash router: `#/jobs/ID?from=1&to=2`. The address holds everything that a link should restore.
import { useEffect, useState } from "preact/hooks";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

/** Delay in milliseconds before the address bar is updated after a paint. */
const PAINT_DELAY = 300;
/** Address that is not yet in the address bar. */
let next: string | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
addEventListener("hashchange", (event) => event.isTrusted && dropPending());
addEventListener("pagehide", writePending);

const current = (): string => next ?? location.hash;

export function place(hash: string = current()): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  return { path: parts.map(decode), query: new URLSearchParams(query) };
}

function decode(part: string): string {
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

/** Return the address of a job's page. */
export const jobHref = (job: { id: string; project: string }): string => href(["jobs", job.id], job.project === "default" ? undefined : { project: job.project });

/** Return the address of a node's page. */
export const nodeHref = (name: string, cluster = ""): string => href(["nodes", name], cluster ? { cluster } : undefined);

/** Navigate. With `quiet` the history entry is replaced, for changes that the back button should not undo. */
export function go(to: string, quiet = false): void {
  if (to === current()) return;
  if (quiet) {
    next = to;
    writePending();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    writePending();
    location.hash = to;
  }
}

/** Replace the address after the paint: writing `location` first would delay what the viewer sees. */
export function goAfterPaint(to: string): void {
  if (to === current()) return;
  clearTimeout(timer);
  next = to;
  timer = setTimeout(writePending, PAINT_DELAY);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function writePending(): void {
  if (next !== null) history.replaceState(null, "", next);
  dropPending();
}

function dropPending(): void {
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

/** Return the query with changed parameters; an empty value removes one. */
export function mergeQuery(query: URLSearchParams, values: Record<string, string | null>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  return next;
}
