// Scheduler for drawing: expensive work runs between frames in small portions, so that no frame is late.
/** Milliseconds after a frame within which drawing may start. The next frame comes 16.7 ms later at 60 Hz. */
const BUDGET_MS = 4;

/** Debounce in milliseconds before charts outside the viewport are drawn: once, not for each response. */
const REST_MS = 300;

/** Milliseconds between charts outside the viewport, in browsers without idle callbacks. */
const IDLE_MS = 50;

/** Milliseconds between updates of the values under the pointer: more often nobody could read them. */
const READOUT_MS = 50;

interface Work {
  do: () => void;
  /** Run nothing else in the same turn, because rendering follows. */
  alone: boolean;
}

const waiting = new Map<object, Work>();
/** Charts outside the viewport, drawn while the browser is idle. */
const offscreen = new Map<object, () => void>();
let scheduled = false;
let idling = false;
let resting: ReturnType<typeof setTimeout> | undefined;
/** True while printing, which cannot wait for a frame. */
let printing = false;
addEventListener("beforeprint", () => (printing = true), { capture: true });
addEventListener("afterprint", () => (printing = false));

/** Schedule a chart's drawing, replacing its earlier one. Outside the viewport it waits until the browser is idle. */
export function scheduleDraw(chart: object, draw: () => void, inSight: boolean): void {
  cancelDraw(chart);
  if (inSight) enqueue(chart, { do: draw, alone: false });
  else offscreen.set(chart, draw);
  if (printing) drawWaiting();
  clearTimeout(resting);
  if (offscreen.size) resting = setTimeout(idle, REST_MS);
}

/** Draw a chart soon because it has entered the viewport. */
export function drawSoon(chart: object): void {
  const draw = offscreen.get(chart);
  if (draw) scheduleDraw(chart, draw, true);
}

/** Schedule work that renders the page. */
export const scheduleRender = (work: () => void): void => enqueue({}, { do: work, alone: true });

/** Resolves when the scheduler has time. No other work runs before the next frame. */
export const nextTurn = (): Promise<void> => new Promise(scheduleRender);

function enqueue(name: object, work: Work): void {
  waiting.set(name, work);
  if (!scheduled) scheduleNext();
}

function runTurn(): void {
  try {
    runSome();
  } finally {
    scheduleNext();
  }
}

function runSome(): void {
  const begin = performance.now();
  let first = true;
  for (const [name, work] of waiting) {
    if (work.alone && !first) break;
    waiting.delete(name);
    work.do();
    if (work.alone || performance.now() - begin >= BUDGET_MS) break;
    first = false;
  }
}

function scheduleNext(): void {
  scheduled = waiting.size > 0;
  // A timeout in an animation frame runs right after the frame, when most time is left before the next one. A hidden tab has no frames.
  if (scheduled && document.hidden) setTimeout(runTurn);
  else if (scheduled) requestAnimationFrame(() => setTimeout(runTurn));
}

function idle(): void {
  if (idling) return;
  idling = true;
  // Safari has no idle callbacks.
  if ("requestIdleCallback" in window) requestIdleCallback(drawOffscreen);
  else setTimeout(drawOffscreen, IDLE_MS);
}

function drawOffscreen(): void {
  idling = false;
  const next = waiting.size ? undefined : offscreen.entries().next().value;
  if (next) offscreen.delete(next[0]);
  if (offscreen.size) idle();
  next?.[1]();
}

/** Cancel the drawing of a chart. */
export function cancelDraw(chart: object): void {
  waiting.delete(chart);
  offscreen.delete(chart);
}

const readouts = new Map<object, () => void>();

/** Schedule an update of a chart's legend. Updates are batched, because each changed text causes a layout. */
export function scheduleReadout(chart: object, write: () => void): void {
  if (!readouts.size) setTimeout(writeAll, READOUT_MS);
  readouts.set(chart, write);
}

function writeAll(): void {
  const all = [...readouts.values()];
  readouts.clear();
  for (const write of all) write();
}

/** Draw everything that waits, for example before printing. */
export function drawWaiting(): void {
  const all = [...[...waiting.values()].map((work) => work.do), ...offscreen.values()];
  waiting.clear();
  offscreen.clear();
  for (const work of all) work();
}
