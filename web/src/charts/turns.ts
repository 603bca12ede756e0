// Work in turns: what takes long is done between frames, in parts, so that the browser shows each frame in time.
/** Milliseconds that drawing may begin in after a frame; the next one comes 16.7 ms later at 60 Hz. */
const BUDGET = 4;

/** How long nothing is wanted to be drawn before what is out of sight is, in milliseconds: it is drawn once, not for each answer. */
const REST = 300;

/** How long what is out of sight waits for the next of its kind, in milliseconds, where the browser has no idle callbacks. */
const PAUSE = 50;

/** How often values under the pointer are written, in milliseconds: as often as they can be read, not with each frame. */
const READABLE = 50;

interface Work {
  do: () => void;
  /** Rendering follows it: nothing else is done in the same turn. */
  alone: boolean;
}

const waiting = new Map<object, Work>();
/** What is out of sight waits until the browser has nothing else to do. */
const unseen = new Map<object, () => void>();
let scheduled = false;
let idling = false;
let resting: ReturnType<typeof setTimeout> | undefined;
/** What is printed cannot wait for a frame. */
let printing = false;
addEventListener("beforeprint", () => (printing = true), { capture: true });
addEventListener("afterprint", () => (printing = false));

/** Draw after one of the next frames, in order of the calls, later where it is out of sight. What the same chart wanted to draw before is left out. */
export function inTurn(chart: object, draw: () => void, inSight: boolean): void {
  outOfTurn(chart);
  if (inSight) enqueue(chart, { do: draw, alone: false });
  else unseen.set(chart, draw);
  if (printing) drawWaiting();
  clearTimeout(resting);
  if (unseen.size) resting = setTimeout(idle, REST);
}

/** A chart has come into sight: what it waits to draw is drawn next. */
export function comeIntoSight(chart: object): void {
  const draw = unseen.get(chart);
  if (draw) inTurn(chart, draw, true);
}

/** Do after one of the next frames what renders the page anew. */
export const aloneInTurn = (work: () => void): void => enqueue({}, { do: work, alone: true });

/** Resolves after one of the next frames; nothing else is done before the frame that follows it. */
export const myTurn = (): Promise<void> => new Promise(aloneInTurn);

function enqueue(name: object, work: Work): void {
  waiting.set(name, work);
  if (!scheduled) scheduleNext();
}

function turn(): void {
  try {
    doSome();
  } finally {
    scheduleNext();
  }
}

function doSome(): void {
  const begin = performance.now();
  let first = true;
  for (const [name, work] of waiting) {
    if (work.alone && !first) break;
    waiting.delete(name);
    work.do();
    if (work.alone || performance.now() - begin >= BUDGET) break;
    first = false;
  }
}

function scheduleNext(): void {
  scheduled = waiting.size > 0;
  // A turn comes once a frame is done, that which the turn before made necessary or an empty one: most time is left then
  // before another one. A tab that nobody sees has no frames.
  if (scheduled && document.hidden) setTimeout(turn);
  else if (scheduled) requestAnimationFrame(() => setTimeout(turn));
}

function idle(): void {
  if (idling) return;
  idling = true;
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in window) requestIdleCallback(drawUnseen);
  else setTimeout(drawUnseen, PAUSE);
}

function drawUnseen(): void {
  idling = false;
  const next = waiting.size ? undefined : unseen.entries().next().value;
  if (next) unseen.delete(next[0]);
  if (unseen.size) idle();
  next?.[1]();
}

/** Forget what a chart wanted to draw. */
export function outOfTurn(chart: object): void {
  waiting.delete(chart);
  unseen.delete(chart);
}

const unread = new Map<object, () => void>();

/** Write a chart's values soon, together with those of the others: each text that changes lays the page out anew. */
export function readSoon(chart: object, write: () => void): void {
  if (!unread.size) setTimeout(writeAll, READABLE);
  unread.set(chart, write);
}

function writeAll(): void {
  const all = [...unread.values()];
  unread.clear();
  for (const write of all) write();
}

/** Draw all that waits now, as before a picture is taken of it. */
export function drawWaiting(): void {
  const all = [...[...waiting.values()].map((work) => work.do), ...unseen.values()];
  waiting.clear();
  unseen.clear();
  for (const work of all) work();
}
