// Device hours of projects or users: a table of sums, and a chart of the chosen one by hour, day or week.
import { type Schemas, address } from "../api/client";
import { formatMoney, formatTime, splitTime, pluralize } from "../format";
import { hours } from "../job/idle";
import { useRead, useZone } from "../parts/hooks";
import { Choice, Problem, Section } from "../parts/elements";
import { mergeQuery, go, href } from "../router";

type Hours = Schemas["DeviceHoursBody"];
type Group = Schemas["DeviceHoursGroup"];
type Bucket = Schemas["DeviceHoursBucket"];

const OVER = [
  ["1d", "24 h"],
  ["7d", "7 d"],
  ["30d", "30 d"],
  ["365d", "1 year"],
] as const;
const BY = [
  ["project", "Project"],
  ["user", "User"],
] as const;
const UNIT = new Map([
  [3_600_000, "hour"],
  [86_400_000, "day"],
]);

export function History({ query }: { query: URLSearchParams }) {
  const by = BY.find(([name]) => name === query.get("by"))?.[0] ?? "project";
  const over = OVER.find(([name]) => name === query.get("over"))?.[0] ?? "30d";
  const set = (values: Record<string, string | null>) => go(href(["use"], mergeQuery(query, values)), true);
  const { data, error, reload } = useRead<Hours>(address("/api/jobmeter/v1/devices/hours", {}, { by, since: over }));
  const aside = (
    <>
      <Choice label="Grouped by" value={by} options={BY} choose={(value) => set({ by: value, who: null })} />
      <Choice label="Device hours over the last" value={over} options={OVER} choose={(value) => set({ over: value })} />
    </>
  );
  return (
    <Section id="hours" title="Device hours" aside={aside}>
      {error && <Problem error={error} reload={reload} />}
      {!data && !error && <span class="bar skeleton" role="status" aria-label="Loading the device hours" style={{ width: "100%", height: "220px" }} />}
      {data && !error && !data.groups?.length && <p class="hint">No jobs with devices in this time.</p>}
      {data && !error && !!data.groups?.length && <Groups found={data} who={query.get("who")} choose={(who) => set({ who })} />}
    </Section>
  );
}

function Groups({ found, who, choose }: { found: Hours; who: string | null; choose: (who: string) => void }) {
  const groups = found.groups ?? [];
  const chosen = groups.find((one) => one.name === who) ?? groups[0]!;
  const others = found.others && { ...found.others, name: `${found.combined} others` };
  const all = others ? [...groups, others] : groups;
  const priced = all.some((one) => one.total.cost !== null && one.total.cost !== undefined);
  const nameless = found.by === "user" ? "unknown user" : "no project";
  return (
    <>
      <div class="wide" tabIndex={0} role="region" aria-label="Device hours">
        <table>
          <thead>
            <tr>
              <th scope="col">{found.by === "user" ? "User" : "Project"}</th>
              {["Jobs", "Allocated, h", "Used, h", "Idle, h", ...(priced ? ["Idle cost"] : [])].map((head) => (
                <th scope="col" class="number" key={head}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one === others ? "\n" : one.name}>
                <th scope="row">
                  {one === others ? (
                    one.name
                  ) : (
                    <button type="button" class="link" aria-pressed={one === chosen} onClick={() => choose(one.name)}>
                      {one.name || nameless}
                    </button>
                  )}
                </th>
                <td class="number">{one.jobs}</td>
                <td class="number">{hours(one.total.allocated)}</td>
                <td class="number">{formatHours(one.total.used)}</td>
                <td class={one.total.idle ? "number wasted" : "number"}>{formatHours(one.total.idle)}</td>
                {priced && <td class="number">{one.total.cost === null || one.total.cost === undefined ? "–" : formatMoney(one.total.cost, found.currency)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Bars found={found} group={chosen} name={chosen.name || nameless} />
    </>
  );
}

const formatHours = (seconds: number | null | undefined): string => (seconds === null || seconds === undefined ? "–" : hours(seconds));

function Bars({ found, group, name }: { found: Hours; group: Group; name: string }) {
  useZone();
  const most = Math.max(...group.buckets.map((one) => one.allocated));
  const unit = UNIT.get(found.every) ?? "week";
  const share = (seconds: number) => ({ height: `${most ? (100 * seconds) / most : 0}%` });
  const unmeasured = (one: Bucket) => Math.max(one.allocated - (one.used ?? 0) - (one.idle ?? 0), 0);
  const said = (one: Bucket) => `${formatTime(one.start)}: ${formatHours(one.idle)} h idle, ${formatHours(one.used)} h used, ${hours(unmeasured(one))} h not measured`;
  const text = `Device hours of ${name} by ${unit}: ${formatHours(group.total.idle)} idle and ${formatHours(group.total.used)} used of ${hours(group.total.allocated)}`;
  return (
    <figure class="stack">
      <figcaption>
        {name} by {unit}, up to {hours(most)} device hours in {group.buckets.length} {pluralize(group.buckets.length, unit)}
      </figcaption>
      <div class="plot" role="img" aria-label={text}>
        {group.buckets.map((one) => (
          <span key={one.start} title={said(one)}>
            <i class="unknown" style={share(unmeasured(one))} />
            <i class="used" style={share(one.used ?? 0)} />
            <i class="idle" style={share(one.idle ?? 0)} />
          </span>
        ))}
      </div>
      <div class="ends">
        <span>{splitTime(found.start).day}</span>
        <span>{splitTime(found.end).day}</span>
      </div>
      <ul class="maplegend">
        <li>
          <i class="idle" /> idle
        </li>
        <li>
          <i class="used" /> used
        </li>
        <li>
          <i class="unknown" /> not measured
        </li>
      </ul>
    </figure>
  );
}
