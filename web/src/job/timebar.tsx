import { useState } from "preact/hooks";
import type { Job, LiveState } from "../api/client";
import type { Range } from "../charts/axis";
import { formatDuration, formatTime, zoneName } from "../format";
import { useZone } from "../parts/hooks";
import { memo } from "../parts/memo";
import { Choice, Dialog } from "../parts/elements";
import { Export } from "./export";
import { Share } from "./share";

const HOUR = 3_600_000;
const WINDOWS = [
  [String(HOUR / 4), "15 m"],
  [String(HOUR), "1 h"],
  [String(6 * HOUR), "6 h"],
  [String(24 * HOUR), "24 h"],
  [String(87_600 * HOUR), "all"],
] as const;

/** Sticky bar with the time range of the page. */
export const TimeBar = memo(function TimeBar(given: {
  range: Range;
  whole: Range;
  zoomed: boolean;
  live: LiveState | null;
  running: boolean;
  window: number;
  setWindow: (length: number) => void;
  brush: (range: Range) => void;
  reset: () => void;
  job: Job;
  metrics: readonly string[];
  by: string;
  step: number;
  chosen: string | null;
  choose: (member: string | null) => void;
  /** True for a viewer with a shared link, who cannot share the job. */
  guest: boolean;
}) {
  useZone();
  const { range, whole, zoomed, live, running, brush } = given;
  const [opened, setOpened] = useState<"export" | "share" | null>(null);
  const close = () => setOpened(null);
  const length = range.end - range.start;
  const clip = (start: number, end: number) => brush({ start: Math.max(start, whole.start), end: Math.min(end, Math.max(whole.end, start + 1000)) });
  const state = live === "lost" ? "connection lost, trying again" : running && !zoomed ? "following live" : running ? "paused" : "";
  return (
    <div class="timebar" role="region" aria-label="Time range">
      <span class="range">
        {formatTime(range.start, true)} – {formatTime(range.end, true)} <small>{zoneName()}</small> <b>{formatDuration(length)}</b>
      </span>
      {state && <span class={`live live-${live ?? "over"} ${zoomed ? "paused" : ""}`}>{state}</span>}
      <span class="buttons">
        <button type="button" aria-label="Earlier" onClick={() => clip(range.start - length / 2, range.end - length / 2)}>
          ←
        </button>
        <button type="button" aria-label="Later" onClick={() => clip(range.start + length / 2, range.end + length / 2)}>
          →
        </button>
        <button type="button" aria-label="Zoom in" onClick={() => clip(range.start + length / 4, range.end - length / 4)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => clip(range.start - length / 2, range.end + length / 2)}>
          −
        </button>
        {zoomed && (
          <button type="button" class="primary" onClick={given.reset}>
            {running ? "Follow live" : "Whole job"}
          </button>
        )}
      </span>
      {running && !zoomed && (
        <Choice label="Length of the live range" value={String(given.window)} options={WINDOWS} choose={(value) => given.setWindow(Number(value))} />
      )}
      {given.chosen && (
        <button type="button" class="chosen" onClick={() => given.choose(null)} title="Deselect">
          {given.chosen} ×
        </button>
      )}
      <button type="button" aria-haspopup="dialog" onClick={() => setOpened("export")}>
        Export
      </button>
      {!given.guest && (
        <button type="button" aria-haspopup="dialog" onClick={() => setOpened("share")}>
          Share
        </button>
      )}
      {opened === "export" && (
        <Dialog title="Export" close={close}>
          <Export zoomed={zoomed} job={given.job} metrics={given.metrics} by={given.by} range={range} step={given.step} chosen={given.chosen} />
        </Dialog>
      )}
      {opened === "share" && (
        <Dialog title="Share this job" close={close}>
          <Share job={given.job} />
        </Dialog>
      )}
    </div>
  );
});
