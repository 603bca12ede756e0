// Entry point. It sends the first requests of the view at this address while the rest of the page loads.
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
