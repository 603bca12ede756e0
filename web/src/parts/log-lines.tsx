// Box of log lines with a button for earlier lines and a mark at each gap.
import { type ComponentChildren, Fragment } from "preact";
import type { LogLine } from "../api/client";
import type { Gap } from "./gaps";
import { useScrollToEnd } from "./hooks";
import { LOADED, keyOf, type useLog } from "./log";

type Given = {
  log: ReturnType<typeof useLog>;
  name: string;
  box: ReturnType<typeof useScrollToEnd>;
  /** Called before lines are loaded that are not the newest. */
  pause: () => void;
  line: (line: LogLine, key: string) => ComponentChildren;
};

export function LogLines({ log, name, box, pause, line }: Given) {
  const at = new Map(log.gaps.map((gap) => [gap.at, gap]));
  const act = (work: () => Promise<void>) => {
    pause();
    void work();
  };
  const mark = (place: number) => {
    const gap = at.get(place);
    return gap && <GapMark gap={gap} load={() => act(() => log.load(gap))} />;
  };
  const lines = log.lines ?? [];
  return (
    <div class="log" ref={box.box} onScroll={box.onScroll} tabIndex={0} role="log" aria-label={name} aria-live="off">
      {log.more && (
        <button type="button" onClick={() => act(log.earlier)}>
          Earlier lines
        </button>
      )}
      {lines.map((one, place) => (
        <Fragment key={keyOf(one)}>
          {mark(place)}
          {line(one, keyOf(one))}
        </Fragment>
      ))}
      {mark(lines.length)}
    </div>
  );
}

function GapMark({ gap, load }: { gap: Gap; load: () => void }) {
  const exact = Number.isFinite(gap.lines);
  const count = exact ? gap.lines.toLocaleString("en") : "";
  const text = !exact ? "Lines were left out" : gap.lines === 1 ? "1 line was left out" : `${count} lines were left out`;
  return (
    <div class="gap">
      {text}
      <button type="button" title="These lines arrived faster than the page shows them, or while this tab was hidden" onClick={load}>
        {gap.lines > LOADED ? `Load the last ${LOADED.toLocaleString("en")}` : "Load"}
      </button>
    </div>
  );
}
