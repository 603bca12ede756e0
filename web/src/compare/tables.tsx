import type { Schemas } from "../api/client";
import { palette } from "../charts/colors";
import { FEW } from "../charts/series";
import { MISSING, formatDuration, formatQuantity } from "../format";
import { ruleTitle, title, titleWithDevice } from "../catalog";
import { formatChange } from "../job/differences";
import { Moment, Section, Sentence, Severity, State } from "../parts/elements";
import { jobHref } from "../router";
import { type Compared, type Per, type Setting, jobLabels } from "./data";

/** Table of the jobs and their colours. Differences are to the first one. */
export function Jobs({ jobs, dark, without }: { jobs: readonly Compared[]; dark: boolean; without: (id: string) => void }) {
  const names = jobLabels(jobs);
  const colors = palette(dark);
  const first = jobs[0]?.summary.duration_ms ?? null;
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="The jobs">
      <table class="compared">
        <thead>
          <tr>
            {["Job", "State", "Findings", "User", "Started"].map((head) => (
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
              <span class="hidden">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map(({ job, summary, findings }, at) => (
            <tr key={`${job.project}/${job.id}`}>
              <th scope="row">
                {jobs.length <= FEW && <i class="swatch" style={{ background: colors[at % colors.length]! }} />}
                <a href={jobHref(job)} title={job.id}>
                  {names[at]}
                </a>
              </th>
              <td>
                <State state={job.state} />
              </td>
              <td>
                <Found findings={findings} />
              </td>
              <td>{job.user}</td>
              <td>
                <Moment ms={job.start ?? job.first_sample} />
              </td>
              <td class="number">
                {formatDuration(summary.duration_ms)} <Difference value={summary.duration_ms} from={at ? first : null} unit="s" />
              </td>
              <td class="number">{summary.replicas}</td>
              <td class="number">{summary.devices}</td>
              <td>
                {jobs.length > 2 && (
                  <button type="button" onClick={() => without(job.id)} aria-label={`Remove ${names[at]}`}>
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

/** Worst finding of a job, and the number of others. */
function Found({ findings }: { findings: Compared["findings"] }) {
  if (!findings) return <span class="none">none</span>;
  return (
    <Severity severity={findings.severity} title={findings.rules.map(ruleTitle).join("\n")}>
      <Sentence text={findings.sentence || ruleTitle(findings.rules[0] ?? "")} />
      {findings.count > 1 && <small class="hint"> and {findings.count - 1} more</small>}
    </Severity>
  );
}

/** Return the title of a setting. Limits have a title in the catalogue; other settings have readable names. */
const settingTitle = (setting: string): string => (setting.endsWith(".limit") ? title(setting).replace(/^[A-Z](?=[a-z])/, (first) => first.toLowerCase()) : setting);

/** Settings that differ, a column for each job. Equal settings are named below. */
export function Settings({ jobs, settings }: { jobs: readonly Compared[]; settings: readonly Setting[] }) {
  const differ = settings.filter((one) => !one.equal);
  const equal = settings.filter((one) => one.equal).map((one) => settingTitle(one.name));
  return (
    <Section id="settings" title="Settings that differ">
      {!differ.length && <p class="hint">No differences: command, type, user, labels and limits are equal.</p>}
      {differ.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Settings that differ">
          <table class="compared settings">
            <thead>
              <tr>
                <th scope="col">Setting</th>
                {jobLabels(jobs).map((name) => (
                  <th scope="col" key={name}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {differ.map(({ name, texts }) => (
                <tr key={name}>
                  <th scope="row">{settingTitle(name)}</th>
                  {texts.map((text, at) => (
                    <td key={at}>{text ? name === "command" ? <code>{text}</code> : text : MISSING}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {equal.length > 0 && <p class="hint">Equal in all jobs: {equal.join(", ")}.</p>}
    </Section>
  );
}

/** Mean and peak of each metric for each job or device, with the difference to the first job. */
export function Figures({ jobs, metrics, per }: { jobs: readonly Compared[]; metrics: readonly string[]; per: Per }) {
  const meanOf = (one: Schemas["MetricSummary"]) => (per === "job" ? one.job_mean : one.mean);
  const peakOf = (one: Schemas["MetricSummary"]) => (per === "job" ? one.job_max : one.max);
  const names = jobLabels(jobs);
  const found = jobs.map(({ summary }) => new Map(summary.metrics.map((one) => [one.metric, one])));
  const firstOf = (metric: string) => {
    const first = found[0]?.get(metric);
    return first ? meanOf(first) : null;
  };
  const shown = metrics.filter((metric) => found.some((one) => one.has(metric)));
  if (!shown.length) return null;
  return (
    <Section id="figures" title={per === "job" ? "Mean and peak over the life of each job" : "Mean and peak of one device or replica, over the life of each job"}>
      <div class="wide" tabIndex={0} role="region" aria-label="Mean and peak">
        <table class="compared">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              {names.map((name) => (
                <th scope="col" class="number" key={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((metric) => (
              <tr key={metric}>
                <th scope="row">{titleWithDevice(metric)}</th>
                {found.map((one, at) => {
                  const mine = one.get(metric);
                  return (
                    <td class="number" key={names[at]}>
                      {mine ? (
                        <>
                          {formatQuantity(meanOf(mine), mine.unit)} <span class="hint">peak {formatQuantity(peakOf(mine), mine.unit)}</span>{" "}
                          <Difference value={meanOf(mine)} from={at ? firstOf(metric) : null} unit={mine.unit} />
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

function Difference({ value, from, unit }: { value: number | null; from: number | null; unit: string }) {
  const text = formatChange(from, value, unit);
  return text ? <span class="difference">{text}</span> : null;
}
