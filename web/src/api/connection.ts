// State of the connection to the server. Every call and every stream reports here; the frame shows it once for the page.
const PROBE_INTERVAL = 3_000;
/** Milliseconds a stream may be interrupted before the page says so: the browser reconnects on its own. */
const STALL_GRACE = 4_000;

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
const returnListeners = new Set<() => void>();

const notify = () => listeners.forEach((listener) => listener());

export const connection = (): Connection => ({ silent, stopped: stopped.size ? Math.min(...stopped.values()) : null });

/** Report any response of the server. */
export function reportResponse(): void {
  last = Date.now();
  if (silent === null) return;
  silent = null;
  clearInterval(timer);
  notify();
  returnListeners.forEach((back) => back());
}

/** Report a message of a stream. It may have been buffered before the server went away, so a probe checks. */
export function reportMessage(): void {
  if (silent === null) last = Date.now();
  else void probe();
}

/** Report that the server did not answer. It is probed until it does. */
export function reportFailure(): void {
  if (silent !== null) return;
  silent = last;
  timer = setInterval(() => void probe(), PROBE_INTERVAL);
  notify();
}

/** Check if the server answers. */
export async function probe(): Promise<void> {
  try {
    const response = await fetch("/healthz", { cache: "no-store" });
    if (isGatewayError(response.status)) reportFailure();
    else reportResponse();
  } catch {
    reportFailure();
  }
}

/** Return true for the statuses that a proxy sends when the server behind it is not reachable. */
export const isGatewayError = (status: number): boolean => status === 502 || status === 504;

/** Report an interrupted stream. `reportResume` reports that it continues or was closed. */
export function reportStall(stream: object): void {
  if (stopped.has(stream)) return;
  const since = Date.now();
  stopped.set(stream, since);
  setTimeout(notify, STALL_GRACE);
}

export function reportResume(stream: object): void {
  if (stopped.delete(stream)) notify();
}

export const isOverdue = (since: number): boolean => Date.now() - since >= STALL_GRACE - 100;

export function onConnection(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Register a listener for the moment when the server answers again. Returns a function that removes it. */
export function onReturn(back: () => void): () => void {
  returnListeners.add(back);
  return () => returnListeners.delete(back);
}
