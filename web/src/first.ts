// What runs first: it asks what the page at this address shows before anything else, while the rest is being loaded.
import { BASE, begin } from "./api/client";
import { jobQuestions } from "./job/questions";
import { place } from "./router";
import "./theme.css";
import "./fleet.css";
import "uplot/dist/uPlot.min.css";

const { path, query } = place();
const [first, job] = path;
if (first !== "open") {
  begin(`${BASE}/whoami`);
  if (first === "jobs" && job) Object.values(jobQuestions(job, query.get("project"))).forEach(begin);
}
void import("./main");
