// System log of a node: newest lines at the end, searched by the server, followed.
import { useState } from "preact/hooks";
import { type LogLine, address } from "../api/client";
import { splitTime } from "../format";
import { useScrollToEnd, useDebounced } from "../parts/hooks";
import { useLog } from "../parts/log";
import { LogLines } from "../parts/log-lines";
import { Follow, LogTools, searchOf } from "../parts/log-tools";
import { Problem, Section } from "../parts/elements";

/** Minimum syslog severity for each level of the filter. */
const SEVERITIES: Record<string, string> = { info: "info", warning: "warning", error: "err" };

export function NodeLog({ node }: { node: string }) {
  const [text, setText] = useState("");
  const [level, setLevel] = useState("");
  const [following, setFollowing] = useState(true);
  // System log lines have a severity; not all of them have a level.
  const searched = useDebounced(text.trim(), 200);
  const search = { ...searchOf(searched), severity: SEVERITIES[level] ?? null };
  const log = useLog({
    page: (query) => address("/api/jobmeter/v1/nodes/{node}/logs", { node }, { ...search, ...query }),
    live: following ? address("/api/jobmeter/v1/nodes/{node}/logs/live", { node }, search) : null,
  });
  const box = useScrollToEnd(log.lines, following);
  const aside = (
    <LogTools of="the system log" text={text} level={level} setText={setText} setLevel={setLevel}>
      <Follow following={following} setFollowing={setFollowing} toEnd={box.toEnd} />
    </LogTools>
  );
  return (
    <Section id="syslog" title="System log" aside={aside}>
      {log.error && <Problem error={log.error} reload={log.reload} />}
      {log.lines && !log.lines.length && (
        <p class="hint">{searched || level ? "No lines match." : "No log lines are stored for this node. Its agent reads the kernel log and the journal if it has permission: see jobmeter agent --help."}</p>
      )}
      {log.lines && log.lines.length > 0 && (
        <LogLines
          log={log}
          name="System log"
          box={box}
          pause={() => setFollowing(false)}
          line={(line) => (
            <div class={`line ${levelOf(line)}`}>
              <time title={splitTime(line.time).day}>{splitTime(line.time).time}</time>
              <span class="where">{line.stream}</span>
              <span class="text">{line.text}</span>
            </div>
          )}
        />
      )}
    </Section>
  );
}

/** Map a syslog severity (0 is the worst, 7 the least) to a level. */
function levelOf({ level, severity }: LogLine): string {
  if (severity === null) return level ?? "";
  return severity <= 3 ? "error" : severity === 4 ? "warning" : severity === 7 ? "debug" : "info";
}
