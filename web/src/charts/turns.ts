// Drawing in turns: a frame gets as many charts as fit into it, the others come with the next ones.
/** Milliseconds of a frame that drawing may begin in; a frame lasts 16.7 ms at 60 Hz. */
const BUDGET = 2;

/** How often values under the pointer are written, in milliseconds: as often as they can be read, not with each frame. */
const READABLE = 50;

const waiting = new Map<object, () => void>();
let frame = 0;
/** What is printed cannot wait for a frame. */
let printing = false;
addEventListener("beforeprint", () => (printing = true), { capture: true });
addEventListener("afterprint", () => (printing = false));

/** Draw with one of the next frames, in order of the calls. What the same chart wanted to draw before is left out. */
export function inTurn(chart: object, draw: () => void): void {
  waiting.set(chart, draw);
  if (printing) drawWaiting();
  else frame ||= requestAnimationFrame(turn);
}

/** After what waits for this thread, a frame among it: what takes long is done in parts. */
export const nextTask = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

/** Forget what a chart that is gone wanted to draw. */
export const outOfTurn = (chart: object): boolean => waiting.delete(chart);

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
  for (const [chart, draw] of [...waiting]) {
    waiting.delete(chart);
    draw();
  }
}

function turn(): void {
  frame = 0;
  const end = performance.now() + BUDGET;
  for (const [chart, draw] of waiting) {
    waiting.delete(chart);
    draw();
    if (performance.now() >= end) break;
  }
  if (waiting.size) frame = requestAnimationFrame(turn);
}
