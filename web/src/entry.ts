// Entry point. It sends the first requests of the view at this address while the rest of the page loads.
import { BASE, prefetch } from "./api/client";
import { jobUrls } from "./job/requests";
import { place } from "./router";
import "./theme.css";
import "./fleet.css";
import "uplot/dist/uPlot.min.css";

const { path, query } = place();
const [first, job] = path;
if (first !== "open") {
  prefetch(`${BASE}/whoami`);
  if (first === "jobs" && job) Object.values(jobUrls(job, query.get("project"))).forEach(prefetch);
}
void import("./main");
