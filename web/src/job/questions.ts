// First requests of the job page. `first.ts` prefetches them.
import { address } from "../api/client";

export interface JobQuestions {
  record: string;
  names: string;
}

/** Return the URLs of a job's record and of the names of its metrics. */
export const jobQuestions = (job: string, project: string | null): JobQuestions => ({
  record: address("/api/jobmeter/v1/jobs/{job}", { job }, { project, summary: "false" }),
  names: address("/api/jobmeter/v1/jobs/{job}/metrics/names", { job }, { project }),
});
