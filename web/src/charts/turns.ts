// Scheduler for drawing: expensive work runs between frames in small portions, so that no frame is late.
/** Milliseconds after a frame within which drawing may start. The next frame comes 16.7 ms later at 60 Hz. */
const BUDGET = 4;

/** Debounce in milliseconds before charts outside the viewport are drawn: once, not for each response. */
const REST = 300;

/** Milliseconds between charts outside the viewport, in browsers without idle callbacks. */
const PAUSE = 50;

/** Milliseconds between updates of the values under the pointer: more often nobody could read them. */
const READABLE = 50;

interface Work {
  do: () => void;
  /** Run nothing else in the same turn, because rendering follows. */
  alone: boolean;
}

const waiting = new Map<object, Work>();
/** Charts outside the viewport, drawn while the browser is idle. */
const unseen = new Map<object, () => void>();
let scheduled = false;
let idling = false;
let resting: ReturnType<typeof setTimeout> | undefined;
/** True while printing, which cannot wait for a frame. */
let printing = false;
addEventListener("beforeprint", () => (printing = true), { capture: true });
addEventListener("afterprint", () => (printing = false));

/** Schedule a chart's drawing, replacing its earlier one. Outside the viewport it waits until the browser is idle. */
export function inTurn(chart: object, draw: () => void, inSight: boolean): void {
  outOfTurn(chart);
  if (inSight) enqueue(chart, { do: draw, alone: false });
  else unseen.set(chart, draw);
  if (printing) drawWaiting();
  clearTimeout(resting);
  if (unseen.size) resting = setTimeout(idle, REST);
}

/** Draw a chart soon because it has entered the viewport. */
export function comeIntoSight(chart: object): void {
  const draw = unseen.get(chart);
  if (draw) inTurn(chart, draw, true);
}

/** Schedule work that renders the page. */
export const aloneInTurn = (work: () => void): void => enqueue({}, { do: work, alone: true });

/** Resolves when the scheduler has time. No other work runs before the next frame. */
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
  // A timeout in an animation frame runs right after the frame, when most time is left before the next one. A hidden tab has no frames.
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

/** Cancel the drawing of a chart. */
export function outOfTurn(chart: object): void {
  waiting.delete(chart);
  unseen.delete(chart);
}

const unread = new Map<object, () => void>();

/** Schedule an update of a chart's legend. Updates are batched, because each changed text causes a layout. */
export function readSoon(chart: object, write: () => void): void {
  if (!unread.size) setTimeout(writeAll, READABLE);
  unread.set(chart, write);
}

function writeAll(): void {
  const all = [...unread.values()];
  unread.clear();
  for (const write of all) write();
}

/** Draw everything that waits, for example before printing. */
export function drawWaiting(): void {
  const all = [...[...waiting.values()].map((work) => work.do), ...unseen.values()];
  waiting.clear();
  unseen.clear();
  for (const work of all) work();
}
