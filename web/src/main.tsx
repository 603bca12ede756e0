import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Schemas, BASE, Refusal, onSignedOut, read, send } from "./api/client";
import { ComparePage } from "./compare/page";
import { JobPage } from "./job/page";
import { JobList } from "./jobs/list";
import { NodePage } from "./nodes/node";
import { NodesPage } from "./nodes/page";
import { FindingsPage } from "./findings/page";
import { UsePage } from "./fleet/utilization";
import { AdminPage } from "./admin/page";
import { readSetting as readSetting } from "./format";
import { Frame } from "./parts/frame";
import { Notice, Problem } from "./parts/elements";
import { onReturn } from "./api/connection";
import { mergeQuery, go, href, place, usePlace } from "./router";
import { SignIn } from "./signin";

type Who = Schemas["WhoAmI"];

function Page() {
  const [who, setWho] = useState<Who | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const [away, setAway] = useState<Refusal | null>(null);
  const here = usePlace();
  const opening = here.path[0] === "open";
  useEffect(() => {
    // A link opened in a tab that already shows the page changes only the hash.
    if (opening) void startSession(setWho, setReason, setAway);
  }, [opening]);
  useEffect(() => {
    if (!opening) void startSession(setWho, setReason, setAway);
    return onSignedOut(() =>
      setWho((last) => {
        setReason((before) => (last ? endReason(last) : (before ?? "")));
        return null;
      }),
    );
  }, []);
  const reload = () => void startSession(setWho, setReason, setAway);
  useEffect(() => (away && !who ? onReturn(reload) : undefined), [away, who]);
  if (who) {
    return (
      <Frame who={who} place={here} leave={() => void endSession(() => setWho(null), () => setReason(""))}>
        {renderView(here.path, here.query, who)}
      </Frame>
    );
  }
  if (reason === null) return away && <main>{<Problem error={away} reload={reload} />}</main>;
  return <SignIn key={reason} reason={reason} entered={setWho} />;
}

const endReason = (who: Who): string =>
  who.job ? "The link to this job is no longer valid. Ask its sender for a new one." : "Your session has ended. Sign in again to continue here.";

function renderView(path: string[], query: URLSearchParams, who: Who) {
  const [first, second] = path;
  if (first === "open") return null;
  if (who.job) {
    // A shared link gives access to one job, whatever the address says.
    const own = mergeQuery(query, { project: who.project });
    return <JobPage key={who.job} id={who.job} query={own} guest />;
  }
  if (first === undefined || (first === "jobs" && second === undefined)) return <JobList query={query} />;
  if (first === "jobs" && second !== undefined) return <JobPage key={`${second} ${query.get("project")}`} id={second} query={query} writer={who.role !== "reader"} />;
  if (first === "findings") return <FindingsPage query={query} />;
  if (first === "compare") return <ComparePage query={query} />;
  if (first === "nodes" && second !== undefined) return <NodePage key={`${second} ${query.get("cluster")}`} name={second} query={query} />;
  if (first === "nodes") return <NodesPage query={query} />;
  if (first === "use") return <UsePage query={query} />;
  if (first === "admin") return <AdminPage part={second ?? ""} who={who} query={query} />;
  return (
    <Notice title="There is nothing at this address.">
      <a href="#/">All jobs</a>
    </Notice>
  );
}

/** Sign in with the code in the address, if any, then load the session. */
async function startSession(setWho: (who: Who) => void, setReason: (reason: string) => void, setAway: (error: Refusal | null) => void): Promise<void> {
  const here = place();
  let problem = "";
  if (here.path[0] === "open") {
    const [code, link] = [here.query.get("code") ?? "", here.query.get("link")];
    const job = here.query.get("job");
    const project = here.query.get("project");
    // Remove the code from the address first, so that it does not stay in the history.
    go(job ? href(["jobs", job], project ? { project } : undefined) : "#/", true);
    try {
      // A viewer with a session of their own keeps it and sees the job with its permissions.
      const own = link ? await read<Who>(`${BASE}/whoami`).catch(() => null) : null;
      if (!own || own.job) await send("POST", `${BASE}/session`, undefined, link ? `Bearer ${link}` : `Link ${code}`);
    } catch (error) {
      if (error instanceof Refusal) problem = error.message;
    }
  }
  try {
    setWho(await read<Who>(`${BASE}/whoami`));
    setAway(null);
  } catch (error) {
    if (error instanceof Refusal && error.status === 0) return setAway(error);
    setReason(problem || (error instanceof Refusal && error.status !== 401 ? error.message : ""));
  }
}

async function endSession(left: () => void, done: () => void): Promise<void> {
  await send("DELETE", `${BASE}/session`).catch(() => null);
  done();
  left();
}

const theme = readSetting("jobmeter-theme");
if (theme) document.documentElement.dataset["theme"] = theme;
render(<Page />, document.getElementById("page")!);
