// First requests of the job page. `entry.ts` prefetches them.
import { address } from "../api/client";

export interface JobUrls {
  record: string;
  names: string;
}

/** Return the URLs of a job's record and of the names of its metrics. */
export const jobUrls = (job: string, project: string | null): JobUrls => ({
  record: address("/api/jobmeter/v1/jobs/{job}", { job }, { project, summary: "false" }),
  names: address("/api/jobmeter/v1/jobs/{job}/metrics/names", { job }, { project }),
});
