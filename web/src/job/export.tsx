import { useState } from "preact/hooks";
import { type Job, address } from "../api/client";
import type { Range } from "../charts/axis";
import { stepText } from "../charts/steps";
import { ink } from "../charts/colors";
import { iso } from "../format";

/** What is seen, taken along: a picture, a table, or the command that asks for the same. */
export function Export(given: { job: Job; metrics: readonly string[]; by: string; range: Range; step: number }) {
  const { job, metrics, by, range, step } = given;
  const [copied, setCopied] = useState(false);
  const query = { metric: metrics.slice(0, 90), by, start: iso(Math.floor(range.start)), end: iso(Math.ceil(range.end)), step: stepText(step), project: job.project };
  const path = "/api/jobmeter/v1/jobs/{job}/metrics";
  const csv = address(path, { job: job.id }, { ...query, format: "csv" });
  const curl = `curl -H "Authorization: Bearer $JOBMETER_KEY" \\\n  '${location.origin}${address(path, { job: job.id }, query)}'`;
  const copy = async () => {
    await navigator.clipboard.writeText(curl).catch(() => null);
    setCopied(true);
  };
  return (
    <div class="export">
      <a href={csv} download={`${job.id}.csv`} class="button">
        CSV of all charts
      </a>
      <button type="button" onClick={() => picture(job)}>
        PNG of all charts
      </button>
      <button type="button" onClick={() => void copy()}>
        {copied ? "Copied" : "Copy curl"}
      </button>
      <pre tabIndex={0} aria-label="The command for exactly this view">{curl}</pre>
    </div>
  );
}

/** Every chart that is shown, one below the other, as one picture. */
function picture(job: Job): void {
  const charts = [...document.querySelectorAll<HTMLElement>("figure.chart, .heat .cells")].flatMap((element) => {
    const canvas = element.querySelector("canvas");
    const title = element.querySelector(".title")?.textContent ?? "Ranks over time";
    return canvas && canvas.width ? [{ canvas, title }] : [];
  });
  if (!charts.length) return;
  const ratio = devicePixelRatio || 1;
  const width = Math.max(...charts.map(({ canvas }) => canvas.width));
  const head = 24 * ratio;
  const sheet = document.createElement("canvas");
  sheet.width = width;
  sheet.height = charts.reduce((sum, { canvas }) => sum + canvas.height + head, 2 * head);
  const context = sheet.getContext("2d")!;
  context.fillStyle = ink("--ground");
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.fillStyle = ink("--ink");
  context.font = `600 ${15 * ratio}px ${ink("--font")}`;
  context.fillText(`${job.name || job.id}  ${job.id}`, 8 * ratio, head);
  context.font = `${12 * ratio}px ${ink("--font")}`;
  let top = 1.6 * head;
  for (const { canvas, title } of charts) {
    context.fillText(title, 8 * ratio, top + 15 * ratio);
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
