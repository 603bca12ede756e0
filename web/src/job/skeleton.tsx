// Placeholder of the job page while it loads.
import { rowHeight } from "../charts/heatmap";

const CHARTS = 3;

const Bar = ({ width, height = 14 }: { width: string; height?: number }) => <span class="bar skeleton" style={{ width, height: `${height}px` }} />;

export function JobSkeleton() {
  return (
    <div class="job-skeleton" role="status" aria-label="Loading the job">
      <Bar width="240px" height={26} />
      <Bar width="min(100%, 760px)" height={34} />
      <Bar width="min(100%, 560px)" />
      <div class="grid">
        {Array.from({ length: CHARTS }, (_, at) => (
          <Bar key={at} width="100%" height={170} />
        ))}
      </div>
    </div>
  );
}

/** Placeholder with the height of the heat map. */
export const RanksSkeleton = ({ ranks }: { ranks: number }) => (
  <section aria-hidden="true">
    <header class="section">
      <h2>{ranks} ranks over time</h2>
    </header>
    <Bar width="100%" height={rowHeight(ranks) * ranks + 46} />
  </section>
);
