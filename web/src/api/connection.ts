// State of the connection to the server. Every call and every stream reports here; the frame shows it once for the page.
const EVERY = 3_000;
/** Milliseconds a stream may be interrupted before the page says so: the browser reconnects on its own. */
const PATIENCE = 4_000;

export interface Connection {
  /** Time of the last response if the server no longer answers, else null. */
  silent: number | null;
  /** Time since when a stream is interrupted although the server answers, else null. */
  stopped: number | null;
}

let silent: number | null = null;
let last = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;
const stopped = new Map<object, number>();
const listeners = new Set<() => void>();
const returns = new Set<() => void>();

const tell = () => listeners.forEach((listener) => listener());

export const connection = (): Connection => ({ silent, stopped: stopped.size ? Math.min(...stopped.values()) : null });

/** Report any response of the server. */
export function answered(): void {
  last = Date.now();
  if (silent === null) return;
  silent = null;
  clearInterval(timer);
  tell();
  returns.forEach((back) => back());
}

/** Report a message of a stream. It may have been buffered before the server went away, so a probe checks. */
export function heard(): void {
  if (silent === null) last = Date.now();
  else void probe();
}

/** Report that the server did not answer. It is probed until it does. */
export function unanswered(): void {
  if (silent !== null) return;
  silent = last;
  timer = setInterval(() => void probe(), EVERY);
  tell();
}

/** Check if the server answers. */
export async function probe(): Promise<void> {
  try {
    const response = await fetch("/healthz", { cache: "no-store" });
    if (isAway(response.status)) unanswered();
    else answered();
  } catch {
    unanswered();
  }
}

/** Return true for the statuses that a proxy sends when the server behind it is not reachable. */
export const isAway = (status: number): boolean => status === 502 || status === 504;

/** Report an interrupted stream. `reportResume` reports that it continues or was closed. */
export function standsStill(stream: object): void {
  if (stopped.has(stream)) return;
  const since = Date.now();
  stopped.set(stream, since);
  setTimeout(tell, PATIENCE);
}

export function goesOn(stream: object): void {
  if (stopped.delete(stream)) tell();
}

export const isLong = (since: number): boolean => Date.now() - since >= PATIENCE - 100;

export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Register a listener for the moment when the server answers again. Returns a function that removes it. */
export function onReturn(back: () => void): () => void {
  returns.add(back);
  return () => returns.delete(back);
}
