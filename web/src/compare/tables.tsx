import { palette } from "../charts/colors";
import { FEW } from "../charts/series";
import { MISSING, duration, quantity } from "../format";
import { Moment, Section, State } from "../parts/small";
import { named } from "../parts/titles";
import { href } from "../router";
import { type Compared, labels } from "./data";

/** The jobs with their colours; the first is what the others are measured against. */
export function Jobs({ jobs, dark, without }: { jobs: readonly Compared[]; dark: boolean; without: (id: string) => void }) {
  const called = labels(jobs);
  const colors = palette(dark);
  const first = jobs[0]?.summary.duration_ms ?? null;
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="The jobs">
      <table class="compared">
        <thead>
          <tr>
            {["Job", "State", "User", "Started"].map((head) => (
              <th scope="col" key={head}>
                {head}
              </th>
            ))}
            <th scope="col" class="number">
              Duration
            </th>
            <th scope="col" class="number">
              Replicas
            </th>
            <th scope="col" class="number">
              Devices
            </th>
            <th scope="col">
              <span class="hidden">Leave out</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map(({ job, summary }, at) => (
            <tr key={`${job.project}/${job.id}`}>
              <th scope="row">
                {jobs.length <= FEW && <i class="swatch" style={{ background: colors[at % colors.length]! }} />}
                <a href={href(["jobs", job.id], job.project === "default" ? {} : { project: job.project })} title={job.id}>
                  {called[at]}
                </a>
              </th>
              <td>
                <State state={job.state} />
              </td>
              <td>{job.user}</td>
              <td>
                <Moment ms={job.start ?? job.first_sample} />
              </td>
              <td class="number">
                {duration(summary.duration_ms)} <Difference value={summary.duration_ms} from={at ? first : null} />
              </td>
              <td class="number">{summary.replicas}</td>
              <td class="number">{summary.devices}</td>
              <td>
                {jobs.length > 2 && (
                  <button type="button" onClick={() => without(job.id)} aria-label={`Leave ${called[at]} out`}>
                    ×
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Mean and peak of each metric and job, and how far from the first job's. */
export function Figures({ jobs, metrics }: { jobs: readonly Compared[]; metrics: readonly string[] }) {
  const called = labels(jobs);
  const found = jobs.map(({ summary }) => new Map(summary.metrics.map((one) => [one.metric, one])));
  const shown = metrics.filter((metric) => found.some((one) => one.has(metric)));
  if (!shown.length) return null;
  return (
    <Section id="figures" title="Mean and peak over the life of each job">
      <div class="wide" tabIndex={0} role="region" aria-label="Mean and peak">
        <table class="compared">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              {called.map((name) => (
                <th scope="col" class="number" key={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((metric) => (
              <tr key={metric}>
                <th scope="row">{named(metric)}</th>
                {found.map((one, at) => {
                  const mine = one.get(metric);
                  return (
                    <td class="number" key={called[at]}>
                      {mine ? (
                        <>
                          {quantity(mine.job_mean, mine.unit)} <span class="hint">peak {quantity(mine.job_max, mine.unit)}</span>{" "}
                          <Difference value={mine.job_mean} from={at ? (found[0]!.get(metric)?.job_mean ?? null) : null} />
                        </>
                      ) : (
                        MISSING
                      )}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function Difference({ value, from }: { value: number | null; from: number | null }) {
  if (value === null || !from) return null;
  if (value / from >= 10) return <span class="difference">{Math.round(value / from)} times</span>;
  const share = Math.round((value / from - 1) * 100);
  if (!share) return null;
  return (
    <span class="difference">
      {share > 0 ? "+" : "−"}
      {Math.abs(share)} %
    </span>
  );
}
