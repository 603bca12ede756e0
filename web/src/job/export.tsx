import { useState } from "preact/hooks";
import { type Job, type Schemas, address } from "../api/client";
import type { Range } from "../charts/axis";
import { stepText } from "../charts/steps";
import { fontFamily, themeColor } from "../charts/colors";
import { title } from "../catalog";
import { toIso, quoteForShell } from "../format";
import { drawAll, useRead } from "../parts/hooks";
import { CopyButton, Problem } from "../parts/elements";

interface Given {
  job: Job;
  metrics: readonly string[];
  by: string;
  range: Range;
  step: number;
  chosen: string | null;
  zoomed: boolean;
}

/** Export what the page shows: a picture, a table, or the command for the same data. */
export function Export(given: Given) {
  const { job, metrics, by, range, step } = given;
  const [metric, setMetric] = useState(metrics[0] ?? "");
  // Live updates move the range, but a command must stay as it was when the dialog was opened.
  const [opened] = useState(range);
  const span = given.zoomed ? range : opened;
  const query = { metric: metrics.slice(0, 90), by, start: toIso(Math.floor(span.start)), end: toIso(Math.ceil(span.end)), step: stepText(step), project: job.project };
  const path = "/api/jobmeter/v1/jobs/{job}/metrics";
  const csv = address(path, { job: job.id }, { ...query, format: "csv" });
  const own = { method: "GET", path: address(path, { job: job.id }, query), header: "Authorization: Bearer $JOBMETER_KEY", body: "" };
  const parameters = { metric, start: Math.floor(span.start), end: Math.ceil(span.end), step: Math.max(step / 1000, 1), replica: given.chosen, project: job.project };
  const response = useRead<Schemas["CallList"]>(metric ? address("/api/jobmeter/v1/jobs/{job}/calls", { job: job.id }, parameters) : null);
  return (
    <div class="export">
      <div class="line">
        <a href={csv} download={`${job.id}.csv`} class="button">
          CSV of all charts
        </a>
        <button type="button" onClick={() => void drawAll().then(() => savePicture(job))}>
          PNG of all charts
        </button>
        <span class="hint">
          The commands below read your key from the environment variable <code>JOBMETER_KEY</code>.
        </span>
      </div>
      <dl>
        <Command api="Jobmeter" operation="all charts" call={own} note="" />
        <dt class="line">
          <label>
            Other APIs, metric
            <select aria-label="Metric of the commands" value={metric} onChange={(event) => setMetric(event.currentTarget.value)}>
              {metrics.map((name) => (
                <option key={name} value={name}>
                  {title(name)} ({name})
                </option>
              ))}
            </select>
          </label>
          {response.data?.calls.length === 0 && <small>No other API has this metric.</small>}
        </dt>
        {response.data?.calls.map((one) => (
          <Command key={one.operation} api={one.api.split(",")[0] ?? one.api} operation={one.operation} call={one} note={one.note} />
        ))}
      </dl>
      {response.error && <Problem error={response.error} reload={response.reload} />}
    </div>
  );
}

interface Call {
  method: string;
  path: string;
  header: string;
  body: string;
}

/** Return the curl command. Only the header is in double quotes, so that the shell inserts the key. */
function curlOf(call: Call): string {
  const parts = [`curl -H "${call.header}"`];
  if (call.method !== "GET") parts.push(`-X ${call.method}`);
  if (call.body) parts.push(`-H 'Content-Type: application/json' -d ${quoteForShell(call.body)}`);
  return [...parts, quoteForShell(`${location.origin}${call.path}`)].join(" \\\n  ");
}

function Command({ api, operation, call, note }: { api: string; operation: string; call: Call; note: string }) {
  const command = curlOf(call);
  return (
    <>
      <dt>
        <b>{api}</b> {operation} <small>{note}</small>
        <CopyButton text={command} word="Copy curl" name={`${api}, ${operation}`} />
      </dt>
      <dd>
        <pre tabIndex={0} aria-label={`Command of ${api} for this view`}>{command}</pre>
      </dd>
    </>
  );
}

/** Save all visible charts as one picture. */
function savePicture(job: Job): void {
  const charts = [...document.querySelectorAll<HTMLElement>("figure.chart, .heat .cells")].flatMap((element) => {
    const canvas = element.querySelector("canvas");
    const name = element.querySelector(".title")?.textContent ?? "Ranks over time";
    return canvas && canvas.width ? [{ canvas, name }] : [];
  });
  if (!charts.length) return;
  const ratio = devicePixelRatio || 1;
  const width = Math.max(...charts.map(({ canvas }) => canvas.width));
  const head = 24 * ratio;
  const sheet = document.createElement("canvas");
  sheet.width = width;
  sheet.height = charts.reduce((sum, { canvas }) => sum + canvas.height + head, 2 * head);
  const context = sheet.getContext("2d")!;
  context.fillStyle = themeColor("--ground");
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.fillStyle = themeColor("--ink");
  context.font = `600 ${15 * ratio}px ${fontFamily()}`;
  context.fillText(`${job.name || job.id}  ${job.id}`, 8 * ratio, head);
  context.font = `${12 * ratio}px ${fontFamily()}`;
  let top = 1.6 * head;
  for (const { canvas, name } of charts) {
    context.fillText(name, 8 * ratio, top + 15 * ratio);
    context.drawImage(canvas, 0, top + head);
    top += canvas.height + head;
  }
  sheet.toBlob((blob) => {
    if (!blob) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${job.id}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}
