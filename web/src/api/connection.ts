// Whether the server answers. Every call and every stream reports here; the frame shows it once for the whole page.
const EVERY = 3_000;
/** So long a stream may be away without a word: the browser opens it again by itself. */
const PATIENCE = 4_000;

export interface Connection {
  /** Since when the server has not answered; null while it does. */
  silent: number | null;
  /** Since when something that is followed live has stood still, though the server answers; null while nothing has. */
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

/** The server answered, whatever it said. */
export function answered(): void {
  last = Date.now();
  if (silent === null) return;
  silent = null;
  clearInterval(timer);
  tell();
  returns.forEach((back) => back());
}

/** A stream had a message. It may have been under way since before the server went away, which a probe finds out. */
export function heard(): void {
  if (silent === null) last = Date.now();
  else void probe();
}

/** The server did not answer: it is asked again until it does. */
export function unanswered(): void {
  if (silent !== null) return;
  silent = last;
  timer = setInterval(() => void probe(), EVERY);
  tell();
}

/** Find out whether the server answers. */
export async function probe(): Promise<void> {
  try {
    const response = await fetch("/healthz", { cache: "no-store" });
    if (isAway(response.status)) unanswered();
    else answered();
  } catch {
    unanswered();
  }
}

/** What a proxy says for a server that is not there. */
export const isAway = (status: number): boolean => status === 502 || status === 504;

/** A stream stands still; `back` says that it goes on, or is over. */
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

/** Register a listener for when the server answers again. */
export function onReturn(back: () => void): () => void {
  returns.add(back);
  return () => returns.delete(back);
}
