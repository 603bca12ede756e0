// The system log of a node: newest at the end, searched by the server, followed.
import { useEffect, useRef, useState } from "preact/hooks";
import { type LogLine, Refusal, type Schemas, address, read } from "../api/client";
import { parts } from "../format";
import { useNewest, useRested } from "../parts/hooks";
import { Follow, LogTools } from "../parts/log-tools";
import { Problem, Section } from "../parts/small";

const PAGE = 200;
const MOST = 2_000;
const EVERY = 3_000;

export function NodeLog({ node, cluster }: { node: string; cluster: string }) {
  const [text, setText] = useState("");
  const [level, setLevel] = useState("");
  const [following, setFollowing] = useState(true);
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const { box, onScroll, toEnd } = useNewest(lines, following);
  const [error, setError] = useState<Refusal | null>(null);
  const contains = useRested(text.trim(), 200);
  const newest = useRef<LogLine[]>([]);
  const keep = (next: LogLine[]) => {
    newest.current = next.slice(-MOST);
    setLines(newest.current);
  };
  const ask = (query: Record<string, string | number | null>, signal: AbortSignal) =>
    read<Schemas["NodeLogList"]>(address("/api/jobmeter/v1/nodes/{node}/logs", { node }, { contains, level: level || null, ...query, limit: PAGE }), signal);
  useEffect(() => {
    const gone = new AbortController();
    ask({ order: "desc" }, gone.signal).then(
      (page) => {
        keep([...page.lines].reverse());
        setError(null);
      },
      (problem: unknown) => problem instanceof Refusal && setError(problem),
    );
    return () => gone.abort();
  }, [node, cluster, contains, level]);
  useEffect(() => {
    if (!following) return;
    const gone = new AbortController();
    const timer = setInterval(() => {
      if (document.hidden) return;
      const last = newest.current[newest.current.length - 1];
      ask({ start: last ? last.time : null, order: "asc" }, gone.signal).then(
        (page) => {
          const before = new Set(newest.current.slice(-PAGE).map(keyOf));
          const fresh = page.lines.filter((line) => !before.has(keyOf(line)));
          if (fresh.length) keep([...newest.current, ...fresh]);
        },
        () => null, // what fails once is asked for again
      );
    }, EVERY);
    return () => {
      clearInterval(timer);
      gone.abort();
    };
  }, [node, cluster, contains, level, following]);
  const aside = (
    <LogTools of="the system log" text={text} level={level} setText={setText} setLevel={setLevel}>
      <Follow following={following} setFollowing={setFollowing} toEnd={toEnd} />
    </LogTools>
  );
  return (
    <Section id="syslog" title="System log" aside={aside}>
      {error && <Problem error={error} />}
      {lines && !lines.length && <p class="hint">{contains || level ? "No line matches." : "No line was stored yet. The node's agent reads the kernel's log and the journal where it may: jobmeter agent --help."}</p>}
      {lines && lines.length > 0 && (
        <div class="log" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="System log" aria-live="off">
          {lines.map((line) => (
            <div key={keyOf(line)} class={`line ${line.level ?? ""}`}>
              <time title={parts(line.time).day}>{parts(line.time).time}</time>
              <span class="where">{line.stream}</span>
              <span class="text">{line.text}</span>
            </div>
          ))}
        </div>
      )}
    </Section>
  );
}

const keyOf = (line: LogLine): string => `${line.time_ns} ${line.stream} ${line.text}`;
